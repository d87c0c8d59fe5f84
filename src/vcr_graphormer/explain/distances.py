"""How many hops apart two nodes are in the original graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.graph import Graph
from ..ranking.kernels.search import search_targets

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
        search_targets(
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
