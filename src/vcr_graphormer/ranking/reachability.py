"""Who can be reached from where, with super nodes and with one super edge left out: components and bridges."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components, depth_first_order

from ..data.graph import Graph
from .kernels.scans import components


def reachability(graph: Graph, assignment: NDArray[np.int32], supers: int) -> dict[str, Any]:
    """Component and depth-first position of every node and super node, and what each node's own super edge cuts off.

    Ordinary components and super nodes are the nodes of a small graph, an edge wherever a member links the two. Leaving
    a member's super edge out matters only if no other member links the same two and the edge is a bridge; then one side
    of the bridge is a subtree, that is an interval of depth-first positions. Direction is ignored.
    """
    num_nodes = graph.num_nodes
    count, ordinary = components(np.asarray(graph.indptr), np.asarray(graph.indices))
    member = np.flatnonzero(assignment >= 0)
    size = count + supers
    links = sp.csr_matrix(
        (np.ones(len(member), dtype=np.int32), (ordinary[member], count + assignment[member])), shape=(size, size)
    )
    position, subtree, parent, low = _depth_first(links)
    _, merged = connected_components(links, directed=False)

    cut_start = np.zeros(num_nodes, dtype=np.int32)
    cut_stop = np.full(num_nodes, size + 1, dtype=np.int32)
    cut_inside = np.ones(num_nodes, dtype=np.bool_)
    ours, theirs = ordinary[member].astype(np.int64), count + assignment[member]
    _, which, times = np.unique(ours * size + theirs, return_inverse=True, return_counts=True)
    single = times[which] == 1
    for child, other, inside in ((ours, theirs, True), (theirs, ours, False)):
        # The subtree below a bridge cannot look above its own top.
        bridge = single & (parent[child] == other) & (low[child] >= position[child])
        nodes, top = member[bridge], child[bridge]
        cut_start[nodes], cut_stop[nodes] = position[top], position[top] + subtree[top]
        cut_inside[nodes] = inside
    place = np.concatenate([ordinary, np.arange(count, size)])
    return {
        "component": merged[place].astype(np.int32),
        "position": position[place].astype(np.int32),
        "cut_start": cut_start,
        "cut_stop": cut_stop,
        "cut_inside": cut_inside,
    }


def _depth_first(links: Any) -> tuple[Any, Any, Any, Any]:
    """Depth-first position, size of the subtree, parent, and the earliest position its subtree has an edge to."""
    size = links.shape[0]
    # A root above one node of each component makes it one tree; edges to the root are no edges of the graph.
    _, merged = connected_components(links, directed=False)
    tops = np.unique(merged, return_index=True)[1]
    rooted = sp.csr_matrix(
        (np.ones(len(tops), dtype=np.int32), (np.full(len(tops), size), tops)), shape=(size + 1, size + 1)
    )
    links.resize(size + 1, size + 1)
    order, parent = depth_first_order(links + rooted, size, directed=False)
    links.resize(size, size)
    position = np.empty(size + 1, dtype=np.int64)
    position[order] = np.arange(size + 1)
    low = position.copy()
    first, second = links.nonzero()
    for one, other in ((first, second), (second, first)):
        back = (parent[one] != other) & (parent[other] != one)
        np.minimum.at(low, one[back], position[other[back]])
    subtree = np.ones(size + 1, dtype=np.int64)
    for node in order[:0:-1]:  # children before their parents
        subtree[parent[node]] += subtree[node]
        low[parent[node]] = min(low[parent[node]], low[node])
    return position[:size], subtree[:size], parent[:size], low[:size]
