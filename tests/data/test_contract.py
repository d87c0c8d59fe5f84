"""Bad input gets an error that names the value, the rule and the way out."""

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import graphs, naive
from vcr_graphormer import ConfigError, Graph, GraphError
from vcr_graphormer.data import contract
from vcr_graphormer.data.contract import check_adjacency
from vcr_graphormer.data.tasks import check_labels

EDGES = [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("edge_index", "message"),
    [
        ([[0, -1], [1, 2]], r"edge_index\[0, 1\] is -1; node ids start at 0"),
        ([[0, 1], [1, 3]], r"edge_index\[1, 1\] is 3 but the graph has 3 nodes"),
        ([[0.0, 0.5], [1.0, 2.0]], r"edge_index\[0, 1\] is 0.5; it must be a whole number"),
        ([[0.0, np.nan], [1.0, 2.0]], r"edge_index\[0, 1\] is nan; it must be a whole number"),
        ([[0.0, np.inf], [1.0, 2.0]], r"edge_index\[0, 1\] is inf"),
        ([[0.0, 1e300], [1.0, 2.0]], r"edge_index\[0, 1\] is 1e\+300"),
        ([[0, 2**40], [1, 2]], "edge_index holds 1099511627776; node ids must be below"),
        ([[0, 2**70], [1, 2]], "too large entries"),
        (None, "edge_index is None"),
        ([[0, 1], [1]], "edge_index is ragged"),
        ([[0, 1, 2]], r"edge_index has shape \[1, 3\]; it must be \[2, m\]"),
        ([[0, 1], [1, 2], [0, 2]], r"edge_index has shape \[3, 2\]; it must be \[2, m\]; pass edge_index.T"),
        (np.zeros((2, 2, 2)), r"edge_index has shape \[2, 2, 2\]"),
        ([["a", None], ["c", "d"]], r"edge_index\[0, 1\] is missing"),
        ([[True, False], [False, True]], "edge_index has type bool"),
        ([[None, 1], [1, 2]], "edge_index has mixed, missing or too large entries"),
    ],
)
def test_bad_edges(edge_index: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_edges(edge_index, num_nodes=3)


def unsound() -> sp.csr_matrix:
    matrix = sp.csr_matrix(np.eye(3))
    matrix.indices[2] = 10**8
    return matrix


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"num_nodes": 0}, "the graph is empty"),
        ({"num_nodes": -1}, "num_nodes is -1; it must be between 0 and"),
        ({"num_nodes": 2.5}, "num_nodes is 2.5; it must be a whole number"),
        ({"num_nodes": 2**31}, "num_nodes is 2147483648"),
        ({"features": np.zeros((2707, 3)), "num_nodes": 2708}, "features has 2707 rows but the graph has 2708 nodes"),
        ({"features": [[0.0], [np.nan], [1.0]]}, r"features\[1, 0\] is nan; features must be finite"),
        ({"features": sp.csr_matrix([[0, 0.0], [0, np.inf], [1, 0]])}, r"features\[1, 1\] is inf"),
        ({"features": [["a"], ["b"], ["c"]]}, "features has type <U1; it must hold numbers"),
        ({"features": np.zeros((3, 2, 2))}, r"features has shape \[3, 2, 2\]; it must be \[n, d\]"),
        ({"features": [[1.0], [1.0, 2.0], [3.0]], "num_nodes": 3}, "features is ragged"),
        ({"labels": [0, 1]}, r"labels has shape \[2\] but the graph has 3 nodes"),
        ({"labels": [0, 0.5, 1]}, r"labels\[1\] is 0.5; it must be a whole number as a class id"),
        ({"labels": [0, 0.5, 1]}, "pass task='regression'"),
        ({"labels": [0, -2, 1]}, r"labels\[1\] is -2; class ids are 0, 1, 2"),
        ({"labels": [0, 10**9, 1]}, "labels go up to 1000000000; number the classes"),
        ({"labels": [["a"], ["b"], ["c"]]}, "map class names to ids"),
        ({"labels": [[0, 1], [1, 2], [0, 0]]}, r"labels\[1, 1\] is 2; a multi-label matrix holds 0, 1 and -1"),
        ({"labels": [0, 1, 0], "task": "multilabel"}, "a multi-label matrix must be"),
        ({"labels": [[0, 1]] * 3, "task": "classification"}, r"class ids must be \[n\]"),
        ({"labels": [0.0, np.inf, 1.0], "task": "regression"}, r"labels\[1\] is inf; targets must be finite"),
        ({"edge_weight": [1.0]}, r"edge_weight has shape \[1\] but there are 2 edges"),
        ({"edge_weight": [1.0, 0.0]}, r"edge_weight\[1\] is 0.0; weights must be finite and above 0"),
        ({"edge_weight": [1.0, np.nan]}, r"edge_weight\[1\] is nan"),
        ({"edge_weight": ["a", "b"]}, "edge_weight has type"),
        ({"names": ["a", "b"]}, "names has 2 entries but there are 3"),
        ({"names": ["a", "b", "a"]}, "names must be distinct; 'a' occurs 2 times"),
        ({"names": 5}, "names is 5; it must be a list"),
        ({"features": np.ma.masked_invalid([[np.nan]] * 3)}, "features is a masked array"),
        ({"features": sp.csr_matrix(np.eye(3) * 1j)}, "features is complex128"),
        ({"features": np.full((3, 1), 1e39)}, r"features\[0, 0\] is inf"),
        ({"features": 5.0}, "features has 1 rows but the graph has 3 nodes|features has shape"),
        ({"features": unsound()}, "features is not a sound sparse matrix"),
        (
            {"labels": np.array([2**64 - 1, 0, 0], dtype=np.uint64)},
            "labels holds 18446744073709551615, which is too large",
        ),
        ({"edge_weight": [3e38, 3e38], "num_nodes": 3, "repeat": True}, "add up to more than float32 holds"),
        ({"class_names": ["a"]}, "class_names were given without class labels"),
        ({"labels": [0, 1, 2], "class_names": ["a", "b"]}, "class_names has 2 entries but labels go up to 2"),
    ],
)
def test_bad_keywords(keywords: dict[str, Any], message: str) -> None:
    edges = [[0, 0], [1, 1]] if keywords.pop("repeat", False) else EDGES
    with pytest.raises(GraphError, match=message):
        Graph.from_edges(edges, **{"num_nodes": 3, **keywords})


