"""Baselines beside a run: right on graphs with an obvious answer, blind to test labels, never in the way of the run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info, threadpool_limits

import vcr_graphormer as vcr
from tests.support.plain import train_config
from tests.support.runs import CONFIG
from vcr_graphormer import ConfigError, Graph, Run, Split
from vcr_graphormer.data.tasks import TASKS
from vcr_graphormer.runs import baselines, launch
from vcr_graphormer.runs.baselines import NETWORKS, baseline_names, comparison, run_baseline
from vcr_graphormer.runs.seeds import train_seeds
from vcr_graphormer.tokens.hops import normalized_adjacency

LINEAR, RIDGE, BOOSTING = "logistic regression on hops", "ridge regression on hops", "gradient boosting on hops"
NODES = 240
SPLIT = Split(np.arange(0, 144), np.arange(144, 192), np.arange(192, NODES))


def pairs(features: Any, labels: Any, **more: Any) -> Graph:
    """Nodes 0 - 1, 2 - 3, …: P swaps the two nodes of a pair, and P² is the identity."""
    first = np.arange(0, NODES, 2)
    return Graph.from_edges([first, first + 1], NODES, features=features, labels=labels, **more)


def swapped(values: Any) -> Any:
    """The value of each node's partner."""
    return np.asarray(values)[np.arange(NODES) ^ 1]


def classes(count: int = 3, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, count, NODES)


def without_seconds(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "seconds"}


def generated() -> tuple[Graph, Split]:
    graph = vcr.generate(nodes=NODES, edges=900, classes=3, features=8, homophily=0.5, seed=0)
    return graph, SPLIT


@pytest.mark.parametrize("name", [LINEAR, BOOSTING])
def test_they_read_the_neighbours_of_a_node(name: str) -> None:
    labels = classes()
    graph = pairs(swapped(np.eye(3, dtype=np.float32)[labels]), labels)  # the partner knows the class
    row = run_baseline(name, graph, SPLIT, metric="accuracy")
    assert (row["name"], row["val"], row["test"]) == (name, 1.0, 1.0)
    assert row["settings"]["columns"] == 9
    assert row["seconds"] > 0
    assert "note" not in row


def test_logistic_regression_equals_a_plain_loop_over_its_grid() -> None:
    graph, split = generated()
    labels, step = np.asarray(graph.labels), normalized_adjacency(graph).toarray()
    features = np.asarray(graph.features)
    hops = [features, step @ features, step @ (step @ features)]
    found: dict[tuple[str, float], float] = {}
    for scaling in ("block", "column"):
        blocks = []
        for hop in hops:
            centred = hop - hop[split.train].mean(0)
            deviation = centred[split.train].std(0)
            blocks.append(centred / (np.sqrt((deviation**2).mean()) if scaling == "block" else deviation))
        rows = np.concatenate(blocks, axis=1)
        for strength in (0.001, 0.01, 0.1, 1.0):
            model = LogisticRegression(C=strength, max_iter=50).fit(rows[split.train], labels[split.train])
            found[scaling, strength] = float((model.predict(rows[split.val]) == labels[split.val]).mean())
    row = run_baseline(LINEAR, graph, split, metric="accuracy")
    settings = row["settings"]["scaling"], row["settings"]["C"]
    assert row["val"] == found[settings] == max(found.values())
    assert settings == max(found, key=found.__getitem__)  # the first of equal ones
    assert 0.4 < row["val"] < 1


def test_boosting_equals_one_that_never_had_more_trees() -> None:
    graph, split = generated()
    labels, step = np.asarray(graph.labels), normalized_adjacency(graph)
    features = np.asarray(graph.features)
    rows = np.concatenate([features, step @ features, step @ (step @ features)], axis=1)
    row = run_baseline(BOOSTING, graph, split, metric="accuracy", training=train_config(seed=3))
    trees = row["settings"]["trees"]
    assert trees % 5 == 0
    model = HistGradientBoostingClassifier(
        max_iter=trees, early_stopping=False, random_state=3, **baselines.BOOSTING
    ).fit(rows[split.train], labels[split.train])
    for part in ("val", "test"):
        nodes = getattr(split, part)
        assert row[part] == (model.predict(rows[nodes]) == labels[nodes]).mean()


