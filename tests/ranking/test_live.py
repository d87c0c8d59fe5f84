"""Rankers on a graph that grows in memory: the same lists as on the grown graph, and no trace of what is undone."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import vcr_graphormer as vcr
from vcr_graphormer.data.contract import build_adjacency
from vcr_graphormer.ranking import live, live_rankers
from vcr_graphormer.ranking.connections import Connections
from vcr_graphormer.ranking.exact import super_edge_weight
from vcr_graphormer.ranking.growth import grow_ranker, join_clusters
from vcr_graphormer.ranking.links import LinkRanker
from vcr_graphormer.ranking.pagerank import Ranker


def make_graph(directed: bool = False, weighted: bool = False, nodes: int = 400) -> vcr.Graph:
    graph = vcr.generate(nodes, 3 * nodes, classes=3, features=4, seed=1)
    random = np.random.default_rng(0)
    sources = np.repeat(np.arange(nodes), graph.degrees)
    keep = random.random(graph.num_arcs) < (0.6 if directed else 1.0)
    edges = np.stack([sources, graph.indices])[:, keep]
    weights = random.uniform(0.5, 2.0, edges.shape[1]) if weighted else None
    return vcr.Graph.from_edges(edges, nodes, weights, features=graph.features, directed=directed)


def make_addition(graph: Any, first: int, count: int, edges: Any, weights: Any = None) -> live.Addition:
    """The arcs of new nodes, as `Graph.from_edges` would make them."""
    values = None if weights is None else np.asarray(weights, dtype=np.float32)
    indptr, indices, made = build_adjacency(np.asarray(edges), values, first + count, graph.directed)
    source = np.repeat(np.arange(first + count), np.diff(indptr))
    return live.Addition(
        first, count, source, indices.astype(np.int64), np.ones(len(source), np.float32) if made is None else made
    )


def random_edges(graph: vcr.Graph, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Each new node has some edges to old nodes; some are linked to each other; the last has none."""
    random, first = np.random.default_rng(seed), graph.num_nodes
    pairs = [(first + new, int(old)) for new in range(count - 1) for old in random.integers(0, first, 4)]
    pairs += [(first, first + 1), (7, first)]
    ends = np.array(pairs).T
    return ends[0], ends[1]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_lists_of_new_nodes_are_those_on_the_grown_graph(directed: bool, weighted: bool) -> None:
    graph = make_graph(directed, weighted)
    connections = vcr.structure_connections(graph, 4)
    ranker, links = Ranker.prepare(graph, connections), LinkRanker.prepare(graph)
    growing = live.LiveGraph(graph, super_edge_weight(graph))
    pagerank, similar = live_rankers.LivePageRank(ranker, graph, growing), live_rankers.LiveLinks(links, growing)
    before = [array.copy() for array in (pagerank.vectors.total[:400], growing.out[:400], similar.lengths[:400])]
    for seed in range(3):  # the second and third start from what undoing has left
        edges = random_edges(graph, 4, seed)
        weights = np.random.default_rng(seed).uniform(0.5, 2.0, len(edges[0])) if weighted else None
        bigger = graph.extend(features=np.zeros((4, 4), np.float32), edges=edges, weights=weights)
        addition = make_addition(graph, 400, 4, edges, weights)
        undo = live.Undo()
        growing.add(addition, undo)
        assert growing.num_arcs == bigger.num_arcs
        owner, target, weight = growing.rows.take(np.arange(404))
        assert np.array_equal(target, bigger.indices)
        assert np.array_equal(np.bincount(owner, minlength=404), bigger.degrees)
        if bigger.weights is not None:
            assert np.array_equal(weight, bigger.weights)
        joined = live_rankers.join_neighbours(addition, pagerank.assignment)
        assignment = join_clusters(bigger, connections.assignment)
        assert np.array_equal(joined, assignment[400:])
        pagerank.add(addition, joined, undo)
        similar.add(addition, undo)
        expected = grow_ranker(ranker, graph, bigger, Connections(assignment, 4)).rank(addition.nodes, 6)
        ids, scores = pagerank.rank(addition.nodes, 6, tolerance=0.07, leave_out=False)
        assert np.array_equal(ids, expected.ids)
        assert np.array_equal(scores, expected.scores)
        expected = LinkRanker.prepare(bigger).rank(addition.nodes, 6)
        ids, scores = similar.rank(addition.nodes, 6)
        assert np.array_equal(ids, expected.ids)
        np.testing.assert_allclose(scores, expected.scores, rtol=1e-6)
        undo.back()
        growing.drop(addition)
    after = (pagerank.vectors.total[:400], growing.out[:400], similar.lengths[:400])
    assert all(np.array_equal(old, new) for old, new in zip(before, after, strict=True))
    assert growing.num_nodes == 400
    assert np.array_equal(growing.rows.take(np.arange(400))[1], graph.indices)


