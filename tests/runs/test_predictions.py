"""Predictions are written and read back whole; nodes are found by id and by name."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vcr_graphormer import ConfigError, Graph, GraphError, StoreError
from vcr_graphormer.runs.predictions import Predictions, find_nodes

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
        ["node", "probability_a", "probability_b"],
        ["2", "0.25", "0.75"],
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


@pytest.mark.parametrize("name", ["out.txt", "out", "out.csv.gz"])
def test_other_suffixes(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must end in .npz or .csv"):
        make().save(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["out.csv", "out.npz"])
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