@pytest.mark.parametrize("name", [LINEAR, BOOSTING])
def test_test_labels_choose_nothing(name: str) -> None:
    graph, split = generated()
    labels = np.asarray(graph.labels).copy()
    labels[split.test] = (labels[split.test] + 1) % 3
    row, poisoned = (
        run_baseline(name, one, split, metric="accuracy") for one in (graph, replace(graph, labels=labels))
    )
    assert poisoned["settings"] == row["settings"]
    assert poisoned["val"] == row["val"]
    assert poisoned["test"] != row["test"]


@pytest.mark.parametrize("name", [LINEAR, BOOSTING])
def test_the_same_again_on_one_thread_however_many_there_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, split = generated()
    threads: set[int] = set()
    measure = vars(baselines)["measure"]

    def spy(*arguments: Any) -> float:
        threads.update(pool["num_threads"] for pool in threadpool_info())
        return float(measure(*arguments))

    monkeypatch.setattr(baselines, "measure", spy)
    rows = []
    for count in (1, 4):
        with threadpool_limits(count):
            rows.append(without_seconds(run_baseline(name, graph, split, metric="accuracy")))
    assert rows[0] == rows[1]
    assert threads == {1}


@pytest.mark.parametrize("name", [LINEAR, BOOSTING])
@pytest.mark.parametrize("reduced", [False, True])
def test_sparse_features_give_the_same_as_dense_ones(name: str, reduced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, split = generated()
    features = np.asarray(graph.features).copy()
    features[features < 0.5] = 0
    if reduced:
        monkeypatch.setattr(baselines, "MOST_ENTRIES", 3 * 5 * NODES)
    dense, sparse = (
        without_seconds(run_baseline(name, replace(graph, features=made), split, metric="accuracy"))
        for made in (features, sp.csr_matrix(features))
    )
    assert dense == sparse
    assert dense["settings"]["columns"] == (15 if reduced else 24)


def test_a_reduction_learns_from_training_rows_only() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(NODES, 12)).astype(np.float32)
    features[SPLIT.train, 6:] = 0  # columns that only the other nodes have
    reduced = baselines._reduce(features, SPLIT.train, 6)
    assert reduced.shape == (NODES, 6)
    # With as many columns as the training rows span, lengths stay; what they do not span is lost.
    np.testing.assert_allclose(np.linalg.norm(reduced, axis=1), np.linalg.norm(features[:, :6], axis=1), rtol=1e-4)


@pytest.mark.parametrize("name", [LINEAR, BOOSTING])
def test_constant_features_leave_the_most_frequent_class(name: str) -> None:
    labels = np.arange(NODES) % 4 // 3  # three of four nodes are of class 0
    row = run_baseline(name, pairs(np.full((NODES, 2), 0.1, np.float32), labels), SPLIT, metric="accuracy")
    assert (row["val"], row["test"]) == (0.75, 0.75)


@pytest.mark.parametrize("name", [LINEAR, BOOSTING])
def test_classes_that_training_lacks(name: str) -> None:
    labels = classes()
    graph = pairs(np.eye(3, dtype=np.float32)[labels], labels)
    split = replace(SPLIT, train=SPLIT.train[labels[SPLIT.train] != 1])
    row = run_baseline(name, graph, split, metric="accuracy")
    assert row["val"] == (labels[split.val] != 1).mean()
    only = replace(SPLIT, train=SPLIT.train[labels[SPLIT.train] == 2])
    assert run_baseline(name, graph, only, metric="accuracy")["test"] == (labels[only.test] == 2).mean()


@pytest.mark.parametrize("name", [LINEAR, BOOSTING])
def test_isolated_nodes_and_unknown_labels(name: str) -> None:
    labels = classes()
    features = np.eye(3, dtype=np.float32)[labels]
    labels[[0, 150, 200]] = -1
    graph = Graph.from_edges(np.empty((2, 0)), NODES, features=features, labels=labels)
    row = run_baseline(name, graph, SPLIT, metric="accuracy")
    assert (row["val"], row["test"]) == (1.0, 1.0)


def test_one_column_in_another_unit_hides_nothing() -> None:
    random, labels = np.random.default_rng(0), classes(2)
    features = np.stack([labels + 0.1 * random.normal(size=NODES), 1e6 * random.normal(size=NODES)], axis=1)
    row = run_baseline(LINEAR, pairs(features, labels), SPLIT, metric="roc_auc")
    assert row["settings"]["scaling"] == "column"
    assert row["val"] == row["test"] == 1.0


