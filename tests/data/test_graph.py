"""Graph against slow twins, literal values and round trips."""

from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tests.support import graphs, naive
from vcr_graphormer import ConfigError, Graph, GraphError, StoreError
from vcr_graphormer.data.schema import Column, Schema


def rows(graph: Graph) -> list[list[int]]:
    return [graph.indices[graph.indptr[u] : graph.indptr[u + 1]].tolist() for u in range(graph.num_nodes)]


def test_literal_adjacency() -> None:
    graph = Graph.from_edges([[0, 1, 1, 2, 2], [1, 0, 1, 0, 0]], num_nodes=4)
    assert graph.indptr.tolist() == [0, 2, 3, 4, 4]
    assert graph.indices.tolist() == [1, 2, 0, 0]
    assert (graph.indptr.dtype.name, graph.indices.dtype.name) == ("int64", "int32")
    assert (graph.num_nodes, graph.num_edges, graph.num_arcs) == (4, 2, 4)
    directed = Graph.from_edges([[0, 1, 1, 2, 2], [1, 0, 1, 0, 0]], num_nodes=4, directed=True)
    assert directed.indices.tolist() == [1, 0, 0]
    assert directed.num_edges == 3


@given(graphs.edge_lists(), st.booleans())
def test_adjacency_equals_naive(case: tuple[int, list[tuple[int, int]]], directed: bool) -> None:
    n, edges = case
    graph = Graph.from_edges(np.array(edges, dtype=np.int64).reshape(-1, 2).T, n, directed=directed)
    assert rows(graph) == naive.neighbours(n, edges, directed)


@given(graphs.edge_lists(max_edges=15), st.booleans(), st.data())
def test_weights_equal_naive(case: tuple[int, list[tuple[int, int]]], directed: bool, data: st.DataObject) -> None:
    n, edges = case
    values = data.draw(st.lists(st.integers(1, 9), min_size=len(edges), max_size=len(edges)))
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    graph = Graph.from_edges(pairs, n, edge_weight=values, directed=directed)
    assert graph.weights is not None
    found = dict(zip(naive.arcs(graph), graph.weights.tolist(), strict=True))
    assert found == naive.weights(edges, [float(value) for value in values], directed)


@given(graphs.edge_lists(), st.randoms(use_true_random=False))
def test_order_of_edges_does_not_matter(case: tuple[int, list[tuple[int, int]]], random: "np.random.Generator") -> None:
    n, edges = case
    shuffled = [pair[::-1] for pair in edges]
    random.shuffle(shuffled)
    first, second = (
        Graph.from_edges(np.array(e, dtype=np.int64).reshape(-1, 2).T, n).fingerprint for e in (edges, shuffled)
    )
    assert first == second


def test_karate_club() -> None:
    graph = graphs.karate_club()
    assert (graph.num_edges, graph.degrees.max(), graph.degrees[33], graph.degrees[11]) == (78, 17, 17, 1)
    expected = networkx.to_scipy_sparse_array(networkx.karate_club_graph(), weight=None)
    assert (abs(graph.to_scipy() - expected)).nnz == 0


def test_legal_extremes() -> None:
    for graph in (graphs.single_node(), graphs.isolated_node(), Graph.from_edges([[], []], num_nodes=7)):
        assert graph.features is None
        assert graph.labels is None
        assert (graph.num_features, graph.num_classes) == (0, 0)
        assert graph.summary().isolated == graph.num_nodes - np.count_nonzero(graph.degrees)
    assert graphs.single_node().num_arcs == 0


def test_num_nodes_comes_from_features_or_largest_id() -> None:
    assert Graph.from_edges([[0], [4]]).num_nodes == 5
    assert Graph.from_edges([[0], [4]], features=np.ones((9, 2))).num_nodes == 9
    assert Graph.from_edges([[0], [4]], features=[[1.0]] * 9).num_features == 1


def test_made_features() -> None:
    star = graphs.star(6)
    identity = star.with_features("identity").features
    assert isinstance(identity, sp.csr_matrix)
    np.testing.assert_array_equal(identity.toarray(), np.eye(7))
    degree = star.with_features("degree").features
    assert isinstance(degree, np.ndarray)
    # Degree 6 is in bucket log2(7) = 2, degree 1 in bucket 1.
    np.testing.assert_allclose(degree[0], [np.log(7), 0, 0, 1], rtol=1e-6)
    np.testing.assert_allclose(degree[1], [np.log(2), 0, 1, 0], rtol=1e-6)
    with pytest.raises(ConfigError, match="features kind is 'ones'"):
        star.with_features("ones")  # type: ignore[arg-type]


def full_graph(features: object) -> Graph:
    return Graph.from_edges(
        [[0, 1, 2], [1, 2, 3]],
        num_nodes=4,
        edge_weight=[1.0, 2.0, 3.0],
        features=features,
        labels=[0, 1, -1, 1],
        names=["a", "b", "ç", "<d>"],
        class_names=["no", "yes"],
        directed=True,
        name="full",
    )


FEATURES = [
    None,
    np.arange(8, dtype=np.float32).reshape(4, 2),
    np.arange(8, dtype=np.float16).reshape(4, 2),
    sp.csr_matrix(np.diag([1.0, 0.0, 2.0, 3.0])),
]


