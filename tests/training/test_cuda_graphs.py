"""Recorded steps and validation on a GPU against the same taken one by one; and where recording is not possible."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.plain import model_config, token_config, train_config
from vcr_graphormer import Split, VCRGraphormer, generate, make_inputs, tokenize
from vcr_graphormer.data.tasks import TASKS, Target
from vcr_graphormer.model.gpu import packed
from vcr_graphormer.training import cuda_graphs
from vcr_graphormer.training.cuda_graphs import WARM_UP, CapturedStep, CapturedValidation, StreamedSteps
from vcr_graphormer.training.inference import compute
from vcr_graphormer.training.processes import Processes
from vcr_graphormer.training.trainer import Examples, Trainer


def make_trainer(
    device: torch.device,
    folder: Path,
    combine: str = "joint",
    weights: str = "none",
    streamed: bool | None = None,
    identity: bool = False,
) -> Trainer:
    graph = generate(nodes=400, edges=1600, classes=3, features=8, homophily=0.8, seed=0)
    split = Split.random(graph.labels, seed=0)
    graph = graph.with_features("identity") if identity else graph
    model = model_config(hidden_channels=16, heads=2, dropout=0.0, attention_dropout=0.0, combine=combine)
    tokens = token_config(hops=2, clusters=4, structure_tokens=4, content_tokens=4)
    store = tokenize(graph, split.train, tokens, folder)
    training = train_config(epochs=6, batch_size=100, precision="float32", average=0.9)
    inputs = make_inputs(graph, store, model, split.train, device, streamed=streamed)
    torch.manual_seed(0)
    made = VCRGraphormer(model, store.layout, num_features=graph.num_features, num_outputs=3).to(device)
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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU; on a CPU there is `take_step` alone")
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


@dataclass
class Repeated:
    """What a recorded graph does, done again on a CPU."""

    step: Callable[[], torch.Tensor]
    loss: torch.Tensor
    replayed: int = 0

    def replay(self) -> None:
        self.loss.copy_(self.step())
        self.replayed += 1


def repeat(step: Callable[[], torch.Tensor], device: torch.device) -> tuple[Any, torch.Tensor]:
    loss = torch.zeros(())
    return Repeated(step, loss), loss


def train_streamed(trainer: Trainer, epochs: int, recorded: bool) -> list[float]:
    """Losses of steps with batches that are packed as for a GPU."""
    losses = []
    trainer.worker.train()
    for epoch in range(epochs):
        for nodes, labels in zip(*trainer._parts(epoch), strict=True):
            batch = trainer.inputs.packed(nodes)
            losses.append(float(trainer.advance(nodes, labels, batch if recorded else batch.unpacked())))
    return losses


@pytest.mark.parametrize("identity", [False, True])
def test_streamed_steps_equal_plain_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identity: bool) -> None:
    monkeypatch.setattr(cuda_graphs, "record", repeat)
    cpu = torch.device("cpu")
    first, second = (make_trainer(cpu, tmp_path / "tokens", streamed=True, identity=identity) for _ in range(2))
    losses, expected = train_streamed(first, 6, recorded=True), train_streamed(second, 6, recorded=False)
    assert losses == pytest.approx(expected, abs=1e-5)
    assert len(set(losses)) == 18
    assert sorted(first.streamed) == [40, 100]
    for size, number in ((100, 12), (40, 6)):
        steps = first.streamed[size]
        assert isinstance(steps.graph, Repeated)
        assert steps.taken == WARM_UP
        assert steps.graph.replayed == number - WARM_UP
    assert second.streamed == {}
    for name, tensor in first.model.state_dict().items():
        torch.testing.assert_close(tensor, second.model.state_dict()[name], rtol=1e-4, atol=1e-5)


def test_a_batch_that_does_not_fit_takes_a_plain_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "record", repeat)
    first, second = (make_trainer(torch.device("cpu"), tmp_path / "tokens", streamed=True) for _ in range(2))
    labels = first.labels[:100]
    few = first.inputs.packed(first.nodes[:1].expand(100).clone())
    first.streamed[100] = StreamedSteps([few], labels)
    batch = first.inputs.packed(first.nodes[:100])
    loss = first.advance(first.nodes[:100], labels, batch)
    assert first.streamed[100].taken == 0
    assert float(loss) == float(second.advance(second.nodes[:100], labels, batch.unpacked()))


def test_rows_too_large_to_be_dense_take_plain_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_most_bytes", lambda device: 1)
    first, second = (make_trainer(torch.device("cpu"), tmp_path / "tokens", streamed=True, identity=True) for _ in "ab")
    losses = train_streamed(first, 2, recorded=True)
    assert losses == train_streamed(second, 2, recorded=False)
    assert [steps.taken for steps in first.streamed.values()] == [0, 0]


def test_where_recording_fails_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(step: Callable[[], torch.Tensor], device: torch.device) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(cuda_graphs, "record", fail)
    first, second = (make_trainer(torch.device("cpu"), tmp_path / "tokens", streamed=True) for _ in range(2))
    with pytest.warns(UserWarning, match="a training step was not recorded, and is slower: operation not") as caught:
        losses = train_streamed(first, 6, recorded=True)
    assert len(caught) == 2  # once for each size
    assert losses == pytest.approx(train_streamed(second, 6, recorded=False), abs=1e-5)


def test_several_processes_step_without_recording(tmp_path: Path) -> None:
    trainer = make_trainer(torch.device("cpu"), tmp_path / "tokens", streamed=True)
    batch = trainer.inputs.packed(trainer.nodes[:100])
    assert StreamedSteps.possible(trainer, batch)
    assert not StreamedSteps.possible(trainer, batch.unpacked())
    trainer.processes = Processes(0, 2)
    assert not StreamedSteps.possible(trainer, batch)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU; on a CPU a stand-in repeats the step")
@pytest.mark.parametrize("identity", [False, True])
def test_replaying_streamed_steps_equals_stepping(tmp_path: Path, identity: bool) -> None:
    device = torch.device("cuda")
    recorded, stepped = (make_trainer(device, tmp_path / "tokens", streamed=True, identity=identity) for _ in range(2))
    stepped.streamed = {size: StreamedSteps([], stepped.labels[:size]) for size in (40, 100)}  # nothing fits
    recorded.fit()
    stepped.fit()
    assert sorted(recorded.streamed) == [40, 100]
    assert all(steps.graph is not None for steps in recorded.streamed.values())
    assert all(steps.graph is None for steps in stepped.streamed.values())
    for first, second in zip(recorded.history, stepped.history, strict=True):
        assert first["loss"] == pytest.approx(second["loss"], abs=1e-5)
        assert first["val"] == second["val"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_recording_that_fails_leaves_the_gpu_usable() -> None:
    weight = torch.ones(8, device="cuda")

    def reads() -> torch.Tensor:
        return torch.nn.functional.dropout(weight, 0.5) * float(weight.sum())  # waiting is not allowed meanwhile

    stream = torch.cuda.current_stream()
    with pytest.raises(RuntimeError):
        cuda_graphs.record(reads, torch.device("cuda"))
    assert torch.cuda.current_stream() == stream
    assert set(reads().tolist()) <= {0.0, 16.0}
