"""The comparison with baselines: who searches what, that it goes on, and tables and pictures of partial files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch
from benchmarks.baselines import baselines, compare, journal
from benchmarks.baselines.bench import Bench
from benchmarks.baselines.pictures import draw_costs, draw_ranks
from benchmarks.baselines.published import CHECKS
from benchmarks.baselines.spaces import LINKS, METHODS
from benchmarks.common import FILTERED, load_graph

import vcr_graphormer as vcr
from tests.support.command import run_benchmark

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")


@pytest.fixture(scope="module")
def graph() -> vcr.Graph:
    return vcr.generate(nodes=120, edges=400, classes=3, features=16, homophily=0.7, seed=0)


def job_of(graph: vcr.Graph, folder: Path, method: str = "SGC", trials: int = 4) -> tuple[baselines.Job, Bench]:
    bench = Bench(graph, graph, torch.device("cpu"))
    splits = [vcr.Split.random(graph.labels, seed=seed) for seed in range(4)]
    points = METHODS[method].draw(method, trials, directed=False)
    points = [{**point, "epochs": 6} for point in points]
    return baselines.Job(folder / "g.jsonl", "g", method, splits[2:], list(enumerate(splits[:2])), points), bench


def test_a_search_goes_on_from_its_file_and_reads_no_test_labels(
    graph: vcr.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, bench = job_of(graph, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Bench, "test", lambda *_: pytest.fail("a search reads test labels"))
        best = baselines.search(job, bench, np.inf)
    rows = journal.read(job.file)
    assert [row["trial"] for row in rows] == [0, 1, 2, 3]
    assert best in [row["settings"] for row in rows]
    half, _ = job_of(graph, tmp_path / "half")
    for row in rows[:2]:
        journal.append(half.file, row)
    trained: list[dict[str, Any]] = []
    plain = Bench.train

    def train(self: Bench, make: Any, settings: dict[str, Any], *how: Any, **more: Any) -> Any:
        trained.append(settings)
        return plain(self, make, settings, *how, **more)

    monkeypatch.setattr(Bench, "train", train)
    assert baselines.search(half, bench, np.inf) == best
    assert [row["val"] for row in journal.read(half.file)] == [row["val"] for row in rows]
    assert not [settings for settings in trained if settings in job.trials[:2]]
    assert baselines.search(job_of(graph, tmp_path / "late")[0], bench, -np.inf) is None


def test_runs_of_other_settings_are_measured_again(graph: vcr.Graph, tmp_path: Path) -> None:
    job, bench = job_of(graph, tmp_path)
    for settings in (job.trials[0], job.trials[0], job.trials[1]):
        baselines.run(job, bench, settings, np.inf)
    rows = journal.read(job.file)
    assert [(row["seed"], row["settings"] == job.trials[0]) for row in rows] == [
        (0, True),
        (1, True),
        (0, False),
        (1, False),
    ]
    runs = journal.runs_of(rows, "SGC")
    assert [runs[seed]["settings"] for seed in (0, 1)] == [job.trials[1]] * 2
    assert rows[0].keys() >= {"seconds", "memory", "device", "torch", "val", "test", "epochs", "best_epoch"}


def test_settings_that_cannot_be_trained_are_logged(
    graph: vcr.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, bench = job_of(graph, tmp_path)

    def fail(*_: Any, **__: Any) -> None:
        raise torch.cuda.OutOfMemoryError("no memory left")

    monkeypatch.setattr(Bench, "train", fail)
    assert baselines.search(job, bench, np.inf) is None
    assert {row["error"] for row in journal.read(job.file)} == {"no memory left"}

    def break_down(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access")

    monkeypatch.setattr(Bench, "train", break_down)
    with pytest.raises(RuntimeError, match="CUDA error"):
        baselines.search(job_of(graph, tmp_path / "other")[0], bench, np.inf)


def test_a_search_is_cut_in_the_same_places_however_many_train_together(
    graph: vcr.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for size in (1, 10):
        job, bench = job_of(graph, tmp_path / str(size), "GCN", trials=6)
        # Numbers of dropout are drawn in another order together.
        job = replace(job, trials=[{**point, "dropout": 0.0, "input_dropout": 0.0} for point in job.trials])
        monkeypatch.setattr(Bench, "at_once", size)
        best = baselines.search(job, bench, np.inf)
        found.append((best, [(row["trial"], row["val"]) for row in journal.read(job.file)]))
    assert found[0] == found[1]
    assert {len(val) for _, val in found[0][1]} == {1, 2}  # some were cut short


def test_what_memory_does_not_hold_together_is_trained_one_by_one(
    graph: vcr.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, bench = job_of(graph, tmp_path)
    sizes, plain = [], Bench.train

    def train(self: Bench, make: Any, settings: dict[str, Any], pairs: Any, **how: Any) -> Any:
        sizes.append(len(pairs))
        if len(pairs) > 1:
            raise torch.cuda.OutOfMemoryError("no memory left")
        return plain(self, make, settings, pairs, **how)

    monkeypatch.setattr(Bench, "train", train)
    best = baselines.search(job, bench, np.inf)
    assert best is not None
    baselines.run(replace(job, reported=[*job.reported, (2, job.judging[0])]), bench, best, np.inf)
    rows = journal.read(job.file)
    assert sizes == [2, 1, 1] * 4 + [1, 2, 1, 1]
    assert not [row for row in rows if "error" in row]
    assert sorted(journal.runs_of(rows, job.method)) == [0, 1, 2]


@pytest.mark.parametrize("problem", [vcr.ConfigError("too little memory"), RuntimeError("no memory left")])
def test_a_run_that_fails_is_left_to_the_next_call(
    problem: Exception, graph: vcr.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own trainer says what memory does not hold by an error of its own."""
    job, bench = job_of(graph, tmp_path)

    def fail(*_: Any, **__: Any) -> None:
        raise problem

    with monkeypatch.context() as patched:
        patched.setattr(Bench, "train", fail)
        baselines.run(job, bench, job.trials[0], np.inf)
    assert journal.read(job.file) == []
    baselines.run(job, bench, job.trials[0], np.inf)
    assert sorted(journal.runs_of(journal.read(job.file), job.method)) == [seed for seed, _ in job.reported]