@pytest.mark.parametrize("name", [RIDGE, BOOSTING])
def test_values(name: str) -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(NODES, 2)).astype(np.float32)
    targets = (1000 + 50 * swapped(features)).astype(np.float32)
    targets[5, 0] = targets[150, 1] = np.nan
    graph = pairs(features, targets, task="regression")
    row = run_baseline(name, graph, SPLIT, metric="rmse")
    spread = float(np.nanstd(targets[SPLIT.val]))
    most = 0.02 if name == RIDGE else 0.6  # trees with at least 20 of 144 nodes in a leaf are coarse
    assert row["val"] < most * spread
    assert row["test"] < most * spread
    assert baseline_names(TASKS["regression"], "quick") == [RIDGE, BOOSTING]


@pytest.mark.parametrize("name", [LINEAR, BOOSTING])
def test_several_labels_per_node(name: str) -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(NODES, 2)).astype(np.float32)
    marks = np.zeros((NODES, 3), dtype=np.int8)
    marks[:, :2] = swapped(features) > 0
    marks[:, 2] = 1  # always there, and no classifier learns that
    marks[[3, 160], 0] = -1
    row = run_baseline(name, pairs(features, marks), SPLIT, metric="accuracy")
    assert row["val"] > 0.95
    assert row["test"] > 0.95
    marks[SPLIT.train, 1] = -1  # unknown wherever it could be learned: 0, which is right for about half
    row = run_baseline(name, pairs(features, marks), SPLIT, metric="accuracy")
    assert row["val"] == pytest.approx((2 + (marks[SPLIT.val, 1] == 0).mean()) / 3, abs=0.02)


@pytest.mark.parametrize("name", [LINEAR, BOOSTING])
def test_large_graphs_are_sampled_and_say_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, split = generated()
    whole = run_baseline(name, graph, split, metric="accuracy")
    monkeypatch.setattr(baselines, "ROWS_AT_ONCE", 7)
    assert without_seconds(run_baseline(name, graph, split, metric="accuracy")) == without_seconds(whole)
    monkeypatch.setattr(baselines, "MOST_ROWS", 100)
    row = run_baseline(name, graph, split, metric="accuracy")
    assert row["note"] == "trained on 100 of 144 training nodes"
    assert without_seconds(run_baseline(name, graph, split, metric="accuracy")) == without_seconds(row)
    work = "LINEAR_WORK" if name == LINEAR else "BOOSTING_WORK"
    monkeypatch.setattr(baselines, work, 24 * 3 * 60)
    assert run_baseline(name, graph, split, metric="accuracy")["note"] == "trained on 60 of 144 training nodes"


def test_a_graph_without_features_has_no_baselines() -> None:
    graph = replace(generated()[0], features=None)
    for name in (LINEAR, "GCN"):
        row = run_baseline(name, graph, SPLIT, metric="accuracy")
        assert row == {"name": name, "note": "left out: the graph has no features"}


def test_a_sentence_where_ours_is_not_better() -> None:
    left_out: dict[str, Any] = {"name": "MLP", "note": "left out"}
    rows = [{"name": LINEAR, "val": 0.9}, {"name": "GCN", "val": 0.85}, left_out]
    end = "on the validation nodes: the graph may need other settings; try `vcr-graphormer tune`."
    assert comparison("accuracy", 0.91, rows) is None
    assert comparison("accuracy", 0.9, rows) == f"Logistic regression on hops is as good {end}"
    assert comparison("accuracy", 0.8763, rows) == f"Logistic regression on hops is better by 2.4 points {end}"
    assert comparison("accuracy", 0.5, [left_out]) is None
    behind = [{"name": "GCN", "val": 0.8, "test": 0.95}]
    assert comparison("accuracy", 0.9, behind, 0.9) == "GCN is better by 5 points on the test nodes."
    assert comparison("accuracy", 0.9, behind, 0.95) is None  # as good is not better
    both = comparison("accuracy", 0.7, behind, 0.9)
    assert both == f"GCN is better by 10 points {end} GCN is better by 5 points on the test nodes."
    errors = [{"name": RIDGE, "val": 1.25}, {"name": BOOSTING, "val": 2.0}]
    assert comparison("rmse", 1.2, errors) is None
    assert comparison("rmse", 1.5, errors) == f"Ridge regression on hops is better, rmse 1.25 against 1.5, {end}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return vcr.train(*generated(), CONFIG, tmp_path_factory.mktemp("runs") / "run", device="cpu")


