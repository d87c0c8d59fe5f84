"""Tables in README and docs say what the files in results/ say."""

import importlib
import json
import tomllib
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from benchmarks.common import variant_config
from benchmarks.records import with_defaults
from benchmarks.speed.ranking import BOTH, with_speed_ups
from benchmarks.tables import accuracy_table, not_measured, paired_table, read_results

import vcr_graphormer as vcr
from vcr_graphormer.base.checks import AUTO
from vcr_graphormer.ranking.pagerank import METIS_PER_ARC, THREAD_PER_NODE, VECTORS_PER_NODE
from vcr_graphormer.runs.presets import VARIANTS

ROOT = Path(__file__).parent.parent.parent
PROTOCOL_A = {"PubMed", "Computer", "Photo", "CS", "Physics", "Squirrel", "Actor", "Texas"}


def benchmark(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    return importlib.import_module(f"benchmarks.{name}")


def test_scaling_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    scale, growth, partitioners = (
        benchmark(f"speed.{name}", monkeypatch) for name in ("scale", "growth", "partitioners")
    )
    rows = json.loads((ROOT / "results" / "scale.json").read_text())["rows"]
    text = (ROOT / "docs" / "large-graphs.md").read_text()
    assert [row["size"] for row in rows] == [0.01, 0.1, 1.0]
    assert between(text, "scale") == scale.measured_table(rows)
    assert between(text, "outlook") == scale.outlook_table(rows[-1])
    larger = json.loads((ROOT / "results" / "large.json").read_text())["rows"]
    assert between(text, "large") == benchmark("speed.large", monkeypatch).table(larger)
    slopes = json.loads((ROOT / "results" / "growth.json").read_text())["slopes"]
    assert between(text, "slopes") == growth.slopes_table(slopes)
    cuts = json.loads((ROOT / "results" / "partitioners.json").read_text())["rows"]
    assert between(text, "partitioners") == partitioners.table(cuts)
    steps = json.loads((ROOT / "results" / "throughput-cuda.json").read_text())["rows"]
    assert between(text, "throughput") == benchmark("speed.throughput", monkeypatch).table(steps)


def test_the_server_meets_its_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    result = json.loads((ROOT / "results" / "serving.json").read_text())
    text = (ROOT / "docs" / "serve.md").read_text()
    assert between(text, "serving") == benchmark("speed.serving", monkeypatch).table(result)
    assert (result["one new node"][-1]["nodes"], result["known nodes"]["clients"]) == (100_000, 32)
    assert result["one new node"][-1]["p99 ms"] < 50
    assert result["known nodes"]["nodes a second"] > 500
    assert result["known nodes"]["lost"] == result["known nodes"]["wrong"] == result["kill"]["missing"] == 0
    assert (result["malformed"]["requests"], result["malformed"]["5xx"]) == (10_000, 0)
    assert (result["memory"][-1]["requests"], result["malformed"]["lost"]) == (100_000, 0)
    assert result["memory"][-1]["megabytes"] < 1.05 * result["memory"][1]["megabytes"]


def test_the_constants_of_resources_are_those_measured() -> None:
    """What tokenize refuses to start without is what it took, no less and not much more."""
    rows = json.loads((ROOT / "results" / "scale.json").read_text())["rows"]
    for row in rows[1:]:
        peak = {stage: 1e9 * value for stage, value in row["peak gigabytes by stage"].items()}
        arcs, nodes = 2 * row["edges"], row["nodes"]
        before = peak["content connections"]  # little is done there: the interpreter, and what was mapped so far
        metis = max(peak["structure connections"], peak["coarse clusters"]) - before
        assert metis < METIS_PER_ARC * arcs < 1.5 * metis
        vectors = max(peak["structure vectors"], peak["content vectors"]) - before
        assert vectors < (VECTORS_PER_NODE + 2 * THREAD_PER_NODE) * nodes < 1.5 * vectors


def test_the_tables_of_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads((ROOT / "results" / "ranking.json").read_text())["rows"]
    text = (ROOT / "docs" / "speed.md").read_text()
    assert between(text, "ranking") == benchmark("speed.ranking", monkeypatch).table(rows)
    trainings = json.loads((ROOT / "results" / "busy.json").read_text())["rows"]
    assert between(text, "busy") == benchmark("speed.busy", monkeypatch).table(trainings)
    assert max(row["ratio"] for row in trainings if row["threads"] == "as chosen") < 1.8
    ours = [row for row in rows if row["method"].startswith("ours, ") and "tolerance" not in row["method"]]
    assert min(row["recall"] for row in ours if "recall" in row) > 0.99
    # What the text beside the table says.
    both = [row for row in rows if row["method"].startswith("ours, structure and content")]
    assert {row["graph"] for row in both if row["speed_up"] < 100} == {"Squirrel", "generated"}
    assert {row["graph"] for row in both if row["processor_speed_up"] < 100} == {"generated"}
    coarse = [row for row in rows if row["method"].endswith("tolerance 0.7")]
    theirs = {row["graph"]: row["recall"] for row in rows if row["method"].startswith("PyG get_ppr, structure")}
    assert {row["graph"] for row in coarse if row["recall"] < theirs[row["graph"]]} == {"PubMed"}


def test_speed_ups_are_those_of_the_measured_times() -> None:
    rows = json.loads((ROOT / "results" / "ranking.json").read_text())["rows"]
    for graph in dict.fromkeys(row["graph"] for row in rows):
        stored = [row for row in rows if row["graph"] == graph]
        names = ("speed_up", "processor_speed_up")
        plain = [{key: value for key, value in row.items() if key not in names} for row in stored]
        assert with_speed_ups([row for row in plain if row["method"] != BOTH]) == stored
        structure, both = stored[0], stored[-1]
        theirs = [row["microseconds_per_node"] for row in stored if row["method"].startswith("PyG get_ppr")]
        metis = 1e6 * structure["coarse_metis_seconds"] / structure["nodes"]
        assert structure["speed_up"] == theirs[0] / (structure["microseconds_per_node"] + metis)
        ours = sum(
            row["microseconds_per_node"] for row in stored if row["method"] in ("ours, structure", "ours, content")
        )
        assert both["speed_up"] == sum(theirs) / (ours + metis)


def test_reading_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads((ROOT / "results" / "tables.json").read_text())["rows"]
    assert (rows[1]["nodes"], rows[1]["edges"]) == (10**6, 10**7)
    assert rows[1]["processor_seconds_ratio"] < 3
    assert rows[1]["peak_per_array"] < 3
    text = " ".join((ROOT / "docs" / "speed.md").read_text().split())
    assert benchmark("speed.tables", monkeypatch).sentence(rows) in text


def test_measured_graphs_replace_their_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = [{"graph": name, "step_ms": 1.0} for name in ("CS", "CS", "PubMed", "PubMed", "Computer")]
    measured = [{"graph": name, "step_ms": 2.0} for name in ("PubMed", "Photo")]
    rows = benchmark("speed.training", monkeypatch).replace_rows(earlier, measured)
    found = [(row["graph"], row["step_ms"]) for row in rows]
    assert found == [("CS", 1.0), ("CS", 1.0), ("PubMed", 2.0), ("Computer", 1.0), ("Photo", 2.0)]


def test_training_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = benchmark("speed.training", monkeypatch).readme_table(ROOT / "results")
    assert len(rows.splitlines()) == 4
    assert rows in (ROOT / "docs" / "speed.md").read_text()


def test_extensions_table(monkeypatch: pytest.MonkeyPatch) -> None:
    extensions = benchmark("studies.extensions", monkeypatch)
    rows = json.loads((ROOT / "results" / "extensions.json").read_text())["rows"]
    found = {(row["graph"], row["switch"]): row["val"] for row in rows}
    paper = next(iter(extensions.SWITCHES))
    text = (ROOT / "docs" / "log.md").read_text()
    for switch in (*extensions.SWITCHES, *extensions.REMOVED):
        cells = []
        for graph in extensions.GRAPHS:
            value, base = found.get((graph, switch)), found[graph, paper]
            cells.append(
                "not measured" if value is None else f"{base:.2f}" if switch == paper else f"{value - base:+.2f}"
            )
        assert f"| {switch} | {' | '.join(cells)} |" in text


def between(text: str, marker: str) -> str:
    return text.partition(f"<!-- {marker}:start -->\n")[2].partition(f"\n<!-- {marker}:end -->")[0]


@pytest.mark.parametrize("protocol", ["A", "B"])
def test_accuracy_tables(protocol: str) -> None:
    rows = read_results(ROOT / "results" / "accuracy")
    page = (ROOT / "docs" / "accuracy.md").read_text()
    assert between(page, f"accuracy-{protocol}") == accuracy_table(rows, protocol)
    if protocol == "A":
        table = accuracy_table(rows, protocol, ("paper", "adaptive", "default"))
        assert between((ROOT / "README.md").read_text(), "accuracy-A") == table
        assert between(page, "paired") == paired_table(rows)
        for name in not_measured(rows):
            assert name in page
    else:
        assert between(page, "roc-auc") == accuracy_table(rows, protocol, metric="roc_auc")


def test_tables_of_the_default_and_of_averages(monkeypatch: pytest.MonkeyPatch) -> None:
    study, averages = (benchmark(f"studies.{name}", monkeypatch) for name in ("default", "averages"))
    page, folder = (ROOT / "docs" / "accuracy.md").read_text(), ROOT / "results" / "default"
    judged, measured, beside = (study.read_rows(folder / f"{n}.jsonl") for n in ("candidates", "measured", "baselines"))
    later = study.read_rows(folder / "later.jsonl")
    assert {row["candidate"] for row in judged} == study.CANDIDATES.keys() - set(study.SECOND_ROUND)
    assert {row["candidate"] for row in later} >= set(study.SECOND_ROUND)
    choices, baselines = study.left_out_choices(judged), study.best_baselines(beside, ROOT / "results" / "accuracy")
    for graph in study.TWELVE:  # no seed is missing
        rows = [row for row in measured if (row["graph"], row["candidate"]) == (graph, choices[graph])]
        assert sorted(row["seed"] for row in rows) == list(range(10))
    assert between(page, "left-out") == study.table(measured, choices, baselines)
    assert between(page, "averages") == averages.table(averages.read_rows(ROOT / "results" / "averages.jsonl"))
    # What is called the default is the default, measured on all splits of all graphs.
    default = [row for row in measured if row["candidate"] == study.DEFAULT]
    assert sorted((row["graph"], row["seed"]) for row in default) == sorted(product(study.TWELVE, range(10)))
    shipped = study.tests_of_default(measured, ROOT / "results" / "accuracy")
    assert {graph: len(tests) for graph, tests in shipped.items()} == dict.fromkeys(study.TWELVE, 10)
    assert between(page, "default") == study.default_table(shipped, baselines)
    graph = vcr.generate(300, 900, classes=3, features=120)
    split = vcr.Split.random(graph.labels)
    chosen = study.settings_of(study.CANDIDATES[study.DEFAULT], graph, split, 0)
    assert (
        replace(chosen, training=replace(chosen.training, checkpoint_every=10))
        == vcr.adapt(vcr.Config(), graph, split).config
    )


@pytest.mark.parametrize(("study", "page"), [("gates", "log.md"), ("kinds", "accuracy.md")])
def test_tables_of_neighbours(study: str, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    neighbours = benchmark("studies.neighbours", monkeypatch)
    rows = [json.loads(line) for line in (ROOT / "results" / "neighbours" / f"{study}.jsonl").read_text().splitlines()]
    assert {row["variant"] for row in rows} <= neighbours.STUDIES[study].keys()
    assert between((ROOT / "docs" / page).read_text(), study) == neighbours.table(rows, "hops only")


def test_few_labels_table(monkeypatch: pytest.MonkeyPatch) -> None:
    study = benchmark("studies.few_labels", monkeypatch)
    rows = study.read_rows(ROOT / "results" / "few_labels.jsonl")
    assert sorted((row["members"], row["seed"]) for row in rows) == sorted(product((1, 5), range(10)))
    assert between((ROOT / "docs" / "accuracy.md").read_text(), "few-labels") == study.table(rows)


def test_half_hops_table(monkeypatch: pytest.MonkeyPatch) -> None:
    study = benchmark("studies.half_hops", monkeypatch)
    rows = study.read_rows(ROOT / "results" / "half_hops.jsonl")
    assert between((ROOT / "docs" / "large-graphs.md").read_text(), "half-hops") == study.table(rows)
    pairs = {(row["graph"], row["seed"]) for row in rows}
    assert len(rows) == 2 * len(pairs)  # each split with both types


def test_inductive_table(monkeypatch: pytest.MonkeyPatch) -> None:
    study = benchmark("studies.inductive", monkeypatch)
    rows = study.read_rows(ROOT / "results" / "inductive.jsonl")
    assert between((ROOT / "docs" / "new-nodes.md").read_text(), "inductive") == study.table(rows)
    measured = [(row["graph"], row["method"], row["seed"]) for row in rows]
    assert len(measured) == len(set(measured))  # no training counts twice


def test_growing_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads((ROOT / "results" / "growing.json").read_text())["rows"]
    table = benchmark("studies.growing", monkeypatch).table(rows)
    assert between((ROOT / "docs" / "new-nodes.md").read_text(), "growing") == table
    found = {(row["graph"], row["new nodes"], row["refresh"]): row for row in rows}
    for graph, part in {(row["graph"], row["new nodes"]) for row in rows}:
        new, affected, every = (found[graph, part, refresh] for refresh in ("new", "affected", "all"))
        assert affected["overlap, same clusters"] >= 0.99 and affected["same predictions"] >= 0.995
        assert abs(new["accuracy of new nodes"] - every["accuracy of new nodes"]) < 0.005
    assert found["generated", 0.01, "affected"]["fraction of all, processor"] <= 0.1


def test_balanced_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads((ROOT / "results" / "balanced.json").read_text())["rows"]
    assert [len(row["MLP"]) for row in rows] == [len(row["reduced"]) for row in rows] == [10, 10, 10]
    table = benchmark("studies.balanced", monkeypatch).table(rows)
    assert between((ROOT / "docs" / "accuracy.md").read_text(), "balanced") == table


def test_results_are_complete() -> None:
    """All of seeds 0 to 9 under protocol A, at least five under B, each file with what reproduces it."""
    rows = read_results(ROOT / "results" / "accuracy")
    assert {row["dataset"] for row in rows if (row["protocol"], row["variant"]) == ("A", "default")} == PROTOCOL_A
    for row in rows:
        seeds = [run["seed"] for run in row["runs"]]
        assert seeds == list(range(len(seeds)))
        assert len(seeds) == 10 if row["protocol"] == "A" else len(seeds) >= 5
        made_by = tuple(f"python -m benchmarks {name} " for name in ("accuracy", "baselines", "nearest", "default"))
        assert row["command"].startswith(made_by)
        assert row["versions"]["torch"]


def test_baselines_are_the_best_of_their_search() -> None:
    """The six baselines of the table of protocol A, found by an earlier search of 20 trials each."""
    models, more_splits, checked = ("MLP", "GCN", "GraphSAGE", "GAT", "APPNP", "LINKX"), {"Texas": 10}, 0
    for row in read_results(ROOT / "results" / "accuracy"):
        if row["variant"] in models:
            splits = more_splits.get(row["dataset"], 2)
            log = (ROOT / "results" / "search" / f"{row['dataset']}-{row['variant']}.jsonl").read_text().splitlines()
            trials = [trial for trial in map(json.loads, log) if trial.get("splits", 2) == splits]
            assert len(trials) == 20
            # A trial that was cut short counts a little less, as in the search.
            worth = [sum(trial["val"]) / len(trial["val"]) - 0.003 * (len(trial["val"]) < splits) for trial in trials]
            best = trials[worth.index(max(worth))]["settings"]
            assert {name: value for name, value in row["config"].items() if name != "recipe"} == best
            checked += 1
    assert checked == len(models) * len(PROTOCOL_A)


def test_presets_are_those_behind_the_results() -> None:
    """A preset that was changed after it was measured would make the table a lie."""
    for row in read_results(ROOT / "results" / "accuracy"):
        if row["variant"] in VARIANTS:
            config = variant_config(row["dataset"], row["variant"])
            for section in ("tokens", "model", "training"):
                settings = asdict(getattr(config, section))
                settings.pop("seed") if section == "training" else None
                assert with_defaults(row["config"])[section] == settings, (row["dataset"], row["variant"])
            kept = config.data.directed
            # Measured before directions could be `auto`, on graphs that have none.
            undirected = kept == AUTO and row["dataset"] not in ("Squirrel", "Actor", "Texas")
            found = with_defaults(row["config"])["data"]
            assert found["scale"] == config.data.scale
            assert found["directed"] in ((AUTO, False) if undirected else (kept,)), row["dataset"]


@pytest.mark.parametrize("dataset", sorted({*PROTOCOL_A, "Cora", "CiteSeer", "Minesweeper", "Tolokers"}))
def test_presets_are_trials_of_the_search(dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that no trial had were judged by nothing."""
    choose = benchmark("search.choose", monkeypatch)
    config = variant_config(dataset, "default")
    rows = map(json.loads, (ROOT / "results" / "tuning.jsonl").read_text().splitlines())
    trials = [
        tomllib.loads(choose.to_toml(choose.rebuild(row["config"]), row["directed"], "a trial"))
        for row in rows
        if row["dataset"] == dataset and "config" in row
    ]
    assert tomllib.loads(choose.to_toml(config, config.data.directed, "a preset")) in trials
