"""A rare class: weights and a threshold find it, the run keeps both, and what cannot work is refused early."""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import vcr_graphormer as vcr
from tests.support.command import run as run_command
from tests.support.plain import train_config
from tests.support.runs import CONFIG, named_graph, rare_graph
from vcr_graphormer import ConfigError, Graph, Run, Split
from vcr_graphormer.data.metrics import Threshold
from vcr_graphormer.data.tasks import TASKS
from vcr_graphormer.report import numbers
from vcr_graphormer.runs.adapt import adapt
from vcr_graphormer.runs.baselines import _Estimators, run_baseline
from vcr_graphormer.runs.config import Config, build_config, load_config, to_toml

FRAUD = 0


@pytest.fixture(scope="module")
def graph() -> Graph:
    return rare_graph()


@pytest.fixture(scope="module")
def split(graph: Graph) -> Split:
    return Split.random(graph.labels, 0.4, 0.3, seed=0, stratified=True)


def with_training(**settings: Any) -> Config:
    training = replace(CONFIG.training, epochs=8, metric="average_precision")
    return replace(CONFIG, training=replace(training, **settings))


@pytest.fixture(scope="module")
def runs(graph: Graph, split: Split, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """The same training with a chosen threshold (`auto` does that here), and with balanced weights; shared tokens."""
    folder = tmp_path_factory.mktemp("runs")
    changes: dict[str, dict[str, Any]] = {
        "threshold": {},
        "balanced": {"class_weights": "balanced", "threshold": 0.5},
    }
    return {
        name: vcr.train(
            graph,
            split,
            with_training(**settings),
            folder / name,
            device="cpu",
            tokens=folder / "tokens",
            baselines="quick" if name == "balanced" else "none",
        )
        for name, settings in changes.items()
    }


def recall(graph: Graph, split: Split, decided: Any) -> float:
    fraud = np.asarray(graph.labels)[split.test] == FRAUD
    return float((decided[fraud] == FRAUD).mean())


def test_weights_and_threshold_find_the_rare_class(graph: Graph, split: Split, runs: dict[str, Run]) -> None:
    predictions = runs["threshold"].predict(split.test)
    plain = recall(graph, split, predictions.probabilities.argmax(1))
    assert plain < 0.3
    assert recall(graph, split, predictions.labels) > plain + 0.3
    assert recall(graph, split, runs["balanced"].predict(split.test).labels) > plain + 0.3


def test_what_the_run_keeps(graph: Graph, split: Split, runs: dict[str, Run]) -> None:
    run = runs["threshold"]
    metrics = run.metrics
    row = metrics["threshold"]
    assert (row["class"], row["column"], row["setting"]) == ("fraud", FRAUD, "f1")
    assert 0 < row["value"] < 0.5
    assert run.threshold == Threshold(FRAUD, row["value"])
    assert "threshold: where the expected F1 of the rarer class is largest, instead of 0.5" in run.notes
    again = Run.open(run.path, "cpu")
    predictions = again.predict()
    assert predictions.threshold == run.threshold
    assert f"threshold {row['value']:.4g})" in repr(predictions)
    expected = np.where(predictions.probabilities[:, FRAUD] >= row["value"], FRAUD, 1)
    np.testing.assert_array_equal(predictions.labels, expected)
    np.testing.assert_array_equal(np.load(run.path / "predictions.npz")["labels"], expected)
    for part in ("train", "val", "test"):
        nodes = getattr(split, part)
        labels, decided = np.asarray(graph.labels)[nodes], expected[nodes]
        assert metrics["scores"][part] == pytest.approx(again.evaluate(part))
        assert metrics["scores"][part]["accuracy"] == pytest.approx((decided == labels).mean())
        found = metrics["classes"][part][FRAUD]
        assert (found["name"], found["nodes"]) == ("fraud", (labels == FRAUD).sum())
        assert found["recall"] == pytest.approx((decided[labels == FRAUD] == FRAUD).mean())
        assert found["precision"] == pytest.approx((labels[decided == FRAUD] == FRAUD).mean())
    assert metrics["val"] == max(row["val"] for row in run.history)  # of the ranking, which no threshold changes
    curve = metrics["precision_recall"]
    assert (curve["class"], curve["part"]) == ("fraud", "val")
    assert (curve["recall"][-1], len(curve["precision"])) == (1.0, len(curve["thresholds"]))


def test_a_run_without_a_threshold_takes_the_most_probable_class(runs: dict[str, Run], tmp_path: Path) -> None:
    plain = runs["balanced"]
    assert plain.threshold is None
    assert "threshold" not in plain.metrics
    predictions = plain.predict()
    np.testing.assert_array_equal(predictions.labels, predictions.probabilities.argmax(1))
    # A run of an earlier version: neither setting, nothing about classes in its metrics.
    old = Path(shutil.copytree(runs["threshold"].path, tmp_path / "old"))
    shutil.copytree(runs["threshold"].tokens_folder, tmp_path / "tokens")
    settings = (old / "config.toml").read_text().splitlines()
    kept = [line for line in settings if not line.startswith(("class_weights", "threshold"))]
    assert len(kept) == len(settings) - 2
    (old / "config.toml").write_text("\n".join(kept))
    metrics = json.loads((old / "metrics.json").read_text())
    for name in ("threshold", "classes", "precision_recall"):
        del metrics[name]
    (old / "metrics.json").write_text(json.dumps(metrics))
    opened = Run.open(old, "cpu")
    assert opened.threshold is None
    np.testing.assert_array_equal(opened.predict().labels, opened.predict().probabilities.argmax(1))
    assert opened.config.training.class_weights == "none"


def test_baselines_have_the_same_weights(graph: Graph, split: Split, runs: dict[str, Run]) -> None:
    rows = {row["name"]: row for row in runs["balanced"].baselines}
    assert all(0 < row["val"] <= 1 and 0 < row["test"] <= 1 for row in rows.values())
    name, weights = "logistic regression on hops", train_config(class_weights="balanced")
    plain = run_baseline(name, graph, split, metric="balanced_accuracy")
    weighted = run_baseline(name, graph, split, metric="balanced_accuracy", training=weights)
    assert weighted["val"] > plain["val"] + 0.1
    plain, chosen = (
        run_baseline(name, graph, split, metric="macro_f1", training=train_config(threshold=value))
        for value in (0.5, "f1")
    )
    assert plain["settings"] == chosen["settings"]
    assert chosen["val"] > plain["val"]
    # A network weighs its loss in the same way.
    network = run_baseline("MLP", graph, split, metric="balanced_accuracy")
    weighted = run_baseline("MLP", graph, split, metric="balanced_accuracy", training=weights)
    assert weighted["val"] > network["val"] + 0.1


def test_weights_of_logistic_regression_are_those_of_repeated_nodes() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    labels = (rows[:, 0] > 0.8).astype(np.int64)
    repeats = np.where(labels == 1, 3, 1)
    weights = TASKS["classification"].weights(labels, 2, [1.0, 3.0])
    assert weights is not None
    scale = float(weights[0])  # a mean of 1 divides all weights by the same number, as a stronger penalty does
    made = partial(LogisticRegression, max_iter=500, tol=1e-8)
    how: dict[str, Any] = {"task": TASKS["classification"], "outputs": 2}
    weighted = _Estimators.fit(made, rows, labels=labels, weights=weights, **how)
    again = _Estimators.fit(partial(made, C=scale), rows.repeat(repeats, 0), labels=labels.repeat(repeats), **how)
    np.testing.assert_allclose(weighted.predict(rows), again.predict(rows), atol=1e-4)
    marks = np.stack([labels, 1 - labels], axis=1).astype(np.int8)
    both = TASKS["multilabel"].weights(marks, 2, [3.0, 1.0])
    several = _Estimators.fit(made, rows, labels=marks, weights=both, task=TASKS["multilabel"], outputs=2)
    np.testing.assert_allclose(several.predict(rows)[:, 0], weighted.predict(rows)[:, 1], atol=1e-4)


def test_console_and_page(runs: dict[str, Run]) -> None:
    run = runs["threshold"]
    text = run_command("evaluate", str(run.path), "--device", "cpu")
    assert "average_precision" in text
    assert "each class, test nodes" in text
    value = run.metrics["threshold"]["value"]
    sentence = f"fraud is predicted from a probability of {value:.4g} on (largest expected F1, by the"
    assert sentence in text
    assert sentence in run_command("train", "--resume", str(run.path), "--device", "cpu")
    assert "each class, val nodes" in run_command("evaluate", str(run.path), "--part", "val", "--device", "cpu")
    assert "is predicted from" not in run_command("evaluate", str(runs["balanced"].path), "--device", "cpu")
    predicted = run.predict().probabilities
    data = numbers.classes(run, predicted)
    assert data["class_scores"] == run.metrics["classes"]["test"]
    found, val = data["threshold"], run.metrics["classes"]["val"][FRAUD]
    assert (found["value"], found["chosen"]) == (run.metrics["threshold"]["value"], True)
    assert [found[name] for name in ("precision", "recall", "f1")] == pytest.approx(
        [val[name] for name in ("precision", "recall", "f1")]
    )
    assert data["precision_recall"]["base"] == pytest.approx(val["nodes"] / len(run.split.val))
    assert numbers.classes(runs["balanced"], predicted)["threshold"]["value"] == 0.5
    right = numbers.correctness(run, predicted)["confusion"]
    assert right[FRAUD][FRAUD] == round(run.metrics["classes"]["test"][FRAUD]["recall"] * sum(right[FRAUD]))


def test_an_explanation_is_of_the_decided_class(graph: Graph, runs: dict[str, Run]) -> None:
    run = runs["threshold"]
    predictions = run.predict()
    between = np.flatnonzero((predictions.labels == FRAUD) & (predictions.probabilities[:, FRAUD] < 0.5))
    explained = run.explain(int(between[0]))
    assert explained.explained == explained.predicted == "fraud"
    alone = explained.without_neighbours["fraud"] >= run.metrics["threshold"]["value"]
    assert explained.predicted_without == ("fraud" if alone else "ok")
    assert explained.threshold == ("fraud", run.metrics["threshold"]["value"])
    assert f"(fraud is said from {explained.threshold[1]:.4f} on)" in explained.title()


def test_an_exported_model_says_what_decides(runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[dict[str, Any]] = []
    monkeypatch.setattr("vcr_graphormer.model.export.write_export", lambda *_, about, **__: written.append(about))
    run = next(run for run in runs.values() if run.threshold is not None)
    assert run.threshold is not None
    run.export("model.onnx")
    assert written[0]["threshold"] == {"column": run.threshold.column, "value": run.threshold.value}


def test_settings_are_written_and_read(tmp_path: Path) -> None:
    for weights in ("balanced", {"fraud": 10.0, 'a "b" = c': 0.5}, [1.0, 2.5]):
        config = with_training(class_weights=weights, threshold=0.25)
        file = tmp_path / "run.toml"
        file.write_text(to_toml(config), encoding="utf-8")
        assert load_config(file) == config
    given = load_config(overrides=["training.class_weights={fraud = 10}", "training.threshold=f1"]).training
    assert (given.class_weights, given.threshold) == ({"fraud": 10}, "f1")
    numbered: Any = build_config({"training": {"class_weights": {1: 2.0}}}).training.check().class_weights
    assert numbered == {1: 2.0}


def test_what_is_chosen(graph: Graph, split: Split) -> None:
    config = replace(CONFIG, training=train_config(epochs=1))
    adapted = adapt(config, graph, split).config.training
    assert (adapted.metric, adapted.threshold, adapted.class_weights) == ("roc_auc", "f1", "none")
    three = named_graph()
    assert adapt(config, three, Split.random(three.labels, seed=0)).config.training.threshold == 0.5
    even = replace(graph, labels=np.arange(graph.num_nodes) % 2)
    assert adapt(config, even, split).config.training.threshold == 0.5


def test_what_the_graph_refuses_is_refused_before_tokens(graph: Graph, split: Split, tmp_path: Path) -> None:
    three = named_graph()
    of_three = Split.random(three.labels, seed=0)
    one_sided = replace(split, val=split.val[np.asarray(graph.labels)[split.val] != FRAUD])
    cases: list[tuple[Graph, Split, dict[str, Any], str]] = [
        (graph, split, {"class_weights": {"frod": 3.0}}, "unknown class 'frod'; did you mean 'fraud'"),
        (graph, split, {"class_weights": [1.0]}, "training.class_weights has 1 weights but there are 2 classes"),
        (three, of_three, {"threshold": 0.3}, "training.threshold is 0.3 but there are 3 classes"),
        (three, of_three, {"threshold": "f1"}, "training.threshold is 'f1' but there are 3 classes"),
        (graph, one_sided, {"threshold": "f1"}, "training.threshold f1 needs both classes among"),
    ]
    for data, parts, settings, message in cases:
        config = replace(CONFIG, training=replace(CONFIG.training, **settings))
        with pytest.raises(ConfigError, match=message):
            vcr.train(data, parts, config, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("training.metric=f1",), "training.metric is 'f1'; it must be auto or accuracy"),
        (("training.threshold=1.5",), "training.threshold is 1.5; it must be auto or f1, or a number between 0 and 1"),
        (("training.class_weights=equal",), "training.class_weights is 'equal'; it must be none or balanced"),
        (("training.class_weights={a = -1}",), "training.class_weights['a'] is -1; it must be a number above 0"),
        (("training.class_weights=balanced", "data.task=regression"), "training.class_weights is for class labels"),
        (("training.metric=accuracy", "data.task=regression"), "for regression it must be rmse or mae"),
        (("training.metric=rmse", "data.dataset=digits"), "for classification it must be accuracy or macro_f1"),
    ],
)
@pytest.mark.parametrize("command", ["train", "tune", "seeds"])
def test_what_cannot_work_is_refused_before_the_graph_is_loaded(
    command: str, settings: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: Any) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr("vcr_graphormer.data.datasets.load_data", load)
    more = [part for setting in ("data.dataset=/none/such", *settings) for part in ("--set", setting)]
    given = ["train", "--seeds", "2"] if command == "seeds" else [command]
    assert message in run_command(*given, *more, "--out", str(tmp_path / "run"), code=2)
