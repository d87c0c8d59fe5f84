"""Passes over the arcs against scipy."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from tests.support import graphs
from vcr_graphormer import Graph
from vcr_graphormer.ranking.kernels.scans import arc_weights, components, degrees_both_ways, weighted_degrees


def make(case: tuple[int, list[tuple[int, int]]], directed: bool, weighted: bool = False) -> Graph:
    n, edges = case
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    weight = np.random.default_rng(n).random(pairs.shape[1]) + 0.1 if weighted else None
    return Graph.from_edges(pairs, n, edge_weight=weight, directed=directed)


@settings(deadline=None)  # the first call compiles
@given(graphs.edge_lists(), st.booleans())
def test_components_are_scipys(case: tuple[int, list[tuple[int, int]]], directed: bool) -> None:
    graph = make(case, directed)
    count, number = components(graph.indptr, graph.indices)
    wanted, membership = connected_components(graph.to_scipy(), directed=directed, connection="weak")
    assert count == wanted
    # Numbered by first nodes, whatever scipy's order.
    _, first = np.unique(membership, return_index=True)
    renumbered = np.argsort(np.argsort(first))[membership]
    np.testing.assert_array_equal(number, renumbered)


def test_components_of_a_long_path_given_backwards() -> None:
    order = np.random.default_rng(0).permutation(50_000)
    graph = Graph.from_edges([order[:-1], order[1:]], 50_001)
    count, number = components(graph.indptr, graph.indices)
    assert (count, number[:50_000].max(), number[50_000]) == (2, 0, 1)


@settings(deadline=None)
@given(graphs.edge_lists(), st.booleans(), st.booleans())
def test_degrees_are_sums_of_rows_and_columns(
    case: tuple[int, list[tuple[int, int]]], directed: bool, weighted: bool
) -> None:
    graph = make(case, directed, weighted)
    assert len(arc_weights(graph)) == (graph.num_arcs if graph.weights is not None else 0)
    out, into = weighted_degrees(graph.indptr, graph.indices, arc_weights(graph))
    matrix = graph.to_scipy().toarray().astype(np.float64)
    np.testing.assert_allclose(out, matrix.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(into, matrix.sum(axis=0), rtol=1e-12)
    for found, counted in zip(degrees_both_ways(graph, arc_weights(graph)), (out, into), strict=True):
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, counted)
