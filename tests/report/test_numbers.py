"""The numbers inside a run against loops over what was looked at."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vcr_graphormer as vcr
from tests.support.plain import alone
from tests.support.runs import CONFIG
from vcr_graphormer import Graph, Run
from vcr_graphormer.report import numbers
from vcr_graphormer.report.numbers import by_kind, describe_rewiring, rewiring, sample, stages_of_tokens, summarize


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    graph = vcr.generate(nodes=150, edges=600, classes=3, features=8, homophily=0.8, seed=0)
    split = vcr.Split.random(graph.labels, seed=0)
    return vcr.train(graph, split, CONFIG, tmp_path_factory.mktemp("runs") / "run", device="cpu")


def test_kinds_equal_a_loop(run: Run) -> None:
    looked = run.attributions(np.arange(40))
    for row in by_kind(looked):
        number = looked.layout.names.index(row["kind"])
        effects = [
            abs(looked.effect[node, place])
            for node in range(40)
            for place in range(len(looked.kinds))
            if looked.kinds[place] == number and looked.shown[node, place]
        ]
        assert row["effect"] == pytest.approx(np.mean(effects))
        assert row["effect"] > 0
        assert row["tokens"] == pytest.approx(len(effects) / 40)
    assert sum(row["attention"] for row in by_kind(looked)) == pytest.approx(1)


def test_groups_add_up(run: Run) -> None:
    found = summarize(run, 40)
    assert found["nodes"] == 40
    whole = {row["kind"]: row["effect"] for row in found["kinds"]}
    for rows in found["effects"].values():
        assert sum(row["count"] for row in rows) == 40
        assert sum(row["count"] * row["self"] for row in rows) / 40 == pytest.approx(whole["self"])


def test_what_neighbours_add_equals_a_loop(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = run.attributions(run.split.test)
    found = numbers.neighbours(run, looked)
    labels = np.asarray(run.graph.labels)
    right = {"changed": 0, "became_right": 0, "became_wrong": 0}
    hits = dict.fromkeys(looked.without, 0)
    for row, node in enumerate(run.split.test):
        before, after = looked.outputs[row].argmax(), looked.without["neighbours"][row].argmax()
        right["changed"] += int(before != after)
        right["became_right"] += int(before != labels[node] == after)
        right["became_wrong"] += int(before == labels[node] != after)
        for name, outputs in looked.without.items():
            hits[name] += int(outputs[row].argmax() == labels[node])
    assert right["changed"] > 0
    assert {name: found[name] for name in right} == right
    assert found["without"] == pytest.approx({name: count / 30 for name, count in hits.items()})
    assert (found["nodes"], found["test_nodes"], found["metric"], found["gate"]) == (30, 30, "accuracy", None)
    assert found["whole"] == pytest.approx(run.metrics["test"])
    assert found["fraction_changed"] == right["changed"] / 30
    shown = looked.shown[:, 3:]
    assert found["median_effect"] == np.median(np.abs(looked.effect[:, 3:][shown]))
    monkeypatch.setattr(numbers, "_COMPARED", 10)
    some = numbers.neighbours(run, looked)
    assert (some["nodes"], some["test_nodes"]) == (10, 30)


def train(folder: Path, labels: Any = None, task: str = "auto", **settings: Any) -> Run:
    plain = vcr.generate(nodes=150, edges=600, classes=3, features=8, homophily=0.8, seed=0)
    graph = Graph.from_scipy(
        plain.to_scipy(), features=plain.features, labels=plain.labels if labels is None else labels, task=task
    )
    split = vcr.Split(np.arange(80), np.arange(80, 110), np.arange(110, 150))
    config = replace(
        CONFIG,
        model=replace(CONFIG.model, combine="gated"),
        tokens=replace(CONFIG.tokens, **settings),
    )
    return vcr.train(graph, split, config, folder, device="cpu")


def test_behind_a_closed_gate_no_prediction_changes(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    before = summarize(run, 150)["neighbours"]
    assert before["gate"] == run.gate != 0
    assert before["median_effect"] > 1e-5
    with torch.no_grad():
        alone(run.model).gate.zero_()
    found = summarize(run, 150)["neighbours"]
    assert found["gate"] == found["changed"] == found["fraction_changed"] == 0
    assert found["became_right"] == found["became_wrong"] == 0
    assert found["median_effect"] < 1e-6
    assert {found["without"][name] for name in ("structure", "content", "neighbours")} == {found["whole"]}


def test_what_neighbours_add_to_other_tasks(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=150)
    run = train(tmp_path / "values", values, "regression")
    found = summarize(run, 50)["neighbours"]
    whole, without = run.outputs_without(run.split.test)
    assert (found["metric"], found["nodes"]) == ("rmse", 40)
    assert found["mean_change"] == pytest.approx(np.abs(whole - without["neighbours"]).mean())
    assert "changed" not in found
    marks = (random.random((150, 3)) < 0.5).astype(np.int8)
    marks[121, 0] = -1
    run = train(tmp_path / "labels", marks)
    found = summarize(run, 50)["neighbours"]
    nodes = run.split.test
    whole, without = run.outputs_without(nodes)
    before, after = whole >= 0.5, without["neighbours"] >= 0.5

    def right(node: int, decided: Any) -> bool:
        return all(mark in (-1, int(one)) for mark, one in zip(marks[node], decided, strict=True))

    was, now = ([right(node, row) for node, row in zip(nodes, rows, strict=True)] for rows in (before, after))
    assert (found["metric"], found["nodes"]) == ("roc_auc", 40)
    assert found["changed"] == sum((one != other).any() for one, other in zip(before, after, strict=True)) > 0
    assert found["became_right"] == sum(b and not a for a, b in zip(was, now, strict=True))
    assert found["became_wrong"] == sum(a and not b for a, b in zip(was, now, strict=True))


def test_lists_without_neighbours_and_runs_without_test_labels(tmp_path: Path) -> None:
    found = summarize(train(tmp_path / "alone", structure_tokens=0, content_tokens=0), 20)["neighbours"]
    assert found["median_effect"] is None
    assert set(found) == {"gate", "median_effect"}
    run = train(tmp_path / "run")
    labels = np.asarray(run.graph.labels).copy()
    labels[run.split.test] = -1
    other = run.on(replace(run.graph, labels=labels), run.store)
    assert set(numbers.neighbours(other, other.attributions([0, 1]))) == {"gate", "median_effect"}


def test_the_rewiring_of_one_node_and_of_many(run: Run) -> None:
    one = describe_rewiring(run, 5)
    many = rewiring(run, np.array([5]))
    for kind in ("structure", "content"):
        assert one[kind]["moved"] == pytest.approx(many[kind]["mean"])
        assert one[kind]["moved"] > 0
        assert many[kind]["estimate_elsewhere"] == pytest.approx(many[kind]["elsewhere"], rel=0.5)
        assert len(one[kind]["exact_scores"]) == (run.store.ids(kind)[5] >= 0).sum()


def test_samples_and_stages(run: Run) -> None:
    random = np.random.default_rng(0)
    assert sample(np.array([3, 1]), 5, random).tolist() == [1, 3]
    drawn = sample(np.arange(1000), 10, random)
    assert len(np.unique(drawn)) == 10
    assert drawn.max() > 500
    assert "hop features" in stages_of_tokens(run)
