"""Recorded steps and validation on a GPU against the same taken one by one; and where recording is not possible."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.support.plain import model_config, token_config, train_config
from vcr_graphormer import Split, VCRGraphormer, generate, make_inputs, tokenize
from vcr_graphormer.data.tasks import TASKS, Target
from vcr_graphormer.training.cuda_graphs import WARM_UP, CapturedStep, CapturedValidation
from vcr_graphormer.training.inference import compute
from vcr_graphormer.training.processes import Processes
from vcr_graphormer.training.trainer import Examples, Trainer


def make_trainer(device: torch.device, folder: Path, combine: str = "joint", weights: str = "none") -> Trainer:
    graph = generate(nodes=400, edges=1600, classes=3, features=8, homophily=0.8, seed=0)
    split = Split.random(graph.labels, seed=0)
    model = model_config(hidden_channels=16, heads=2, dropout=0.0, attention_dropout=0.0, combine=combine)
    tokens = token_config(hops=2, clusters=4, structure_tokens=4, content_tokens=4)
    store = tokenize(graph, split.train, tokens, folder)
    training = train_config(epochs=6, batch_size=100, precision="float32", average=0.9)
    inputs = make_inputs(graph, store, model, split.train, device)
    torch.manual_seed(0)
    made = VCRGraphormer(model, store.layout, num_features=8, num_outputs=3).to(device)
    labels = np.asarray(graph.labels)
    train, val = (Examples(part, labels[part]) for part in (split.train, split.val))
    target = Target(TASKS["classification"]).weighted(train.labels, weights, ["0", "1", "2"])
    return Trainer(made, inputs, train, val, target, training)


def test_not_on_a_cpu(tmp_path: Path) -> None:
    trainer = make_trainer(torch.device("cpu"), tmp_path / "tokens")
    trainer.fit()
    assert trainer.steps_taken == {100: 12, 40: 6}
    assert trainer.captured == {}
    assert not CapturedStep.possible(trainer, trainer.nodes[:100])
    assert trainer.validated == 6
    assert not CapturedValidation.possible(trainer)


def test_when_validation_can_be_recorded(tmp_path: Path) -> None:
    trainer = make_trainer(torch.device("cpu"), tmp_path / "tokens")
    on_gpu = replace(trainer.val_inputs, device=torch.device("cuda"))  # nothing is computed there
    trainer.val_inputs = on_gpu
    assert not CapturedValidation.possible(trainer)  # not warm
    trainer.validated = WARM_UP
    assert CapturedValidation.possible(trainer)
    trainer.val_inputs = replace(on_gpu, streamed=True)
    assert not CapturedValidation.possible(trainer)
    trainer.val_inputs, trainer.processes = on_gpu, Processes(0, 2)
    assert not CapturedValidation.possible(trainer)


def test_recorded_validation_is_kept_and_reads_the_average(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, replays = make_trainer(torch.device("cpu"), tmp_path / "tokens"), []
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: replays.append(1), pool=tuple))
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: nullcontext())  # what is recorded runs, too
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(CapturedValidation, "possible", lambda trainer: trainer.validated >= WARM_UP)
    for _ in range(WARM_UP + 1):
        trainer._run_epoch()
    recorded = trainer.captured_validation
    assert trainer.average is not None
    expected = compute(trainer.average, trainer.val_inputs, trainer.val.nodes, 100)
    assert np.array_equal(trainer.val_logits, expected)
    assert not np.array_equal(expected, compute(trainer.model, trainer.val_inputs, trainer.val.nodes, 100))
    trainer._run_epoch()
    assert (trainer.captured_validation, trainer.validated, replays) == (recorded, WARM_UP, [1, 1])


def test_which_steps_can_be_recorded(tmp_path: Path) -> None:
    trainer = make_trainer(torch.device("cpu"), tmp_path / "tokens")
    on_gpu = replace(trainer.inputs, device=torch.device("cuda"))  # nothing is computed there
    trainer.inputs = on_gpu
    assert not CapturedStep.possible(trainer, trainer.nodes[:100])  # not warm
    trainer.steps_taken[100] = WARM_UP
    assert CapturedStep.possible(trainer, trainer.nodes[:100])
    assert not CapturedStep.possible(trainer, trainer.nodes[:40])  # not warm at this size
    trainer.inputs = replace(on_gpu, streamed=True)  # rows are searched for: their number differs
    assert not CapturedStep.possible(trainer, trainer.nodes[:100])


def test_all_rows_are_taken_where_a_batch_names_as_many(tmp_path: Path) -> None:
    trainer = make_trainer(torch.device("cpu"), tmp_path / "tokens")
    assert trainer.inputs.takes_all_rows(100)
    assert not trainer.inputs.takes_all_rows(40)  # 40 lists of 9 rows name fewer than the 400 there are
    assert not replace(trainer.inputs, streamed=True).takes_all_rows(100)


def test_with_several_processes_nothing_is_recorded(tmp_path: Path) -> None:
    trainer = make_trainer(torch.device("cpu"), tmp_path / "tokens")
    trainer.steps_taken[100] = WARM_UP
    trainer.inputs = replace(trainer.inputs, device=torch.device("cuda"))  # nothing is computed there
    assert CapturedStep.possible(trainer, trainer.nodes[:100])
    trainer.processes = Processes(0, 2)
    assert not CapturedStep.possible(trainer, trainer.nodes[:100])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU; `take_step` is its twin on a CPU")
@pytest.mark.parametrize(("combine", "weights"), [("joint", "none"), ("gated", "none"), ("gated", "balanced")])
def test_replaying_equals_stepping(tmp_path: Path, combine: str, weights: str) -> None:
    device = torch.device("cuda")
    captured, stepped = (make_trainer(device, tmp_path / "tokens", combine, weights) for _ in range(2))
    stepped.steps_taken.subtract({100: 10**9, 40: 10**9})  # never warm enough to be recorded
    stepped.validated = -(10**9)
    captured.fit()
    stepped.fit()
    assert set(captured.captured) == {100, 40}  # a full batch and the rest
    assert stepped.captured == {}
    assert captured.validated == WARM_UP  # the rest was replayed
    assert stepped.captured_validation is None
    assert captured.average is not None
    logits = compute(captured.average, captured.val_inputs, captured.val.nodes, 100)
    assert np.allclose(captured.val_logits, logits, atol=1e-6)  # of the last epoch, not of the recorded one
    for first, second in zip(captured.history, stepped.history, strict=True):
        assert first["loss"] == pytest.approx(second["loss"], abs=1e-5)
        assert first["val_loss"] == pytest.approx(second["val_loss"], abs=1e-5)
        assert first["val"] == second["val"]
