"""Clusters without METIS's memory: against the slow twin, balanced, nearly as few cut edges, seeded."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pymetis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import graphs, naive
from tests.support.plain import token_config
from vcr_graphormer import ConfigError, Graph, exact_pagerank, generate, rank, structure_connections
from vcr_graphormer.ranking.connections import feature_connections
from vcr_graphormer.ranking.kernels.propagation import contract, join_neighbours
from vcr_graphormer.ranking.partitioners import cut_by_kaminpar, cut_by_propagation
from vcr_graphormer.ranking.second_level import coarse_clusters
from vcr_graphormer.tokens.adapt import adapt_tokens

NO_WEIGHTS = np.empty(0, dtype=np.float32)


def cut(graph: Graph, clusters: np.ndarray) -> float:
    rows = np.repeat(np.arange(graph.num_nodes), graph.degrees)
    return float((clusters[rows] != clusters[graph.indices]).mean())


@settings(deadline=None)  # the first call compiles
@given(graphs.edge_lists(), st.integers(1, 5))
def test_joining_equals_the_slow_twin(edges: tuple[int, list[tuple[int, int]]], largest: int) -> None:
    num_nodes, pairs = edges
    graph = Graph.from_edges(np.array(pairs, dtype=np.int64).reshape(-1, 2).T, num_nodes)
    start = np.arange(num_nodes, dtype=np.int32)
    found = join_neighbours(graph.indptr, graph.indices, NO_WEIGHTS, start, largest, 3)
    assert found.tolist() == naive.join_neighbours(graph, largest, 3)
    assert np.bincount(found).max() <= largest


def test_contraction_keeps_the_weight_between_pieces() -> None:
    graph = generate(300, 1500, classes=3, seed=1)
    weights = np.random.default_rng(0).random(graph.num_arcs).astype(np.float32)
    piece = (np.arange(300) % 7).astype(np.int32)
    members = np.argsort(piece, kind="stable").astype(np.int32)
    for given_weights, used in ((NO_WEIGHTS, np.ones_like(weights)), (weights, weights)):
        starts, found, amount = contract(graph.indptr, graph.indices, given_weights, piece, members, 7, 7)
        table = np.zeros((7, 7))
        for p in range(7):
            table[p, found[starts[p] : starts[p + 1]]] = amount[starts[p] : starts[p + 1]]
        expected = np.zeros((7, 7))
        for place, (u, v) in enumerate(naive.arcs(graph)):
            expected[piece[u], piece[v]] += used[place] if piece[u] != piece[v] else 0.0
        np.testing.assert_allclose(table, expected, rtol=1e-5)
        starts, found, amount = contract(graph.indptr, graph.indices, given_weights, piece, members, 7, 2)
        for p in range(7):
            kept = slice(starts[p], starts[p + 1])
            np.testing.assert_allclose(amount[kept], np.sort(expected[p])[:-3:-1], rtol=1e-5)
            np.testing.assert_allclose(expected[p, found[kept]], amount[kept], rtol=1e-5)


def test_planted_communities_are_found_balanced_and_by_seed() -> None:
    graph = generate(3000, 30_000, classes=6, homophily=0.9, seed=0)
    first = cut_by_propagation(graph, 6, seed=0)
    assert np.bincount(first, minlength=6).max() <= 1.03 * 500 + 1
    metis = structure_connections(graph, 6).assignment
    assert cut(graph, first) <= 1.15 * cut(graph, metis)
    np.testing.assert_array_equal(first, cut_by_propagation(graph, 6, seed=0))
    mixed = generate(3000, 12_000, classes=3, homophily=0.5, seed=0)
    assert len({cut_by_propagation(mixed, 20, seed=seed).tobytes() for seed in range(3)}) == 3


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e30])
def test_heavy_edges_are_kept_together(unit: float) -> None:
    # A ring of 40 pairs: heavy inside a pair, light between pairs.
    nodes = np.arange(80)
    weight = np.where(nodes % 2 == 0, 100.0, 1.0) * unit
    ring = Graph.from_edges([nodes, (nodes + 1) % 80], edge_weight=weight)
    for partitioner in ("propagation", "kaminpar"):
        clusters = structure_connections(ring, 4, partitioner=partitioner).assignment
        assert (clusters[::2] == clusters[1::2]).all()


@pytest.mark.parametrize("make", graphs.TINY)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("partitioner", ["propagation", "kaminpar"])
def test_every_node_of_tiny_graphs_has_a_cluster(make: Callable[[], Graph], directed: bool, partitioner: str) -> None:
    graph = make()
    if directed:
        rows = np.repeat(np.arange(graph.num_nodes), graph.degrees)
        graph = Graph.from_edges([rows, graph.indices], graph.num_nodes, directed=True)
    for count in range(1, graph.num_nodes + 1):
        connections = structure_connections(graph, count, partitioner=partitioner)
        assert connections.sizes.sum() == graph.num_nodes
        assert connections.assignment.min() >= 0
        if 4 * count <= graph.num_nodes:  # METIS balances badly where clusters have but a few nodes
            assert connections.sizes.max() <= -(-graph.num_nodes // count) + 1


def test_a_memory_map_is_read_where_it_lies(tmp_path: Path) -> None:
    graph = generate(500, 2500, seed=0)
    graph.save(tmp_path / "graph")
    np.testing.assert_array_equal(cut_by_propagation(Graph.open(tmp_path / "graph"), 5), cut_by_propagation(graph, 5))


@pytest.mark.parametrize("partitioner", ["propagation", "kaminpar"])
def test_rankings_on_these_clusters_find_the_exact_neighbours(partitioner: str) -> None:
    graph = generate(3000, 15_000, classes=5, homophily=0.7, seed=3)
    connections = structure_connections(graph, 10, partitioner=partitioner)
    assert coarse_clusters(graph, partitioner=partitioner).max() + 1 >= 100
    sources = np.arange(0, 3000, 100)
    found = rank(graph, connections, k=10, sources=sources, partitioner=partitioner)
    exact = exact_pagerank(graph, connections, sources)[:, :3000]
    assert naive.value_recall(found.ids, exact, sources, 10) >= 0.99


def test_kaminpar_finds_balanced_clusters_by_seed_and_without_directions() -> None:
    graph = generate(3000, 30_000, classes=6, homophily=0.9, seed=0)
    first = cut_by_kaminpar(graph, 6, seed=0)
    assert np.bincount(first, minlength=6).max() <= 1.03 * 500 + 1
    assert cut(graph, first) <= cut(graph, structure_connections(graph, 6).assignment)
    np.testing.assert_array_equal(first, cut_by_kaminpar(graph, 6, seed=0))
    assert cut_by_kaminpar(graph, 6, seed=1).tobytes() != first.tobytes()
    # Each edge once, in one direction: the graph without directions is the same.
    source = np.repeat(np.arange(3000), graph.degrees)
    forward = source < graph.indices
    directed = Graph.from_edges(np.stack([source, graph.indices])[:, forward], 3000, directed=True)
    np.testing.assert_array_equal(cut_by_kaminpar(directed, 6, seed=0), first)


def test_auto_is_kaminpar_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, config = graphs.path(20), token_config(partitioner="auto")
    assert adapt_tokens(config, graph, None).partitioner == "kaminpar"
    monkeypatch.setattr("vcr_graphormer.tokens.adapt.find_spec", lambda name: None)
    assert adapt_tokens(config, graph, None).partitioner == "metis"
    monkeypatch.setitem(sys.modules, "kaminpar", None)
    with pytest.raises(ConfigError, match="not installed: pip install kaminpar, or use metis"):
        cut_by_kaminpar(graph, 2)


@pytest.mark.parametrize("partitioner", ["metis", "kaminpar", "propagation"])
@pytest.mark.parametrize("seed", [2**31 + 1, 4_000_000_000, 2**63 - 1, 2**70])
def test_any_seed_makes_clusters(partitioner: str, seed: int) -> None:
    if partitioner == "kaminpar":
        pytest.importorskip("kaminpar")
    graph = generate(200, 800, classes=3, seed=1)
    first, again = (structure_connections(graph, 5, seed=seed, partitioner=partitioner) for _ in range(2))
    assert first.assignment.tolist() == again.assignment.tolist()


def test_seeds_that_metis_takes_are_given_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else clusters that were made before would be others."""
    seeds: list[int] = []
    options = pymetis.Options

    def note(seed: int) -> Any:
        seeds.append(seed)
        return options(seed=seed)

    monkeypatch.setattr(pymetis, "Options", note)
    graph = generate(50, 200, classes=3, seed=1)
    for seed in (0, 7, 2**31, 2**32, 2**63 - 2, 2**63 - 1):
        structure_connections(graph, 3, seed=seed)
    assert seeds == [1, 8, 2**31 + 1, 2**32 + 1, 2**63 - 1, 0]


@pytest.mark.parametrize("seed", [2**32, 2**70])
def test_any_seed_makes_clusters_of_features(seed: int) -> None:
    features = np.random.default_rng(0).random((40, 3))
    assert feature_connections(features, 4, seed=seed).assignment.tolist() == (
        feature_connections(features, 4, seed=0).assignment.tolist()
    )
