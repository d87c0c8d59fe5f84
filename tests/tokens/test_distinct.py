"""Distinct lists: no node twice, later kinds go on to their next best, and remember what they met on the way."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import graphs, naive
from tests.support.damage import edited_manifest, put_array
from tests.support.dask_cluster import Here
from tests.support.plain import token_config
from tests.support.runs import all_bytes
from vcr_graphormer import ConfigError, Graph, StoreError, TokenStore, rank, tokenize
from vcr_graphormer.ranking.connections import content_connections, structure_connections
from vcr_graphormer.tokens.distinct import leave_repeats_out, places_before
from vcr_graphormer.tokens.lists import Kept, TokenLists, make_lists

CONFIG = token_config(hops=1, clusters=4, structure_tokens=5, content_tokens=6, link_tokens=3)
NODES = 9


@st.composite
def rankings(draw: st.DrawFn) -> tuple[list[int], list[list[tuple[int, float]]]]:
    """Up to four kinds with up to four tokens; each ranks some nodes, sometimes too few."""
    counts = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    ranked = []
    for place, count in enumerate(counts):
        order = draw(st.permutations(range(NODES)))
        order = order[: max(0, count + sum(counts[:place]) - draw(st.integers(0, 3)))]
        scores = sorted(draw(st.lists(st.floats(0, 1, width=32), min_size=len(order), max_size=len(order))))[::-1]
        ranked.append(list(zip(order, scores, strict=True)))
    return counts, ranked


def as_rows(pairs: list[tuple[int, float]], width: int) -> tuple[Any, Any]:
    """One list as arrays [1, width], padded with -1 and 0."""
    ids, scores = np.full((1, width), -1), np.zeros((1, width), np.float32)
    for place, (node, score) in enumerate(pairs):
        ids[0, place], scores[0, place] = node, score
    return ids, scores


@settings(deadline=None)  # the first call compiles
@given(rankings())
def test_equals_the_reference(drawn: tuple[list[int], list[list[tuple[int, float]]]]) -> None:
    counts, ranked = drawn
    lists, shared = naive.distinct_lists(ranked, counts)
    earlier = np.empty((1, 0), np.int64)
    for place, count in enumerate(counts):
        ids, scores = as_rows(ranked[place], count + sum(counts[:place]))
        found = leave_repeats_out(ids, scores, earlier=earlier, count=count, score_type="float32")
        expected = as_rows(lists[place], count)
        assert found["ids"].tolist() == expected[0].tolist()
        assert found["scores"].tolist() == expected[1].tolist()
        for node, score in zip(earlier[0].tolist(), found["shared"][0].tolist(), strict=True):
            proposed = node in shared[place]
            assert (score > 0) == proposed  # a score of 0 counts as a very small one
            assert score == pytest.approx(shared[place].get(node, 0) if proposed else 0, abs=1e-40)
        earlier = np.concatenate([earlier, found["ids"]], 1)
    nodes = [node for node in earlier[0].tolist() if node >= 0]
    assert len(nodes) == len(set(nodes))


@pytest.mark.parametrize("score_type", ["float32", "float16"])
def test_literal_lists_and_a_small_score_that_is_not_lost(score_type: str) -> None:
    ids, scores = np.array([[4, 9, 2, 7, 1]]), np.array([[0.5, 0.25, 1e-9, 1e-9, 0.0]], np.float32)
    found = leave_repeats_out(ids, scores, earlier=np.array([[2, -1, 8, 1]]), count=2, score_type=score_type)
    assert found["ids"].tolist() == [[4, 9]]
    assert found["shared"].tolist() == [[0, 0, 0, 0]]
    found = leave_repeats_out(ids, scores, earlier=np.array([[2, -1, 4, 1]]), count=2, score_type="float16")
    assert found["ids"].tolist() == [[9, 7]]
    assert found["shared"].tolist() == [[2**-24, 0, 0.5, 0]]  # node 1 comes after the last new node, 7
    assert found["shared"].dtype == np.float16


def repeats(lists: TokenLists) -> int:
    """How many tokens of all lists are a node that stands in the list before."""
    rows = [row[row >= 0] for row in lists.neighbours(np.arange(lists.num_nodes))]
    return sum(len(row) - len(np.unique(row)) for row in rows)


@pytest.mark.parametrize(
    "change",
    [{}, {"score_type": "float16"}, {"structure_tokens": 0}, {"content": "features"}],
)
def test_stores_and_lists_in_memory_have_the_same_arrays(
    change: dict[str, Any], graph: Graph, train: np.ndarray, tmp_path: Path
) -> None:
    config, kept = replace(CONFIG, **change), Kept()
    store = tokenize(graph, train, config, tmp_path / "t")
    plain = make_lists(graph, train, replace(config, distinct=False), kept=kept)
    lists = make_lists(graph, train, config, kept=kept)
    again = make_lists(graph, train, config, kept=kept)
    assert repeats(plain) > 100
    assert repeats(store) == 0
    assert store.arrays.keys() == lists.arrays.keys()
    for name, array in store.arrays.items():
        for other in (lists, again):
            assert other.arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(other.arrays[name], array)
    first = "content" if config.structure_tokens == 0 else "structure"
    np.testing.assert_array_equal(store.ids(first), plain.ids(first))
    np.testing.assert_array_equal(store.scores(first), plain.scores(first))
    before = places_before(store.layout.counts, config)
    assert {kind for kind in store.layout.counts if store.shared(kind) is not None} == before.keys()
    for kind, width in before.items():
        assert store.arrays[f"{kind}_shared"].shape == (1500, width)
    assert all(plain.shared(kind) is None for kind in plain.layout.counts)


def test_later_kinds_are_the_ranking_without_the_earlier_nodes(graph: Graph, train: np.ndarray) -> None:
    lists = make_lists(graph, train, replace(CONFIG, link_tokens=0))
    structure = rank(graph, structure_connections(graph, 4), k=5)
    tolerance = 0.07 * np.sqrt(11 / 6)
    content = rank(graph, content_connections(graph.labels, train), k=11, leave_out=True, tolerance=tolerance)
    shared = lists.shared("content")
    assert shared is not None
    for node in range(graph.num_nodes):
        pairs = [
            [(int(i), float(s)) for i, s in zip(found.ids[node], found.scores[node], strict=True) if i >= 0]
            for found in (structure, content)
        ]
        (first, second), scores = naive.distinct_lists(pairs, [5, 6])
        for kind, expected in (("structure", first), ("content", second)):
            ids, own = as_rows(expected, lists.layout.counts[kind])
            assert lists.ids(kind)[node].tolist() == ids[0].tolist()
            assert lists.scores(kind)[node].tolist() == own[0].tolist()
        assert shared[node].tolist() == [scores[1].get(i, 0.0) for i in lists.ids("structure")[node].tolist()]


def test_workers_that_read_paths_write_the_same_bytes(graph: Graph, train: np.ndarray, tmp_path: Path) -> None:
    here = tokenize(graph, train, CONFIG, tmp_path / "here")
    there = tokenize(graph, train, CONFIG, tmp_path / "there", executor=Here())
    assert all_bytes(here) == all_bytes(there)


def test_a_single_kind_has_the_bytes_of_before(graph: Graph, train: np.ndarray, tmp_path: Path) -> None:
    config = replace(CONFIG, content_tokens=0, link_tokens=0)
    one, other = (
        tokenize(graph, train, replace(config, distinct=distinct), tmp_path / str(distinct))
        for distinct in (True, False)
    )
    files = [{name: data for name, data in all_bytes(s).items() if name.endswith(".npy")} for s in (one, other)]
    assert files[0] == files[1]
    with pytest.raises(StoreError, match="belongs to another setting distinct"):
        tokenize(graph, train, replace(config, distinct=False), tmp_path / "True")


def test_an_old_store_opens_as_one_with_repeats(tmp_path: Path) -> None:
    graph = graphs.karate_club().with_features("degree")
    config = token_config(hops=0, clusters=2, structure_tokens=3, content_clusters=2, distinct=False)
    store = tokenize(graph, None, config, tmp_path / "t")
    manifest = json.loads((store.path / "manifest.json").read_text())
    assert "distinct" not in manifest["meta"]["config"]
    assert "setting distinct" not in store.identity
    again = TokenStore.open(store.path)
    assert not again.settings.distinct
    assert again.shared("content") is None
    with pytest.raises(ConfigError, match="unknown kind of token 'colour'"):
        again.shared("colour")


@pytest.mark.parametrize("damage", ["missing", "narrow"])
def test_a_distinct_store_without_its_shared_scores_is_damaged(damage: str, tmp_path: Path) -> None:
    graph = graphs.karate_club().with_features("degree")
    store = tokenize(graph, None, token_config(hops=0, clusters=2, content_clusters=2), tmp_path / "t")
    assert TokenStore.open(store.path).settings.distinct
    if damage == "missing":
        with edited_manifest(store.path) as manifest:
            del manifest["arrays"]["content_shared"]
    else:
        put_array(store.path, "content_shared", store.assignment("content"))
    with pytest.raises(StoreError, match="is damaged: its lists are distinct, but content_shared"):
        TokenStore.open(store.path)
