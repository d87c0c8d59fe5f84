"""Partitioners, which divide a graph into balanced clusters with few edges between them: METIS, KaMinPar, propagation.

METIS keeps several copies of the graph. Propagation does without. Each node first joins the small cluster (piece) of
most of its neighbours, up to a size (Meyerhenke, Sanders and Schulz, 2014). That reads the arcs once per pass, also
from a memory map, with a few numbers per node. METIS then divides the graph of the pieces. Each piece keeps only its
heaviest edges, so that all together are a few per node of the whole graph.
"""

from __future__ import annotations

import heapq
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.checks import seed_within
from ..data.graph import Graph
from ..errors import ConfigError, GraphError

HEAVIEST_EDGE = 1000  # METIS takes whole numbers as weights: the heaviest edge of a graph gets this one
PASSES = 8  # of label propagation over all nodes, at most
LEAST_EDGES = 16  # kept of each piece; more if there are fewer pieces than nodes
SLACK = 1.03  # largest size of a cluster relative to the mean, as in METIS's k-way scheme
# Pieces per cluster, at least. In a probe that was not kept, 8 left clusters up to 8 % too large on Computer, and 128
# changed little. results/partitioners.json has the numbers for 32.
PIECES = 32
# METIS takes whole numbers as weights: the heaviest edge gets this one.
LARGEST_WEIGHT = 1e6
# From so many arcs on KaMinPar uses all threads it is given. One thread took 7.4 s for 37 million arcs, sixteen 0.9 s.
SEVERAL_THREADS_FROM = 1 << 25
_ARCS_AT_ONCE = 1 << 24  # written to the file that KaMinPar reads
_LARGEST_METIS_SEED, _LARGEST_KAMINPAR_SEED = 2**63 - 1, 2**31 - 1
_NO_NODE_WEIGHTS, _NO_EDGE_WEIGHTS = 2, 1  # bits of the first number of that file


def cut_by_metis(graph: Graph, count: int, seed: int = 0, *, recursive: bool = False) -> NDArray[np.int32]:
    """Divide the nodes into `count` clusters by METIS, which ignores direction; its memory grows with the arcs."""
    import pymetis

    indptr, indices, weights = _symmetric(graph)
    csr = pymetis.CSRAdjacency(indptr.astype(np.int64), indices.astype(np.int64))
    return _call_metis(count, csr, seed, eweights=weights, recursive=recursive)


def _symmetric(graph: Graph) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64] | None]:
    """Return indptr, indices and whole weights of the graph without directions; None if all edges weigh the same.

    METIS aborts the interpreter on an asymmetric matrix.
    """
    if graph.weights is None and not graph.directed:
        return np.asarray(graph.indptr), np.asarray(graph.indices), None
    adjacency = graph.to_scipy()
    if graph.directed:
        adjacency = adjacency.maximum(adjacency.T).tocsr()
    weights = None
    if graph.weights is not None:
        weights = np.maximum(1, np.rint(HEAVIEST_EDGE * adjacency.data / adjacency.data.max())).astype(np.int64)
    return adjacency.indptr, adjacency.indices, weights


def is_repeatable(graph: Graph, partitioner: str) -> bool:
    """Return whether a partitioner finds the same clusters each time, whatever the number of threads.

    With several threads KaMinPar finds other clusters every time, of the same quality (docs/log.md).
    """
    return partitioner != "kaminpar" or graph.num_arcs < SEVERAL_THREADS_FROM


def cut_by_kaminpar(graph: Graph, count: int, seed: int = 0, *, threads: int = 1) -> NDArray[np.int32]:
    """Divide the nodes into `count` clusters by KaMinPar, which ignores direction; its memory grows with the arcs.

    Parameters
    ----------
    threads
        Only large graphs use more than one, see `is_repeatable`.
    """
    try:
        import kaminpar
    except ImportError as error:
        raise ConfigError(
            "tokens.partitioner is 'kaminpar' but it is not installed: pip install kaminpar, or use metis"
        ) from error

    kaminpar.reseed(seed_within(seed, _LARGEST_KAMINPAR_SEED))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.parhip"
        _write_parhip(file, *_symmetric(graph))
        loaded = kaminpar.load_graph(str(file), kaminpar.GraphFileFormat.PARHIP, compress=False)
    used = 1 if is_repeatable(graph, "kaminpar") else threads
    program = kaminpar.KaMinPar(used, kaminpar.context_by_name("fast"))
    return np.array(program.compute_partition(loaded, k=count, eps=SLACK - 1), dtype=np.int32)


