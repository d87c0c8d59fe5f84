"""Balanced clusters of graphs too large for METIS: label propagation shrinks the graph, METIS cuts what is left.

METIS keeps several copies of the graph. Here nodes first join clusters by what most of their
neighbours have joined, up to a size (Meyerhenke, Sanders and Schulz, 2014): that reads the arcs where they lie, in a
memory map if need be, and keeps a few numbers per node. METIS then divides the graph of these small clusters, of whose
edges so few are kept, the heaviest of each cluster, that they are no more than a few per node of the whole graph.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from ..data.graph import Graph
from .kernels.propagation import contract, join_neighbours
from .kernels.scans import arc_weights

PASSES = 8


LEAST_EDGES = 16  # that are kept of each piece; more where there are fewer pieces than nodes


SLACK = 1.03  # how much larger than the mean a cluster may become; METIS allows as much


PIECES = 32  # small clusters per wanted one, at least: enough for METIS to balance them


def partition(graph: Graph, count: int, seed: int = 0) -> NDArray[np.int32]:
    """Divide the nodes into `count` clusters of similar size, few edges between them.

    A node of a directed graph looks at those it points to; METIS then ignores direction.
    """
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
    # A piece lies in one cluster as a whole; single nodes at its border may be better off next door.
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
    """METIS on a small weighted graph whose nodes stand for `sizes` nodes each."""
    import pymetis
    import scipy.sparse as sp

    pieces = len(sizes)
    if count >= pieces:
        return np.arange(pieces, dtype=np.int32)
    if not len(indices):  # METIS has nothing to cut: the largest first, each to where there is most room
        return deal(sizes, count)
    matrix = sp.csr_matrix((weights, indices, indptr), shape=(pieces, pieces))
    matrix = matrix + matrix.T  # arcs of a directed graph; METIS aborts the interpreter on an asymmetric matrix
    # METIS takes whole numbers.
    whole = np.maximum(1, np.rint(matrix.data * (1e6 / matrix.data.max()))).astype(np.int64)
    csr = pymetis.CSRAdjacency(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64))
    options = pymetis.Options(seed=int(seed) + 1)
    _, parts = pymetis.part_graph(count, adjacency=csr, eweights=whole, vweights=sizes, options=options)
    return np.asarray(parts, dtype=np.int32)


def deal(sizes: NDArray[np.int64], count: int) -> NDArray[np.int32]:
    """Put pieces into `count` groups of similar size.

    >>> deal(np.array([1, 5, 3, 3]), 2).tolist()
    [0, 0, 1, 1]
    """
    room = [(0, group) for group in range(count)]
    groups = np.empty(len(sizes), dtype=np.int32)
    for piece in np.argsort(-sizes, kind="stable"):
        filled, group = heapq.heappop(room)
        groups[piece] = group
        heapq.heappush(room, (filled + int(sizes[piece]), group))
    return groups
