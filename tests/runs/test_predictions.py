"""Predictions are written and read back whole; nodes are found by id and by name."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from vcr_graphormer import ConfigError, Embeddings, Graph, GraphError, Predictions, StoreError
from vcr_graphormer.runs.predictions import find_nodes

PLAIN = Graph.from_edges([[0, 1], [1, 2]])
NAMED = Graph.from_edges([[0, 1], [1, 2]], names=["anna", "2", "otto, jr."])
PROBABILITIES = np.array([[0.25, 0.75], [1.0, 0.0]], dtype=np.float32)


def make(**keywords: Any) -> Predictions:
    given: dict[str, Any] = {"labels": np.array([1, 0]), "task": "classification", **keywords}
    return Predictions(np.array([2, 0]), PROBABILITIES, **given)


def read_csv(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as handle:
        return list(csv.reader(handle))


def test_csv_with_names(tmp_path: Path) -> None:
    found = make(names=np.array(["otto, jr.", "änna"]), class_names=("cat", 'big "dog"'))
    file = found.save(tmp_path / "new" / "out.csv")
    assert file == tmp_path / "new" / "out.csv"
    assert read_csv(file) == [
        ["node", "name", "prediction", "probability_cat", 'probability_big "dog"'],
        ["2", "otto, jr.", 'big "dog"', "0.25", "0.75"],
        ["0", "änna", "cat", "1", "0"],
    ]


def test_csv_without_names(tmp_path: Path) -> None:
    assert read_csv(make().save(tmp_path / "out.csv")) == [
        ["node", "prediction", "probability_0", "probability_1"],
        ["2", "1", "0.25", "0.75"],
        ["0", "0", "1", "0"],
    ]


def test_csv_of_labels_and_of_values(tmp_path: Path) -> None:
    labels = make(task="multilabel", labels=np.array([[0, 1], [1, 0]], dtype=np.int8), class_names=("a", "b"))
    assert read_csv(labels.save(tmp_path / "labels.csv"))[:2] == [
        ["node", "prediction_a", "prediction_b", "probability_a", "probability_b"],
        ["2", "0", "1", "0.25", "0.75"],
    ]
    values = make(task="regression", labels=PROBABILITIES)
    assert read_csv(values.save(tmp_path / "values.csv"))[:2] == [["node", "value_0", "value_1"], ["2", "0.25", "0.75"]]


def test_npz(tmp_path: Path) -> None:
    file = make(names=np.array(["otto", "änna"]), class_names=("cat", "dog")).save(tmp_path / "out.npz")
    with np.load(file, allow_pickle=False) as content:
        assert sorted(content) == ["class_names", "labels", "names", "nodes", "probabilities"]
        assert content["nodes"].tolist() == [2, 0]
        assert content["labels"].tolist() == [1, 0]
        assert content["names"].tolist() == ["otto", "änna"]
        assert content["class_names"].tolist() == ["cat", "dog"]
        np.testing.assert_array_equal(content["probabilities"], PROBABILITIES)
        assert content["probabilities"].dtype == np.float32
    with np.load(make().save(str(tmp_path / "bare.npz")), allow_pickle=False) as content:
        assert sorted(content) == ["labels", "nodes", "probabilities"]


KNOWN: dict[str, Any] = {"parts": np.array(["test", ""]), "names": np.array(["=1+1", "anna"])}


def test_part_and_label_in_a_table(tmp_path: Path) -> None:
    found = make(true_labels=np.array([0, -1]), class_names=("cat", "@dog"), **KNOWN)
    assert read_csv(found.save(tmp_path / "out.csv")) == [
        ["node", "name", "part", "label", "prediction", "probability_cat", "probability_@dog"],
        ["2", "'=1+1", "test", "cat", "'@dog", "0.25", "0.75"],
        ["0", "anna", "", "", "cat", "1", "0"],
    ]
    table = pq.read_table(found.save(tmp_path / "out.parquet"))
    first = {"node": 2, "name": "=1+1", "part": "test", "label": "cat", "prediction": "@dog"}
    second = {"node": 0, "name": "anna", "part": None, "label": None, "prediction": "cat"}
    assert table.to_pylist() == [
        {**first, "probability_cat": 0.25, "probability_@dog": 0.75},
        {**second, "probability_cat": 1.0, "probability_@dog": 0.0},
    ]
    assert str(table.schema.field("probability_cat").type) == "float"


def test_a_label_that_the_model_does_not_know(tmp_path: Path) -> None:
    found = make(true_labels=np.array([2, 1]), class_names=("a", "b", "c"))
    assert [row[1] for row in read_csv(found.save(tmp_path / "named.csv"))] == ["label", "c", "b"]
    assert [row[1] for row in read_csv(make(true_labels=np.array([2, 1])).save(tmp_path / "out.csv"))][1:] == ["2", "1"]


def test_known_labels_and_values_in_a_table(tmp_path: Path) -> None:
    labels = make(
        task="multilabel",
        labels=np.array([[0, 1], [1, 0]], dtype=np.int8),
        true_labels=np.array([[1, -1], [0, 1]], dtype=np.int8),
    )
    assert [row[1:3] for row in read_csv(labels.save(tmp_path / "labels.csv"))] == [
        ["label_0", "label_1"],
        ["1", ""],
        ["0", "1"],
    ]
    table = pq.read_table(labels.save(tmp_path / "labels.parquet"))
    assert (table["label_1"].to_pylist(), str(table.schema.field("label_1").type)) == ([None, 1], "int8")
    values = make(
        task="regression", labels=PROBABILITIES, true_labels=np.array([[1.5, np.nan], [2, 3]], dtype=np.float32)
    )
    assert [row[1:3] for row in read_csv(values.save(tmp_path / "values.csv"))[1:]] == [["1.5", ""], ["2", "3"]]
    assert pq.read_table(values.save(tmp_path / "values.parquet"))["label_1"].to_pylist() == [None, 3.0]
    one = Predictions(np.array([1]), PROBABILITIES[:1, :1], PROBABILITIES[0, :1], "regression", true_labels=np.ones(1))
    assert read_csv(one.save(tmp_path / "one.csv")) == [["node", "label_0", "value_0"], ["1", "1", "0.25"]]


def test_npz_with_part_and_label(tmp_path: Path) -> None:
    with np.load(make(true_labels=np.array([0, -1]), **KNOWN).save(tmp_path / "out.npz")) as content:
        assert content["parts"].tolist() == ["test", ""]
        assert content["true_labels"].tolist() == [0, -1]


def test_vectors_in_files(tmp_path: Path) -> None:
    found = Embeddings(np.array([2, 0]), PROBABILITIES, "classification", true_labels=np.array([0, -1]), **KNOWN)
    assert (len(found), repr(found)) == (2, "Embeddings(2 nodes, vectors of 2 numbers)")
    assert read_csv(found.save(tmp_path / "out.csv")) == [
        ["node", "name", "part", "label", "vector_0", "vector_1"],
        ["2", "'=1+1", "test", "0", "0.25", "0.75"],
        ["0", "anna", "", "", "1", "0"],
    ]
    table = pq.read_table(found.save(tmp_path / "out.parquet"))
    assert table["vector"].to_pylist() == [[0.25, 0.75], [1.0, 0.0]]
    assert table.schema.field("vector").type.list_size == 2
    with np.load(found.save(tmp_path / "out.npz")) as content:
        assert sorted(content) == ["names", "nodes", "parts", "true_labels", "vectors"]
        np.testing.assert_array_equal(content["vectors"], PROBABILITIES)
    np.testing.assert_array_equal(np.load(found.save(tmp_path / "out.npy")), PROBABILITIES)
    with pytest.raises(StoreError, match="out.npy exists"):
        found.save(tmp_path / "out.npy")
    with pytest.raises(ConfigError, match="must end in .csv, .parquet, .npz or .npy"):
        found.save(tmp_path / "out.txt")


@pytest.mark.parametrize("name", ["out.txt", "out", "out.csv.gz"])
def test_other_suffixes(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must end in .csv, .parquet or .npz"):
        make().save(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["out.csv", "out.npz", "out.parquet"])
def test_existing_files(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text("precious")
    with pytest.raises(StoreError, match=f"{name} exists: choose another name or delete it"):
        make().save(file)
    assert file.read_text() == "precious"
    make().save(file, overwrite=True)
    assert file.read_bytes() != b"precious"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_length_and_look() -> None:
    assert len(make()) == 2
    assert repr(make()) == "Predictions(2 nodes, classification, 2 columns)"


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (None, [0, 1, 2]),
        ([], []),
        ((), []),
        (2, [2]),
        ([2, 0, 2], [2, 0, 2]),
        (np.array([1], dtype=np.uint8), [1]),
        (torch.tensor([1, 0]), [1, 0]),
        ([1.0], [1]),
        ("1", [1]),
        (["2", " 0"], [2, 0]),
        ([1, "2"], [1, 2]),
    ],
)
def test_nodes_by_id(nodes: Any, expected: list[int]) -> None:
    found = find_nodes(PLAIN, nodes)
    assert found.tolist() == expected
    assert found.dtype == np.int64


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (None, [0, 1, 2]),
        ([], []),
        ("anna", [0]),
        (["otto, jr.", "anna"], [2, 0]),
        ("2", [1]),  # a name, not an id
        (2, [2]),
        (np.array(["2", "2"]), [1, 1]),
    ],
)
def test_nodes_by_name(nodes: Any, expected: list[int]) -> None:
    found = find_nodes(NAMED, nodes)
    assert found.tolist() == expected
    assert found.dtype == np.int64


@pytest.mark.parametrize(
    ("graph", "nodes", "message"),
    [
        (PLAIN, 3, "there is no node 3: the graph has nodes 0 to 2"),
        (PLAIN, [0, -1], "there is no node -1: the graph has nodes 0 to 2"),
        (PLAIN, "7", "there is no node 7: the graph has nodes 0 to 2"),
        (PLAIN, ["1", "otto"], "there is no node named 'otto': the nodes have no names, give ids"),
        (PLAIN, "-1", "there is no node named '-1': the nodes have no names, give ids"),
        (PLAIN, "²", "there is no node named '²': the nodes have no names, give ids"),
        (PLAIN, "", "there is no node named '': the nodes have no names, give ids"),
        (PLAIN, [0.5], r"nodes\[0\] is 0.5; it must be a whole number"),
        (PLAIN, [True], "nodes has type bool; it must hold whole numbers"),
        (PLAIN, [[0, 1]], r"nodes has shape \[1, 2\]; it must be a list of ids or names"),
        (PLAIN, ["9" * 30], "nodes has mixed, missing or too large entries"),
        (NAMED, ["anna", "otto"], "there is no node named 'otto'"),
        (NAMED, "99", "there is no node 99"),
        (NAMED, 3, "there is no node 3: the graph has nodes 0 to 2"),
    ],
)
def test_unknown_nodes(graph: Graph, nodes: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        find_nodes(graph, nodes)


def test_names_in_bytes() -> None:
    assert find_nodes(NAMED, np.array([b"anna"])).tolist() == [0]
