"""The parts of benchmarks/ that choose settings and answer questions: what they may see, and what they write."""

import importlib.util
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vcr_graphormer as vcr
from vcr_graphormer.accuracy import variant_config
from vcr_graphormer.trials import Workbench

FOLDER = Path(__file__).parent.parent / "benchmarks"
SHORT: dict[str, Any] = {"epochs": 2, "patience": 2}


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, f"benchmark_{name}", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def graph() -> vcr.Graph:
    return vcr.generate(nodes=200, edges=900, classes=3, features=8, homophily=0.7, seed=0)


CONFIG = vcr.Config(
    tokens=vcr.TokenConfig(hops=2, clusters=4, structure_tokens=3, content_tokens=3),
    model=vcr.ModelConfig(hidden_channels=16, heads=2),
    training=vcr.TrainConfig(epochs=4, batch_size=64, warmup_steps=5, learning_rate=0.01),
)


def test_each_half_is_judged_at_the_epoch_the_other_half_chose(
    graph: vcr.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune = load("tune", monkeypatch)
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
    assert tune.crossed_accuracy(bench, split, CONFIG) == pytest.approx(np.mean(values))


def test_balanced_splits_use_small_classes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    balanced = load("balanced", monkeypatch)
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    split = balanced.balanced_split(labels, seed=3)
    assert [len(getattr(split, part)) for part in ("train", "val", "test")] == [50, 20, 30]
    assert np.bincount(labels[split.train]).tolist() == [20, 20, 10]
    assert 2 not in labels[split.test]
    assert balanced.largest_share(labels) == 0.6
    again, other = balanced.balanced_split(labels, seed=3), balanced.balanced_split(labels, seed=4)
    assert np.array_equal(split.train, again.train)
    assert not np.array_equal(split.train, other.train)


def test_a_preset_survives_being_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    choose = load("choose", monkeypatch)
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


def test_questions_go_on_and_become_tables(data_root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    questions = load("questions", monkeypatch)
    base = variant_config("Texas", "paper")
    small: dict[str, Any] = {"hidden_channels": 16, "heads": 2}
    base = replace(base, model=replace(base.model, **small), training=replace(base.training, **SHORT))
    monkeypatch.setattr(questions, "variant_config", lambda *_: base)
    monkeypatch.setattr(questions, "SHORT", {})
    monkeypatch.setattr(sys, "argv", ["benchmarks/questions.py"])
    whole = questions.STUDIES["tokens"]
    for rows in (whole.rows[:1], whole.rows[:2]):
        monkeypatch.setitem(questions.STUDIES, "tokens", replace(whole, rows=rows))
        questions.answer("tokens", "Texas", str(data_root), "cpu", 2, tmp_path)
    found = json.loads((tmp_path / "tokens-Texas.json").read_text())
    assert [row["at"] for row in found["rows"]] == ["(0, 0)", "(0, 10)"]
    assert [len(row["test"]) for row in found["rows"]] == [2, 2]
    assert found["rows"][1]["settings"]["tokens"]["content_tokens"] == 10
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
    questions = load("questions", monkeypatch)
    split = vcr.Split.random(graph.labels, seed=0)
    real, random = (
        made(graph, torch.device("cpu")).inputs(split, CONFIG.tokens, CONFIG.model)
        for made in (Workbench, questions.RandomContent)
    )
    assert torch.equal(real.ids[0][:, :3], random.ids[0][:, :3])
    assert torch.equal(real.scores[0], random.scores[0])
    assert not torch.equal(real.ids[0][:, 3:], random.ids[0][:, 3:])


def test_the_whole_pipeline_at_a_hundredth_of_amazon2m(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scale = load("scale", monkeypatch)
    scale.make_graph(0.01, tmp_path / "graph")
    row = scale.measure(0.01, tmp_path, 2) | scale.train(tmp_path, 1)
    assert (row["nodes"], row["edges"]) == (24_490, 618_591)
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
    throughput = load("throughput", monkeypatch)
    config = replace(CONFIG, tokens=vcr.TokenConfig(hops=2, structure_tokens=3, content_tokens=3))
    graph, store = throughput.imitate(0.001, config.tokens, tmp_path)
    assert (graph.num_nodes, store.num_tokens) == (2449, 9)
    rows = [throughput.measure(graph, store, config, torch.device("cpu"), streamed, 3) for streamed in (False, True)]
    assert [row["inputs"] for row in rows] == ["on the device", "streamed"]
    for row in rows:
        assert row["steps_per_second"] > 0
        assert row["nodes_per_second"] == pytest.approx(64 * row["steps_per_second"])
