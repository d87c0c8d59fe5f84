"""Find what a node can reach, with super nodes and without its own super edge: components and bridges."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components, depth_first_order

from ..data.graph import Graph
from .kernels.scans import components


def reachability(graph: Graph, assignment: NDArray[np.int32], supers: int) -> dict[str, Any]:
    """Return component and depth-first position of every node and super node, and what leaving a super edge out cuts.

    The components of the graph and the super nodes are the nodes of a small graph, with an edge wherever a member links
    the two. Leaving the super edge of a member out matters only if no other member links the same two and the edge is a
    bridge. Then one side of the bridge is a subtree, which is an interval of depth-first positions. Direction is
    ignored. The keys of the result are fields of `Vectors`.
    """
    num_nodes = graph.num_nodes
    count, ordinary = components(np.asarray(graph.indptr), np.asarray(graph.indices))
    members = np.flatnonzero(assignment >= 0)
    size = count + supers
    links = sp.csr_matrix(
        (np.ones(len(members), dtype=np.int32), (ordinary[members], count + assignment[members])), shape=(size, size)
    )
    position, subtree, parent, low = _depth_first(links)
    _, merged = connected_components(links, directed=False)

    cut_start = np.zeros(num_nodes, dtype=np.int32)
    cut_stop = np.full(num_nodes, size + 1, dtype=np.int32)
    cut_inside = np.ones(num_nodes, dtype=np.bool_)
    of_node, of_super = ordinary[members].astype(np.int64), count + assignment[members]
    _, inverse, counts = np.unique(of_node * size + of_super, return_inverse=True, return_counts=True)
    single = counts[inverse] == 1
    for child, other, inside in ((of_node, of_super, True), (of_super, of_node, False)):
        # Below a bridge no edge leads to a position before the top of the subtree.
        bridge = single & (parent[child] == other) & (low[child] >= position[child])
        nodes, top = members[bridge], child[bridge]
        cut_start[nodes], cut_stop[nodes] = position[top], position[top] + subtree[top]
        cut_inside[nodes] = inside
    small_node = np.concatenate([ordinary, np.arange(count, size)])  # of every node and super node
    return {
        "component": merged[small_node].astype(np.int32),
        "position": position[small_node].astype(np.int32),
        "cut_start": cut_start,
        "cut_stop": cut_stop,
        "cut_inside": cut_inside,
    }


def _depth_first(links: Any) -> tuple[Any, Any, Any, Any]:
    """Return position, subtree size, parent and earliest position linked from the subtree, all by depth-first order."""
    size = links.shape[0]
    # An extra root, linked to one node of each component, makes one tree. Its edges do not count below.
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
    for node, other in ((first, second), (second, first)):
        back_edge = (parent[node] != other) & (parent[other] != node)
        np.minimum.at(low, node[back_edge], position[other[back_edge]])
    subtree = np.ones(size + 1, dtype=np.int64)
    for node in order[:0:-1]:  # children before their parents
        subtree[parent[node]] += subtree[node]
        low[parent[node]] = min(low[parent[node]], low[node])
    return position[:size], subtree[:size], parent[:size], low[:size]
