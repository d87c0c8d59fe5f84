"""A saved ranker whose arrays do not fit together is refused before a compiled loop reads them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.damage import edited_manifest, put_array
from vcr_graphormer import (
    FeatureRanker,
    Graph,
    LinkRanker,
    Ranker,
    StoreError,
    content_connections,
    generate,
)


def graph_of(directed: bool = False, weighted: bool = False) -> Graph:
    plain = generate(200, 900, seed=1)
    edges = np.stack([np.repeat(np.arange(200), plain.degrees), plain.indices])
    weights = np.random.default_rng(0).random(edges.shape[1]) + 0.1 if weighted else None
    return Graph.from_edges(
        edges, 200, edge_weight=weights, features=plain.features, labels=plain.labels, directed=directed
    )


@pytest.fixture(scope="module")
def graph() -> Graph:
    return graph_of()


@pytest.fixture
def saved(graph: Graph, tmp_path: Path) -> Path:
    connections = content_connections(graph.labels, np.arange(0, 200, 2))
    return Ranker.prepare(graph, connections, threads=1).save(tmp_path / "ranker", graph)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_sound_rankers_open(directed: bool, weighted: bool, tmp_path: Path) -> None:
    graph = graph_of(directed, weighted)
    for ranker in (Ranker, LinkRanker, FeatureRanker):
        folder = ranker.prepare(graph, threads=1).save(tmp_path / ranker.__name__, graph)
        assert ranker.open(folder, graph).rank([3], k=2).ids.shape == (1, 2)


def test_a_closed_ranker_says_so(graph: Graph, saved: Path) -> None:
    with Ranker.open(saved, graph) as ranker:
        assert ranker.rank([3], k=2).ids.shape == (1, 2)
    with pytest.raises(StoreError, match="the ranker is closed: open it again"):
        ranker.rank([3], k=2)


def set_to(value: float, index: Any = 0) -> Any:
    def change(array: Any) -> Any:
        array[index] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("ids", set_to(200), "ids holds 200; it must be 0 to 199"),
        ("ids", set_to(-1), "ids holds -1"),
        ("hubs", set_to(10**6), "hubs holds 1000000"),
        ("row_vector", set_to(10**6), "row_vector holds 1000000"),
        ("vector_of", set_to(-5), "vector_of holds -5"),
        ("group", set_to(10**6), "group holds 1000000"),
        ("assignment", set_to(99), "assignment holds 99"),
        ("member_node", set_to(200), "member_node holds 200"),
        ("member_ptr", set_to(77, -1), "the last entry of member_ptr is 77"),
        ("ptr", set_to(1), "the first entry of ptr is 1, not 0"),
        ("row_ptr", set_to(10**9, 5), "row_ptr goes down"),
        ("values", set_to(0), "values must be above 0"),
        ("values", set_to(np.nan), "values must be above 0"),
        ("matrix", set_to(np.inf, (0, 0)), "matrix must be finite"),
        ("matrix", lambda matrix: matrix[1:], "matrix is <f4"),
        ("total", set_to(1e-9), "total has other degrees than the graph"),
        ("limit", set_to(1e-9), "limit is not that of the degrees"),
        ("component", lambda component: component[:-1], "component is <i4"),
        ("cut_inside", lambda inside: inside.astype(np.int8), r"cut_inside is \|i1"),
        ("arc_weights", lambda weights: np.ones(3, np.float32), "arc_weights is <f4"),
        ("mass", lambda mass: mass.astype(">f4"), "mass is >f4"),
    ],
)
def test_pagerank(graph: Graph, saved: Path, name: str, change: Any, message: str) -> None:
    Ranker.open(saved, graph)
    put_array(saved, name, change(np.load(saved / f"{name}.npy")))
    with pytest.raises(StoreError, match=f"ranker is damaged: .*{message}"):
        Ranker.open(saved, graph)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("restart", "x", "restart is 'x'"),
        ("restart", 1.5, "restart is 1.5"),
        ("visits", -1, "visits is -1"),
        ("directed", 0, "directed is 0"),
        ("directed", True, "another kind of edges"),
    ],
)
def test_pagerank_meta(graph: Graph, saved: Path, name: str, value: Any, message: str) -> None:
    with edited_manifest(saved) as manifest:
        manifest["meta"][name] = value
    with pytest.raises(StoreError, match=message):
        Ranker.open(saved, graph)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("lengths", lambda lengths: lengths[:3], "lengths is <f8"),
        ("lengths", set_to(np.nan), "lengths must be finite"),
        ("back_indices", set_to(200), "back_indices holds 200"),
        ("back_indptr", set_to(-3, 1), "back_indptr goes down"),
        ("back_weights", lambda weights: np.zeros(5, np.float32), "back_weights is <f4"),
    ],
)
def test_links(name: str, change: Any, message: str, tmp_path: Path) -> None:
    graph = graph_of(directed=True)
    saved = LinkRanker.prepare(graph).save(tmp_path / "ranker", graph)
    put_array(saved, name, change(np.load(saved / f"{name}.npy")))
    with pytest.raises(StoreError, match=f"ranker is damaged: .*{message}"):
        LinkRanker.open(saved, graph)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("indices", set_to(10**6), "indices holds 1000000"),
        ("indptr", set_to(10**6, 3), "indptr goes down"),
        ("values", set_to(np.inf), "rows must be finite"),
        ("values", lambda values: values[:-1], "indices is <i4"),
        ("candidates", lambda _: np.full((200, 2), 200, np.int32), "candidates holds 200"),
    ],
)
def test_nearest(graph: Graph, name: str, change: Any, message: str, tmp_path: Path) -> None:
    saved = FeatureRanker.prepare(graph).save(tmp_path / "ranker", graph)
    before = np.load(saved / f"{name}.npy") if name != "candidates" else None
    put_array(saved, name, change(before))
    with pytest.raises(StoreError, match=f"ranker is damaged: .*{message}"):
        FeatureRanker.open(saved, graph)
    with edited_manifest(saved) as manifest:
        manifest["meta"]["columns"] = 2**40
    with pytest.raises(StoreError, match="columns is 1099511627776"):
        FeatureRanker.open(saved, graph)
