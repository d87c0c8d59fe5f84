"""`Trainer`: the training loop with its schedule, early stopping and checkpoints."""

from __future__ import annotations

import copy
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.checks import Array
from ..base.files import append_text
from ..data.graph import Graph
from ..data.metrics import is_better
from ..data.split import Split
from ..data.tasks import Target, choose_metric, name_classes
from ..errors import ConfigError, StoreError, TrainingError
from ..model.batches import Batch, Inputs
from ..model.config import ModelConfig
from ..model.inputs import model_sizes
from ..model.members import Model, make_model
from .checkpoint import HISTORY, cut_history, read_history, restore_training, save_training
from .config import TrainConfig, learning_rate
from .consistency import COPIES, disagreement, ramp
from .cuda_graphs import CapturedStep, CapturedValidation, StreamedSteps
from .devices import (
    choose_micro_batch,
    choose_precision,
    memory_advice,
    torch_threads,
    within_memory,
    worthwhile_threads,
)
from .inference import compute
from .interrupt import interruptible
from .processes import Processes

OnEpoch = Callable[[dict[str, float]], None]
CHECKPOINT = "checkpoint/last.safetensors"
# The decay of the average is at most (1 + step) / (10 + step), as in TensorFlow's ExponentialMovingAverage. Early
# weights are forgotten faster, or the random start would stay in the average for long.
_AVERAGE_WARM_UP = 10
_EXAMPLES = 4  # batches by which the room for streamed ones is measured
_SEED_STEP = 1_000_003  # more than a training has epochs: no two pairs of seed and epoch give the same order


@dataclass
class Best:
    """The epoch with the best validation metric so far, and a copy of its weights.

    Of epochs with the same metric, the one with the lower validation loss is better. Patience counts from `improved`,
    the last epoch with a better metric.
    """

    epoch: int = 0
    improved: int = 0
    value: float = math.nan
    loss: float = math.inf
    state: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Examples:
    """Nodes and their labels: class ids, label rows (-1: unknown) or target values [m, t] (NaN: unknown).

    `inputs` are the tensors that the nodes are read from, and number them; None: those of the trainer.
    """

    nodes: NDArray[np.int64]
    labels: Array
    inputs: Inputs | None = None