def test_the_run_has_them_and_is_itself_the_same(run: Run, tmp_path: Path) -> None:
    assert [row["name"] for row in run.baselines] == [LINEAR, BOOSTING]
    expected = [run_baseline(name, run.graph, run.split, metric="accuracy") for name in (LINEAR, BOOSTING)]
    assert list(map(without_seconds, run.baselines)) == list(map(without_seconds, expected))
    content = json.loads((run.path / "baselines.json").read_text())
    assert content == {"metric": "accuracy", "baselines": run.baselines}
    alone = vcr.train(run.graph, run.split, CONFIG, tmp_path / "alone", device="cpu", baselines="none")
    assert alone.baselines == []
    assert not (alone.path / "baselines.json").exists()
    assert alone.metrics["scores"] == run.metrics["scores"]
    assert alone.metrics.keys() == run.metrics.keys()
    assert run.on(run.graph, run.store).baselines == []  # they are those of the graph it was trained on


def test_a_run_that_is_stopped_during_baselines_is_finished_and_gets_the_rest_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []

    def stop_at_the_second(name: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        if name == BOOSTING and not computed.count("again"):
            raise KeyboardInterrupt
        computed.append(name)
        return run_baseline(name, *arguments, **options)

    monkeypatch.setattr(launch, "run_baseline", stop_at_the_second)
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        vcr.train(*generated(), CONFIG, out, device="cpu")
    opened = Run.open(out, "cpu")
    assert opened.finished
    assert opened.predict([0]).probabilities.shape == (1, 3)
    assert [row["name"] for row in opened.baselines] == [LINEAR]
    metrics = (out / "metrics.json").read_bytes()
    computed.append("again")
    assert [row["name"] for row in vcr.resume(out, "cpu").baselines] == [LINEAR, BOOSTING]
    assert computed == [LINEAR, "again", BOOSTING]
    assert (out / "metrics.json").read_bytes() == metrics


def test_a_baseline_that_fails_costs_nothing_but_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        if name == LINEAR:
            raise MemoryError("12 GB")
        return run_baseline(name, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(launch, "run_baseline", fail)
        run = vcr.train(*generated(), CONFIG, tmp_path / "run", device="cpu")
    assert run.finished
    assert run.baselines[0] == {"name": LINEAR, "note": "failed: MemoryError: 12 GB"}
    assert run.baselines[1]["val"] > 0.3
    assert "val" not in vcr.resume(run.path, "cpu").baselines[0]  # not tried again and again
    assert vcr.resume(run.path, "cpu", baselines="quick").baselines[0]["val"] > 0.3


def test_runs_from_before_open_as_before(run: Run, tmp_path: Path) -> None:
    import shutil

    old = Path(shutil.copytree(run.path, tmp_path / "old"))
    about = json.loads((old / "run.json").read_text())
    del about["baselines"]
    (old / "run.json").write_text(json.dumps(about))
    (old / "baselines.json").unlink()
    before = {file.name for file in old.iterdir()}
    assert vcr.resume(old, "cpu").baselines == []
    assert {file.name for file in old.iterdir()} == before
    (old / "baselines.json").write_text("{")
    assert Run.open(old, "cpu").baselines == []
    assert len(vcr.resume(old, "cpu", baselines="quick").baselines) == 2


def test_a_choice_that_is_none_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="baselines is 'some'; it must be none, quick or all"):
        vcr.train(*generated(), CONFIG, tmp_path / "run", device="cpu", baselines="some")
    with pytest.raises(ConfigError, match="baselines is 'some'"):
        train_seeds(CONFIG, 1, tmp_path / "run", "cpu", baselines="some")
    assert not (tmp_path / "run").exists()


def test_means_over_seeds(tmp_path: Path) -> None:
    saved = generated()[0].save(tmp_path / "saved")
    config = replace(CONFIG, data=vcr.DataConfig(dataset=str(saved)))
    summary = train_seeds(config, 2, tmp_path / "runs", "cpu")
    rows = [Run.open(tmp_path / "runs" / f"seed-{seed}", "cpu").baselines for seed in (0, 1)]
    assert [row["name"] for row in summary["baselines"]] == [LINEAR, BOOSTING]
    assert summary["baselines"][1]["test"]["values"] == [row[1]["test"] for row in rows]
    assert summary["baselines"][0]["val"]["mean"] == pytest.approx((rows[0][0]["val"] + rows[1][0]["val"]) / 2)
    assert train_seeds(config, 1, tmp_path / "none", "cpu", baselines="none")["baselines"] == []


def test_all_of_them() -> None:
    assert baseline_names(TASKS["classification"], "all") == [LINEAR, BOOSTING, *NETWORKS]
    assert baseline_names(TASKS["classification"], "none") == []