@pytest.mark.parametrize(
    ("layout", "part", "values", "message"),
    [
        (sp.coo_matrix, "row", [0, 10**7, 2], "row holds 10000000; it must be between 0 and 2"),
        (sp.coo_matrix, "row", [0, -5, 2], "row holds -5; it must be between 0 and 2"),
        (sp.coo_matrix, "col", [0, 3, 2], "col holds 3; it must be between 0 and 2"),
        (sp.coo_array, "coords", (np.arange(3), np.array([0, 2**63 - 1, 1])), "col holds 9223372036854775807"),
        (sp.coo_array, "coords", (np.arange(2), np.arange(3)), r"row is int64\[2\]; it must hold a whole number per"),
        (sp.dia_matrix, "offsets", [2**63 - 1], "offsets holds 9223372036854775807; it must be between -3 and 3"),
        (sp.dia_matrix, "offsets", [-(2**31)], "offsets holds -2147483648; it must be between -3 and 3"),
        (sp.dia_matrix, "offsets", [0.5], "offsets must be distinct whole numbers"),
        (sp.dia_matrix, "offsets", [-1, 0, 1], r"data has shape \[1, 3\]; it must have a row for each of 3 offsets"),
    ],
)
def test_sparse_matrices_of_all_formats_are_checked(layout: Any, part: str, values: Any, message: str) -> None:
    """Scipy trusts the inner arrays of a matrix that was changed after it was made: most of these ended the process."""
    matrix = layout(np.eye(3))
    setattr(matrix, part, values if part == "coords" else np.array(values))
    with pytest.raises(GraphError, match=message):
        Graph.from_scipy(matrix)
    with pytest.raises(GraphError, match=message):
        Graph.from_edges(EDGES, features=matrix)


@pytest.mark.parametrize(
    ("part", "entries", "message"),
    [
        ("data", [1.0] * 10_000, r"rows\[1\] has 1 columns but data\[1\] has 10000 numbers"),
        ("rows", [0, 1], r"rows\[1\] has 2 columns but data\[1\] has 1 numbers"),
        ("rows", [10**7], "not a sound sparse matrix"),
        ("rows", [2**70], "not a sound sparse matrix"),
        ("rows", None, "not a sound sparse matrix"),
    ],
)
def test_lists_of_lists_are_checked(part: str, entries: Any, message: str) -> None:
    matrix = sp.lil_matrix(np.eye(3))
    getattr(matrix, part)[1] = entries
    with pytest.raises(GraphError, match=message):
        Graph.from_scipy(matrix)
    matrix.rows = matrix.rows[:1]
    with pytest.raises(GraphError, match=r"rows has shape \[1\]; it must have one list for each row"):
        Graph.from_scipy(matrix)


