"""A model in a folder without its graph: saved, opened, used on another graph, refused where it cannot work."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vcr_graphormer as vcr
from tests.support.command import run as command
from tests.support.runs import CONFIG, named_graph
from vcr_graphormer import ConfigError, GraphError, Run, StoreError

QUICK = replace(CONFIG, training=replace(CONFIG.training, epochs=2))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    graph = replace(named_graph(), feature_names=tuple("abcdefgh"), name="club")
    split = vcr.Split.random(graph.labels, seed=0)
    return vcr.train(graph, split, QUICK, tmp_path_factory.mktemp("pretrained") / "run", device="cpu")


@pytest.fixture(scope="module")
def folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run.save_pretrained(tmp_path_factory.mktemp("saved") / "model", intended_use="Only for tests.")


def test_nothing_of_the_graph_is_in_it(run: Run, folder: Path) -> None:
    names = {file.name for file in folder.rglob("*")}
    assert names == {
        *("run.json", "config.toml", "schema.json", "model.safetensors", "README.md", "metrics.json"),
        "checksums.json",
    }
    assert (folder / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()
    texts = "".join(file.read_text(encoding="utf-8") for file in folder.iterdir() if file.suffix != ".safetensors")
    assert "n7" not in texts and str(run.path) not in texts


def test_the_same_graph_with_training_labels_gives_the_same_predictions(run: Run, folder: Path) -> None:
    labels = np.full(150, -1)
    labels[run.split.train] = np.asarray(run.original.labels)[run.split.train]
    again = Run.from_pretrained(folder, "cpu").on(replace(run.original, labels=labels))
    np.testing.assert_allclose(again.predict().probabilities, run.predict().probabilities, atol=1e-6)
    predictions = again.predict(["n7", "n8"])
    assert predictions.class_names == ("a", "b", "c") and predictions.names is not None
    assert again.predict().parts is not None and set(again.predict().parts) == {"", "train"}  # type: ignore[arg-type]
    assert again.explain("n7").tokens and again.embed([3]).shape[0] == 1


def test_another_graph_whose_columns_stand_elsewhere(run: Run, folder: Path) -> None:
    other = vcr.generate(nodes=90, edges=300, classes=3, features=8, homophily=0.8, seed=5)
    names, turned = tuple("hgfedcba"), np.asarray(other.features)[:, ::-1].copy()
    model = Run.from_pretrained(folder, "cpu")
    with pytest.warns(UserWarning, match="the graph has no labels"):
        plain = model.on(replace(other, labels=None, class_names=None, feature_names=tuple("abcdefgh")))
    with pytest.warns(UserWarning, match="the graph has no labels"):
        moved = model.on(replace(other, labels=None, class_names=None, features=turned, feature_names=names))
    np.testing.assert_array_equal(plain.predict().probabilities, moved.predict().probabilities)
    assert plain.predict().class_names == ("a", "b", "c")
    tiny = vcr.Graph.from_edges([[0, 1], [1, 2]], features=np.zeros((3, 8)), labels=[0, -1, 1])
    assert model.on(tiny).predict([1]).probabilities.shape == (1, 3)  # fewer nodes than clusters


def test_with_tokens_in_a_folder(run: Run, folder: Path, tmp_path: Path) -> None:
    model, graph = Run.from_pretrained(folder, "cpu"), run.original
    tokens = vcr.tokenize(model.prepare(graph), run.split.train, model.config.tokens, tmp_path / "tokens")
    assert model.on(graph, tokens).predict([1, 2]).probabilities.shape == (2, 3)
    shorter = vcr.tokenize(graph, run.split.train, replace(model.config.tokens, hops=1), tmp_path / "shorter")
    with pytest.raises(StoreError, match=r"tokens.hops = 1, the model was trained with 2"):
        model.on(graph, shorter)


def test_card(run: Run, folder: Path) -> None:
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "`club`: 150 nodes, 600 edges, 8 features" in card
    assert "90 training, 30 validation and 30 test nodes" in card
    assert f"| accuracy | {run.metrics['train']:.4f} | {run.metrics['val']:.4f} | {run.metrics['test']:.4f} |" in card
    assert "Only for tests." in card and "reads labels of neighbours" in card and "| baseline, same split |" in card
    assert "| a | " in card and "It holds no graph." in card


def test_with_its_graph(run: Run, tmp_path: Path) -> None:
    folder = run.save_pretrained(tmp_path / "whole", with_graph=True)
    again = Run.from_pretrained(folder, "cpu")
    np.testing.assert_array_equal(again.predict().probabilities, run.predict().probabilities)
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "have not stated one" in text and "It also holds the graph" in text
    assert "as it was written" in command("verify", str(folder))


def test_commands(run: Run, folder: Path, tmp_path: Path) -> None:
    assert "as it was written" in command("verify", str(folder))
    data = run.original.save(tmp_path / "graph")
    out = tmp_path / "predictions.csv"
    command("predict", str(folder), "--dataset", str(data), "--out", str(out), "--device", "cpu")
    assert len(out.read_text(encoding="utf-8").splitlines()) == 151


def test_damage_is_found(run: Run, tmp_path: Path) -> None:
    folder = run.save_pretrained(tmp_path / "model")
    text = (folder / "schema.json").read_text(encoding="utf-8")
    (folder / "schema.json").write_text(text.replace('"a"', '"z"'), encoding="utf-8")
    with pytest.raises(StoreError, match=r"schema.json does not match its checksum"):
        Run.from_pretrained(folder)
    (folder / "metrics.json").unlink()
    with pytest.raises(StoreError, match=r"is not whole: metrics.json is missing"):
        Run.from_pretrained(folder)


def test_refused(run: Run, folder: Path, tmp_path: Path) -> None:
    model = Run.from_pretrained(folder, "cpu")
    with pytest.raises(StoreError, match=r"holds a model without its graph: give it one by run.on\(graph\)"):
        model.predict()
    with pytest.raises(StoreError, match="is a run, not a folder of save_pretrained"):
        Run.from_pretrained(run.path)
    with pytest.raises(StoreError, match="exists and is not empty"):
        run.save_pretrained(folder)
    with pytest.raises(GraphError, match="the graph has 3 features but the model was trained on 8"):
        model.on(vcr.generate(nodes=20, edges=40, classes=3, features=3))
    with pytest.raises(GraphError, match="are for regression, the model was trained for classification"):
        model.on(replace(run.original, labels=np.zeros(150, np.float32), task="regression", class_names=None))
    with pytest.raises(ConfigError, match="on another graph: save the run it came from"):
        model.on(run.original).save_pretrained(tmp_path / "other")
    linked = replace(run, config=replace(run.config, model=replace(run.config.model, adjacency_rows=True)))
    with pytest.raises(ConfigError, match=r"knows nodes by their links .* with_graph=True"):
        linked.save_pretrained(tmp_path / "linked")
    own = replace(run, about={**run.about, "kinds": ["mine"]})
    with pytest.raises(ConfigError, match=r"of your own kinds \(mine\)"):
        own.save_pretrained(tmp_path / "own")


def test_about_is_free_of_the_process_that_trained(folder: Path) -> None:
    about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert about["pretrained"] == vcr.__version__
    assert not {"agents", "process", "asked"} & about.keys()
