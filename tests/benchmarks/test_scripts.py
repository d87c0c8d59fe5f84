"""The parts of benchmarks/ that choose settings and answer questions: what they may see, and what they write."""

import doctest
import importlib
import json
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.common import variant_config

import vcr_graphormer as vcr
from tests.support.plain import model_config, plain_config, token_config, train_config
from vcr_graphormer.ranking.links import LinkRanker
from vcr_graphormer.runs.trials import Workbench

FOLDER = Path(__file__).parent.parent.parent / "benchmarks"
SHORT: dict[str, Any] = {"epochs": 2, "patience": 2}
# Torch's notices about sparse matrices, on PyG's conversion.
quiet = pytest.mark.filterwarnings("ignore:Sparse")


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    return importlib.import_module(f"benchmarks.{name}")


@pytest.fixture(scope="module")
def graph() -> vcr.Graph:
    return vcr.generate(nodes=200, edges=900, classes=3, features=8, homophily=0.7, seed=0)


CONFIG = plain_config(
    tokens=token_config(hops=2, clusters=4, structure_tokens=3, content_tokens=3),
    model=model_config(hidden_channels=16, heads=2),
    training=train_config(epochs=4, batch_size=64, warmup_steps=5, learning_rate=0.01),
)


def test_each_half_is_judged_at_the_epoch_the_other_half_chose(
    graph: vcr.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune = load("search.tune", monkeypatch)
    split = vcr.Split.random(graph.labels, seed=0)
    bench = Workbench(graph, torch.device("cpu"))
    right: list[Any] = []
    wanted = np.asarray(graph.labels)[split.val]
    bench.train(
        split, CONFIG, test=False, on_epoch=lambda trainer: right.append(trainer.val_logits.argmax(1) == wanted)
    )
    values = []
    for chosen, judged in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
        best = max(range(4), key=lambda epoch: right[epoch][chosen].mean())
        values.append(right[best][judged].mean())
    assert tune.crossed_score(bench, split, CONFIG) == pytest.approx(np.mean(values))


@pytest.mark.parametrize(
    ("name", "examples"),
    [
        ("baselines.bench", 3),
        ("baselines.compare", 1),
        ("baselines.links", 3),
        ("baselines.methods.exphormer", 1),
        ("baselines.nearest", 2),
        ("baselines.network", 1),
        ("baselines.pictures", 2),
        ("common", 3),
        ("speed.distinct", 2),
        ("studies.balanced", 2),
        ("studies.half_hops", 2),
    ],
)
def test_examples(name: str, examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctest.testmod(load(name, monkeypatch)) == (0, examples)


def test_links_are_those_of_the_other_loop_and_of_a_sparse_product(monkeypatch: pytest.MonkeyPatch) -> None:
    row = load("speed.links", monkeypatch).measure(8000)
    assert row["same_lists"]
    assert row["largest_difference_to_scipy"] < 1e-6


def test_errors_are_those_of_the_epoch_the_other_half_chose(graph: vcr.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    tune, errors = load("search.tune", monkeypatch), load("studies.errors", monkeypatch)
    split, bench = vcr.Split.random(graph.labels, seed=0), Workbench(graph, torch.device("cpu"))
    right = errors.predict_validation(bench, split, CONFIG) == np.asarray(graph.labels)[split.val]
    assert right.mean() == pytest.approx(tune.crossed_score(bench, split, CONFIG))


def test_the_search_can_be_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    tune, choose = load("search.tune", monkeypatch), load("search.choose", monkeypatch)
    log = FOLDER.parent / "results" / "tuning.jsonl"
    best = choose.read_log([log], "Actor", 4)[0]
    assert np.mean(best["val"]) > 0.38
    found = tune.best_so_far(log, "Actor", True, sorted(tune.NAMES))
    assert len(found) == 3
    graph = vcr.generate(2000, 6000, features=8, classes=3)
    for settings in found:
        trial = tune.optuna.trial.FixedTrial(settings)
        proposed = tune.propose(trial, graph)
        assert (proposed.model.combine, proposed.tokens.distinct) == ("gated", True)
        assert {
            **asdict(proposed.tokens),
            **asdict(proposed.model),
            **asdict(proposed.training),
        }.items() >= settings.items()


def test_the_nearest_node_is_the_best_training_node_of_the_ranking(
    graph: vcr.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    nearest, labels = load("baselines.nearest", monkeypatch), np.asarray(graph.labels)
    split, ranking = vcr.Split.random(labels, seed=0), LinkRanker.prepare(graph).rank(k=199)
    usual = int(np.bincount(labels[split.train]).argmax())
    expected = []
    for node in split.test:
        listed = [other for other in ranking.ids[node] if other in split.train]
        expected.append(labels[listed[0]] if listed else usual)
    assert nearest.guess(nearest.unit_rows(graph.to_scipy()), labels, split.train, split.test).tolist() == expected


def test_balanced_splits_use_small_classes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    balanced = load("studies.balanced", monkeypatch)
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    split = balanced.balanced_split(labels, seed=3)
    assert [len(getattr(split, part)) for part in ("train", "val", "test")] == [50, 20, 30]
    assert np.bincount(labels[split.train]).tolist() == [20, 20, 10]
    assert 2 not in labels[split.test]
    assert balanced.largest_class(labels) == 0.6
    again, other = balanced.balanced_split(labels, seed=3), balanced.balanced_split(labels, seed=4)
    assert np.array_equal(split.train, again.train)
    assert not np.array_equal(split.train, other.train)


def test_a_preset_survives_being_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    choose = load("search.choose", monkeypatch)
    for name in ("Squirrel", "CS", "Texas"):
        config = variant_config(name, "default")
        text = choose.to_toml(config, config.data.directed, "a comment")
        (tmp_path / "own.toml").write_text(f"{text}".replace("[data]", f'[data]\ndataset = "{name}"'))
        again = vcr.load_config(tmp_path / "own.toml")
        assert (again.tokens, again.model) == (config.tokens, config.model)
        assert replace(again.training, checkpoint_every=0) == config.training
        assert again.data.directed == config.data.directed
    row = {
        "dataset": "X",
        "directed": False,
        "config": {key: asdict(getattr(config, key)) for key in ("tokens", "model", "training")},
    }
    judged = {**row, "score": "crossed"}
    rows = [{**judged, "val": [0.5, 0.7]}, {**judged, "val": [0.9]}, {**judged, "dataset": "Y", "val": [0.9, 0.9]}]
    rows += [{**row, "score": "best epoch", "val": [0.9, 0.9]}, {**judged, "error": "out of memory", "val": []}]
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps(part) for part in rows))
    found = choose.read_log([tmp_path / "log.jsonl"], "X", splits=2)
    assert [part["val"] for part in found] == [[0.5, 0.7]]
    assert choose.rebuild(found[0]["config"]).model == config.model


def test_measured_answers_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rows of a preset that is as it was are never measured again, whatever settings have been added since."""
    questions = load("studies.questions", monkeypatch)
    folder, trained = FOLDER.parent / "results" / "ablation", list[str]()
    monkeypatch.setattr(questions, "load_graph", lambda name, *_: trained.append(name))
    study = questions.STUDIES["clusters"]
    for graph in study.graphs:  # whole in results/
        shutil.copy(folder / f"clusters-{graph}.json", tmp_path)
        questions.answer("clusters", graph, "nowhere", "cpu", questions.SEEDS[graph], tmp_path)
        before, after = (json.loads((place / f"clusters-{graph}.json").read_text()) for place in (folder, tmp_path))
        assert before == after
    assert trained == list(study.graphs)  # loaded, and nothing done with them


def test_questions_go_on_and_become_tables(data_root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    questions = load("studies.questions", monkeypatch)
    base = variant_config("Texas", "paper")
    small: dict[str, Any] = {"hidden_channels": 16, "heads": 2}
    base = replace(base, model=replace(base.model, **small), training=replace(base.training, **SHORT))
    monkeypatch.setattr(questions, "variant_config", lambda *_: base)
    monkeypatch.setattr(questions, "SHORT", {})
    monkeypatch.setattr(sys, "argv", ["python -m benchmarks questions"])
    whole = questions.STUDIES["tokens"]
    for rows in (whole.rows[:1], whole.rows[:2]):
        monkeypatch.setitem(questions.STUDIES, "tokens", replace(whole, rows=rows))
        questions.answer("tokens", "Texas", str(data_root), "cpu", 2, tmp_path)
    found = json.loads((tmp_path / "tokens-Texas.json").read_text())
    assert [row["at"] for row in found["rows"]] == ["(0, 0)", "(0, 10)"]
    assert [len(row["test"]) for row in found["rows"]] == [2, 2]
    assert found["rows"][1]["settings"]["tokens"]["content_tokens"] == 10
    # A changed preset: nothing of the old one stays.
    monkeypatch.setattr(questions, "variant_config", lambda *_: replace(base, model=replace(base.model, layers=2)))
    questions.answer("tokens", "Texas", str(data_root), "cpu", 2, tmp_path)
    again = json.loads((tmp_path / "tokens-Texas.json").read_text())
    assert [row["settings"]["model"]["layers"] for row in again["rows"]] == [2, 2]
    assert [row["settings"]["first seed"] for row in again["rows"]] == [300, 300]
    random = replace(whole, rows=(questions.Row("", "random", {"content_tokens": 10}, random_content=True),))
    monkeypatch.setitem(questions.STUDIES, "content", random)
    questions.answer("content", "Texas", str(data_root), "cpu", 2, tmp_path)
    table = questions.table(tmp_path, "tokens").splitlines()
    assert table[0] == "| (structure, content) | Texas |"
    assert len(table) == 4
    questions.draw(tmp_path, "tokens")
    assert (tmp_path / "tokens.png").stat().st_size > 1000
    assert "RQ1, RQ2" in questions.page(tmp_path)


def test_random_content_leaves_the_rest_alone(graph: vcr.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = load("studies.questions", monkeypatch)
    split = vcr.Split.random(graph.labels, seed=0)
    real, random = (
        made(graph, torch.device("cpu")).inputs(split, CONFIG.tokens, CONFIG.model)
        for made in (Workbench, questions.RandomContent)
    )
    assert torch.equal(real.ids[0][:, :3], random.ids[0][:, :3])
    assert torch.equal(real.scores[0], random.scores[0])
    assert not torch.equal(real.ids[0][:, 3:], random.ids[0][:, 3:])


def test_distinct_lists_have_no_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    distinct = load("speed.distinct", monkeypatch)
    monkeypatch.setattr(distinct, "load_graph", lambda *_: vcr.generate(300, 1200, classes=3, features=4, seed=0))
    row = distinct.measure("small", "nowhere", 1)
    assert row["repeated"] > 0.2
    assert row["repeated_distinct"] == 0
    assert row["value_recall_distinct"] == 1  # a graph of this size is ranked exactly


def test_the_whole_pipeline_at_a_small_fraction_of_amazon2m(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scale = load("speed.scale", monkeypatch)
    config = scale.variant_config("Amazon2M", "paper")
    model, training = replace(config.model, hidden_channels=128), replace(config.training, batch_size=1000)
    monkeypatch.setattr(scale, "variant_config", lambda *_: replace(config, model=model, training=training))
    scale.make_graph(0.004, tmp_path / "graph")
    row = scale.measure(0.004, tmp_path, 2) | scale.train(tmp_path, 1)
    assert (row["nodes"], row["edges"]) == (9_796, 247_437)
    store = vcr.TokenStore.open(tmp_path / "tokens")
    store.verify()
    assert (store.num_hops, store.num_tokens, int(store.assignment("structure").max()) + 1) == (10, 21, 300)
    # Everything is listed: five neighbours of both kinds for every node that has any.
    degrees = vcr.Graph.open(tmp_path / "graph").degrees
    for kind in ("structure", "content"):
        assert (store.ids(kind)[degrees > 0] >= 0).all()
    assert min(row[name] for name in scale.RANKINGS) > 0
    assert row["both rankings"] == pytest.approx(sum(row[name] for name in scale.RANKINGS))
    assert row["peak gigabytes"] < 2
    assert row["step ms, files cold"] > row["read ms, files cold"]


def test_throughput_counts_steps_of_an_imitated_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    throughput = load("speed.throughput", monkeypatch)
    config = replace(CONFIG, tokens=token_config(hops=2, structure_tokens=3, content_tokens=3))
    graph, store = throughput.imitate(0.001, config.tokens, tmp_path)
    assert (graph.num_nodes, store.num_tokens) == (2449, 9)
    for name in ("WARM_UP", "BATCHES"):
        monkeypatch.setattr(throughput, name, 2)
    rows = [throughput.measure(graph, store, config, torch.device("cpu"), streamed, 0.1) for streamed in (False, True)]
    assert [row["inputs"] for row in rows] == ["on the device", "streamed"]
    for row in rows:
        assert row["steps_per_second"] > 0
        assert row["nodes_per_second"] == pytest.approx(64 * row["steps_per_second"])
        assert row["seconds"] >= 0.1


def test_tables_are_read_both_ways(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tables = load("speed.tables", monkeypatch)
    files = tables.write_tables(tmp_path, 300, 2000)
    rows = {way: tables.measure(files, way) for way in ("pyarrow", "graph")}
    assert all(row["seconds"] > 0 and row["array_bytes"] > 2000 for row in rows.values())


def test_opening_is_remembered_and_holds_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opening = load("speed.opening", monkeypatch)
    monkeypatch.setattr(opening, "in_a_process", lambda work, *arguments: work(*arguments))
    row = opening.measure(vcr.generate(300, 1200).save(tmp_path / "graph"), 1)
    assert (row["nodes"], row["edges"], row["descriptors"]) == (300, 1200, 0)
    assert row["seconds_first"] > 0
