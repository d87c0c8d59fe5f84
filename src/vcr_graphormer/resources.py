"""Memory and disk that token lists need, from the sizes alone: too little of either is said before the work starts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from .errors import StoreError
from .graph import Graph
from .hops import ENTRIES_AT_ONCE
from .store import TokenConfig
from .summary import format_bytes

# Measured on generated graphs of 0.6 to 62 million edges (results/scale.json; docs/scaling.md explains them).
METIS_PER_ARC = 60
PARTITION_PER_NODE = 60
VECTORS_PER_NODE = 330
THREAD_PER_NODE = 40
HOPS_PER_NODE = 16
HOPS_PER_ARC = 8  # where features are sparse
BASE = 300 * 2**20  # the interpreter, its libraries and small things


def available_memory() -> int:
    """Bytes of main memory that can be had without swapping, within this process's limits."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
            free = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) * 1024
    except (OSError, StopIteration):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return min(free, _left_in_container(Path("/sys/fs/cgroup")))


def _left_in_container(folder: Path) -> int:
    """The control group's limit less what cannot be reclaimed; very much where there is no limit."""
    try:
        limit = (folder / "memory.max").read_text().strip()
        rows = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return int(limit) - int(rows["anon"])
    except (OSError, KeyError, ValueError):  # no control groups, or "max"
        return 2**62


def needed_memory(graph: Graph, config: TokenConfig, threads: int) -> dict[str, int]:
    """Bytes by stage, about: what lies in memory at once and cannot be read again from the graph's own files."""
    nodes, arcs = graph.num_nodes, graph.num_arcs
    found = {}
    if config.structure_tokens or config.content_tokens:
        by_metis = config.partitioner == "metis"
        found["clusters"] = METIS_PER_ARC * arcs if by_metis else PARTITION_PER_NODE * nodes
        found["rankings"] = (VECTORS_PER_NODE + THREAD_PER_NODE * threads) * nodes
    if config.hops:
        block = min(ENTRIES_AT_ONCE, nodes * graph.num_features) * 4
        per_arc = HOPS_PER_ARC if sp.issparse(graph.features) else 0
        found["hop features"] = per_arc * arcs + HOPS_PER_NODE * nodes + 3 * block
    return {stage: BASE + size for stage, size in found.items()}


def needed_disk(graph: Graph, config: TokenConfig) -> int:
    """Bytes of the finished store and of the parts that are kept until it is finished, about.

    Hops of sparse features are counted as large as the first one, by a sample of its rows: they only grow.
    """
    nodes = graph.num_nodes
    entry = 4 + np.dtype(config.score_type).itemsize
    lists = nodes * entry * (config.structure_tokens + config.content_tokens)
    parts = nodes * 8 * (config.structure_tokens + config.content_tokens)
    return lists + parts + 8 * nodes + config.hops * _hop_bytes(graph)


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


def check_resources(graph: Graph, config: TokenConfig, threads: int, folder: Path) -> None:
    """Refuse work that cannot end on this machine, with the numbers."""
    memory, free = needed_memory(graph, config, threads), available_memory()
    stage = max(memory, key=lambda name: memory[name], default="")
    if stage and memory[stage] > free:
        ways = ["a machine with more"]
        if stage == "clusters" and config.partitioner == "metis":
            ways.insert(0, "tokens.partitioner=propagation")
        elif stage == "rankings" and threads > 1:
            ways.insert(0, "fewer threads")
        raise StoreError(
            f"the {stage} of {graph.num_nodes:,} nodes and {graph.num_arcs:,} arcs need about "
            f"{format_bytes(memory[stage])} of memory, {format_bytes(free)} are free: use {' or '.join(ways)}"
        )
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    # What an interrupted job left is on the disk already.
    present = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) if folder.is_dir() else 0
    disk, room = needed_disk(graph, config) - present, shutil.disk_usage(place).free
    if disk > room:
        raise StoreError(
            f"the token lists of {graph.num_nodes:,} nodes need about {format_bytes(disk)} in {folder}, "
            f"{format_bytes(room)} are free there: choose another folder, fewer hops or fewer tokens"
        )
