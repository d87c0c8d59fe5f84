"""The fast ranking against the exact one: scores, order, ids, recall; and independence of threads and shards."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ranking.test_exact import rewired_graphs
from tests.support import graphs, naive
from tests.support.damage import edited_manifest
from vcr_graphormer import (
    ConfigError,
    Connections,
    Graph,
    GraphError,
    Ranker,
    Ranking,
    Split,
    StoreError,
    content_connections,
    exact_pagerank,
    generate,
    load_dataset,
    rank,
    structure_connections,
)


def as_dense(ranking: Ranking, size: int) -> np.ndarray:
    """Scores by id, to compare each score with the exact one of the same id."""
    result = np.zeros((len(ranking.ids), size))
    for row, (ids, scores) in enumerate(zip(ranking.ids, ranking.scores, strict=True)):
        result[row, ids[ids >= 0]] = scores[ids >= 0]
    return result


def without_own_edge(graph: Graph, connections: Connections, source: int, restart: float = 0.15) -> np.ndarray:
    assignment = connections.assignment.copy()
    assignment[source] = -1
    return exact_pagerank(graph, Connections(assignment, connections.count), source, restart)


def check_against_exact(graph: Graph, connections: Connections, leave_out: bool = False) -> None:
    """Every score of a small graph is the exact one to float32, lists are complete, sorted and padded."""
    n = graph.num_nodes
    ranking = rank(graph, connections, k=n + 2, leave_out=leave_out, threads=1)
    exact = exact_pagerank(graph, connections, np.arange(n))
    if leave_out:
        exact = np.stack([without_own_edge(graph, connections, u) for u in range(n)])
    exact = exact[:, :n].copy()
    np.fill_diagonal(exact, 0)
    found = as_dense(ranking, n)
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-6)
    assert (np.diff(ranking.scores, axis=1) <= 0).all()
    # Padding is exactly where nothing is left, and its score is 0.
    assert ((ranking.ids == -1) == (ranking.scores == 0)).all()
    np.testing.assert_array_equal((found > 0).sum(axis=1), (exact > 1e-12).sum(axis=1))
    for row in ranking.ids:
        assert len(set(row[row >= 0])) == (row >= 0).sum()


@pytest.mark.parametrize("make", graphs.TINY)
@pytest.mark.parametrize("leave_out", [False, True])
def test_exact_on_tiny_graphs(make: Callable[[], Graph], leave_out: bool) -> None:
    graph = make()
    n = graph.num_nodes
    for count in sorted({1, min(2, n), n}):
        check_against_exact(graph, structure_connections(graph, count), leave_out)
    labels = np.arange(n) % 3
    check_against_exact(graph, content_connections(labels, np.arange(0, n, 2)), leave_out)
    check_against_exact(graph, content_connections(labels, np.arange(min(n, 1))), leave_out)  # a label with one member


@settings(deadline=None, max_examples=60)
@given(rewired_graphs(max_nodes=14), st.booleans())
def test_exact_on_random_graphs(case: tuple[Graph, Connections], leave_out: bool) -> None:
    check_against_exact(*case, leave_out)


def test_order_ties_and_k() -> None:
    star = graphs.star(6)
    ranking = rank(star, k=3)
    # From the middle all leaves are alike: the smaller ids win. From a leaf the middle comes first.
    assert ranking.ids[0].tolist() == [1, 2, 3]
    assert ranking.ids[4].tolist() == [0, 1, 2]
    assert rank(star, k=1).ids.shape == (7, 1)
    assert rank(star, k=1).ids[:, 0].tolist() == [1, 0, 0, 0, 0, 0, 0]


def test_isolated_nodes_have_padding_only() -> None:
    ranking = rank(graphs.isolated_node(), k=2)
    assert ranking.ids.tolist() == [[1, -1], [0, -1], [-1, -1]]
    assert ranking.scores[2].tolist() == [0, 0]
    assert rank(graphs.single_node(), k=1).ids.tolist() == [[-1]]
    no_edges = Graph.from_edges([[], []], num_nodes=4)
    assert (rank(no_edges, k=2).ids == -1).all()
    linked = rank(no_edges, structure_connections(no_edges, 1), k=3)
    assert linked.ids[2].tolist() == [0, 1, 3]


def test_relabelling_the_nodes_relabels_the_result() -> None:
    for nodes, edges, tolerance in (
        (300, 900, 2e-6),
        (2000, 12_000, 2e-3),
    ):  # exact to float32, and at default settings
        graph = generate(nodes, edges, classes=3, seed=1, features=0)
        order = np.random.default_rng(0).permutation(nodes)
        rows = np.repeat(np.arange(nodes), graph.degrees)
        renamed = Graph.from_edges(np.stack([order[rows], order[graph.indices]]), nodes)
        assert graph.labels is not None
        connections = Connections(graph.labels.astype(np.int32), 3)
        other = Connections(graph.labels[np.argsort(order)].astype(np.int32), 3)
        first, second = (as_dense(rank(g, c, k=10), nodes) for g, c in ((graph, connections), (renamed, other)))
        np.testing.assert_array_equal((first > 0).sum(axis=1), (second[order] > 0).sum(axis=1))
        both = (first[:, np.argsort(order)] > 0) & (second[order] > 0)
        assert both.sum() > 0.97 * (first > 0).sum()
        np.testing.assert_allclose(first[:, np.argsort(order)][both], second[order][both], atol=tolerance)


@pytest.fixture(scope="module")
def medium() -> tuple[Graph, Connections, Connections]:
    graph = generate(6000, 40_000, classes=6, communities=30, homophily=0.7, seed=3, features=0)
    train = Split.random(graph.labels, seed=0).train
    return graph, structure_connections(graph, 10), content_connections(graph.labels, train)


@pytest.mark.parametrize("kind", ["structure", "content", "leave_out"])
def test_value_recall_at_default_settings(medium: tuple[Graph, Connections, Connections], kind: str) -> None:
    graph, structure, content = medium
    connections = structure if kind == "structure" else content
    sources = np.random.default_rng(5).choice(graph.num_nodes, 60, replace=False)
    ranking = rank(graph, connections, k=20, sources=sources, leave_out=kind == "leave_out")
    if kind == "leave_out":
        exact = np.stack([without_own_edge(graph, connections, int(u)) for u in sources])
    else:
        exact = exact_pagerank(graph, connections, sources)
    assert naive.value_recall(ranking.ids, exact[:, : graph.num_nodes], sources, 20) >= 0.99
    # Each score belongs to its id: within 5 % of the exact score of that very node, for 99 of 100 entries.
    own = np.take_along_axis(exact, ranking.ids.astype(np.int64), axis=1)
    assert np.mean(np.abs(ranking.scores / own - 1) < 0.05) > 0.99


def test_label_super_nodes_are_reached_at_default_settings(medium: tuple[Graph, Connections, Connections]) -> None:
    graph, _, content = medium
    plain, connected = rank(graph, None, k=20), rank(graph, content, k=20)
    assert (plain.ids != connected.ids).any(axis=1).mean() > 0.5
    assert connected.ids.max() < graph.num_nodes  # lists hold no super nodes


def test_scores_by_super_nodes_are_exact_on_small_graphs() -> None:
    graph = graphs.karate_club()
    connections = content_connections(np.arange(34) % 2, np.arange(0, 34, 3))
    for leave_out in (False, True):
        ranking = rank(graph, connections, k=40, leave_out=leave_out)
        exact = exact_pagerank(graph, connections, np.arange(34))
        if leave_out:
            exact = np.stack([without_own_edge(graph, connections, u) for u in range(34)])
        exact[np.arange(34), np.arange(34)] = 0
        np.testing.assert_allclose(as_dense(ranking, 34), exact[:, :34], atol=1e-6)


def test_threads_and_shards_give_the_same_bits(medium: tuple[Graph, Connections, Connections]) -> None:
    graph, _, content = medium
    whole = rank(graph, content, k=15, leave_out=True, threads=1)
    for threads in (2, 5):
        other = rank(graph, content, k=15, leave_out=True, threads=threads)
        assert (other.ids.tobytes(), other.scores.tobytes()) == (whole.ids.tobytes(), whole.scores.tobytes())
        assert other.visits == whole.visits
    ranker = Ranker.prepare(graph, content, threads=2)
    for sources in (np.arange(100, 107), np.array([4000, 3, 77]), np.array([3, 3])):
        shard = ranker.rank(sources, 15, leave_out=True)
        assert shard.ids.tobytes() == whole.ids[sources].tobytes()
        assert shard.scores.tobytes() == whole.scores[sources].tobytes()


def test_fewer_visits_than_plain_push_needs(medium: tuple[Graph, Connections, Connections]) -> None:
    graph, structure, _ = medium
    coarse, fine = rank(graph, structure, tolerance=0.7), rank(graph, structure, tolerance=0.05)
    assert 0 < coarse.visits < 0.2 * fine.visits
    assert coarse.visits / graph.num_nodes < 300


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", ["structure", "content", "leave_out"])
def test_recall_of_weighted_and_directed_graphs(weighted: bool, directed: bool, kind: str) -> None:
    base = generate(3000, 12_000, classes=5, seed=4, features=0)
    random = np.random.default_rng(1)
    kept = random.random(base.num_arcs) < (0.7 if directed else 1.0)
    edges = np.stack([np.repeat(np.arange(3000), base.degrees), base.indices])[:, kept]
    weights = random.uniform(0.2, 5, edges.shape[1]) if weighted else None
    graph = Graph.from_edges(edges, 3000, edge_weight=weights, directed=directed)
    connections = structure_connections(graph, 8)
    if kind != "structure":
        connections = content_connections(base.labels, random.choice(3000, 900, replace=False))
    sources = random.choice(3000, 60, replace=False)
    ranking = rank(graph, connections, sources=sources, leave_out=kind == "leave_out")
    exact = exact_pagerank(graph, connections, sources)
    if kind == "leave_out":
        exact = np.stack([without_own_edge(graph, connections, int(u)) for u in sources])
    assert naive.value_recall(ranking.ids, exact[:, :3000], sources, 20) >= 0.99


def test_underflowing_weights_stay_within_bounds(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    edges = np.stack([np.repeat(np.arange(100), 8), random.integers(0, 100, 800)])
    for tiny in (1e-9, 1e-30):
        weights = np.where(random.random(800) < 0.1, 1.0, tiny)
        graph = Graph.from_edges(edges, 100, edge_weight=weights)
        ranking = rank(graph, k=20)
        assert np.isfinite(ranking.scores).all()
        if tiny < 1e-12:
            continue  # raised to 1e-12 of the mean, so ratios among the lightest edges are lost
        exact = exact_pagerank(graph, None, np.arange(100))
        own = np.take_along_axis(exact, np.maximum(ranking.ids, 0).astype(np.int64), axis=1)
        np.testing.assert_allclose(ranking.scores, np.where(ranking.ids >= 0, own, 0), atol=1e-5)
    # numba checks no bounds by default: once more with its checks.
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    script = (
        "import numpy as np; from vcr_graphormer import Graph, rank\n"
        "r = np.random.default_rng(0); e = np.stack([np.repeat(np.arange(100), 8), r.integers(0, 100, 800)])\n"
        "for tiny in (1e-15, 1e-20, 1e-30):\n"
        "    rank(Graph.from_edges(e, 100, edge_weight=np.where(r.random(800) < 0.1, 1.0, tiny)), k=20)\n"
        "e = r.integers(0, 900, (2, 6000))\n"
        "rank(Graph.from_edges(e, 900, directed=True), k=20)\n"
    )
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)


@pytest.mark.parametrize("nodes", [1600, 3200, 6400])
def test_many_isolated_nodes(nodes: int) -> None:
    edges = np.random.default_rng(0).integers(0, 400, (2, 4000))
    ranking = rank(Graph.from_edges(edges, nodes), k=5)
    assert (ranking.ids[500:] == -1).all()
    assert (ranking.ids[:300, 0] >= 0).all()


def test_directed_sinks() -> None:
    star = Graph.from_edges([[0] * 6400, range(1, 6401)], directed=True)
    ranking = rank(star, k=3)
    assert (ranking.ids[1:] == -1).all()
    assert (ranking.ids[0] >= 1).all()
    np.testing.assert_allclose(ranking.scores[0], 0.85 / 6400, rtol=0.01)
    # A large digraph that feeds small cycles: from a cycle only the cycle can be reached.
    random = np.random.default_rng(3)
    cycles = 3000 + np.arange(500)
    sources = np.concatenate([random.integers(0, 3000, 9500), cycles])
    targets = np.concatenate([random.integers(0, 3000, 9000), cycles, cycles - cycles % 5 + (cycles + 1) % 5])
    graph = Graph.from_edges(np.stack([sources, targets]), directed=True)
    ranking = rank(graph, k=10, sources=cycles)
    for row, node in zip(ranking.ids, cycles, strict=True):
        assert set(row[row >= 0]) == set(range(node - node % 5, node - node % 5 + 5)) - {node}


def test_leave_out_does_not_list_what_the_edge_held_together() -> None:
    """Without its own edge the path 0-1-2-3 reaches super node 1 only, not the 996 members of super node 0."""
    random = np.random.default_rng(1)
    edges = np.concatenate([[[0, 1, 2], [1, 2, 3]], random.integers(4, 3000, (2, 6000))], axis=1)
    assignment = np.full(3000, -1, dtype=np.int32)
    assignment[[0, *range(4, 1000)]] = 0
    assignment[3] = 1
    graph, connections = Graph.from_edges(edges, 3000), Connections(assignment, 2)
    ranking = rank(graph, connections, k=10, leave_out=True, sources=[0])
    assert set(ranking.ids[0][ranking.ids[0] >= 0]) == {1, 2, 3}


def test_ties_are_alike_whether_listed_or_not() -> None:
    star = graphs.star(3000)
    ranking = rank(star, k=20)
    np.testing.assert_allclose(ranking.scores[0], 0.15 * 0.85 / (1 - 0.85**2) / 3000, rtol=0.02)


def test_smaller_tolerance_is_closer(medium: tuple[Graph, Connections, Connections]) -> None:
    graph, structure, _ = medium
    ranker = Ranker.prepare(graph, structure)
    visits = [ranker.rank(np.arange(50), 20, tolerance).visits for tolerance in (0.5, 0.08, 0.01, 0.001)]
    assert visits == sorted(visits)
    assert len(set(visits)) == 4


@pytest.mark.parametrize("name", ["PubMed", "Computer", "Photo", "Squirrel"])
@pytest.mark.parametrize("kind", ["structure", "content", "leave_out"])
def test_value_recall_on_real_graphs(name: str, kind: str, data_root: Path) -> None:
    graph = load_dataset(name, data_root)
    connections = structure_connections(graph, 10)
    if kind != "structure":
        connections = content_connections(graph.labels, Split.random(graph.labels, seed=0).train)
    sources = np.random.default_rng(11).choice(graph.num_nodes, 100, replace=False)
    exact = exact_pagerank(graph, connections, sources)[:, : graph.num_nodes]
    if kind == "leave_out":  # a graph of its own for each source that has a label
        for row in np.flatnonzero(connections.assignment[sources] >= 0):
            exact[row] = without_own_edge(graph, connections, int(sources[row]))[: graph.num_nodes]
    ranking = rank(graph, connections, k=20, sources=sources, leave_out=kind == "leave_out")
    assert naive.value_recall(ranking.ids, exact, sources, 20) >= 0.99


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"k": 0}, ConfigError, "k is 0; it must be a whole number of at least 1"),
        ({"k": 2.5}, ConfigError, "k is 2.5"),
        ({"restart": 1.0}, ConfigError, "restart is 1.0"),
        ({"restart": 1e-7}, ConfigError, "must lie between 0.001 and 1"),
        ({"k": 10**12}, ConfigError, "lists of that length do not fit into memory"),
        ({"tolerance": 0.0}, ConfigError, "tolerance is 0.0; it must lie between 0 and 1"),
        ({"threads": 0}, ConfigError, "threads is 0"),
        ({"sources": [5]}, GraphError, "sources contains node 5 but the graph has nodes 0 to 4"),
        ({"sources": [-1]}, GraphError, "sources contains node -1"),
        ({"sources": [[0]]}, GraphError, "it must be a list of node ids"),
        ({"connections": Connections(np.zeros(3, dtype=np.int32), 1)}, GraphError, "assignment has 3 entries"),
    ],
)
def test_bad_input(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        rank(graphs.path(5), **arguments)


def test_a_saved_ranker_ranks_the_same(tmp_path: Path) -> None:
    graph = generate(2000, 10_000, seed=0, features=0)
    ranker = Ranker.prepare(graph, structure_connections(graph, 5))
    folder = ranker.save(tmp_path / "ranker", graph)
    opened = Ranker.open(folder, graph)
    first, second = (one.rank(k=7, leave_out=True) for one in (ranker, opened))
    np.testing.assert_array_equal(first.ids, second.ids)
    np.testing.assert_array_equal(first.scores, second.scores)
    assert (opened.visits, first.visits) == (ranker.visits, second.visits)
    opened.vectors.values[0] = -1  # its arrays look writable, but the file stays as it is
    Graph.verify(folder)
    with pytest.raises(StoreError, match="was prepared for another graph than generated"):
        Ranker.open(folder, generate(2000, 10_000, seed=1, features=0))
    with pytest.raises(StoreError, match="exists"):
        ranker.save(folder, graph)
    with edited_manifest(folder) as manifest:
        del manifest["arrays"]["hubs"], manifest["meta"]["visits"]
    with pytest.raises(StoreError, match="its manifest lacks hubs, visits"):
        Ranker.open(folder, graph)


def test_weights_too_small_for_float32_fill_no_list_beyond_its_end() -> None:
    """A push that adds nothing must not count its neighbour as new again: once that wrote past the end of an array."""
    many = 4000
    chain = [(0, 1, 1e-12), (1, 2, 1e-12), (2, 3, 1e-12), (3, 4, 1.0), (0, 5, 1.0), (1, 6, 1.0), (2, 7, 1.0)]
    fan = [(3, 8 + i, 1e-12) for i in range(many)]
    ends = [(8 + i, 8 + many + i, 3.0 if i < many // 3 else 1.0) for i in range(many)]
    first, second, weight = zip(*chain, *fan, *ends, strict=True)
    graph = Graph.from_edges([first, second], num_nodes=8 + 2 * many, edge_weight=np.array(weight))
    found = rank(graph, k=8, sources=[0], tolerance=1e-36)
    assert len(set(found.ids[0].tolist())) == 8
    assert found.ids[0, 0] == 5
    assert found.scores[0, 0] == pytest.approx(exact_pagerank(graph, None, 0)[5], rel=1e-4)


@pytest.mark.parametrize("nodes", [[0], [], 0, np.array([0, 1])])
def test_sources_in_the_place_of_connections(nodes: Any) -> None:
    graph = generate(10, 20, classes=2, seed=0)
    for use in (rank, Ranker.prepare, exact_pagerank):
        with pytest.raises(
            GraphError, match=r"connections is a .*; it must be Connections, .* give nodes to rank by sour"
        ):
            use(graph, nodes)
