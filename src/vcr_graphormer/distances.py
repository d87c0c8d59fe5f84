"""How many hops apart two nodes are in the original graph."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from .graph import Graph

# Arcs followed from one node at most: a search over a graph of billions ends, and says that it does not know.
MOST_VISITS = 50_000_000


def hop_distances(
    graph: Graph, sources: NDArray[np.int64], targets: Any, most_visits: int = MOST_VISITS
) -> NDArray[np.int32]:
    """Hops from each source to each of its targets along arcs [m, k]; -1 for no way, or none found in time.

    Parameters
    ----------
    targets
        Node ids [m, k]; what is no node of the graph (padding, super nodes) gets -1.

    >>> path = Graph.from_edges([[0, 1, 2], [1, 2, 3]])
    >>> hop_distances(path, np.array([0]), np.array([[0, 3, -1]])).tolist()
    [[0, 3, -1]]
    """
    wanted = np.ascontiguousarray(targets, dtype=np.int64)
    found = np.full(wanted.shape, -1, dtype=np.int32)
    wanted = np.where((wanted >= 0) & (wanted < graph.num_nodes), wanted, -1)
    seen = np.full(graph.num_nodes, -1, dtype=np.int32)
    queue = np.empty(graph.num_nodes, dtype=np.int32)
    for row, source in enumerate(np.asarray(sources, dtype=np.int64)):
        _search(
            np.asarray(graph.indptr),
            np.asarray(graph.indices),
            source,
            wanted[row],
            seen,
            queue,
            most_visits,
            found[row],
        )
    return found


@numba.njit(cache=True)
def _search(
    indptr: Any, indices: Any, source: int, wanted: Any, seen: Any, queue: Any, most_visits: int, found: Any
) -> None:
    """Breadth first from one source until every target is met. `seen` is all -1 before and after.

    A target that was not met yet is marked by -2.
    """
    missing = 0
    for target in wanted:
        if target >= 0 and seen[target] == -1:
            seen[target] = -2
            missing += 1
    missing -= seen[source] == -2
    seen[source] = 0
    queue[0] = source
    head, tail, visits = 0, 1, 0
    while head < tail and missing > 0 and visits < most_visits:
        node = queue[head]
        head += 1
        for arc in range(indptr[node], indptr[node + 1]):
            visits += 1
            other = indices[arc]
            if seen[other] < 0:
                missing -= seen[other] == -2
                seen[other] = seen[node] + 1
                queue[tail] = other
                tail += 1
    for place in range(len(wanted)):
        if wanted[place] >= 0 and seen[wanted[place]] >= 0:
            found[place] = seen[wanted[place]]
    for target in wanted:
        if target >= 0:
            seen[target] = -1
    for place in range(tail):
        seen[queue[place]] = -1
