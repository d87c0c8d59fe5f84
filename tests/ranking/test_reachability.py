"""Who is cut off when one super edge is left out, against walking."""

import numpy as np
from hypothesis import given, settings

from tests.ranking.test_exact import rewired_graphs
from vcr_graphormer import Connections, Graph, exact_pagerank
from vcr_graphormer.ranking.reachability import reachability


@settings(deadline=None, max_examples=150)
@given(rewired_graphs(max_nodes=12))
def test_equal_to_walking(case: tuple[Graph, Connections]) -> None:
    graph, connections = case
    n = graph.num_nodes
    undirected = Graph.from_edges(
        np.stack([np.repeat(np.arange(n), graph.degrees), graph.indices]).astype(np.int64), n
    )  # direction is ignored here
    about = reachability(graph, connections.assignment, connections.count)
    for u in range(n):
        for leave_out in (False, True):
            assignment = connections.assignment.copy()
            apart = leave_out and assignment[u] >= 0
            if apart:
                assignment[u] = -1
            scores = exact_pagerank(undirected, Connections(assignment, connections.count), u)
            same = about["component"] == about["component"][u]
            if apart:
                within = (about["position"] >= about["cut_start"][u]) & (about["position"] < about["cut_stop"][u])
                same &= within == about["cut_inside"][u]
            np.testing.assert_array_equal(same, scores > 0)
