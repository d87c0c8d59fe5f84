"""The exact reference against the definition, and the paper's Theorem 2."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import graphs, naive
from vcr_graphormer import ConfigError, Connections, Graph, GraphError, exact_pagerank, structure_connections
from vcr_graphormer.ranking.exact import transition_matrix


@st.composite
def rewired_graphs(draw: st.DrawFn, max_nodes: int = 10) -> tuple[Graph, Connections]:
    """A random graph, weighted or not, directed or not, with random super nodes."""
    n, edges = draw(graphs.edge_lists(max_nodes=max_nodes, max_edges=25))
    weights = draw(st.none() | st.lists(st.integers(1, 5), min_size=len(edges), max_size=len(edges)))
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    graph = Graph.from_edges(pairs, n, edge_weight=weights, directed=draw(st.booleans()))
    count = draw(st.integers(0, 3))
    assignment = draw(st.lists(st.integers(-1, count - 1), min_size=n, max_size=n))
    return graph, Connections(np.array(assignment, dtype=np.int32), count)


@settings(deadline=None)
@given(rewired_graphs(), st.sampled_from([0.15, 0.5]), st.data())
def test_exact_equals_the_definition(case: tuple[Graph, Connections], restart: float, data: st.DataObject) -> None:
    graph, connections = case
    source = data.draw(st.integers(0, graph.num_nodes - 1))
    expected = naive.pagerank(graph, connections.assignment.tolist(), connections.count, source, restart)
    found = exact_pagerank(graph, connections, source, restart)
    np.testing.assert_allclose(found, expected, atol=2e-10)
    assert found.sum() == pytest.approx(1, abs=1e-9)


def test_several_sources_and_super_nodes_as_sources() -> None:
    graph = graphs.karate_club()
    connections = structure_connections(graph, 2)
    together = exact_pagerank(graph, connections, [3, 7, 35])
    assert together.shape == (3, 36)
    for row, source in enumerate((3, 7, 35)):
        np.testing.assert_allclose(together[row], exact_pagerank(graph, connections, source), atol=1e-12)


@pytest.mark.parametrize("source", [0, 11, 33])
def test_theorem_2_mass_transfer(source: int) -> None:
    """r̃ = r + c with c = α Σ_i α^i P̃^i (P̃ - P) r, and Σ c = 0; super nodes are dangling in the original graph."""
    graph, alpha = graphs.karate_club(), 0.85
    connections = structure_connections(graph, 3)
    isolated = Connections(np.full(34, -1, dtype=np.int32), 3)
    before, after = (transition_matrix(graph, c).T.tocsr() for c in (isolated, connections))
    original = exact_pagerank(graph, isolated, source)
    term = alpha * ((after - before) @ original)
    transfer = np.zeros_like(term)
    for _ in range(400):
        transfer += term
        term = alpha * (after @ term)
    np.testing.assert_allclose(exact_pagerank(graph, connections, source), original + transfer, atol=1e-9)
    assert transfer.sum() == pytest.approx(0, abs=1e-9)
    # Mass leaves the source's neighbourhood and arrives at nodes that were far.
    assert transfer[transfer < 0].sum() < -0.05


def test_scaling_all_weights_changes_nothing() -> None:
    connections = Connections(np.array([0, 0, -1, 0], dtype=np.int32), 1)
    first, second = (
        exact_pagerank(Graph.from_edges([[0, 1, 2], [1, 2, 3]], edge_weight=np.array([1.0, 2, 3]) * scale), connections)
        for scale in (1, 100)
    )
    np.testing.assert_allclose(first, second, atol=1e-7)


@pytest.mark.parametrize("restart", [0, 1, -0.1, 1.5, "0.15", True])
def test_bad_restart(restart: Any) -> None:
    with pytest.raises(ConfigError, match=r"the restart probability must lie between 0.001 and 1 \(the paper: 0.15\)"):
        exact_pagerank(graphs.path(), source=0, restart=restart)


def test_bad_sources() -> None:
    for source, message in (
        (9, "node 9 but the graph has nodes 0 to 4"),
        (-1, "node -1"),
        (1.5, "1.5"),
        (True, "bool"),
    ):
        with pytest.raises(GraphError, match=message):
            exact_pagerank(graphs.path(5), source=source)
    with pytest.raises(GraphError, match="assignment has 2 entries"):
        exact_pagerank(graphs.path(5), Connections(np.zeros(2, dtype=np.int32), 1))