@pytest.mark.parametrize("column", [7, -5, 2**40, 2**70])
def test_dictionaries_of_keys_are_checked(column: int) -> None:
    matrix = sp.dok_matrix(np.eye(3))
    matrix._dict[(1, column)] = 1.0
    with pytest.raises(GraphError, match="not a sound sparse matrix"):
        Graph.from_scipy(matrix)


def test_sound_matrices_of_all_formats_are_the_same_graph() -> None:
    matrix = sp.csr_matrix(np.triu(np.ones((4, 4)), 1))
    expected = Graph.from_scipy(matrix).fingerprint
    for layout in ("csc", "bsr", "coo", "dia", "lil", "dok"):
        assert Graph.from_scipy(matrix.asformat(layout)).fingerprint == expected


@pytest.mark.parametrize("bad", [7, -5, 2**63 - 1])
def test_sparse_tensors_are_checked(bad: int) -> None:
    """Torch trusts the inner tensors as scipy does: its own conversions ended the process."""
    eye, places = torch.eye(3), ([[0, bad], [0, 1]], [[0, 1], [0, bad]])
    tensors = [torch.sparse_coo_tensor(pairs, [1.0, 2.0], (3, 3), check_invariants=False) for pairs in places]  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as above
        for layout, block in (("csr", ()), ("csc", ()), ("bsr", ((1, 1),)), ("bsc", ((1, 1),))):
            sound = getattr(eye, f"to_sparse_{layout}")(*block)
            make = getattr(torch, f"sparse_{layout}_tensor")
            for outer, inner in (([0, 1, 2, 3], [0, 1, bad]), ([0, bad, 2, 3], [0, 1, 2])):
                tensors.append(make(outer, inner, sound.values(), size=(3, 3), check_invariants=False))
    for tensor in tensors:
        with pytest.raises(GraphError, match="features is not a sound sparse"):
            Graph.from_edges(EDGES, features=tensor)


def test_unknown_task_is_refused() -> None:
    with pytest.raises(ConfigError, match="task is 'ranking'; it must be auto, classification, multilabel, regression"):
        check_labels([0, 1], 2, "ranking")


def test_kinds_of_labels() -> None:
    classes, task = check_labels([0.0, 1.0, -1.0], 3)
    assert (task, classes.tolist(), classes.dtype) == ("classification", [0, 1, -1], np.int64)  # type: ignore[union-attr]
    column, task = check_labels(np.array([[2], [0]]), 2)
    assert (task, column.tolist()) == ("classification", [2, 0])  # type: ignore[union-attr]
    flags, task = check_labels([True, False], 2)
    assert (task, flags.tolist()) == ("classification", [1, 0])  # type: ignore[union-attr]
    matrix, task = check_labels([[0, 1], [1, -1]], 2)
    assert (task, matrix.dtype) == ("multilabel", np.int8)  # type: ignore[union-attr]
    targets, task = check_labels([0.5, np.nan], 2, "regression")
    assert (task, targets.dtype) == ("regression", np.float32)  # type: ignore[union-attr]


