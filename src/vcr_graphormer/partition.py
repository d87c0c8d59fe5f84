"""Balanced clusters of graphs too large for METIS: label propagation shrinks the graph, METIS cuts what is left.

METIS keeps several copies of the graph. Here nodes first join clusters by what most of their
neighbours have joined, up to a size (Meyerhenke, Sanders and Schulz, 2014): that reads the arcs where they lie, in a
memory map if need be, and keeps a few numbers per node. METIS then divides the graph of these small clusters, of whose
edges so few are kept, the heaviest of each cluster, that they are no more than a few per node of the whole graph.
"""

from __future__ import annotations

import heapq
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from .graph import Graph
from .scans import arc_weights

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


@nb.njit(nogil=True, cache=True)
def join_neighbours(indptr: Any, indices: Any, weights: Any, start: Any, largest: int, passes: int) -> Any:
    """Label [n] of every node: each in its turn takes the label heaviest among its neighbours that has room.

    In the order of the nodes, which is that of their arcs on the disk. A node's own label wins a tie, then the one met
    first. Ends early when hardly anyone moves.
    """
    num_nodes = len(indptr) - 1
    label, size = start.copy(), np.zeros(num_nodes, np.int32)
    heard, met = np.zeros(num_nodes), np.empty(num_nodes, np.int32)
    for u in range(num_nodes):
        size[label[u]] += 1
    for _ in range(passes):
        moved = 0
        for u in range(num_nodes):
            own, count = label[u], 0
            for e in range(indptr[u], indptr[u + 1]):
                other = label[indices[e]]
                if heard[other] == 0.0:
                    met[count] = other
                    count += 1
                heard[other] += weights[e] if len(weights) else 1.0
            best, most = own, heard[own]
            for i in range(count):
                other = met[i]
                if heard[other] > most and size[other] < largest:
                    best, most = other, heard[other]
                heard[other] = 0.0
            if best != own:
                size[own] -= 1
                size[best] += 1
                label[u] = best
                moved += 1
        if moved * 200 < num_nodes:
            break
    return label


@nb.njit(nogil=True, cache=True)
def contract(indptr: Any, indices: Any, weights: Any, piece: Any, members: Any, pieces: int, most: int) -> Any:
    """The graph of the pieces as CSR: weight of the arcs from one to another, the `most` heaviest of each piece.

    `members`: nodes sorted by piece.
    """
    heard, met = np.zeros(pieces), np.empty(pieces, np.int32)
    starts = np.zeros(pieces + 1, np.int64)
    found, amount = np.empty(pieces * most, np.int32), np.empty(pieces * most)
    total, place = 0, 0
    for p in range(pieces):
        count = 0
        while place < len(members) and piece[members[place]] == p:
            u = members[place]
            place += 1
            for e in range(indptr[u], indptr[u + 1]):
                other = piece[indices[e]]
                if other != p:
                    if heard[other] == 0.0:
                        met[count] = other
                        count += 1
                    heard[other] += weights[e] if len(weights) else 1.0
        order = np.argsort(-heard[met[:count]], kind="mergesort")
        for i in order[:most]:
            found[total], amount[total] = met[i], heard[met[i]]
            total += 1
        for i in range(count):
            heard[met[i]] = 0.0
        starts[p + 1] = total
    return starts, found[:total].copy(), amount[:total].copy()
