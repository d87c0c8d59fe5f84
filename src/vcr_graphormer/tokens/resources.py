"""Memory and disk that token lists need, from the sizes alone: too little of either is said before the work starts."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
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
from .kinds import Kind, kinds_of

# Bytes, measured on generated graphs of 0.6 to 62 million edges (results/scale.json, docs/large-graphs.md).
HOPS_PER_NODE = 16
HOPS_PER_ARC = 8  # where features are sparse
SAMPLED_ROWS = 512  # of the first hop, to estimate how dense it is


def needed_memory(graph: Graph, config: TokenConfig, threads: int, kinds: Sequence[Kind] = ()) -> dict[str, int]:
    """Return the bytes by stage, about, that are needed beyond the graph, whose own files can be read again."""
    needed: dict[str, int] = {}
    for kind in (*kinds_of(config), *kinds):
        if kind.count(config):
            needed |= kind.ranker().memory(graph, threads, config.partitioner)
    if config.hops:
        blocks = 3 * 4 * min(ENTRIES_AT_ONCE, graph.num_nodes * graph.num_features)
        needed["hop features"] = HOPS_PER_NODE * graph.num_nodes + blocks
        if sp.issparse(graph.features):  # joined in memory
            needed["hop features"] += HOPS_PER_ARC * graph.num_arcs + 2 * _hop_bytes(graph)
    return needed


def needed_disk(graph: Graph, config: TokenConfig, by_path: bool = False, kinds: Sequence[Kind] = ()) -> int:
    """Return the bytes of the finished store and of the parts that are kept until it is finished; at least.

    Hops of sparse features are counted as large as the first one, by a sample of its rows: they only grow. `by_path`:
    what was prepared for the rankings is saved for workers, and the edges of a graph that lies in memory.
    """
    nodes = graph.num_nodes
    entry = 4 + np.dtype(config.score_type).itemsize
    used = [kind for kind in (*kinds_of(config), *kinds) if kind.count(config)]
    tokens = sum(kind.count(config) for kind in used)
    shared = sum(kind.ranker().saved_bytes(graph) for kind in used)
    shared += 0 if graph.folder is not None else 4 * graph.num_arcs + 8 * nodes
    return nodes * (entry + 8) * tokens + 8 * nodes + config.hops * _hop_bytes(graph) + (shared if by_path else 0)


def _hop_bytes(graph: Graph) -> int:
    features: Any = graph.features
    if features is None:
        return 0
    dense = 4 * graph.num_nodes * graph.num_features
    if not sp.issparse(features):
        return dense
    sample = np.unique(np.linspace(0, graph.num_nodes - 1, SAMPLED_ROWS).astype(np.int64))
    around = [np.asarray(graph.indices[graph.indptr[u] : graph.indptr[u + 1]]) for u in sample]
    ptr = np.concatenate([[0], np.cumsum([len(part) for part in around])])
    step = sp.csr_matrix(
        (np.ones(int(ptr[-1]), dtype=np.float32), np.concatenate(around), ptr), shape=(len(sample), graph.num_nodes)
    )
    return int(min(dense, 8 * (step @ features).nnz / len(sample) * graph.num_nodes))


def check_resources(
    graph: Graph,
    config: TokenConfig,
    *,
    threads: int,
    folder: Path,
    by_path: bool = False,
    kinds: Sequence[Kind] = (),
) -> None:
    """Refuse work that cannot end on this machine, with the numbers."""
    memory, free = needed_memory(graph, config, threads, kinds), available_memory()
    stage = max(memory, key=lambda name: memory[name], default="")
    if stage and memory[stage] > free:
        ways = ["a machine with more"]
        if stage == "clusters" and config.partitioner == "metis":
            ways.insert(0, "tokens.partitioner=propagation")
        elif threads > 1 and needed_memory(graph, config, 1, kinds).get(stage, free) < free:
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
    disk, room = needed_disk(graph, config, by_path, kinds) - present, shutil.disk_usage(place).free
    if disk > room:
        raise StoreError(
            f"the token lists of {graph.num_nodes:,} nodes need at least {format_bytes(disk)} in {folder}, "
            f"{format_bytes(room)} are free there: choose another folder, fewer hops or fewer tokens"
        )
