"""`model.label_guesses`: a first training inside the run, whose predictions stand for the labels nobody knows."""

import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vcr_graphormer as vcr
from tests.command import run as run_command
from tests.together import small_graph, torchrun
from vcr_graphormer import Graph, Run, Split, StoreError
from vcr_graphormer.config import to_toml
from vcr_graphormer.labels import label_matrix

MODEL = vcr.ModelConfig(hidden_channels=16, heads=2, label_hops=2, label_embedding=True, label_guesses=True)
CONFIG = vcr.Config(
    tokens=vcr.TokenConfig(hops=2, clusters=4, structure_tokens=3, content_tokens=3),
    model=MODEL,
    training=vcr.TrainConfig(epochs=3, batch_size=64, warmup_steps=5, learning_rate=0.01, checkpoint_every=1),
)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return vcr.generate(nodes=200, edges=900, classes=3, features=8, homophily=0.8, seed=0)


@pytest.fixture(scope="module")
def split(graph: Graph) -> Split:
    return Split.random(graph.labels, seed=0)


@pytest.fixture(scope="module")
def run(graph: Graph, split: Split, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return vcr.train(graph, split, CONFIG, tmp_path_factory.mktemp("runs") / "run", device="cpu")


def test_the_first_training_is_a_run_without_labels_in_its_tokens(run: Run, tmp_path: Path) -> None:
    first = Run.open(run.path / "first", "cpu")
    assert first.config == replace(
        CONFIG, model=replace(MODEL, label_hops=0, label_embedding=False, label_guesses=False)
    )
    assert first.tokens_folder.resolve() == run.tokens_folder.resolve()
    alone = vcr.train(run.graph, run.split, first.config, tmp_path / "alone", device="cpu")
    assert alone.metrics["scores"] == first.metrics["scores"]
    assert run.guesses is not None
    np.testing.assert_array_equal(run.guesses, first.predict().probabilities)
    assert run.metrics["timings"]["train"] > first.metrics["timings"]["train"]


def test_training_labels_are_as_they_are_and_all_others_are_guesses(run: Run, graph: Graph) -> None:
    labels, train = run.inputs.labels, run.split.train
    assert labels is not None
    assert run.guesses is not None
    assert np.array_equal(labels[train].numpy(), np.eye(3, dtype=np.float32)[np.asarray(graph.labels)[train]])
    others = np.setdiff1d(np.arange(200), train)
    assert np.array_equal(labels[others].numpy(), run.guesses[others])
    # Beside the guesses, no label of a validation or test node is in them.
    hidden = replace(graph, labels=np.where(np.isin(np.arange(200), train), np.asarray(graph.labels), 0))
    for name, tensor in vars(vcr.make_inputs(hidden, run.store, MODEL, train, run.device, guesses=run.guesses)).items():
        if name in ("labels", "label_hops"):
            assert torch.equal(tensor, getattr(run.inputs, name))


def test_without_guesses_it_is_another_training(run: Run, tmp_path: Path) -> None:
    plain = replace(CONFIG, model=replace(MODEL, label_guesses=False))
    other = vcr.train(run.graph, run.split, plain, tmp_path / "run", device="cpu")
    assert other.guesses is None
    assert not (other.path / "first").exists()
    assert [row["loss"] for row in other.history] != [row["loss"] for row in run.history]


def test_what_is_saved_is_predicted_again(run: Run) -> None:
    with np.load(run.path / "predictions.npz") as saved:
        np.testing.assert_allclose(run.predict().probabilities, saved["probabilities"], atol=1e-6)
    assert run.explain(3).node == 3


def test_another_graph_gets_guesses_of_its_own(run: Run, graph: Graph) -> None:
    same = run.on(graph, run.store)
    np.testing.assert_allclose(same.predict().probabilities, run.predict().probabilities, atol=1e-6)
    other = replace(graph, features=np.asarray(graph.features)[::-1].copy())
    changed = run.on(other, run.store).guesses
    assert changed is not None
    assert run.guesses is not None
    assert np.abs(changed - run.guesses).max() > 0.01
    np.testing.assert_array_equal(
        changed, Run.open(run.path / "first", "cpu").on(other, run.store).predict().probabilities
    )


def test_a_model_that_reads_guesses_is_not_given_none(run: Run) -> None:
    with pytest.raises(vcr.ConfigError, match="reads guesses .*: pass those of its run"):
        vcr.make_inputs(run.graph, run.store, MODEL, run.split.train, run.device)


def test_a_run_moves_with_graph_and_tokens_beside_it(graph: Graph, split: Split, tmp_path: Path) -> None:
    saved = graph.save(tmp_path / "here" / "graph")
    out, tokens = tmp_path / "here" / "run", tmp_path / "here" / "tokens"
    vcr.train(Graph.open(saved), split, CONFIG, out, tokens, device="cpu")
    (tmp_path / "here").rename(tmp_path / "there")
    moved = Run.open(tmp_path / "there" / "run", "cpu")
    assert moved.on(moved.graph, moved.store).predict([5]).probabilities == pytest.approx(
        moved.predict([5]).probabilities, abs=1e-6
    )


def test_killed_before_the_first_training_had_settings(run: Run, tmp_path: Path) -> None:
    half = Path(shutil.copytree(run.path, tmp_path / "half"))
    (half / "metrics.json").unlink()
    shutil.rmtree(half / "first")
    (half / "first").mkdir()
    (half / "first" / ".run.json.tmp").write_text("{")
    assert vcr.resume(half, "cpu").metrics["scores"] == run.metrics["scores"]
    (half / "run.json").unlink()
    with pytest.raises(StoreError, match="run.json is missing$"):
        Run.open(half)


def test_rows_of_the_first_training_are_marked(graph: Graph, split: Split, tmp_path: Path) -> None:
    rows: list[dict[str, float]] = []
    done = vcr.train(graph, split, CONFIG, tmp_path / "run", device="cpu", on_epoch=rows.append)
    assert ["first" in row for row in rows] == [True] * 3 + [False] * 3
    assert [row["loss"] for row in rows[3:]] == [row["loss"] for row in done.history]


@pytest.mark.parametrize("damage", [Path.unlink, Path.touch, lambda file: file.write_bytes(b"no archive")])
def test_lost_guesses_are_named(run: Run, tmp_path: Path, damage: Any) -> None:
    moved = Path(shutil.copytree(run.path, tmp_path / "copy"))
    if damage is Path.touch:
        (moved / "first" / "predictions.npz").unlink()
    damage(moved / "first" / "predictions.npz")
    with pytest.raises(
        StoreError, match=r"first/predictions.npz is missing or damaged, which .*copy needs: train again"
    ):
        Run.open(moved, "cpu").predict([0])


SCRIPT = """
import itertools, os, signal, sys
import vcr_graphormer as vcr
graph = vcr.generate(nodes=200, edges=900, classes=3, features=8, homophily=0.8, seed=0)
seen = itertools.count(1)
def note(row):
    if next(seen) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
split = vcr.Split.random(graph.labels, seed=0)
vcr.train(graph, split, vcr.load_config(sys.argv[2]), sys.argv[1], device="cpu", on_epoch=note)
"""


@pytest.mark.parametrize("epoch", [2, 3, 4, 5])  # of six: three of the first training, three of the second
def test_killed_in_either_training_it_goes_on(run: Run, tmp_path: Path, epoch: int) -> None:
    torch.set_num_threads(1)
    settings = tmp_path / "settings.toml"
    settings.write_text(to_toml(CONFIG))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "run"), str(settings), str(epoch)]
    assert subprocess.run(command, check=False, timeout=400).returncode == -signal.SIGKILL
    resumed = vcr.resume(tmp_path / "run", "cpu")
    assert resumed.metrics["scores"] == run.metrics["scores"]
    assert (resumed.path / "first" / "metrics.json").is_file()
    for name, tensor in Run.open(run.path, "cpu").model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name])