@pytest.mark.parametrize("features", FEATURES)
def test_save_and_open(tmp_path: Path, features: object) -> None:
    graph = full_graph(features)
    opened = Graph.open(graph.save(tmp_path / "deep" / "graph"))
    assert repr(opened) == repr(graph)
    assert opened.fingerprints == graph.fingerprints
    assert (opened.directed, opened.task, opened.class_names, opened.name) == (
        True,
        "classification",
        ("no", "yes"),
        "full",
    )
    assert opened.names is not None
    assert opened.names.tolist() == ["a", "b", "ç", "<d>"]
    assert isinstance(opened.indices, np.memmap)
    # The stored fingerprint is the one of the stored arrays, not only a copied text.
    del opened.__dict__["fingerprints"]
    assert opened.fingerprints == graph.fingerprints
    if isinstance(features, np.ndarray):
        assert isinstance(opened.features, np.memmap)
        assert opened.features.dtype == features.dtype


def test_memory_mapped_features_stay_on_disk(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 2), dtype=np.float32))
    features = np.load(tmp_path / "x.npy", mmap_mode="r")
    graph = Graph.from_edges([[0], [1]], features=features)
    assert isinstance(graph.features, np.memmap)
    assert "2 memory-mapped float32" in str(graph.summary())


@pytest.mark.parametrize("change", ["edges", "weights", "features", "labels", "names", "direction"])
def test_fingerprint_names_what_differs(change: str) -> None:
    base = full_graph(FEATURES[1])
    pairs, part = [[0, 1, 2], [1, 2, 3]], {"edges": "adjacency", "weights": "adjacency", "direction": "adjacency"}
    other = Graph.from_edges(
        [[0, 1, 2], [1, 2, 0]] if change == "edges" else pairs,
        num_nodes=4,
        edge_weight=[1.0, 2.0, 4.0] if change == "weights" else [1.0, 2.0, 3.0],
        features=FEATURES[2] if change == "features" else FEATURES[1],
        labels=[1, 1, -1, 1] if change == "labels" else [0, 1, -1, 1],
        names=["a", "b", "c", "d"] if change == "names" else ["a", "b", "ç", "<d>"],
        class_names=["no", "yes"],
        directed=change != "direction",
    )
    assert [p for p in base.fingerprints if base.fingerprints[p] != other.fingerprints[p]] == [part.get(change, change)]
    assert base.fingerprint != other.fingerprint


def test_pyg_round_trip() -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]], num_nodes=4, features=np.eye(4), labels=[0, 1, 2, -1])
    data = graph.to_pyg()
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert data.validate()
    assert Graph.from_pyg(data).fingerprint == graph.fingerprint
    weighted = Graph.from_edges([[0, 1], [1, 2]], edge_weight=[2.0, 3.0], features=sp.identity(3, format="csr"))
    back = Graph.from_pyg(weighted.to_pyg(), features=sp.identity(3, format="csr"))
    assert back.fingerprint == weighted.fingerprint


def test_repr() -> None:
    assert repr(full_graph(FEATURES[3])) == "Graph(full: 4 nodes, 3 weighted arcs, 4 sparse features, 2 classes)"
    assert repr(graphs.path()) == "Graph(path: 5 nodes, 4 edges, no features, no labels)"
    multilabel = Graph.from_edges([[0], [1]], labels=[[0, 1, 1], [1, 0, 0]])
    assert repr(multilabel).endswith("3 labels)")
    regression = Graph.from_edges([[0], [1]], labels=[0.5, 1.5], task="regression")
    assert repr(regression).endswith("1 targets)")


def test_feature_names_and_schema_are_kept(tmp_path: Path) -> None:
    schema = Schema((Column("age"), Column("plan", "category", ("a",))), id="account")
    table = np.array([[1, 0, 1], [np.nan, 1, 0]], np.float32)
    graph = Graph.from_edges([[0], [1]], features=table, schema=schema)
    assert graph.feature_names == ("age", "plan=a", "plan=other")
    opened = Graph.open(graph.save(tmp_path / "table"))
    assert (opened.feature_names, opened.schema) == (graph.feature_names, schema)
    np.testing.assert_array_equal(np.asarray(opened.features), table)
    with pytest.raises(GraphError, match="feature 'age' has 1 missing values: train with data.prepare = \"auto\""):
        opened.check_complete()
    assert opened.with_features("degree").feature_names is None
    named = Graph.from_edges([[0], [1]], features=[[1, 2], [3, 4]], feature_names=["x", "y"])
    opened = Graph.open(named.save(tmp_path / "named"))
    assert (opened.feature_names, opened.schema) == (("x", "y"), None)
    assert named.fingerprint == Graph.from_edges([[0], [1]], features=[[1, 2], [3, 4]]).fingerprint


@pytest.mark.parametrize(
    ("features", "names", "message"),
    [
        ([[1, 2], [3, 4]], ["x"], "feature_names has 1 entries but there are 2"),
        ([[1, 2], [3, 4]], ["x", "x"], "feature_names must be distinct; 'x' occurs 2 times"),
        (None, ["x"], "feature_names were given without features"),
        ([[1, np.nan], [3, 4]], None, r"features\[0, 1\] is nan; features must be finite .*from_frames"),
    ],
)
def test_wrong_feature_names_and_missing_values_are_refused(features: Any, names: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_edges([[0], [1]], num_nodes=2, features=features, feature_names=names)


def test_a_damaged_schema_is_refused(tmp_path: Path) -> None:
    graph = Graph.from_edges([[0], [1]], features=[[1.0], [2.0]], schema=Schema((Column("x"),)))
    manifest = graph.save(tmp_path / "graph") / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"origin"', '"other"'))
    with pytest.raises(StoreError, match="the schema in .*graph is damaged: KeyError 'origin'"):
        Graph.open(tmp_path / "graph")
    manifest.write_text(text.replace('"feature_names": [', '"feature_names": ["y",'))
    with pytest.raises(StoreError, match="the number of feature names is 2, not 1"):
        Graph.open(tmp_path / "graph")
