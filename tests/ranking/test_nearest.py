"""Nodes with similar features: against the slow reference, with literal values, saved and opened, as tokens."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import vcr_graphormer as vcr
from tests.support import graphs, naive
from tests.support.dask_cluster import Here
from tests.support.plain import token_config
from tests.support.runs import CONFIG, all_bytes, list_graph
from vcr_graphormer import ConfigError, FeatureRanker, Graph, GraphError, HopFeatureRanker, StoreError
from vcr_graphormer.ranking import nearest
from vcr_graphormer.ranking.kernels.nearest import LANES
from vcr_graphormer.tokens import build as tokens
from vcr_graphormer.tokens.resources import needed_memory

RANKERS = (FeatureRanker, HopFeatureRanker)
ONLY_NEAREST = token_config(hops=0, structure_tokens=0, content_tokens=0, content="labels", nearest_tokens=5)


@st.composite
def featured_graphs(draw: st.DrawFn) -> Graph:
    """Any edges, and features of few values: many ties, rows of zeros, constant and negative ones."""
    num_nodes, pairs = draw(graphs.edge_lists())
    columns, directed = draw(st.integers(1, 7)), draw(st.booleans())
    value = st.sampled_from([0.0, 0.0, 1.0, 1.0, -1.0, 2.0, 0.3])
    entries = draw(st.lists(value, min_size=num_nodes * columns, max_size=num_nodes * columns))
    features = np.array(entries, dtype=np.float32).reshape(num_nodes, columns)
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    weight = 1.0 + np.arange(len(pairs)) % 3 if draw(st.booleans()) else None
    return Graph.from_edges(table, num_nodes, features=features, edge_weight=weight, directed=directed)


def grouped_graph(nodes: int = 400, sparse: bool = False) -> Graph:
    """Rows around eight centres, some of them equal, some zero."""
    rng = np.random.default_rng(0)
    features = (rng.random((8, 40)) < 0.3)[rng.integers(0, 8, nodes)] * rng.random((nodes, 40))
    features[::50], features[1::60] = 0, features[1]
    stored: Any = sp.csr_matrix(features, dtype=np.float32) if sparse else features.astype(np.float32)
    return Graph.from_edges(rng.integers(0, nodes, (2, 3 * nodes)), nodes, features=stored)


def same(first: vcr.Ranking, second: vcr.Ranking) -> None:
    np.testing.assert_array_equal(first.ids, second.ids)
    np.testing.assert_array_equal(first.scores, second.scores)


@settings(deadline=None)  # the first call compiles
@given(featured_graphs(), st.sampled_from(RANKERS), st.integers(1, 14))
def test_equals_the_slow_reference(graph: Graph, ranker: type[FeatureRanker], k: int) -> None:
    ranking = ranker.prepare(graph).rank(k=k, threads=2)
    for source in range(graph.num_nodes):
        expected = naive.feature_similarity(graph, source, ranker.with_hop)
        listed = [int(node) for node in ranking.ids[source] if node >= 0]
        scores = ranking.scores[source]
        assert source not in listed
        assert len(set(listed)) == len(listed)
        np.testing.assert_allclose(scores[: len(listed)], [expected[node] for node in listed], atol=nearest.STEP)
        assert (scores[: len(listed)] > 0).all()
        assert (scores[len(listed) :] == 0).all()
        assert (ranking.ids[source, len(listed) :] == -1).all()
        order = [(-score, node) for score, node in zip(scores, listed, strict=False)]
        assert order == sorted(order)
        # No other node is nearer than the last one, or than nothing where places are left.
        least = scores[len(listed) - 1] if len(listed) == k else 0.0
        others = [expected[node] for node in range(graph.num_nodes) if node not in (source, *listed)]
        assert max(others, default=0.0) <= least + nearest.STEP


def test_literal_values() -> None:
    # 1 and 3 point the way of 0, 2 half of it, 4 away from it; 5 is zero.
    rows = [[3.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.5, 0.0], [-1.0, 0.0], [0.0, 0.0]]
    graph = Graph.from_edges([[0], [1]], 6, features=np.array(rows, dtype=np.float32))
    found = FeatureRanker.prepare(graph).rank(k=4)
    assert found.ids.tolist() == [
        [1, 3, 2, -1],
        [0, 3, 2, -1],
        [0, 1, 3, -1],
        [0, 1, 2, -1],
        [-1, -1, -1, -1],
        [-1, -1, -1, -1],
    ]
    assert found.scores[0].tolist() == [1.0, 1.0, pytest.approx(0.5**0.5, abs=1e-5), 0.0]
    # 0 and 1 are alike in their own rows and in their neighbours', the others in their own rows at most.
    hops = HopFeatureRanker.prepare(graph).rank([0, 2], k=3)
    assert hops.ids.tolist() == [[1, 3, 2], [0, 1, 3]]
    assert hops.scores[0].tolist() == [1.0, 0.5, pytest.approx(0.5**1.5, abs=1e-5)]


@pytest.mark.parametrize("ranker", RANKERS)
@pytest.mark.parametrize("approximate", [False, True])
@given(st.data())
@settings(deadline=None, max_examples=25)
def test_neither_the_other_sources_nor_threads_matter(
    ranker: type[FeatureRanker], approximate: bool, data: st.DataObject
) -> None:
    graph = grouped_graph()
    found = np.random.default_rng(1).integers(0, 400, (400, 9)).astype(np.int32) if approximate else None
    ranked = replace(ranker.prepare(graph), candidates=found)
    everything = ranked.rank(k=6, threads=1)
    sources = data.draw(st.lists(st.integers(0, 399), min_size=1, max_size=2 * LANES))
    some = ranked.rank(sources, k=6, threads=data.draw(st.integers(1, 5)))
    np.testing.assert_array_equal(some.ids, everything.ids[sources])
    np.testing.assert_array_equal(some.scores, everything.scores[sources])


@pytest.mark.parametrize("ranker", RANKERS)
def test_sparse_features_give_the_same_lists(ranker: type[FeatureRanker]) -> None:
    same(ranker.prepare(grouped_graph()).rank(k=6), ranker.prepare(grouped_graph(sparse=True)).rank(k=6))


@pytest.mark.parametrize("ranker", RANKERS)
def test_candidates_that_are_all_nodes_give_the_exact_lists(ranker: type[FeatureRanker]) -> None:
    exact = ranker.prepare(grouped_graph(130))
    candidates = np.tile(np.arange(130, dtype=np.int32), (130, 1))
    same(exact.rank(k=9), replace(exact, candidates=candidates).rank(k=9))
    # Candidates of candidates count, padding does not: 0 sees 1, which sees 2 and 3.
    few = np.full((130, 2), -1, dtype=np.int32)
    few[0, 0], few[1] = 1, (2, 3)
    listed = replace(exact, candidates=few).rank([0, 1, 4], k=9).ids
    assert set(listed[0]) <= {1, 2, 3, -1}
    assert set(listed[1]) <= {2, 3, -1}
    assert set(listed[2]) == {-1}


@pytest.mark.parametrize("ranker", RANKERS)
@pytest.mark.parametrize("make", graphs.TINY)
def test_tiny_graphs_constant_features_and_zeros(ranker: type[FeatureRanker], make: Any) -> None:
    plain = make()
    n = plain.num_nodes
    constant = ranker.prepare(replace(plain, features=np.ones((n, 3), dtype=np.float32))).rank(k=n + 2)
    zero = ranker.prepare(replace(plain, features=np.zeros((n, 3), dtype=np.float32))).rank(k=2)
    for source in range(n):
        assert sorted(constant.ids[source])[-n + 1 :] == [v for v in range(n) if v != source] or n == 1
    assert (zero.ids == -1).all()
    assert (zero.scores == 0).all()


def test_the_approximate_search_finds_nearly_all_and_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pynndescent")
    graph = grouped_graph(1500)
    for ranker, columns in ((FeatureRanker, nearest.SEARCHED_COLUMNS), (HopFeatureRanker, 64)):
        exact = ranker.prepare(graph).rank(k=8)
        with monkeypatch.context() as patch:
            patch.setattr(nearest, "EXACT_NODES", 1499)
            patch.setattr(nearest, "SEARCHED_COLUMNS", columns)  # 64: the 80 columns are projected
            prepared = ranker.prepare(graph, threads=2)
            again = ranker.prepare(graph, threads=1)
        assert prepared.candidates is not None
        assert again.candidates is not None
        np.testing.assert_array_equal(prepared.candidates, again.candidates)
        approximate = prepared.rank(k=8, threads=2)
        same(approximate, prepared.rank(k=8, threads=1))
        assert approximate.scores.sum() >= 0.995 * exact.scores.sum()
        assert (approximate.scores <= exact.scores).all()


def test_few_or_equal_rows_do_not_break_the_approximate_search(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pynndescent")
    monkeypatch.setattr(nearest, "EXACT_NODES", 0)
    for rows in (np.ones((1, 3)), np.ones((5, 3)), np.zeros((70, 3)), np.eye(90)[:, :4]):
        graph = Graph.from_edges(np.empty((2, 0)), len(rows), features=rows.astype(np.float32))
        ids = HopFeatureRanker.prepare(graph).rank(k=3).ids
        assert (ids != np.arange(len(rows))[:, None]).all()


@pytest.mark.parametrize("ranker", RANKERS)
@pytest.mark.parametrize("approximate", [False, True])
def test_saved_and_opened(ranker: type[FeatureRanker], approximate: bool, tmp_path: Path) -> None:
    graph = grouped_graph()
    prepared = ranker.prepare(graph)
    if approximate:
        found = np.random.default_rng(1).integers(-1, 400, (400, 9)).astype(np.int32)
        prepared = replace(prepared, candidates=found)
    opened = ranker.open(prepared.save(tmp_path / "ranker", graph), replace(graph, features=None))
    same(prepared.rank(k=4), opened.rank(k=4, threads=1))
    assert opened.visits == prepared.visits
    with pytest.raises(StoreError, match="prepared for another graph"):
        ranker.open(tmp_path / "ranker", graphs.path(400))
    (other,) = {*RANKERS} - {ranker}
    with pytest.raises(StoreError, match="or other rows"):
        other.open(tmp_path / "ranker", graph)


def test_every_executor_makes_the_same_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "SOURCES_AT_ONCE", 130)
    graph, config = list_graph(), replace(ONLY_NEAREST, content="features")
    store = vcr.tokenize(graph, None, config, tmp_path / "threads")
    expected = HopFeatureRanker.prepare(graph).rank(k=5)
    np.testing.assert_array_equal(store.ids("nearest"), expected.ids)
    np.testing.assert_array_equal(store.scores("nearest"), expected.scores)
    assert (np.asarray(store.assignment("nearest")) == -1).all()
    lists = vcr.make_lists(graph, None, config)
    np.testing.assert_array_equal(lists.ids("nearest"), expected.ids)
    np.testing.assert_array_equal(lists.scores("nearest"), expected.scores)
    assert all_bytes(vcr.tokenize(graph, None, config, tmp_path / "path", executor=Here())) == all_bytes(store)


def test_stores_name_the_setting_only_where_it_counts() -> None:
    assert "nearest_tokens" not in token_config().to_dict()
    assert ONLY_NEAREST.to_dict()["nearest_tokens"] == 5


def test_features_are_needed(tmp_path: Path) -> None:
    plain, config = graphs.path(5), replace(ONLY_NEAREST, content="links")
    with pytest.raises(GraphError, match="tokens.nearest_tokens is 5 but the graph has no features"):
        vcr.tokenize(plain, None, config, tmp_path / "t")
    with pytest.raises(GraphError, match="no features, which nearest neighbours compare"):
        FeatureRanker.prepare(plain)
    with pytest.raises(ConfigError, match="tokens.nearest_tokens is -2"):
        token_config(nearest_tokens=-2).check()


def test_a_run_is_trained_and_explained_with_them(tmp_path: Path) -> None:
    graph = list_graph()
    split = vcr.Split.random(graph.labels, seed=0)
    config = replace(
        CONFIG,
        tokens=replace(CONFIG.tokens, structure_tokens=0, content_tokens=0, nearest_tokens=3),
        model=replace(CONFIG.model, label_embedding=True),
        training=replace(CONFIG.training, epochs=2),
    )
    run = vcr.train(graph, split, config, tmp_path / "run", device="cpu")
    listed = [token.node for token in run.explain(7).tokens if token.kind == "nearest"]
    assert listed == HopFeatureRanker.prepare(graph).rank([7], k=3).ids[0].tolist()
    other = vcr.tokenize(graph, split.train, replace(config.tokens, nearest_tokens=4), tmp_path / "four")
    with pytest.raises(StoreError, match="tokens.nearest_tokens = 4, the model was trained with 3"):
        run.on(graph, other)


@pytest.mark.parametrize("ranker", RANKERS)
@pytest.mark.parametrize("sparse", [False, True])
def test_disk_for_workers_is_about_what_is_saved(ranker: type[FeatureRanker], sparse: bool, tmp_path: Path) -> None:
    edges, rows = np.random.default_rng(0).integers(0, 500, (2, 900)), np.random.default_rng(1).random((500, 90))
    features: Any = rows.astype(np.float32) if not sparse else sp.csr_matrix(rows * (rows < 0.02), dtype=np.float32)
    graph = Graph.open(Graph.from_edges(edges, 500, features=features).save(tmp_path / "graph"))
    saved = ranker.prepare(graph).save(tmp_path / "ranker", graph)
    size = sum(file.stat().st_size for file in saved.glob("*.npy"))
    counted = ranker.saved_bytes(graph)
    # Hops are counted as if no node were isolated and no two neighbours shared a column.
    assert counted == pytest.approx(size, abs=600, rel=0.05 if ranker.with_hop else 0.001)
    assert counted > size - 600


def test_memory_is_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = 40 * 1500 * 6 + 2 * 4 * LANES * 6
    assert FeatureRanker.memory(list_graph(), 2, "metis") == {"neighbours by features": exact}
    monkeypatch.setattr(nearest, "EXACT_NODES", 1499)
    searching = 1500 * (2 * 4 * 6 + 40 * 30 + 8 * 2)
    assert FeatureRanker.memory(list_graph(), 2, "metis") == {"neighbours by features": exact + searching}
    assert needed_memory(list_graph(), ONLY_NEAREST, 2)["neighbours by features"] > exact + searching


def test_the_search_leaves_the_number_of_threads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(nearest, "EXACT_NODES", 10)
    before = torch.get_num_threads()
    FeatureRanker.prepare(list_graph())
    assert torch.get_num_threads() == before == 1


@pytest.mark.parametrize("k", [0, True, 2.5])
def test_bad_lengths(k: Any) -> None:
    with pytest.raises(ConfigError, match="k is .*whole number of at least 1"):
        FeatureRanker.prepare(grouped_graph()).rank(k=k)
