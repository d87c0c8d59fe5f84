"""Read all arcs once, also from a memory map, with working memory for the nodes only; compiled."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from ...data.graph import Graph


def arc_weights(graph: Graph) -> NDArray[np.float32]:
    """Return the weights as compiled loops take them: an empty array if the graph has none."""
    return np.empty(0, dtype=np.float32) if graph.weights is None else np.asarray(graph.weights)


def degrees_both_ways(graph: Graph, weights: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weight of the arcs out of and into every node, [n] each.

    Without weights and directions both are the number of neighbours, and no arc is read.

    Parameters
    ----------
    weights
        The weights of the arcs, maybe scaled; an empty array means 1 everywhere.
    """
    if not len(weights) and not graph.directed:
        degrees = graph.degrees.astype(np.float64)
        return degrees, degrees
    out, into = weighted_degrees(np.asarray(graph.indptr), np.asarray(graph.indices), weights)
    return out, into


@nb.njit(nogil=True, cache=True)
def weighted_degrees(indptr: Any, indices: Any, weights: Any) -> Any:
    """Return the weight of the arcs out of and into every node, float64 [n] each; empty weights mean 1."""
    out, into = np.zeros(len(indptr) - 1), np.zeros(len(indptr) - 1)
    for u in range(len(out)):
        for e in range(indptr[u], indptr[u + 1]):
            weight = np.float64(weights[e]) if len(weights) else 1.0
            out[u] += weight
            into[indices[e]] += weight
    return out, into


@nb.njit(nogil=True, cache=True)
def components(indptr: Any, indices: Any) -> Any:
    """Return the number of connected components and the component of every node, int32 [n].

    Direction is ignored. Components are numbered in the order of their first nodes. The method is union-find: every
    node points towards the first node of the part of its component that was found so far.
    """
    parent = np.arange(len(indptr) - 1).astype(np.int32)
    for u in range(len(parent)):
        root = _root(parent, u)
        for e in range(indptr[u], indptr[u + 1]):
            other = _root(parent, indices[e])
            if root < other:
                parent[other] = root
            elif other < root:
                parent[root] = other
                root = other
    count, number = 0, np.empty(len(parent), np.int32)
    for u in range(len(parent)):
        root = _root(parent, u)
        if root == u:
            number[u] = count
            count += 1
        else:
            number[u] = number[root]  # a root has the smallest number, so it has its component already
    return count, number


@nb.njit(nogil=True, cache=True)
def _root(parent: Any, u: Any) -> Any:
    """Return the end of the path of pointers from u, halving the path on the way."""
    while parent[u] != u:
        parent[u] = parent[parent[u]]
        u = parent[u]
    return u