def test_our_method_reads_each_direction_of_links() -> None:
    arcs = vcr.Graph.from_edges([[0, 0, 1], [1, 2, 3]], num_nodes=4, labels=[0, 1, 0, 1], directed=True)
    plain = vcr.Graph.from_edges([[0, 0, 1], [1, 2, 3]], num_nodes=4, labels=[0, 1, 0, 1])
    bench = Bench(plain, arcs, torch.device("cpu"))
    for name in LINKS:
        found = bench.workbench_of(name)
        assert found is bench.workbench_of(name)  # rankings and hops are computed once
        expected = bench.adjacency[name]
        assert (found.graph.to_scipy() != expected).nnz == 0
        assert found.graph.labels is not None


def test_seconds_and_memory_are_those_of_a_training_alone(graph: vcr.Graph, tmp_path: Path) -> None:
    job, bench = job_of(graph, tmp_path)
    baselines.run(replace(job, reported=list(enumerate([*job.judging, *job.judging]))), bench, job.trials[0], np.inf)
    rows = journal.read(job.file)
    assert [row.get("together") for row in rows] == [None, 3, 3, 3]
    median, total, _ = compare.costs_of(rows, journal.runs_of(rows, job.method))
    assert (median, total) == (rows[0]["seconds"], sum(row["seconds"] for row in rows))


