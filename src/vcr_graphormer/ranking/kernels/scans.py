"""One pass over the arcs where they lie, in a memory map if need be, with memory for the nodes only."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from ...data.graph import Graph


def arc_weights(graph: Graph) -> NDArray[np.float32]:
    """The weights as compiled loops take them: none at all where every weight is 1."""
    return np.empty(0, dtype=np.float32) if graph.weights is None else np.asarray(graph.weights)


@nb.njit(nogil=True, cache=True)
def weighted_degrees(indptr: Any, indices: Any, weights: Any) -> Any:
    """Weight of the arcs out of and into every node, float64 [n] each; empty weights are all 1."""
    out, into = np.zeros(len(indptr) - 1), np.zeros(len(indptr) - 1)
    for u in range(len(out)):
        for e in range(indptr[u], indptr[u + 1]):
            weight = np.float64(weights[e]) if len(weights) else 1.0
            out[u] += weight
            into[indices[e]] += weight
    return out, into


@nb.njit(nogil=True, cache=True)
def components(indptr: Any, indices: Any) -> Any:
    """Number of components and the component of every node, int32 [n], numbered by their first nodes.

    Direction is ignored. Union-find: every node points towards the first node of what is known of its component.
    """
    above = np.arange(len(indptr) - 1).astype(np.int32)
    for u in range(len(above)):
        for e in range(indptr[u], indptr[u + 1]):
            one, other = _top(above, u), _top(above, indices[e])
            if one < other:
                above[other] = one
            elif other < one:
                above[one] = other
    count, number = 0, np.empty(len(above), np.int32)
    for u in range(len(above)):
        top = _top(above, u)
        if top == u:
            number[u] = count
            count += 1
        else:
            number[u] = number[top]  # the top of u comes before u
    return count, number


@nb.njit(nogil=True, cache=True)
def _top(above: Any, u: Any) -> Any:
    """Follow the pointers to the end, halving the path."""
    while above[u] != u:
        above[u] = above[above[u]]
        u = above[u]
    return u