class Trainer:
    """One training: model, optimizer, best weights and history.

    Parameters
    ----------
    model
        Trained in place. `fit` returns the best weights, not the last.
    inputs
        What nodes are read from. Training nodes with inputs of their own are read from those: inductive training.
    train, val
        Training and validation nodes; the loop sees no other labels.
    target
        The task and the scale of its values; the model learns standardized values.
    folder
        Folder for `history.jsonl` and checkpoints; None keeps everything in memory.
    processes
        The processes that train this model together. Each computes a part of every batch; the first one writes files.
    """

    def __init__(
        self,
        model: Model,
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
        self.val_inputs, inputs = inputs, inputs if train.inputs is None else train.inputs
        self.model, self.inputs, self.train, self.val, self.target = model, inputs, train, val, target
        self.task, self.config, self.folder = target.task, config.check(target.task.name).check_resolved(), folder
        self.metric = choose_metric(config.metric, target.task)
        self.precision = choose_precision(config.precision, inputs.device)
        self.micro_batch = choose_micro_batch(
            config.micro_batch,
            config.batch_size,
            num_tokens=inputs.num_tokens,
            model=model.config,
            device=inputs.device,
        )
        on_gpu = inputs.device.type == "cuda"
        # On a GPU the rate is a tensor, so that it can change between replays of a captured step.
        rate = torch.tensor(config.learning_rate, device=inputs.device) if on_gpu else config.learning_rate
        optimizer = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[config.optimizer]
        self.optimizer = optimizer(
            _parameter_groups(model), rate, weight_decay=config.weight_decay, fused=True, capturable=on_gpu
        )
        # Matrix products in low precision use a copy of the model; the optimizer updates the float32 weights.
        self.worker = model if self.precision == torch.float32 else copy.deepcopy(model).to(self.precision)
        self.joint = self.processes.joint(self.worker, inputs.device)
        self.captured: dict[int, CapturedStep] = {}  # by the number of nodes, as are `streamed` and `steps_taken`
        self.streamed: dict[int, StreamedSteps] = {}
        self.captured_validation: CapturedValidation | None = None
        self.validated = 0  # epochs, without replayed ones
        self.compiled = torch.compile(self.worker.forward, dynamic=False) if config.compile and on_gpu else None
        self.steps_taken: Counter[int] = Counter()  # by the number of nodes; without replayed ones
        self.average = copy.deepcopy(model) if config.average else None
        self.nodes = torch.from_numpy(train.nodes).to(inputs.home)
        self.labels, self.val_labels = (self._targets(part).to(inputs.device) for part in (train, val))
        self.weights = None if target.weights is None else torch.from_numpy(target.weights).to(inputs.device)
        self.advice = memory_advice(config.batch_size, inputs.num_tokens, model.config.hidden_channels)
        own = self.processes.share(config.batch_size)
        self.own_batch_size = own.stop - own.start  # nodes of a full batch that this process computes
        self.steps_per_epoch = -(-len(train.nodes) // config.batch_size)
        # Nodes outside the training part, of which each step also takes a batch. Their labels are not here.
        others = np.setdiff1d(np.arange(inputs.num_nodes), train.nodes) if config.consistency else train.nodes[:0]
        self.unlabelled = torch.from_numpy(others).to(inputs.home)
        # A tensor, so that it can change between replays of a captured step.
        self.consistency = torch.zeros((), device=inputs.device)
        self.epoch, self.step, self.seconds, self.rate = 0, 0, 0.0, 0.0
        self.threads = torch.get_num_threads()  # those of the latest `fit`
        self.best = Best()
        self.history: list[dict[str, float]] = []
        self.val_logits: Array = np.empty((0, model.num_outputs), np.float32)  # of the latest epoch

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
        seen: Examples | None = None,
    ) -> Trainer:
        """Make a new model from the seed of `training`, and its trainer. Labels of test nodes are not read.

        `seen` are the training nodes with inputs of their own, for inductive training.
        """
        labels = np.asarray(graph.labels)
        val, train = Examples(split.val, labels[split.val]), seen or Examples(split.train, labels[split.train])
        target = Target.of(graph.task, labels, split.train)
        names = name_classes(graph.class_names, graph.num_classes)
        target = target.weighted(train.labels, training.class_weights, names)
        torch.manual_seed(training.seed)
        with within_memory(inputs.device, memory_advice(training.batch_size, inputs.num_tokens, model.hidden_channels)):
            return cls(
                make_model(model, inputs.layout, **model_sizes(graph)).to(inputs.device),
                inputs,
                train=train,
                val=val,
                target=target,
                config=training,
                folder=folder,
                processes=processes,
            )

    def best_model(self) -> Model:
        """Return the model with its best weights, in the precision used for products; training cannot go on."""
        self.model.load_state_dict(self.best.state)
        return self.model.to(self.precision)

    def fit(self, on_epoch: OnEpoch | None = None, *, threads: int | None = None) -> Best:
        """Train until the last epoch or until patience runs out; return the best epoch.

        After Ctrl-C, finish the epoch, write a checkpoint and raise KeyboardInterrupt. `threads` are those of a CPU;
        None: as many as a step is worth. A GPU does not change their number.
        """
        if threads is None and self.inputs.device.type == "cpu":
            threads = self._worthwhile_threads()
        with torch_threads(threads), interruptible() as stop_request:
            self.threads = torch.get_num_threads()
            while not self.finished:
                row = self._run_epoch()
                if on_epoch is not None:
                    on_epoch(row)
                every, stop = self.config.checkpoint_every, self.processes.any(stop_request.is_set())
                if self.folder is not None and (stop or (every and self.epoch % every == 0)):
                    self.save()
                if stop:
                    raise KeyboardInterrupt(f"stopped after epoch {self.epoch}")
        return self.best

    def _worthwhile_threads(self) -> int:
        """Return how many threads a step of this process is worth; the copies of `consistency` are not counted."""
        size = min(self.own_batch_size, len(self.train.nodes), self.config.micro_batch or self.own_batch_size)
        each = self.inputs.num_tokens * self.model.config.hidden_channels * self.model.config.members
        return worthwhile_threads(size * each)

    @property
    def finished(self) -> bool:
        """Whether the last epoch is done or patience ran out."""
        return self.epoch >= self.config.epochs or (
            self.epoch > 0 and self.epoch - self.best.improved >= self.config.patience
        )

    def _run_epoch(self) -> dict[str, float]:
        start = time.perf_counter()
        loss = self._train_epoch()
        self.epoch += 1
        self.val_logits = self._predict_validation()
        value, val_loss = self.processes.agree(self._validate)
        better = self.best.epoch == 0 or is_better(self.metric, value, self.best.value)
        if better or (value == self.best.value and val_loss < self.best.loss):
            # A copy, for training goes on to change the weights.
            state = {name: tensor.detach().clone() for name, tensor in self.evaluated.state_dict().items()}
            improved = self.epoch if better else self.best.improved
            self.best = Best(self.epoch, improved, value=value, loss=val_loss, state=state)
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
            append_text(self.folder / HISTORY, json.dumps(row) + "\n")
        return row

    @property
    def evaluated(self) -> Model:
        """Return the model whose weights are validated and kept: the average, if there is one."""
        return self.model if self.average is None else self.average

    def _predict_validation(self) -> Array:
        """Return the logits of all validation nodes; each process computes a part of them."""
        if CapturedValidation.possible(self):
            self.captured_validation = self.captured_validation or CapturedValidation(self)
            return self.captured_validation()
        self.validated += 1
        nodes = self.val.nodes[self.processes.share(len(self.val.nodes))]
        logits = compute(self.low_precision(self.evaluated), self.val_inputs, nodes, self.micro_batch)
        return self.processes.collect(logits, len(self.val.nodes))

    def _validate(self) -> tuple[float, float]:
        """Return validation metric and loss; raise if outputs are not finite, before such weights are kept."""
        if not np.isfinite(self.val_logits).all():
            self._stop("the validation outputs are no longer numbers after", self.step)
        value = self.target.measure(self.metric, self.target.outputs(self.val_logits), self.val.labels)
        if math.isnan(value):
            raise ConfigError(
                f"training.metric {self.metric} cannot be computed on the validation part, which has one kind of label "
                f"only: choose another metric or a larger part"
            )
        # Weighted as the training loss is, so that both curves can be compared. On a GPU, whose next epoch waits.
        logits = torch.from_numpy(self.val_logits).to(self.val_labels.device)
        loss = self.task.loss(logits, self.val_labels, weights=self.weights)
        return value, float(loss)

    def _targets(self, examples: Examples) -> Tensor:
        """Return what the model's outputs are compared with."""
        return torch.from_numpy(np.ascontiguousarray(self.target.wanted(np.asarray(examples.labels))))

    def low_precision(self, model: Model) -> Model:
        """Return the model itself in float32, or else the low-precision copy with the model's current weights."""
        if self.worker is self.model:
            return model
        with torch.no_grad():
            torch._foreach_copy_(list(self.worker.parameters()), list(model.parameters()))
        return self.worker

    def _train_epoch(self) -> float:
        """Pass over the training nodes once; return the mean loss of its steps."""
        self.worker.train()
        self.processes.seed(self.config.seed, self.epoch)
        own_nodes, labels = self._parts(self.epoch)
        losses = torch.zeros(len(own_nodes), device=self.inputs.device)
        # Reading a loss from a GPU would wait for it at every step; several processes check after the epoch.
        check_each = self.inputs.device.type == "cpu" and self.processes.size == 1
        batches = iter(self.inputs.batches_of(own_nodes, packed=True)) if self.inputs.streamed else None
        for number, (step_nodes, step_labels) in enumerate(zip(own_nodes, labels, strict=True)):
            batch = None if batches is None else next(batches)
            own_labels = step_labels[self.processes.share(len(step_labels))]
            total = None if self.processes.size == 1 else self.task.count_known(step_labels)
            losses[number] = self.advance(step_nodes, own_labels, batch=batch, total=total)
            if check_each:
                self._check(losses[: number + 1])
        losses = self.processes.sum(losses).cpu()  # here a GPU has to be waited for, once
        self.processes.first(lambda: self._check(losses))
        return float(losses.mean())

    def _parts(self, epoch: int) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """Return this process' nodes of each step of an epoch, and the labels of all processes."""
        # The order depends on seed and epoch only, so a resumed run and all processes have the same.
        generator = torch.Generator().manual_seed((self.config.seed * _SEED_STEP + epoch) % 2**63)
        order = torch.randperm(len(self.nodes), generator=generator)
        nodes = torch.split(self.nodes[order.to(self.nodes.device)], self.config.batch_size)
        labels = torch.split(self.labels[order.to(self.labels.device)], self.config.batch_size)
        own_nodes = [batch[self.processes.share(len(batch))] for batch in nodes]
        if self.config.consistency:
            own_nodes = self._add_unlabelled(own_nodes, generator)
        return own_nodes, labels

    def _examples(self, size: int) -> list[Batch]:
        """Return some packed batches of this size, the same ones whenever the training starts or resumes."""
        parts = (part for epoch in range(_EXAMPLES) for part in self._parts(epoch)[0] if len(part) == size)
        return [self.inputs.packed(part) for part in islice(parts, _EXAMPLES)]

    def _add_unlabelled(self, batches: list[Tensor], generator: torch.Generator) -> list[Tensor]:
        """Return the batches of an epoch, each followed by copies of this process' part of random unlabelled nodes."""
        drawn = torch.randint(len(self.unlabelled), (len(batches), self.config.batch_size), generator=generator)
        own = self.unlabelled[drawn[:, self.processes.share(self.config.batch_size)].to(self.unlabelled.device)]
        copies = own.repeat_interleave(COPIES, 1)
        return [torch.cat(pair) for pair in zip(batches, copies, strict=True)]

    def advance(
        self, nodes: Tensor, labels: Tensor, batch: Batch | None = None, total: Tensor | int | None = None
    ) -> Tensor:
        """Take one step: set the learning rate, update the weights and their average; return the loss.

        Nodes beyond the labels are copies of unlabelled ones. `batch` is the batch of these nodes if it was read ahead.
        `total` counts the known labels in all processes.
        """
        self.step += 1
        last = self.steps_per_epoch * self.config.epochs
        self._set_rate(learning_rate(self.step, last, self.config))
        self.consistency.fill_(self.config.consistency * ramp(self.step, last))
        if batch is None and CapturedStep.possible(self, nodes):
            if len(nodes) not in self.captured:
                self.captured[len(nodes)] = CapturedStep(self, nodes, labels)
            loss = self.captured[len(nodes)](nodes, labels)
        elif batch is not None and StreamedSteps.possible(self, batch):
            if len(batch) not in self.streamed:
                self.streamed[len(batch)] = StreamedSteps(self._examples(len(batch)), labels)
            loss = self.streamed[len(batch)](self, batch, labels)
        else:
            loss = self.take_step(self._make_batch(nodes) if batch is None else batch.unpacked(), labels, total)
        self._update_average()
        return loss

    def _make_batch(self, nodes: Tensor) -> Batch:
        """Return the batch of a step. On a CPU, nodes that are trained without the second path need no neighbours."""
        hidden = self.model.config.neighbour_dropout
        if not hidden or self.inputs.device.type != "cpu":
            return self.inputs.batch(nodes)
        draw = torch.rand(len(nodes), 1)
        return replace(self.inputs.batch(nodes, alone=draw[:, 0] < hidden), draw=draw)

    def _set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self.rate = rate

    def take_step(self, batch: Batch, labels: Tensor, total: Tensor | int | None = None) -> Tensor:
        """Compute gradients and update the weights; return the loss, of several processes this one's part."""
        parameters = list(self.model.parameters())
        total = self.task.count_known(labels) if total is None else total
        worker = self.low_precision(self.model)
        worker.zero_grad(set_to_none=True)
        with within_memory(self.inputs.device, self.advice):
            loss = self._backward(worker, batch, labels=labels, total=total)
        if worker is not self.model:
            self.model.zero_grad(set_to_none=True)
            pairs = zip(parameters, worker.parameters(), strict=True)
            learned = [(parameter, low.grad) for parameter, low in pairs if low.grad is not None]
            gradients = [torch.empty_like(parameter) for parameter, _ in learned]
            torch._foreach_copy_(gradients, [gradient for _, gradient in learned])  # one kernel for all on a GPU
            for (parameter, _), gradient in zip(learned, gradients, strict=True):
                parameter.grad = gradient
        if self.config.gradient_clip:
            for member in self.model.all:
                torch.nn.utils.clip_grad_norm_(member.parameters(), self.config.gradient_clip)
        self.optimizer.step()
        self.steps_taken[len(batch)] += 1
        return loss

    def _backward(self, worker: Model, batch: Batch, *, labels: Tensor, total: Tensor | int) -> Tensor:
        """Compute the gradients of a batch, micro-batch by micro-batch; return the loss.

        Rows are projected once for the batch; every micro-batch adds to their gradient.
        """
        loss = torch.zeros((), device=self.inputs.device)
        projected = worker.project_rows(batch.rows)
        rows = projected.detach().requires_grad_()
        for start, stop in self._bounds(len(labels), len(batch)):  # the last batch may not reach every process
            part = batch.part(start, stop)
            full = len(part) == self.own_batch_size
            logits = (self.compiled if self.compiled is not None and full else worker)(part, rows).float()
            if stop <= len(labels):
                known, smoothing = labels[start:stop], self.config.label_smoothing
                weight = self.task.count_known(known) / total
                # Of several models that learn at once, logits come one after the other.
                known = known.repeat(len(logits) // len(part), *[1] * (known.ndim - 1))
                part_loss = weight * self.task.loss(logits, known, smoothing, self.weights)
            else:
                weight = self.consistency * (len(part) / (COPIES * self.config.batch_size))
                part_loss = weight * disagreement(logits.unflatten(0, (-1, COPIES)), self.target)
            # `joint` averages the gradients of the processes, but the batch's gradient is their sum. Likewise, the loss
            # is the mean of the members', and each learns by its own.
            torch.autograd.backward(part_loss * (self.processes.size * (len(logits) // len(part))))
            loss += part_loss.detach()
        torch.autograd.backward(self.joint(projected), torch.zeros_like(rows) if rows.grad is None else rows.grad)
        return loss

    def _bounds(self, labelled: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield start and stop of each micro-batch: labelled nodes first, then whole groups of copies."""
        whole = max(1, self.micro_batch // COPIES) * COPIES
        for first, end, step in ((0, labelled, self.micro_batch), (labelled, size, whole)):
            for start in range(first, end, step):
                yield start, min(start + step, end)

    def _update_average(self) -> None:
        if self.average is not None:
            decay = min(self.config.average, (1 + self.step) / (_AVERAGE_WARM_UP + self.step))
            with torch.no_grad():
                torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - decay)

    def _check(self, losses: Tensor) -> None:
        """Stop training if a loss is not finite."""
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
        """Write a checkpoint; training resumed from it gives the same numbers as without a stop."""
        if self.folder is not None and self.processes.is_first:
            save_training(self, self.folder / CHECKPOINT)

    def restore(self) -> None:
        """Load the checkpoint of the folder, if there is one."""
        first_epoch = self.processes.agree(self._restore)
        if not self.processes.is_first and self._restore() != first_epoch:
            raise StoreError(
                f"process {self.processes.rank} finds the checkpoint of epoch {self.epoch} in {self.folder}, the first "
                f"process that of {first_epoch}: the run must lie on a file system that all machines share"
            )

    def _restore(self) -> int:
        """Load checkpoint and history; return the epoch."""
        assert self.folder is not None
        file, history = self.folder / CHECKPOINT, self.folder / HISTORY
        if file.is_file():
            restore_training(self, file)
        if self.processes.is_first:
            self.history = cut_history(history, self.epoch)
        else:
            self.history = read_history(history)[: self.epoch]
        return self.epoch


def _parameter_groups(model: Model) -> list[dict[str, Any]]:
    """Return all parameters in one group; the gate in another without weight decay, which would close it."""
    gates = model.gates
    if not gates:
        return [{"params": list(model.parameters())}]
    others = [parameter for parameter in model.parameters() if all(parameter is not gate for gate in gates)]
    return [{"params": others}, {"params": gates, "weight_decay": 0.0}]