def test_additions_that_stay_are_those_of_a_graph_that_grew_in_steps() -> None:
    graph = make_graph()
    connections = vcr.structure_connections(graph, 4)
    ranker = Ranker.prepare(graph, connections)
    growing = live.LiveGraph(graph, 1.0)
    pagerank = live_rankers.LivePageRank(ranker, graph, growing)
    bigger, expected, assignment = graph, ranker, connections.assignment
    for seed in range(5):
        first = bigger.num_nodes
        ends = np.random.default_rng(seed).integers(0, first, 3)
        edges = (np.full(4, first), np.append(ends, 5))  # node 5 has to move its row again and again
        grown = bigger.extend(features=np.zeros((1, 4), np.float32), edges=edges)
        addition, undo = make_addition(graph, first, 1, edges), live.Undo()
        growing.add(addition, undo)
        joined = live_rankers.join_neighbours(addition, pagerank.assignment)
        pagerank.add(addition, joined, undo)
        pagerank.keep()
        assignment = join_clusters(grown, assignment)
        expected = grow_ranker(expected, bigger, grown, Connections(assignment, 4))
        ids, scores = pagerank.rank(addition.nodes, 8, tolerance=0.07, leave_out=False)
        ranking = expected.rank(addition.nodes, 8)
        assert np.array_equal(ids, ranking.ids)
        assert np.array_equal(scores, ranking.scores)
        bigger = grown
    assert np.array_equal(growing.rows.take(np.array([5]))[1], bigger.indices[bigger.indptr[5] : bigger.indptr[6]])


def test_a_new_node_joins_components() -> None:
    """Two paths and a lone node; no super nodes. The new node links the paths, so its list reaches both."""
    graph = vcr.Graph.from_edges([[0, 1, 3, 4], [1, 2, 4, 5]], num_nodes=7)
    ranker = Ranker.prepare(graph)
    growing = live.LiveGraph(graph, 1.0)
    pagerank = live_rankers.LivePageRank(ranker, graph, growing)
    nothing = np.array([-1, -1], dtype=np.int32)

    def reach(edges: Any, keep: bool) -> list[list[int]]:
        addition, undo = make_addition(graph, growing.num_nodes, 2, edges), live.Undo()
        growing.add(addition, undo)
        pagerank.add(addition, nothing, undo)
        ids, _ = pagerank.rank(addition.nodes, 8, tolerance=0.07, leave_out=False)
        if keep:
            pagerank.keep()
        else:
            undo.back()
            growing.drop(addition)
        return [sorted(row[row >= 0].tolist()) for row in ids]

    assert reach([[7, 7], [0, 3]], keep=False) == [[0, 1, 2, 3, 4, 5], []]
    assert reach([[7, 8], [0, 6]], keep=False) == [[0, 1, 2], [6]]
    assert reach([[7, 8], [8, 4]], keep=True) == [[3, 4, 5, 8], [3, 4, 5, 7]]
    assert reach([[9, 9], [7, 1]], keep=False) == [[0, 1, 2, 3, 4, 5, 7, 8], []]


def test_a_node_with_hubs_as_its_only_neighbours_follows_them() -> None:
    addition = live.Addition(3, 2, np.array([2, 3, 3, 4]), np.array([3, 2, 4, 3]), np.ones(4, np.float32))
    clusters, late = np.array([0, 1, -1]), np.array([0, 1, 1])
    assert live_rankers.join_neighbours(addition, clusters).tolist() == [-1, -1]
    assert live_rankers.join_neighbours(addition, clusters, late).tolist() == [1, 1]


def test_a_target_of_too_many_links_stops_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_rankers, "MOST_LINKS", 4)
    monkeypatch.setattr("vcr_graphormer.ranking.links.MOST_LINKS", 4)
    graph = vcr.Graph.from_edges([[0, 1, 2, 3, 0, 1], [4, 4, 4, 4, 5, 5]], num_nodes=6)
    growing = live.LiveGraph(graph, 1.0)
    similar = live_rankers.LiveLinks(LinkRanker.prepare(graph), growing)
    addition = make_addition(graph, 6, 1, [[6, 6], [4, 5]])
    growing.add(addition, live.Undo())
    similar.add(addition, live.Undo())
    bigger = replace(graph, features=np.zeros((6, 1), np.float32)).extend(features=[[0.0]], edges=([6, 6], [4, 5]))
    expected = LinkRanker.prepare(bigger)
    np.testing.assert_allclose(similar.lengths[:7], expected.lengths)
    assert np.array_equal(similar.rank(addition.nodes, 3)[0], expected.rank([6], 3).ids)


def test_distances() -> None:
    growing = live.LiveGraph(vcr.Graph.from_edges([[0, 1, 2, 4], [1, 2, 3, 5]]), 1.0)
    assert growing.distances(0, [3, 1, 0, 5], 100) == {0: 0, 1: 1, 3: 3}
    assert growing.distances(0, [3, 1], 2) == {1: 1}
