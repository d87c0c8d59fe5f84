"""Count the hops between two nodes in the original graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.graph import Graph
from ..ranking.kernels.search import search_targets

# Arcs followed from one source at most, so that a search in a graph of billions of arcs ends.
MOST_VISITS = 50_000_000


def hop_distances(
    graph: Graph, sources: NDArray[np.int64], targets: Any, most_visits: int = MOST_VISITS
) -> NDArray[np.int32]:
    """Return the hops along arcs from each source to each of its targets [m, k]; -1 if no path was found.

    Parameters
    ----------
    targets
        Node ids [m, k]; ids that are not in the graph, such as padding, get -1.
    most_visits
        Arcs followed from one source before the search gives up.

    >>> path = Graph.from_edges([[0, 1, 2], [1, 2, 3]])
    >>> hop_distances(path, np.array([0]), np.array([[0, 3, -1]])).tolist()
    [[0, 3, -1]]
    """
    ids = np.ascontiguousarray(targets, dtype=np.int64)
    ids = np.where((ids >= 0) & (ids < graph.num_nodes), ids, -1)
    hops = np.full(ids.shape, -1, dtype=np.int32)
    seen = np.full(graph.num_nodes, -1, dtype=np.int32)
    queue = np.empty(graph.num_nodes, dtype=np.int32)
    for row, source in enumerate(np.asarray(sources, dtype=np.int64)):
        search_targets(
            np.asarray(graph.indptr),
            np.asarray(graph.indices),
            source,
            ids[row],
            seen,
            queue,
            most_visits,
            hops[row],
        )
    return hops