def test_torch_input_equals_numpy_input() -> None:
    features = np.array([[1, 0], [0, 2], [0, 0]], dtype=np.float32)
    expected = Graph.from_edges(EDGES, features=features, labels=[0, 1, 0])
    given = Graph.from_edges(torch.tensor(EDGES), features=torch.tensor(features), labels=torch.tensor([0, 1, 0]))
    assert given.fingerprint == expected.fingerprint
    sparse = Graph.from_edges(EDGES, features=sp.csr_matrix(features)).fingerprints["features"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its CSR layout a beta, once per process
        dense = torch.tensor(features)
        layouts = [dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc(), dense.bfloat16().to_sparse()]
        blocks = [dense.to_sparse_bsr((3, 1)), dense.to_sparse_bsc((3, 1))]
    for tensor in layouts:
        assert Graph.from_edges(EDGES, features=tensor).fingerprints["features"] == sparse
    for tensor in blocks:  # they store zeros
        np.testing.assert_array_equal(Graph.from_edges(EDGES, features=tensor).features.toarray(), features)  # type: ignore[union-attr]
    pairs, parts = torch.tensor([[0, 1, 0], [0, 1, 0]]), torch.tensor([0.5, 2.0, 0.5])
    halves = torch.sparse_coo_tensor(pairs, parts, (3, 2), check_invariants=True)
    assert Graph.from_edges(EDGES, features=halves).fingerprints["features"] == sparse


def test_input_is_never_changed() -> None:
    edges, features = np.array(EDGES), sp.csr_matrix(([1.0, 2.0, 3.0], ([0, 0, 1], [1, 1, 0])), shape=(3, 2))
    features.indices = features.indices[::-1].copy()
    before = (edges.copy(), features.indices.copy(), features.data.copy())
    Graph.from_edges(edges, features=features)
    np.testing.assert_array_equal(edges, before[0])
    np.testing.assert_array_equal(features.indices, before[1])
    np.testing.assert_array_equal(features.data, before[2])


def test_nodes_are_counted_by_labels_too() -> None:
    assert Graph.from_edges(EDGES, labels=[0, 1, 0, 1, 0]).num_nodes == 5


def test_half_precision_tensors() -> None:
    graph = Graph.from_edges(EDGES, features=torch.ones(3, 2, dtype=torch.bfloat16))
    assert np.asarray(graph.features).dtype == np.float32


def test_fingerprint_sees_shape_but_not_the_width_of_indices() -> None:
    narrow = sp.csr_matrix(np.eye(3))
    wide = sp.csr_matrix((narrow.data, narrow.indices.astype(np.int64), narrow.indptr.astype(np.int64)), shape=(3, 3))
    larger = sp.csr_matrix((narrow.data, narrow.indices, narrow.indptr), shape=(3, 30))
    prints = [Graph.from_edges(EDGES, features=matrix).fingerprint for matrix in (narrow, wide, larger)]
    assert prints[0] == prints[1] != prints[2]


@given(
    graphs.edge_lists(),
    st.booleans(),
    st.sampled_from(["indptr", "indices", "nothing"]),
    st.integers(0, 1000),
    st.integers(-3, 15),
)
@settings(max_examples=300)
def test_adjacency_from_a_file_is_checked(edges: Any, directed: bool, part: str, place: int, value: int) -> None:
    n, pairs = edges
    graph = Graph.from_edges(np.array(pairs, dtype=np.int64).reshape(-1, 2).T, n, directed=directed)
    arrays: dict[str, Any] = {"indptr": graph.indptr.copy(), "indices": graph.indices.copy()}
    if part != "nothing" and len(arrays[part]):
        arrays[part][place % len(arrays[part])] = value
    expected = naive.is_adjacency(arrays["indptr"].tolist(), arrays["indices"].tolist(), symmetric=not directed)
    try:
        check_adjacency(arrays["indptr"], arrays["indices"], None, num_nodes=n, symmetric=not directed)
        found = True
    except GraphError:
        found = False
    assert found == expected


def test_blocks_of_arcs_are_checked_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graphs.karate_club()
    arrays: dict[str, Any] = {"num_nodes": 34, "symmetric": True}
    for size in (1, 2, 7, 100, 1000):
        monkeypatch.setattr(contract, "_ARCS_AT_ONCE", size)
        check_adjacency(graph.indptr, graph.indices, None, **arrays)
        for place in range(0, graph.num_arcs, 5):
            wrong = graph.indices.copy()
            wrong[place] += 1
            with pytest.raises(GraphError):
                check_adjacency(graph.indptr, wrong, None, **arrays)


@pytest.mark.parametrize("weights", [[1.0, np.nan], [0.0, 1.0], [1.0, np.inf], [1.0]])
def test_weights_from_a_file(weights: list[float]) -> None:
    indptr, indices = np.array([0, 1, 2]), np.array([1, 0], dtype=np.int32)
    with pytest.raises(GraphError, match="weights"):
        check_adjacency(indptr, indices, np.array(weights, np.float32), num_nodes=2, symmetric=True)


@pytest.mark.parametrize("kind", ["indptr", "indices"])
@pytest.mark.parametrize("dtype", [">i4", ">i8", "<u4", "<f8"])
def test_other_types_and_byte_orders_are_refused(kind: str, dtype: str) -> None:
    arrays: dict[str, Any] = {"indptr": np.array([0, 1, 2]), "indices": np.array([1, 0], dtype=np.int32)}
    arrays[kind] = arrays[kind].astype(dtype)
    with pytest.raises(GraphError, match=f"{kind} is "):
        check_adjacency(arrays["indptr"], arrays["indices"], None, num_nodes=2)