def test_a_method_that_cannot_be_recorded_is_trained_without(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    started: list[list[str]] = []

    def start(_: str, words: list[str]) -> None:
        started.append(words[2:])
        raise SystemExit(0)  # a real one does not return

    monkeypatch.setattr(Bench, "train", fail)
    monkeypatch.setattr("os.execv", start)
    options = ["--graphs", "Texas", "--methods", "SGC", "GCN", "--data", str(data_root), "--device", "cpu"]
    run_benchmark("baselines", *options, "--out", str(tmp_path), "--minutes", "5")
    again = baselines.make_parser().parse_args(started[0][2:])
    assert started[0][:2] == ["benchmarks", "baselines"]
    assert (again.eager, again.methods) == (["SGC"], ["SGC", "GCN"])
    assert 4 < again.minutes <= 5
    assert baselines.make_parser().parse_args(["--eager"]).eager == []


def test_one_process_works_on_a_method(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    with (
        journal.claimed(file, "GCN") as first,
        journal.claimed(file, "GCN") as second,
        journal.claimed(file, "GAT") as other,
    ):
        assert (first, second, other) == (True, False, True)
    with journal.claimed(tmp_path / "a.jsonl", "GCN") as again:
        assert again


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    journal.append(tmp_path / "a.jsonl", {"a": 1})
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"a": ')
    assert journal.read(tmp_path / "a.jsonl") == [{"a": 1}]


def test_the_best_trial_counts_less_if_it_was_cut_short() -> None:
    rows: list[dict[str, Any]] = [
        {"val": [0.902], "settings": {"a": 1}},
        {"val": [0.9, 0.9], "settings": {"a": 2}},
        {"val": [], "settings": {}},
    ]
    assert journal.best_settings(rows, splits=2) == {"a": 2}
    assert journal.best_settings(rows[2:], splits=2) is None


def test_the_command(data_root: Path, tmp_path: Path) -> None:
    options = ("--data", str(data_root), "--device", "cpu", "--out", str(tmp_path), "--seeds", "2")
    text = run_benchmark("baselines", "--graphs", "Texas", "--methods", "nearest", *options)
    assert "Texas nearest seed 1: " in text
    rows = journal.read(tmp_path / "Texas.jsonl")
    assert [row["stage"] for row in rows] == ["trial"] * 3 + ["run"] * 2
    assert run_benchmark("baselines", "--graphs", "Texas", "--methods", "nearest", *options) == ""
    text = run_benchmark(
        "baselines", "--graphs", "Cora", "--stage", "check", "--methods", "label propagation", *options
    )
    assert {row["graph"] for row in journal.read(tmp_path / "check.jsonl")} == {"Cora"}
    text = run_benchmark("compare", "--out", str(tmp_path), "--plot", str(tmp_path / "plots"))
    assert "| nearest | " in text
    assert "Average ranks: not measured" in text
    assert (
        "| GCN | Cora | Yang et al. 2016, 20 labels of each class | 81.5 | not measured | Kipf and Welling 2017 |"
        in text
    )
    assert [file.name for file in (tmp_path / "plots").iterdir()] == ["baselines-costs.svg"]


def test_squirrel_without_its_near_duplicates(data_root: Path) -> None:
    both, arcs = (load_graph(FILTERED, data_root, directed) for directed in (False, True))
    assert (both.num_nodes, both.num_edges, both.num_features, both.num_classes) == (2223, 46998, 2089, 5)
    assert (arcs.num_nodes, arcs.directed) == (2223, True)


def write(folder: Path, graph: str, method: str, values: list[float], memory: int | None = None) -> None:
    for seed, value in enumerate(values):
        row = {"graph": graph, "method": method, "stage": "run", "seed": seed, "val": 0.5, "test": value}
        journal.append(folder / f"{graph}.jsonl", row | {"seconds": 2.0, "memory": memory, "settings": {}})


def test_tables_of_partial_files(tmp_path: Path) -> None:
    write(tmp_path, "Photo", "VCR-Graphormer", [0.96, 0.93, 0.95], memory=10**9)
    write(tmp_path, "Photo", "GCN", [0.94, 0.94, 0.92])
    write(tmp_path, "Texas", "GCN", [0.5])
    runs = compare.read_runs(tmp_path)
    assert compare.accuracy_table(runs).splitlines() == [
        "| test metric, % | Photo | Texas |",
        "| --- | --- | --- |",
        "| GCN | 93.33 ± 1.15 | 50.00 |",
        "| VCR-Graphormer | **94.67 ± 1.53** | not measured |",
    ]
    # +2, -1, +3: mean 4/3, deviation 2.0817, / √3 = 1.2019.
    assert compare.differences_table(runs).splitlines()[2:] == ["| GCN | +1.33 ± 1.20 | not measured |"]
    found = compare.costs(tmp_path, runs)
    assert compare.costs_table(found, runs).splitlines()[2:] == [
        "| GCN | 2.0 s, 6 s | 2.0 s, 2 s |",
        "| VCR-Graphormer | 2.0 s, 6 s, 1.00 GB | not measured |",
    ]
    assert "not measured" in compare.ranks_text(runs)
    assert compare.check_table(tmp_path).count("not measured") == len(CHECKS)
    draw_costs(tmp_path / "costs.svg", dict.fromkeys(runs, 90.0), found, ours="VCR-Graphormer")
    texts = [element.text for element in ET.parse(tmp_path / "costs.svg").getroot().iter() if element.text]
    assert "not measured" in texts  # the memory of Texas


def test_average_ranks(tmp_path: Path) -> None:
    for graph in ("Photo", "Texas", "Cora"):
        for method, value in (("GCN", 0.9), ("GAT", 0.8), ("MLP", 0.8), ("VCR-Graphormer", 0.7)):
            write(tmp_path, graph, method, [value])
    write(tmp_path, "Cora", "SGC", [0.99])  # on one of three graphs: left out
    ranks, graphs, left_out = compare.average_ranks(compare.read_runs(tmp_path))
    assert ranks == {"GCN": 1.0, "MLP": 2.5, "GAT": 2.5, "VCR-Graphormer": 4.0}
    assert (graphs, left_out) == (["Photo", "Texas", "Cora"], ["SGC"])
    text = compare.ranks_text(compare.read_runs(tmp_path))
    assert "| GCN | 1.00 |" in text
    assert "Left out: SGC." in text
    draw_ranks(tmp_path / "ranks.svg", ranks, compare.critical_difference(4, 3))
    texts = [element.text for element in ET.parse(tmp_path / "ranks.svg").getroot().iter() if element.text]
    assert "GCN 1.00" in texts
    assert "critical difference 2.71" in texts


def test_the_critical_difference_is_that_of_the_paper() -> None:
    assert compare.critical_difference(4, 14, 0.05) == pytest.approx(2.569 * np.sqrt(20 / 84), abs=1e-3)  # Demšar 2006


def test_checks_name_known_methods_and_graphs() -> None:
    assert CHECKS.keys() <= METHODS.keys()
    assert {check.graph for check in CHECKS.values()} <= {*baselines.ALL_GRAPHS}
    assert json.dumps([check.settings for check in CHECKS.values()])
