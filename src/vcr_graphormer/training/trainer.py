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

from ..base.checks import Array
from ..data.graph import Graph
from ..data.metrics import is_better
from ..data.split import Split
from ..data.tasks import Target, choose_metric, measure
from ..errors import ConfigError, StoreError, TrainingError
from ..model.batches import Batch, Inputs
from ..model.config import ModelConfig
from ..model.inputs import model_sizes
from ..model.transformer import VCRGraphormer
from .checkpoint import HISTORY, cut_history, read_history, restore_training, save_training
from .config import TrainConfig, learning_rate
from .cuda_graphs import CapturedStep
from .devices import choose_micro_batch, choose_precision, memory_advice, within_memory
from .inference import compute
from .interrupt import interruptible
from .processes import Processes

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
    target
        The task, and the scale of its targets: the model learns standardized ones.
    folder
        Where `history.jsonl` and checkpoints go; None keeps everything in memory.
    processes
        The processes that train this model together: each takes its share of every batch; the first one writes.
    """

    def __init__(
        self,
        model: VCRGraphormer,
        inputs: Inputs,
        train: Examples,
        val: Examples,
        target: Target,
        config: TrainConfig,
        folder: Path | None = None,
        processes: Processes | None = None,
    ) -> None:
        self.processes = processes or Processes()
        self.processes.align(model)
        self.model, self.inputs, self.train, self.val, self.target = model, inputs, train, val, target
        self.task, self.config, self.folder = target.task, config.check(target.task.name), folder
        self.metric = choose_metric(config.metric, target.task)
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
        self.joint = self.processes.joint(self.worker, inputs.device)
        self.captured: CapturedStep | None = None
        self.compiled = torch.compile(self.worker.forward, dynamic=False) if config.compile and on_gpu else None
        self.steps_taken = 0
        self.average = copy.deepcopy(model) if config.average else None
        self.nodes = torch.from_numpy(train.nodes).to(inputs.home)
        self.labels, self.val_labels = self._wanted(train).to(inputs.device), self._wanted(val)
        self.advice = memory_advice(config.batch_size, inputs.num_tokens, model.config.hidden_channels)
        own = self.processes.share(config.batch_size)
        self.full_share = own.stop - own.start  # nodes of this process in a full batch
        self.steps_per_epoch = -(-len(train.nodes) // config.batch_size)
        self.epoch, self.step, self.seconds, self.rate = 0, 0, 0.0, 0.0
        self.best = Best()
        self.history: list[dict[str, float]] = []
        self.val_logits: Array = np.empty((0, model.num_outputs), np.float32)  # after the last epoch

    @classmethod
    def of(
        cls,
        graph: Graph,
        split: Split,
        *,
        inputs: Inputs,
        model: ModelConfig,
        training: TrainConfig,
        folder: Path | None = None,
        processes: Processes | None = None,
    ) -> Trainer:
        """Make a fresh model from the seed of `training`, and its trainer: for a run folder or many in one process.

        Labels of test nodes are not looked at.
        """
        labels = np.asarray(graph.labels)
        seen, judged = (Examples(nodes, labels[nodes]) for nodes in (split.train, split.val))
        torch.manual_seed(training.seed)
        with within_memory(inputs.device, memory_advice(training.batch_size, inputs.num_tokens, model.hidden_channels)):
            fresh = VCRGraphormer(model, inputs.layout, **model_sizes(graph)).to(inputs.device)
            target = Target.of(graph.task, labels, split.train)
            return cls(fresh, inputs, seen, judged, target, training, folder, processes)

    def best_model(self) -> VCRGraphormer:
        """Return the model with its best weights, in the precision of the device; training is over then."""
        self.model.load_state_dict(self.best.state)
        return self.model.to(self.precision)

    def fit(self, on_epoch: OnEpoch | None = None) -> Best:
        """Train until the last epoch or until patience is out; returns the best state.

        After Ctrl-C the epoch is finished and kept, then KeyboardInterrupt is raised.
        """
        with interruptible() as wish:
            while not self.finished:
                row = self._run_epoch()
                if on_epoch is not None:
                    on_epoch(row)
                every, stop = self.config.checkpoint_every, self.processes.any(wish.is_set())
                if self.folder is not None and (stop or (every and self.epoch % every == 0)):
                    self.save()
                if stop:
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
        nodes = self.val.nodes[self.processes.share(len(self.val.nodes))]
        part = compute(self._low_precision(judged), self.inputs, nodes, self.micro_batch)
        self.val_logits = self.processes.collect(part, len(self.val.nodes))
        value, val_loss = self.processes.agree(self._judge)
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
        if self.folder is not None and self.processes.is_first:
            with (self.folder / HISTORY).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        return row

    def _judge(self) -> tuple[float, float]:
        """Validation metric and loss."""
        # Weights that give no numbers are neither kept as the best nor written to a checkpoint.
        if not np.isfinite(self.val_logits).all():
            self._stop("the validation outputs are no longer numbers after", self.step)
        value = measure(self.metric, self.target.outputs(self.val_logits), self.val.labels, self.task)
        if math.isnan(value):
            raise ConfigError(
                f"training.metric {self.metric} cannot be computed on the validation part, which has one kind of label "
                f"only: choose another metric or a larger part"
            )
        return value, float(self.task.loss(torch.from_numpy(self.val_logits), self.val_labels))

    def _wanted(self, examples: Examples) -> Tensor:
        """What the model's outputs are compared with."""
        return torch.from_numpy(np.ascontiguousarray(self.target.wanted(np.asarray(examples.labels))))

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
        self.processes.seed(self.config.seed, self.epoch)
        # Drawn from seed and epoch, not from a running state, so that a resumed run takes the same order; so do all
        # processes.
        generator = torch.Generator().manual_seed((self.config.seed * 1_000_003 + self.epoch) % 2**63)
        order = torch.randperm(len(self.nodes), generator=generator)
        nodes = torch.split(self.nodes[order.to(self.nodes.device)], self.config.batch_size)
        labels = torch.split(self.labels[order.to(self.labels.device)], self.config.batch_size)
        own = [part[self.processes.share(len(part))] for part in nodes]
        losses = torch.zeros(len(nodes), device=self.inputs.device)
        # On a GPU, looking would wait for it at every step; several processes look together, after the epoch.
        looking = self.inputs.device.type == "cpu" and self.processes.size == 1
        batches = iter(self.inputs.batches_of(own)) if self.inputs.streamed else None
        for number, (part, whole) in enumerate(zip(own, labels, strict=True)):
            batch = None if batches is None else next(batches)
            wanted = whole[self.processes.share(len(whole))]
            total = None if self.processes.size == 1 else self.task.count_known(whole)
            losses[number] = self.advance(part, wanted, batch, total)
            if looking:
                self._check(losses[: number + 1])
        losses = self.processes.sum(losses)
        self.processes.first(lambda: self._check(losses))
        return float(losses.mean())

    def advance(
        self, nodes: Tensor, labels: Tensor, batch: Batch | None = None, total: Tensor | int | None = None
    ) -> Tensor:
        """One step of the schedule: rate, optimizer, average.

        `batch`: the nodes' batch where it was read ahead; `total`: known labels of the step in all processes.
        """
        self.step += 1
        self._set_rate(learning_rate(self.step, self.steps_per_epoch * self.config.epochs, self.config))
        if batch is None and CapturedStep.possible(self, nodes):
            self.captured = self.captured or CapturedStep(self, nodes, labels)
            loss = self.captured(nodes, labels)
        else:
            loss = self.take_step(self.inputs.batch(nodes) if batch is None else batch, labels, total)
        self._update_average()
        return loss

    def _set_rate(self, rate: float) -> None:
        group = self.optimizer.param_groups[0]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
        self.rate = rate

    def take_step(self, batch: Batch, labels: Tensor, total: Tensor | int | None = None) -> Tensor:
        """One step of the optimizer; returns the loss, with several processes this one's part of it."""
        parameters = list(self.model.parameters())
        worker = self._low_precision(self.model)
        worker.zero_grad(set_to_none=True)
        with within_memory(self.inputs.device, self.advice):
            loss = self._backward(worker, batch, labels, self.task.count_known(labels) if total is None else total)
        if worker is not self.model:
            for parameter, low in zip(parameters, worker.parameters(), strict=True):
                parameter.grad = None if low.grad is None else low.grad.float()
        if self.config.gradient_clip:
            torch.nn.utils.clip_grad_norm_(parameters, self.config.gradient_clip)
        self.optimizer.step()
        self.steps_taken += 1
        return loss

    def _backward(self, worker: VCRGraphormer, batch: Batch, labels: Tensor, total: Tensor | int) -> Tensor:
        """Gradients of one step, part by part: the rows are projected once, each part adds to their gradient."""
        loss = torch.zeros((), device=self.inputs.device)
        projected = worker.project_rows(batch.rows, batch.super_rows)
        rows = projected.detach().requires_grad_()
        parts = zip(batch.split(self.micro_batch), torch.split(labels, self.micro_batch), strict=True)
        for part, wanted in parts if len(batch) else ():  # the last batch may be too small for every process
            weight = self.task.count_known(wanted) / total
            full = len(part) == self.full_share
            logits = (self.compiled if self.compiled is not None and full else worker)(part, rows).float()
            share = weight * self.task.loss(logits, wanted, self.config.label_smoothing)
            # The share of the whole batch's loss; the processes' gradients are then averaged, not summed.
            torch.autograd.backward(share * self.processes.size)
            loss += share.detach()
        torch.autograd.backward(self.joint(projected), torch.zeros_like(rows) if rows.grad is None else rows.grad)
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
        if self.folder is not None and self.processes.is_first:
            save_training(self, self.folder / CHECKPOINT)

    def restore(self) -> None:
        """Continue from the folder's checkpoint; from the start where there is none."""
        found = self.processes.agree(self._restore)
        if not self.processes.is_first and self._restore() != found:
            raise StoreError(
                f"process {self.processes.rank} finds the checkpoint of epoch {self.epoch} in {self.folder}, the first "
                f"process that of {found}: the run must lie on a file system that all machines share"
            )

    def _restore(self) -> int:
        assert self.folder is not None
        file, history = self.folder / CHECKPOINT, self.folder / HISTORY
        if file.is_file():
            restore_training(self, file)
        if self.processes.is_first:
            self.history = cut_history(history, self.epoch)
        else:
            self.history = read_history(history)[: self.epoch]
        return self.epoch
