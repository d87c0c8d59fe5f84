"""Hop distances against scipy's shortest paths."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import shortest_path

from tests.support.graphs import edge_lists, path
from vcr_graphormer import Graph
from vcr_graphormer.explain.distances import hop_distances


@settings(deadline=None)  # the first call compiles
@given(edge_lists(), st.booleans())
def test_equals_shortest_paths(case: tuple[int, list[tuple[int, int]]], directed: bool) -> None:
    nodes, edges = case
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    graph = Graph.from_edges(ends, num_nodes=nodes, directed=directed)
    exact = shortest_path(sp.csr_matrix(graph.to_scipy()), directed=True, unweighted=True)
    targets = np.tile(np.arange(-1, nodes + 1), (nodes, 1))
    found = hop_distances(graph, np.arange(nodes), targets)
    assert (found[:, 0] == -1).all()  # padding
    assert (found[:, -1] == -1).all()  # not in the graph
    np.testing.assert_array_equal(found[:, 1:-1], np.where(np.isinf(exact), -1, exact))


def test_a_target_named_twice_and_a_search_that_gives_up() -> None:
    graph = path(6)
    assert hop_distances(graph, np.array([0]), np.array([[3, 3, 0]])).tolist() == [[3, 3, 0]]
    assert hop_distances(graph, np.array([0]), np.array([[1, 5]]), most_visits=2).tolist() == [[1, -1]]


@pytest.mark.parametrize("sources", [[], [2]])
def test_sizes(sources: list[int]) -> None:
    found = hop_distances(path(4), np.array(sources, dtype=np.int64), np.zeros((len(sources), 0)))
    assert found.shape == (len(sources), 0)
