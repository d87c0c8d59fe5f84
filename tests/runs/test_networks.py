"""Networks of PyG as baselines: right on an obvious graph, blind to test labels, left out where they do not fit."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import vcr_graphormer as vcr
from tests.runs.test_baselines import NODES, SPLIT, classes, generated, pairs, swapped, without_seconds
from vcr_graphormer.runs import networks
from vcr_graphormer.runs.baselines import NETWORKS, run_baseline


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "EPOCHS", 60)
    monkeypatch.setattr(networks, "WIDTHS", (8, 16))


@pytest.mark.parametrize("name", NETWORKS)
def test_they_read_the_neighbours_of_a_node_unless_they_cannot(name: str) -> None:
    labels = classes()
    graph = pairs(swapped(np.eye(3, dtype=np.float32)[labels]), labels)  # the partner knows the class
    row = run_baseline(name, graph, SPLIT, metric="accuracy")
    assert row["settings"]["hidden"] in (8, 16)
    assert 1 <= row["settings"]["epochs"] <= 60
    if name == "GraphSAGE":
        assert (row["val"], row["test"]) == (1.0, 1.0)
    elif name == "MLP":  # sees the class of the partner, which says nothing
        assert row["val"] < 0.6
    else:  # mixes the node and its partner, and cannot tell them apart
        assert row["val"] > 0.5


@pytest.mark.parametrize("name", NETWORKS)
def test_test_labels_choose_nothing_and_the_generator_is_left_alone(name: str) -> None:
    graph, split = generated()
    labels = np.asarray(graph.labels).copy()
    labels[split.test] = (labels[split.test] + 1) % 3
    before = torch.get_rng_state()
    row = run_baseline(name, graph, split, metric="accuracy")
    assert torch.equal(torch.get_rng_state(), before)
    assert without_seconds(run_baseline(name, graph, split, metric="accuracy")) == without_seconds(row)
    poisoned = run_baseline(name, replace(graph, labels=labels), split, metric="accuracy")
    assert (poisoned["settings"], poisoned["val"]) == (row["settings"], row["val"])
    assert poisoned["test"] != row["test"]


def test_the_outputs_are_those_of_the_best_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, split = generated()
    monkeypatch.setattr(networks, "EPOCHS", 30)
    with torch.random.fork_rng():
        batch = networks.FullBatch(graph, split, torch.device("cpu"))
        settings = {"hidden": 16, **networks.SETTINGS, **networks.MORE}
        val, outputs, epoch = batch.train("MLP", settings, metric="accuracy", seed=0)
        monkeypatch.setattr(networks, "EPOCHS", epoch)  # the last one then
        again = batch.train("MLP", settings, metric="accuracy", seed=0)
    assert val == again[0] == (outputs[split.val].argmax(1) == np.asarray(graph.labels)[split.val]).mean()
    assert epoch == again[2] < 30
    np.testing.assert_array_equal(outputs, again[1])


def test_other_tasks() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(NODES, 2)).astype(np.float32)
    targets = (1000 + 50 * features).astype(np.float32)
    targets[5, 0] = np.nan
    row = run_baseline("MLP", pairs(features, targets, task="regression"), SPLIT, metric="rmse")
    assert row["val"] < 0.5 * float(np.std(targets[SPLIT.val]))  # in the units of the targets
    marks = (features > 0).astype(np.int8)
    marks[7, 1] = -1
    assert run_baseline("MLP", pairs(features, marks), SPLIT, metric="roc_auc")["test"] > 0.9


def test_they_are_left_out_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, split = generated()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch_geometric", None)
        row = run_baseline("GCN", graph, split, metric="accuracy")
        assert row == {"name": "GCN", "note": "left out: it needs PyG (pip install torch-geometric)"}
    monkeypatch.setattr(networks, "MOST_NUMBERS", 1000)
    note = run_baseline("GCN", graph, split, metric="accuracy")["note"]
    numbers = NODES * 8 + graph.num_arcs * 16
    assert note == f"left out: full batches of {numbers:,} numbers, more than 1,000"


def test_a_run_with_all_of_them(tmp_path: Any) -> None:
    from tests.support.runs import CONFIG

    run = vcr.train(*generated(), CONFIG, tmp_path / "run", device="cpu", baselines="all")
    assert [row["name"] for row in run.baselines][2:] == list(NETWORKS)
    assert all(row["val"] > 0.3 for row in run.baselines)
