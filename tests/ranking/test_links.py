"""Nodes that link alike: against the slow twin, with literal values, saved and opened, as tokens of every executor."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import vcr_graphormer as vcr
from tests.support import graphs, naive
from tests.support.dask_cluster import Here
from tests.support.plain import token_config
from tests.support.runs import all_bytes, list_graph
from vcr_graphormer import ConfigError, Graph, StoreError, tokenize
from vcr_graphormer.ranking import links
from vcr_graphormer.ranking.links import LinkRanker
from vcr_graphormer.tokens import build as tokens
from vcr_graphormer.tokens.resources import needed_disk, needed_memory

ONLY_LINKS = token_config(hops=0, structure_tokens=0, content_tokens=5, content="links")


@settings(deadline=None)  # the first call compiles
@given(graphs.edge_lists(), st.booleans(), st.booleans(), st.integers(1, 9))
@example((6, [(1, 5), (0, 5), (2, 4), (2, 4), (2, 5), (0, 5), (2, 5), (2, 4)]), True, True, 9)  # a tie but for 1e-16
def test_equals_the_slow_twin(
    edges: tuple[int, list[tuple[int, int]]], directed: bool, weighted: bool, most: int
) -> None:
    num_nodes, pairs = edges
    weight = 1.0 + np.arange(len(pairs)) % 3 if weighted else None
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    graph = Graph.from_edges(table, num_nodes, edge_weight=weight, directed=directed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(links, "MOST_LINKS", most)
        ranking = LinkRanker.prepare(graph).rank(k=num_nodes, threads=2)
    for source in range(num_nodes):
        expected = naive.link_similarity(graph, source, most)
        found, scores = ranking.ids[source], ranking.scores[source]
        listed = found[found >= 0]
        assert set(listed) == {node for node, value in enumerate(expected) if value > 0 and node != source}
        np.testing.assert_allclose(scores[: len(listed)], [expected[node] for node in listed], rtol=1e-6)
        assert (scores[len(listed) :] == 0).all()
        order = [(-score, node) for score, node in zip(scores, listed, strict=False)]
        assert order == sorted(order)


@pytest.mark.parametrize("directed", [False, True])
def test_counting_shared_links_gives_the_bits_of_adding_products(
    directed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = (np.random.default_rng(0).random((2, 4000)) ** 2 * 400).astype(np.int64)  # some nodes have many links
    ranker = LinkRanker.prepare(Graph.from_edges(ends, 400, directed=directed))
    counted = ranker.rank(k=12, threads=2)
    monkeypatch.setattr(links, "MOST_COUNTED", 20)  # blocks with a source of more links are added up
    mixed = ranker.rank(k=12, threads=2)
    monkeypatch.setattr(links, "NODES_PER_SOURCE", 0)
    added = ranker.rank(k=12, threads=1)
    for found in (counted, mixed):
        np.testing.assert_array_equal(found.ids, added.ids)
        np.testing.assert_array_equal(found.scores, added.scores)
        assert found.visits == added.visits


def test_literal_values() -> None:
    # 0 and 1 link to the same two pages, 2 to one of them; 3 and 4 link nowhere.
    pages = Graph.from_edges([[0, 0, 1, 1, 2], [3, 4, 3, 4, 4]], directed=True)
    ranker = LinkRanker.prepare(pages)
    found = ranker.rank(k=2)
    assert found.ids.tolist() == [[1, 2], [0, 2], [0, 1], [-1, -1], [-1, -1]]
    assert found.scores[0].tolist() == [1.0, pytest.approx(0.5**0.5)]
    # 0 and 1 look at two links to page 3 and three to page 4, 2 at the latter only.
    assert (found.visits, ranker.rank([2], k=1).visits) == (13, 3)
    # A third of nine links shared, or all of one: 1/√3 both, so the smaller id comes first.
    shares = [(0, w) for w in (3, 4, 5)] + [(1, w) for w in range(3, 12)] + [(2, 3)]
    assert LinkRanker.prepare(Graph.from_edges(np.array(shares).T, directed=True)).rank([0], k=2).ids.tolist() == [
        [1, 2]
    ]
    # Both ways: the two ends of a path are alike, its middle is like nothing.
    path = LinkRanker.prepare(graphs.path(3)).rank(k=2)
    assert path.ids.tolist() == [[2, -1], [-1, -1], [0, -1]]
    assert path.scores[:, 0].tolist() == [1.0, 0.0, 1.0]


def test_identical_rows_are_exactly_alike_whatever_their_weights() -> None:
    weights = np.random.default_rng(0).random(40).astype(np.float32) + 0.1
    targets = np.arange(40) + 2
    edges = [np.repeat([0, 1], 40), np.tile(targets, 2)]
    graph = Graph.from_edges(edges, edge_weight=np.tile(weights, 2), directed=True)
    assert LinkRanker.prepare(graph).rank([0, 1], k=1).scores.tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("directed", [False, True])
def test_saved_and_opened(directed: bool, tmp_path: Path) -> None:
    edges = np.random.default_rng(0).integers(0, 60, (2, 200))
    graph = Graph.from_edges(edges, 60, edge_weight=np.arange(200) + 1.0, directed=directed)
    ranker = LinkRanker.prepare(graph)
    opened = LinkRanker.open(ranker.save(tmp_path / "ranker", graph), graph)
    first, second = ranker.rank(k=4), opened.rank(k=4, threads=1)
    np.testing.assert_array_equal(first.ids, second.ids)
    np.testing.assert_array_equal(first.scores, second.scores)
    with pytest.raises(StoreError, match="prepared for another graph"):
        LinkRanker.open(tmp_path / "ranker", graphs.path(60))


@pytest.mark.parametrize("directed", [False, True])
def test_every_executor_makes_the_same_lists(directed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "SOURCES_AT_ONCE", 130)
    edges = np.random.default_rng(0).integers(0, 500, (2, 3000))
    graph = Graph.from_edges(edges, 500, directed=directed)
    store = tokenize(graph, None, ONLY_LINKS, tmp_path / "threads")
    expected = LinkRanker.prepare(graph).rank(k=5)
    np.testing.assert_array_equal(store.ids("content"), expected.ids)
    np.testing.assert_array_equal(store.scores("content"), expected.scores)
    assert store.config["content"] == "links"
    assert (np.asarray(store.assignment("content")) == -1).all()
    assert all_bytes(tokenize(graph, None, ONLY_LINKS, tmp_path / "path", executor=Here())) == all_bytes(store)


def test_neither_features_nor_labels_nor_clusters_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("no cluster is needed")

    monkeypatch.setattr(tokens, "coarse_clusters", refuse)
    assert tokenize(graphs.karate_club(), None, ONLY_LINKS, tmp_path / "t").ids("content").shape == (34, 5)


def test_a_store_of_links_is_not_taken_for_one_of_features(tmp_path: Path) -> None:
    tokenize(list_graph(), None, ONLY_LINKS, tmp_path / "t")
    with pytest.raises(StoreError, match="kind of content"):
        tokenize(list_graph(), None, replace(ONLY_LINKS, content="features"), tmp_path / "t")


def test_a_run_is_trained_and_explained_with_them(tmp_path: Path) -> None:
    graph = list_graph()
    config = vcr.load_config(
        options={
            "tokens": {"content": "links", "content_tokens": 3, "structure_tokens": 2, "hops": 1},
            "model": {"hidden_channels": 8, "heads": 2, "label_embedding": True},
            "training": {"epochs": 2},
        }
    )
    run = vcr.train(graph, vcr.Split.random(graph.labels, seed=0), config, tmp_path / "run", device="cpu")
    found = run.explain(7)
    listed = [token.node for token in found.tokens if token.kind == "content"]
    assert listed == LinkRanker.prepare(graph).rank([7], k=3).ids[0].tolist()
    assert set(run.rewiring([7])) == {"structure"}  # no super nodes of content


def test_memory_is_said_before_and_grows_with_arcs_only_where_they_are_turned() -> None:
    graph, directed = list_graph(), Graph.from_edges(np.random.default_rng(0).integers(0, 90, (2, 500)), directed=True)
    assert needed_memory(graph, ONLY_LINKS, 2) == {"neighbours by links": 12 * 3 * 1500}
    assert needed_memory(directed, ONLY_LINKS, 1)["neighbours by links"] == 12 * 2 * 90 + 24 * directed.num_arcs


@pytest.mark.parametrize(("directed", "weighted"), [(False, False), (True, False), (True, True)])
def test_disk_for_workers_is_what_is_saved(directed: bool, weighted: bool, tmp_path: Path) -> None:
    edges = np.random.default_rng(0).integers(0, 500, (2, 9000))
    graph = Graph.from_edges(edges, 500, edge_weight=np.ones(9000) + 1 if weighted else None, directed=directed)
    graph = Graph.open(graph.save(tmp_path / "graph"))
    saved = LinkRanker.prepare(graph).save(tmp_path / "ranker", graph)
    size = sum(file.stat().st_size for file in saved.glob("*.npy"))
    counted = needed_disk(graph, ONLY_LINKS, by_path=True) - needed_disk(graph, ONLY_LINKS)
    assert counted == pytest.approx(size, abs=600)  # headers of the files


def test_a_model_of_links_does_not_read_lists_of_labels(tmp_path: Path) -> None:
    graph = list_graph()
    split = vcr.Split.random(graph.labels, seed=0)
    config = vcr.load_config(
        options={
            "tokens": {"content": "links", "hops": 0, "structure_tokens": 0, "link_tokens": 0},
            "training": {"epochs": 1},
        }
    )
    run = vcr.train(graph, split, config, tmp_path / "run", device="cpu")
    other = tokenize(graph, split.train, replace(config.tokens, content="labels"), tmp_path / "labels")
    with pytest.raises(StoreError, match="content neighbours by labels, the model was trained with those by links"):
        run.on(graph, other)


@pytest.mark.parametrize("k", [0, True, 2.5])
def test_bad_lengths(k: Any) -> None:
    with pytest.raises(ConfigError, match="k is .*whole number of at least 1"):
        LinkRanker.prepare(graphs.path(3)).rank(k=k)