def _write_parhip(file: Path, indptr: NDArray[Any], indices: NDArray[Any], weights: NDArray[np.int64] | None) -> None:
    """Write a graph in the binary format of ParHIP: three numbers, the place of each row in the file, arcs, weights."""
    nodes, arcs = len(indptr) - 1, len(indices)
    first = 8 * (3 + nodes + 1)
    version = _NO_NODE_WEIGHTS | (_NO_EDGE_WEIGHTS if weights is None else 0)
    with file.open("wb") as handle:
        np.array([version, nodes, arcs], dtype=np.uint64).tofile(handle)
        (np.asarray(indptr).astype(np.uint64) * 8 + first).tofile(handle)
        for values in (indices,) if weights is None else (indices, weights):
            for start in range(0, arcs, _ARCS_AT_ONCE):
                values[start : start + _ARCS_AT_ONCE].astype(np.uint64).tofile(handle)


def _call_metis(count: int, adjacency: Any, seed: int, **how: Any) -> NDArray[np.int32]:
    """Return the clusters of METIS. It catches SIGTERM, as its own errors too, and all come back as a RuntimeError."""
    import pymetis

    seed = seed_within(int(seed) + 1, _LARGEST_METIS_SEED)  # METIS treats 0 and 1 alike
    options = pymetis.Options(seed=seed)
    try:
        _, clusters = pymetis.part_graph(count, adjacency=adjacency, options=options, **how)
    except (RuntimeError, MemoryError) as error:
        raise GraphError(
            f"METIS was ended by a signal or lacked memory ({error}): the same command continues; "
            f"tokens.partitioner=propagation needs less memory"
        ) from error
    return np.asarray(clusters, dtype=np.int32)


def cut_by_propagation(graph: Graph, count: int, seed: int = 0) -> NDArray[np.int32]:
    """Divide the nodes into `count` clusters by label propagation and METIS; memory grows with the nodes.

    In a directed graph label propagation follows arcs forward, and METIS ignores direction.
    """
    from .kernels.propagation import contract, join_neighbours
    from .kernels.scans import arc_weights

    indptr, indices, weights = np.asarray(graph.indptr), np.asarray(graph.indices), arc_weights(graph)
    largest = max(1, graph.num_nodes // (PIECES * count))
    alone = np.arange(graph.num_nodes, dtype=np.int32)
    labels = join_neighbours(indptr, indices, weights, alone, largest, PASSES)
    _, piece, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    piece = piece.astype(np.int32)
    members = np.argsort(piece, kind="stable").astype(np.int32)
    most_edges = max(LEAST_EDGES, graph.num_nodes // len(sizes))
    starts, others, between = contract(indptr, indices, weights, piece, members, len(sizes), most_edges)
    clusters = divide(starts, others, between, sizes, count, seed)[piece]
    # METIS put each piece into one cluster as a whole. Now single nodes may move to the cluster of their neighbours.
    most = max(int(SLACK * graph.num_nodes / count), int(np.bincount(clusters).max()))
    refined: NDArray[np.int32] = join_neighbours(indptr, indices, weights, clusters, most, PASSES)
    return refined


def divide(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    weights: NDArray[np.float64],
    sizes: NDArray[np.int64],
    count: int,
    seed: int,
) -> NDArray[np.int32]:
    """Divide a small weighted graph, whose nodes stand for `sizes` nodes each, into `count` clusters by METIS."""
    import pymetis
    import scipy.sparse as sp

    pieces = len(sizes)
    if count >= pieces:
        return np.arange(pieces, dtype=np.int32)
    if not len(indices):  # METIS has nothing to cut
        return deal(sizes, count)
    matrix = sp.csr_matrix((weights, indices, indptr), shape=(pieces, pieces))
    matrix = matrix + matrix.T  # METIS aborts the interpreter on an asymmetric matrix
    whole = np.maximum(1, np.rint(matrix.data * (LARGEST_WEIGHT / matrix.data.max()))).astype(np.int64)
    csr = pymetis.CSRAdjacency(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64))
    return _call_metis(count, csr, seed, eweights=whole, vweights=sizes)


def deal(sizes: NDArray[np.int64], count: int) -> NDArray[np.int32]:
    """Put pieces into `count` groups of similar size: the largest piece first, each into the smallest group.

    >>> deal(np.array([1, 5, 3, 3]), 2).tolist()
    [0, 0, 1, 1]
    """
    filled_groups = [(0, group) for group in range(count)]
    groups = np.empty(len(sizes), dtype=np.int32)
    for piece in np.argsort(-sizes, kind="stable"):
        filled, group = heapq.heappop(filled_groups)
        groups[piece] = group
        heapq.heappush(filled_groups, (filled + int(sizes[piece]), group))
    return groups
