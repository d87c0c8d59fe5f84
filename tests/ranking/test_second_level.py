"""The second level: its identity V = M L against exact vectors, its budget, its components."""

import numpy as np
import pytest

from tests.support import graphs
from vcr_graphormer import ConfigError, Connections, Ranker, exact_pagerank, generate, structure_connections
from vcr_graphormer.ranking.second_level import coarse_clusters


def test_super_node_vectors_are_exact_on_small_graphs() -> None:
    graph = graphs.karate_club()
    connections = structure_connections(graph, 3)
    vectors = Ranker.prepare(graph, connections).vectors
    local = np.zeros((len(vectors.matrix), 34))
    for q in range(len(local)):
        entries = slice(vectors.ptr[q], vectors.ptr[q + 1])
        local[q, vectors.ids[entries]] = vectors.values[entries]
    found = vectors.matrix @ local
    for hub, node in enumerate(vectors.hubs):  # a hub's score is restart · m and is not listed
        found[:, node] = 0.15 * vectors.matrix[:, len(local) - len(vectors.hubs) + hub]
    for s in range(3):
        exact = exact_pagerank(graph, connections, 34 + s)
        np.testing.assert_allclose(found[s], exact[:34], atol=1e-6)
        assert 0.15 * vectors.matrix[s, s] == pytest.approx(exact[34 + s], abs=1e-6)


def test_lists_are_sorted_and_complete() -> None:
    graph = generate(2000, 10_000, seed=0, features=0)
    connections = structure_connections(graph, 5)
    vectors = Ranker.prepare(graph, connections, budget=20 * 2**20).vectors
    for q in range(len(vectors.ptr) - 1):
        assert (np.diff(vectors.values[vectors.ptr[q] : vectors.ptr[q + 1]]) <= 0).all()
    assert vectors.row_ptr[-1] == vectors.ptr[-1] == len(vectors.ids)
    assert sum(array.nbytes for array in vectors[1:]) < 20 * 2**20


def test_budget_is_kept_or_refused() -> None:
    graph = generate(2000, 10_000, seed=0, features=0)
    with pytest.raises(ConfigError, match=r"vectors need more than .*, the budget is 1.0 MiB: use fewer clusters"):
        Ranker.prepare(graph, structure_connections(graph, 500), budget=2**20)
    large, small = (
        Ranker.prepare(graph, structure_connections(graph, 5), budget=size).vectors for size in (2**31, 3 * 2**20)
    )
    assert len(small.ids) < len(large.ids)


def test_coarse_clusters() -> None:
    assert coarse_clusters(graphs.single_node()).tolist() == [0]
    assert len(np.unique(coarse_clusters(generate(3200, 20_000, seed=0, features=0)))) == 100
    no_edges = Ranker.prepare(graphs.isolated_node(), Connections(np.full(3, -1, dtype=np.int32), 0))
    assert no_edges.visits >= 0
