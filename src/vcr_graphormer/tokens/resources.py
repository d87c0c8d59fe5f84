"""Check that token lists fit in memory and on disk before the work starts, from the sizes alone."""

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
from .distinct import places_before
from .hops import DENSE_BYTES, ENTRIES_AT_ONCE, SPARSE_BYTES, sample_rows
from .kinds import Kind, kinds_of
from .store import ALWAYS

# Measured on generated graphs of 0.6 to 62 million edges (results/scale.json, docs/large-graphs.md).
HOP_BYTES_PER_NODE = 16
HOP_BYTES_PER_ARC = 8  # where features are sparse
DENSE_BLOCKS, SPARSE_HOPS = 3, 2  # that one step has in memory at a time
ID_BYTES, OFFSET_BYTES = 4, 8  # int32 ids of nodes, int64 offsets into them


def needed_memory(graph: Graph, config: TokenConfig, threads: int, kinds: Sequence[Kind] = ()) -> dict[str, int]:
    """Return about how many bytes each stage needs beyond the graph, whose own files are only mapped."""
    needed: dict[str, int] = {}
    for kind in (*kinds_of(config), *kinds):
        if kind.count(config):
            needed |= kind.ranker().memory(graph, threads, config.partitioner)
    if config.hops:
        blocks = DENSE_BLOCKS * DENSE_BYTES * min(ENTRIES_AT_ONCE, graph.num_nodes * graph.num_features)
        needed["hop features"] = HOP_BYTES_PER_NODE * graph.num_nodes + blocks
        if sp.issparse(graph.features):  # joined in memory
            needed["hop features"] += HOP_BYTES_PER_ARC * graph.num_arcs + SPARSE_HOPS * _hop_bytes(graph)
    return needed


def needed_disk(graph: Graph, config: TokenConfig, by_path: bool = False, kinds: Sequence[Kind] = ()) -> int:
    """Return at least how many bytes the finished store and the shards take together.

    All hops of sparse features count as large as the first, the smallest one. With `by_path` the rankers are saved for
    workers too, and the edges of a graph that has no folder.
    """
    nodes = graph.num_nodes
    used = [kind for kind in (*kinds_of(config), *kinds) if kind.count(config)]
    counts = {kind.name: kind.count(config) for kind in used}
    score_bytes = np.dtype(config.score_type).itemsize
    places = places_before(counts, config)
    tokens, before = sum(counts.values()), sum(places.values())
    reserved = sum(counts[kind.name] + places[kind.name] for kind in used if kind.reserve and kind.name in places)
    in_store = tokens * (ID_BYTES + score_bytes) + before * score_bytes + reserved * ID_BYTES
    in_shards = (tokens + before) * (ID_BYTES + np.dtype(np.float32).itemsize)
    shared = sum(kind.ranker().saved_bytes(graph) for kind in used)
    shared += 0 if graph.folder is not None else ID_BYTES * graph.num_arcs + OFFSET_BYTES * nodes
    lists = nodes * (in_store + in_shards + len(ALWAYS) * ID_BYTES)  # and the super node of each node
    return lists + config.hops * _hop_bytes(graph, np.dtype(config.hop_type).itemsize) + (shared if by_path else 0)


def _hop_bytes(graph: Graph, dense_bytes: int = DENSE_BYTES) -> int:
    """Return the bytes of the first hop, of sparse features by a sample of its rows."""
    features: Any = graph.features
    if features is None:
        return 0
    dense = dense_bytes * graph.num_nodes * graph.num_features
    if not sp.issparse(features):
        return dense
    sample = sample_rows(graph)
    neighbours = [np.asarray(graph.indices[graph.indptr[u] : graph.indptr[u + 1]]) for u in sample]
    indptr = np.concatenate([[0], np.cumsum([len(ids) for ids in neighbours])])
    ones = np.ones(int(indptr[-1]), dtype=np.float32)
    step = sp.csr_matrix((ones, np.concatenate(neighbours), indptr), shape=(len(sample), graph.num_nodes))
    return int(min(dense, SPARSE_BYTES * (step @ features).nnz / len(sample) * graph.num_nodes))


def check_resources(
    graph: Graph, config: TokenConfig, *, threads: int, folder: Path, by_path: bool = False, kinds: Sequence[Kind] = ()
) -> None:
    """Refuse a job that does not fit in memory or on disk, with the sizes."""
    memory, free = needed_memory(graph, config, threads, kinds), available_memory()
    stage = max(memory, key=lambda name: memory[name], default="")
    if stage and memory[stage] > free:
        ways = ["a machine with more"]
        if stage == "clusters" and config.partitioner != "propagation":
            ways.insert(0, "tokens.partitioner=propagation")
        elif threads > 1 and needed_memory(graph, config, 1, kinds).get(stage, free) < free:
            ways.insert(0, "fewer threads")
        raise StoreError(
            f"the {stage} of {graph.num_nodes:,} nodes and {graph.num_arcs:,} arcs need about "
            f"{format_bytes(memory[stage])} of memory, {format_bytes(free)} are free: use {' or '.join(ways)}"
        )
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    present = 0  # bytes that an interrupted job left on the disk
    for file in (*folder.glob("*.npy"), *(folder / "parts").glob("*.npz")):
        with suppress(OSError):  # another process may work in this folder, which JobFolder will refuse
            present += file.stat().st_size
    disk, room = needed_disk(graph, config, by_path, kinds) - present, shutil.disk_usage(existing).free
    if disk > room:
        raise StoreError(
            f"the token lists of {graph.num_nodes:,} nodes need at least {format_bytes(disk)} in {folder}, "
            f"{format_bytes(room)} are free there: choose another folder, fewer hops or fewer tokens"
        )
