"""Memory and disk that token lists need, from the sizes alone: too little of either is said before the work starts."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..base.machine import available_memory, format_bytes
from ..data.graph import Graph
from ..errors import StoreError
from .config import TokenConfig
from .hops import ENTRIES_AT_ONCE

# Measured on generated graphs of 0.6 to 62 million edges (results/scale.json; docs/scaling.md explains them).
METIS_PER_ARC = 85


PARTITION_PER_NODE = 200


VECTORS_PER_NODE = 330


THREAD_PER_NODE = 40


WEIGHTS_PER_ARC = 12


RANKER_PER_NODE = 230


# Read off the code: lengths and two working arrays; order and arcs while they are turned around.
LINKS_PER_NODE = 12


LINKS_PER_ARC = 24  # where arcs have a direction and are turned around


HOPS_PER_NODE = 16


HOPS_PER_ARC = 8  # where features are sparse


def needed_memory(graph: Graph, config: TokenConfig, threads: int) -> dict[str, int]:
    """Bytes by stage, about: what is needed beyond the graph, whose own files can be read again."""
    nodes, arcs = graph.num_nodes, graph.num_arcs
    found = {}
    if config.by_links:
        found["neighbours by links"] = LINKS_PER_NODE * (1 + threads) * nodes
        found["neighbours by links"] += LINKS_PER_ARC * arcs if graph.directed else 0
    if config.structure_tokens or (config.content_tokens and not config.by_links):
        by_metis = config.partitioner == "metis"
        found["clusters"] = METIS_PER_ARC * arcs if by_metis else PARTITION_PER_NODE * nodes
        found["rankings"] = (VECTORS_PER_NODE + THREAD_PER_NODE * threads) * nodes
        found["rankings"] += WEIGHTS_PER_ARC * arcs if graph.weights is not None else 0
    if config.hops:
        found["hop features"] = HOPS_PER_NODE * nodes + 3 * 4 * min(ENTRIES_AT_ONCE, nodes * graph.num_features)
        if sp.issparse(graph.features):  # joined in memory
            found["hop features"] += HOPS_PER_ARC * arcs + 2 * _hop_bytes(graph)
    return found


def needed_disk(graph: Graph, config: TokenConfig, by_path: bool = False) -> int:
    """Bytes of the finished store and of the parts that are kept until it is finished; at least.

    Hops of sparse features are counted as large as the first one, by a sample of its rows: they only grow. `by_path`:
    what was prepared for the rankings is saved for workers, and the edges of a graph that lies in memory.
    """
    nodes = graph.num_nodes
    entry = 4 + np.dtype(config.score_type).itemsize
    tokens = config.structure_tokens + config.content_tokens
    kinds = (config.structure_tokens > 0) + (config.content_tokens > 0 and not config.by_links)
    shared = kinds * RANKER_PER_NODE * nodes
    if config.by_links:  # lengths, and the arcs turned around
        shared += 8 * nodes + (8 * nodes + (4 if graph.weights is None else 8) * graph.num_arcs) * graph.directed
    shared += 0 if graph.folder is not None else 4 * graph.num_arcs + 8 * nodes
    return nodes * (entry + 8) * tokens + 8 * nodes + config.hops * _hop_bytes(graph) + (shared if by_path else 0)


def _hop_bytes(graph: Graph, rows: int = 512) -> int:
    features: Any = graph.features
    if features is None:
        return 0
    dense = 4 * graph.num_nodes * graph.num_features
    if not sp.issparse(features):
        return dense
    sample = np.unique(np.linspace(0, graph.num_nodes - 1, rows).astype(np.int64))
    around = [np.asarray(graph.indices[graph.indptr[u] : graph.indptr[u + 1]]) for u in sample]
    ptr = np.concatenate([[0], np.cumsum([len(part) for part in around])])
    step = sp.csr_matrix(
        (np.ones(int(ptr[-1]), dtype=np.float32), np.concatenate(around), ptr), shape=(len(sample), graph.num_nodes)
    )
    return int(min(dense, 8 * (step @ features).nnz / len(sample) * graph.num_nodes))


def check_resources(graph: Graph, config: TokenConfig, threads: int, folder: Path, by_path: bool = False) -> None:
    """Refuse work that cannot end on this machine, with the numbers."""
    memory, free = needed_memory(graph, config, threads), available_memory()
    stage = max(memory, key=lambda name: memory[name], default="")
    if stage and memory[stage] > free:
        ways = ["a machine with more"]
        if stage == "clusters" and config.partitioner == "metis":
            ways.insert(0, "tokens.partitioner=propagation")
        elif threads > 1 and needed_memory(graph, config, 1).get(stage, free) < free:
            ways.insert(0, "fewer threads")
        raise StoreError(
            f"the {stage} of {graph.num_nodes:,} nodes and {graph.num_arcs:,} arcs need about "
            f"{format_bytes(memory[stage])} of memory, {format_bytes(free)} are free: use {' or '.join(ways)}"
        )
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    # What an interrupted job left is on the disk already.
    present = 0
    for file in (*folder.glob("*.npy"), *(folder / "parts").glob("*.npz")):
        with suppress(OSError):  # another process may be at work there: JobFolder says so
            present += file.stat().st_size
    disk, room = needed_disk(graph, config, by_path) - present, shutil.disk_usage(place).free
    if disk > room:
        raise StoreError(
            f"the token lists of {graph.num_nodes:,} nodes need at least {format_bytes(disk)} in {folder}, "
            f"{format_bytes(room)} are free there: choose another folder, fewer hops or fewer tokens"
        )
