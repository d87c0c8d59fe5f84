"""The training loop: steps, schedule, early stop with a copied best state, checkpoints to resume from."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .arrays import Array, Task
from .batches import Batch, Inputs
from .captured import CapturedStep
from .checkpoint import (
    HISTORY,
    cut_history,
    load_tensors,
    optimizer_tensors,
    restore_optimizer,
    save_tensors,
    under,
)
from .errors import ConfigError, StoreError, TrainingError
from .inference import choose_micro_batch, choose_precision, compute, memory_advice, within_memory
from .interrupt import interruptible
from .metrics import choose_metric, is_better, measure, probabilities
from .model import VCRGraphormer
from .objective import compute_loss, count_known, learning_rate
from .settings import TrainConfig

OnEpoch = Callable[[dict[str, float]], None]
CHECKPOINT = "checkpoint/last.safetensors"


@dataclass
class Best:
    """The epoch with the best validation metric so far, and a copy of its weights.

    At equal metric the lower validation loss is the better epoch; `improved` is the last epoch with a better metric,
    from which patience counts.
    """

    epoch: int = 0
    improved: int = 0
    value: float = math.nan
    loss: float = math.inf
    state: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Examples:
    """Nodes with the labels the loop may see: class ids, label rows (-1 unknown) or targets [m, t] (NaN unknown)."""

    nodes: NDArray[np.int64]
    labels: Array


class Trainer:
    """One training: its model, optimizer and best state, epoch after epoch, in memory or with a run folder.

    Parameters
    ----------
    model
        Trained in place; what `fit` returns is the best state, not the last.
    train, val
        The only labels the loop ever sees.
    scale
        Mean and standard deviation of regression targets: the model learns standardized ones.
    folder
        Where `history.jsonl` and checkpoints go; None keeps everything in memory.
    """

    def __init__(
        self,
        model: VCRGraphormer,
        inputs: Inputs,
        train: Examples,
        val: Examples,
        task: Task,
        config: TrainConfig,
        scale: tuple[Array, Array] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.model, self.inputs, self.train, self.val, self.task = model, inputs, train, val, task
        self.config, self.scale, self.folder = config.check(task), scale, folder
        self.metric = choose_metric(config.metric, task)
        self.precision = choose_precision(config.precision, inputs.device)
        self.micro_batch = choose_micro_batch(
            config.micro_batch, config.batch_size, inputs.num_tokens, model.config, inputs.device
        )
        on_gpu = inputs.device.type == "cuda"
        # On a GPU the rate is a tensor, so that a captured step can be told another one.
        rate = torch.tensor(config.learning_rate, device=inputs.device) if on_gpu else config.learning_rate
        self.optimizer = torch.optim.AdamW(
            model.parameters(), rate, weight_decay=config.weight_decay, fused=True, capturable=on_gpu
        )
        # Products in low precision run on a copy; the weights themselves are kept and updated in float32.
        self.worker = model if self.precision == torch.float32 else copy.deepcopy(model).to(self.precision)
        self.captured: CapturedStep | None = None
        self.compiled = torch.compile(self.worker.forward, dynamic=False) if config.compile and on_gpu else None
        self.steps_taken = 0
        self.average = copy.deepcopy(model) if config.average else None
        self.nodes = torch.from_numpy(train.nodes).to(inputs.home)
        self.labels, self.val_labels = self._wanted(train).to(inputs.device), self._wanted(val)
        self.advice = memory_advice(config.batch_size, inputs.num_tokens, model.config.hidden_channels)
        self.steps_per_epoch = -(-len(train.nodes) // config.batch_size)
        self.epoch, self.step, self.seconds, self.rate = 0, 0, 0.0, 0.0
        self.best = Best()
        self.history: list[dict[str, float]] = []
        self.val_logits: Array = np.empty((0, model.num_outputs), np.float32)  # after the last epoch

    def fit(self, on_epoch: OnEpoch | None = None) -> Best:
        """Train until the last epoch or until patience is out; returns the best state.

        After Ctrl-C the epoch is finished and kept, then KeyboardInterrupt is raised.
        """
        with interruptible() as wish:
            while not self.finished:
                row = self._run_epoch()
                if on_epoch is not None:
                    on_epoch(row)
                every = self.config.checkpoint_every
                if self.folder is not None and (wish.is_set() or (every and self.epoch % every == 0)):
                    self.save()
                if wish.is_set():
                    raise KeyboardInterrupt(f"stopped after epoch {self.epoch}")
        return self.best

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self.epoch >= self.config.epochs or (
            self.epoch > 0 and self.epoch - self.best.improved >= self.config.patience
        )

    def _run_epoch(self) -> dict[str, float]:
        start = time.perf_counter()
        loss = self._train_epoch()
        self.epoch += 1
        judged = self.model if self.average is None else self.average
        logits = self.val_logits = compute(self._low_precision(judged), self.inputs, self.val.nodes, self.micro_batch)
        value = measure(self.metric, probabilities(logits, self.task, self.scale), self.val.labels, self.task)
        val_loss = float(compute_loss(torch.from_numpy(logits), self.val_labels, self.task))
        self._check_validation(logits, value)
        better = self.best.epoch == 0 or is_better(self.metric, value, self.best.value)
        if better or (value == self.best.value and val_loss < self.best.loss):
            # A copy: the live weights go on changing.
            state = {name: tensor.detach().clone() for name, tensor in judged.state_dict().items()}
            self.best = Best(self.epoch, self.epoch if better else self.best.improved, value, val_loss, state)
        self.seconds += time.perf_counter() - start
        row = {
            "epoch": self.epoch,
            "loss": loss,
            "val_loss": val_loss,
            "val": value,
            "best_epoch": self.best.epoch,
            "learning_rate": self.rate,
            "seconds": round(self.seconds, 3),
        }
        self.history.append(row)
        if self.folder is not None:
            with (self.folder / HISTORY).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        return row

    def _wanted(self, examples: Examples) -> Tensor:
        """What the model's outputs are compared with."""
        labels = np.asarray(examples.labels)
        if self.scale is not None:
            labels = ((labels.reshape(len(labels), -1) - self.scale[0]) / self.scale[1]).astype(np.float32)
        return torch.from_numpy(np.ascontiguousarray(labels))

    def _low_precision(self, model: VCRGraphormer) -> VCRGraphormer:
        """The model itself in float32; otherwise the copy, brought up to date with it."""
        if self.worker is self.model:
            return model
        with torch.no_grad():
            torch._foreach_copy_(list(self.worker.parameters()), list(model.parameters()))
        return self.worker

    def _train_epoch(self) -> float:
        """One pass over the training nodes; returns the mean loss of its steps."""
        self.worker.train()
        # Drawn from seed and epoch, not from a running state, so that a resumed run takes the same order.
        generator = torch.Generator().manual_seed((self.config.seed * 1_000_003 + self.epoch) % 2**63)
        order = torch.randperm(len(self.nodes), generator=generator)
        nodes = torch.split(self.nodes[order.to(self.nodes.device)], self.config.batch_size)
        labels = torch.split(self.labels[order.to(self.labels.device)], self.config.batch_size)
        losses = torch.zeros(len(nodes), device=self.inputs.device)
        on_cpu = self.inputs.device.type == "cpu"
        batches = iter(self.inputs.batches(torch.cat(nodes), self.config.batch_size)) if self.inputs.streamed else None
        for number, (part, wanted) in enumerate(zip(nodes, labels, strict=True)):
            batch = None if batches is None else next(batches)
            losses[number] = self.advance(part, wanted, batch)
            if on_cpu:  # on a GPU, looking would wait for it at every step
                self._check(losses[: number + 1])
        self._check(losses)
        return float(losses.mean())

    def advance(self, nodes: Tensor, labels: Tensor, batch: Batch | None = None) -> Tensor:
        """One step of the schedule: rate, optimizer, average. `batch`: the nodes' batch where it was read ahead."""
        self.step += 1
        self._set_rate(learning_rate(self.step, self.steps_per_epoch * self.config.epochs, self.config))
        if batch is None and CapturedStep.possible(self, nodes):
            self.captured = self.captured or CapturedStep(self, nodes, labels)
            loss = self.captured(nodes, labels)
        else:
            loss = self.take_step(self.inputs.batch(nodes) if batch is None else batch, labels)
        self._update_average()
        return loss

    def _set_rate(self, rate: float) -> None:
        group = self.optimizer.param_groups[0]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
        self.rate = rate

    def take_step(self, batch: Batch, labels: Tensor) -> Tensor:
        """One step of the optimizer; returns the loss."""
        parameters = list(self.model.parameters())
        worker = self._low_precision(self.model)
        worker.zero_grad(set_to_none=True)
        with within_memory(self.inputs.device, self.advice):
            loss = self._backward(worker, batch, labels)
        if worker is not self.model:
            for parameter, low in zip(parameters, worker.parameters(), strict=True):
                parameter.grad = None if low.grad is None else low.grad.float()
        if self.config.gradient_clip:
            torch.nn.utils.clip_grad_norm_(parameters, self.config.gradient_clip)
        self.optimizer.step()
        self.steps_taken += 1
        return loss

    def _backward(self, worker: VCRGraphormer, batch: Batch, labels: Tensor) -> Tensor:
        """Gradients of one step, part by part: the rows are projected once, each part adds to their gradient."""
        total = count_known(labels, self.task)
        loss = torch.zeros((), device=self.inputs.device)
        projected = worker.project_rows(batch.rows, batch.super_rows)
        rows = projected.detach().requires_grad_()
        parts = zip(batch.split(self.micro_batch), torch.split(labels, self.micro_batch), strict=True)
        for part, wanted in parts:
            weight = count_known(wanted, self.task) / total
            full = len(part) == self.config.batch_size
            logits = (self.compiled if self.compiled is not None and full else worker)(part, rows).float()
            share = weight * compute_loss(logits, wanted, self.task, self.config.label_smoothing)
            torch.autograd.backward(share)
            loss += share.detach()
        torch.autograd.backward(projected, rows.grad)
        return loss

    def _update_average(self) -> None:
        if self.average is not None:
            # Early weights are forgotten faster, or the random start would stay in the average for long.
            decay = min(self.config.average, (1 + self.step) / (10 + self.step))
            with torch.no_grad():
                torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - decay)

    def _check(self, losses: Tensor) -> None:
        wrong = (~losses.isfinite()).nonzero()
        if not len(wrong):
            return
        step = self.epoch * self.steps_per_epoch + int(wrong[0]) + 1
        self._stop(f"the loss became {float(losses[wrong[0]])} at", step)

    def _check_validation(self, logits: Array, value: float) -> None:
        """Weights that give no numbers are neither kept as the best nor written to a checkpoint."""
        if not np.isfinite(logits).all():
            self._stop("the validation outputs are no longer numbers after", self.step)
        if math.isnan(value):
            raise ConfigError(
                f"training.metric {self.metric} cannot be computed on the validation part, which has one kind of label "
                f"only: choose another metric or a larger part"
            )

    def _stop(self, what: str, step: int) -> NoReturn:
        kept = "no checkpoint was written yet"
        if self.folder is not None and (self.folder / CHECKPOINT).is_file():
            kept = f"the last good checkpoint is kept in {self.folder / CHECKPOINT}"
        epoch = -(-step // self.steps_per_epoch)
        raise TrainingError(
            f"{what} step {step} (epoch {epoch}): lower training.learning_rate, set training.gradient_clip, or scale "
            f"the features; {kept}"
        )

    def save(self) -> None:
        """Write a checkpoint from which training goes on exactly as if it had not stopped."""
        assert self.folder is not None
        tensors = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        if self.average is not None:
            tensors |= {f"average/{name}": value for name, value in self.average.state_dict().items()}
        tensors |= {f"best/{name}": value for name, value in self.best.state.items()}
        names = [name for name, _ in self.model.named_parameters()]
        moments = optimizer_tensors(self.optimizer, names)
        tensors |= {f"optimizer/{name}": value for name, value in moments.items()}
        tensors["random/cpu"] = torch.get_rng_state()
        if self.inputs.device.type == "cuda":
            tensors["random/cuda"] = torch.cuda.get_rng_state(self.inputs.device)
        about = {"epoch": self.epoch, "step": self.step, "seconds": self.seconds, "best_epoch": self.best.epoch}
        about |= {"improved": self.best.improved, "best_value": self.best.value, "best_loss": self.best.loss}
        save_tensors(self.folder / CHECKPOINT, tensors, about)

    def restore(self) -> None:
        """Continue from the folder's checkpoint; from the start where there is none."""
        assert self.folder is not None
        file = self.folder / CHECKPOINT
        if not file.is_file():
            (self.folder / HISTORY).unlink(missing_ok=True)
            return
        try:
            tensors, about = load_tensors(file)
        except StoreError as error:
            raise StoreError(f"{error}; delete it to train from the start") from error
        try:
            self.model.load_state_dict(under("model/", tensors))
            if self.average is not None:
                self.average.load_state_dict(under("average/", tensors))
            names = [name for name, _ in self.model.named_parameters()]
            restore_optimizer(self.optimizer, names, under("optimizer/", tensors))
            best = {name: value.to(self.inputs.device) for name, value in under("best/", tensors).items()}
            self.best = Best(about["best_epoch"], about["improved"], about["best_value"], about["best_loss"], best)
            self.epoch, self.step, self.seconds = about["epoch"], about["step"], about["seconds"]
            torch.set_rng_state(tensors["random/cpu"])
            if self.inputs.device.type == "cuda" and "random/cuda" in tensors:
                torch.cuda.set_rng_state(tensors["random/cuda"], self.inputs.device)
        except (KeyError, RuntimeError) as error:
            raise StoreError(f"{file} does not fit this run ({error}): delete it to start again") from error
        self.history = cut_history(self.folder / HISTORY, self.epoch)
