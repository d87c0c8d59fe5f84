"""Theorem 2: what super nodes do to PageRank."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import vcr_graphormer as vcr
from tests.support.graphs import karate_club, path
from vcr_graphormer.explain.rewiring import estimate_transfer, mass_transfer
from vcr_graphormer.ranking.exact import exact_pagerank, transition_matrix


@pytest.fixture(scope="module")
def graph() -> vcr.Graph:
    return vcr.generate(nodes=400, edges=1600, classes=4, communities=8, homophily=0.8, seed=1)


def test_the_theorem(graph: vcr.Graph) -> None:
    """r̃ - r = Σ_i α^(i+1) P̃^i (P̃ - P) r with α the probability to walk on; it sums to 0."""
    connections = vcr.structure_connections(graph, 8)
    rewired = transition_matrix(graph, connections).T.tocsr()
    # Without virtual connections the super nodes are there, alone.
    plain = sp.block_diag([transition_matrix(graph).T, sp.identity(8)]).tocsr()
    before = np.concatenate([exact_pagerank(graph, None, 5), np.zeros(8)])
    term = 0.85 * ((rewired - plain) @ before)
    change = np.zeros_like(before)
    for _ in range(200):
        change += term
        term = 0.85 * (rewired @ term)
    after = exact_pagerank(graph, connections, 5)
    np.testing.assert_allclose(after - before, change, atol=1e-9)
    assert change.sum() == pytest.approx(0, abs=1e-9)
    found = mass_transfer(graph, connections, np.array([5]))[0]
    assert found.moved == pytest.approx(np.maximum(-change, 0).sum(), abs=1e-9)
    assert found.to_supers == pytest.approx(change[400:].sum(), abs=1e-9)
    assert found.moved == pytest.approx(np.maximum(change, 0).sum(), abs=1e-9)


def test_a_path_by_hand() -> None:
    """Both ends of a path of five share a super node: the far end is brightened, the near middle fades."""
    assignment = np.array([0, -1, -1, -1, 0], dtype=np.int32)
    found = mass_transfer(path(5), vcr.Connections(assignment, 1), np.array([0]), k=2)[0]
    assert found.node == 0
    assert found.brightened.tolist() == [4, 0]  # walks come back to the node itself sooner, too
    assert found.faded[0] == 1
    assert found.losses[0] > 0
    assert found.to_supers + found.gains.sum() == pytest.approx(found.moved)


def test_no_super_node_moves_nothing(graph: vcr.Graph) -> None:
    nobody = vcr.Connections(np.full(400, -1, dtype=np.int32), 1)
    found = mass_transfer(graph, nobody, np.array([3, 4]))
    assert [part.moved for part in found] == pytest.approx([0, 0], abs=1e-9)
    assert found[0].brightened.size == found[0].faded.size == 0


def test_the_estimate_is_close_from_below(graph: vcr.Graph) -> None:
    connections = vcr.structure_connections(graph, 8)
    nodes = np.arange(0, 400, 20)
    exact = np.array([part.elsewhere for part in mass_transfer(graph, connections, nodes)])

    def estimate(k: int) -> Any:
        rankings = (vcr.Ranker.prepare(graph, chosen).rank(nodes, k) for chosen in (None, connections))
        return estimate_transfer(*rankings)

    whole = estimate(400)
    np.testing.assert_allclose(whole, exact, atol=1e-5)  # lists of everything: nothing is left to guess
    short = estimate(60)
    assert (short <= exact + 1e-5).all()
    assert short.mean() > 0.5 * exact.mean()
    assert np.corrcoef(short, exact)[0, 1] > 0.8


def test_karate_club_sums() -> None:
    graph = karate_club()
    connections = vcr.structure_connections(graph, 2)
    for part in mass_transfer(graph, connections, np.arange(graph.num_nodes), k=graph.num_nodes):
        assert part.losses.sum() == pytest.approx(part.moved)
        assert part.gains.sum() + part.to_supers == pytest.approx(part.moved)
        assert (np.diff(part.gains) <= 0).all()
        assert (np.diff(part.losses) <= 0).all()