def test_two_processes_guess_together(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    still = replace(MODEL, dropout=0.0, attention_dropout=0.0)
    settings.write_text(to_toml(replace(CONFIG, model=still)))
    saved = str(small_graph().save(tmp_path / "graph"))
    command = ("train", "--dataset", saved, "--config", str(settings), "--device=cpu", "--out")
    text = torchrun("vcr_graphormer", *command, str(tmp_path / "two"))
    assert text.count("first training, val") == 1
    run_command(*command, str(tmp_path / "one"))
    one, two = (Run.open(tmp_path / name, "cpu") for name in ("one", "two"))
    assert two.metrics["device"].endswith("2 processes")
    assert [row["loss"] for row in two.history] == pytest.approx([row["loss"] for row in one.history], rel=1e-5)
    assert two.guesses == pytest.approx(one.guesses, abs=1e-5)


def test_guesses_of_every_task() -> None:
    classes = Graph.from_edges([[0], [1]], num_nodes=4, labels=[1, 0, -1, 1])
    guesses = np.array([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    # Node 2 is for training but has no label: a guess is better than nothing.
    assert label_matrix(classes, np.array([0, 2]), guesses).tolist() == [[0, 1], [0.25, 0.75], [1, 0], [0, 1]]
    several = Graph.from_edges([[0], [1]], num_nodes=3, labels=[[1, -1], [0, 1], [-1, -1]])
    assert label_matrix(several, np.array([0]), guesses[:3]).tolist() == [[1, 0.5], [0.25, 0.75], [1, 0]]
    numbers = Graph.from_edges([[0], [1]], num_nodes=3, labels=[1.0, 3.0, 100.0], task="regression")
    # Mean 2 and spread 1 of the training nodes; the last column says that there is a value.
    assert label_matrix(numbers, np.array([0, 1]), np.array([7.0, 7.0, 4.0])).tolist() == [[-1, 1], [1, 1], [2, 1]]
