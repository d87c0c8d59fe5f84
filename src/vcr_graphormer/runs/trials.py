"""`Workbench`: many trainings on one graph in one process, and the validation score that compares them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike

from ..base.machine import available_memory, default_threads
from ..data.graph import Graph
from ..data.inductive import Seen
from ..data.metrics import LOWER_IS_BETTER
from ..data.split import Split
from ..data.tasks import measure
from ..errors import GraphError
from ..model.batches import Inputs
from ..model.config import ModelConfig
from ..model.inputs import make_inputs
from ..tokens.config import TokenConfig
from ..tokens.kinds import Kind
from ..tokens.lists import Kept, TokenLists, make_lists
from ..training.devices import choose_precision
from ..training.inference import compute
from ..training.trainer import Examples, Trainer
from .adapt import adapt
from .config import Config
from .recipes import MOST_ADJACENCY_NODES

# With fewer validation nodes the best epoch of many is partly luck: 91.9 instead of 85.8 on Texas (docs/log.md).
FEW_VALIDATION_NODES = 2000
_MOST_WORKERS = 4
_MOST_HOPS = 10  # that a step of `tune` may ask for (`steps.py`)
_MEMORY_FRACTION = 0.25  # of the free memory for the inputs of all workers: activations need the rest
_PROCESS_BYTES = 1 << 29  # of a worker on a CPU: torch, compiled loops and the graph, by hand
_HALVES = slice(None, None, 2), slice(1, None, 2)

OnTrainer = Callable[[Trainer], None]


@dataclass(frozen=True)
class Trial:
    """What one training gave: the metric on the three parts at the best validation epoch.

    `seconds` counts everything, `token_seconds` the part of it in which token lists and inputs were made.
    """

    train: float
    val: float
    test: float
    epochs: int
    best_epoch: int
    seconds: float
    token_seconds: float


@dataclass(frozen=True)
class Judged:
    """A trial with its score on validation nodes.

    Attributes
    ----------
    trial : Trial
        The training; its test part is not computed.
    score : float
        The crossed score, or the metric of the best epoch.
    halves : (float, float) or None
        The metric of each half of the validation nodes, whose mean is the crossed score; None if it is not crossed.
    """

    trial: Trial
    score: float
    halves: tuple[float, float] | None


def choose_workers(graph: Graph, device: torch.device) -> int:
    """Return how many trials run side by side: at most four, by cores and free memory.

    Steps of small models are not worth a second thread, and small batches leave a GPU idle between kernels. There, each
    worker needs a core to launch its own and one to prepare the next.
    """
    on_gpu, cores = device.type == "cuda", default_threads(None)
    columns = graph.num_features * (1 + _MOST_HOPS)
    columns += graph.num_nodes if graph.num_nodes <= MOST_ADJACENCY_NODES else 0
    needed = graph.num_nodes * columns * torch.float32.itemsize
    free = torch.cuda.mem_get_info(device)[0] if on_gpu else available_memory()
    fitting = int(_MEMORY_FRACTION * free / max(1, needed if on_gpu else needed + _PROCESS_BYTES))
    return max(1, min(_MOST_WORKERS, cores // 2 if on_gpu else cores, fitting))


class Workbench:
    """One graph on one device, ready to be trained on with many settings and splits.

    The functions are those of `tokenize` and `train`. Nothing is written to disk, and what does not depend on split or
    settings is computed once.

    Parameters
    ----------
    longest
        How many nodes to rank for each kind of neighbours, by name; shorter lists are cut from these rankings.
    """

    def __init__(
        self,
        graph: Graph,
        device: torch.device,
        precision: str = "auto",
        *,
        longest: Mapping[str, int] | None = None,
    ) -> None:
        self.graph, self.device = graph, device
        self.precision = choose_precision(precision, device)
        self.kept_lists, self.kept_tensors = Kept(longest=longest or {}), Kept()

    def lists(self, split: Split, tokens: TokenConfig, kinds: Sequence[Kind] = ()) -> TokenLists:
        """Return the token lists of this split and these settings; each ranking and each hop is computed once."""
        return make_lists(self.graph, split.train, tokens, kinds=kinds, kept=self.kept_lists)

    def inputs(self, split: Split, tokens: TokenConfig, model: ModelConfig, kinds: Sequence[Kind] = ()) -> Inputs:
        """Return what batches are made from; features and hops are put on the device once."""
        lists = self.lists(split, tokens, kinds)
        return make_inputs(
            self.graph, lists, model, split.train, self.device, dtype=self.precision, kept=self.kept_tensors
        )

    def train(
        self,
        split: Split,
        config: Config,
        *,
        test: bool = True,
        on_epoch: OnTrainer | None = None,
        kinds: Sequence[Kind] = (),
    ) -> Trial:
        """Train once; the test part is read after training, from the best state, and only if `test`.

        Settings that are AUTO are chosen for the split. Features that need preparation are prepared for each call.
        """
        adapted = adapt(config, self.graph, split)
        if adapted.graph is not self.graph:
            config = replace(adapted.config, data=replace(config.data, scale="none"))
            bench = Workbench(adapted.graph, self.device, config.training.precision)
            return bench.train(split, config, test=test, on_epoch=on_epoch, kinds=kinds)
        config = adapted.config
        start = time.perf_counter()
        graph, labels = self.graph, np.asarray(self.graph.labels)
        inputs = self.inputs(split, config.tokens, config.model, kinds)
        seen = self._seen_examples(split, config, kinds) if config.data.inductive else None
        token_seconds = time.perf_counter() - start
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            trainer = Trainer.of(graph, split, inputs=inputs, model=config.model, training=config.training, seen=seen)
            best = trainer.fit(None if on_epoch is None else lambda _: on_epoch(trainer))
            scores = [math.nan] * 2
            if test:
                nodes = np.concatenate([split.train, split.test])
                outputs = trainer.target.outputs(compute(trainer.best_model(), inputs, nodes, trainer.micro_batch))
                parts = np.split(outputs, [len(split.train)])
                known = (labels[split.train], labels[split.test])
                scores = [
                    measure(trainer.metric, part, truth, trainer.task) for part, truth in zip(parts, known, strict=True)
                ]
        seconds = time.perf_counter() - start
        return Trial(scores[0], best.value, scores[1], trainer.epoch, best.epoch, seconds, token_seconds)

    def _seen_examples(self, split: Split, config: Config, kinds: Sequence[Kind]) -> Examples:
        """Return the training nodes for an inductive training, to be read from the graph without hidden nodes.

        Nothing of it is kept for later calls: each split hides other nodes.
        """
        seen = Seen.of(self.graph, split)
        lists = make_lists(seen.graph, seen.train, config.tokens, kinds=kinds)
        inputs = make_inputs(seen.graph, lists, config.model, seen.train, self.device, dtype=self.precision)
        return Examples(seen.train, np.asarray(seen.graph.labels)[seen.train], inputs)

    def judge(
        self,
        split: Split,
        config: Config,
        *,
        crossed_below: float = FEW_VALIDATION_NODES,
        on_epoch: OnTrainer | None = None,
        kinds: Sequence[Kind] = (),
    ) -> Judged:
        """Train once and score the validation nodes; labels of test nodes are not read.

        Parameters
        ----------
        crossed_below
            Number of validation nodes from which on the metric of the best epoch is the score, not the crossed one.
            The best epoch also counts where a half has no metric, such as ROC-AUC of a single class.
        """
        labels = np.asarray(self.graph.labels)[split.val]
        by_epoch: list[list[float]] = []
        metric = ""

        def watch(trainer: Trainer) -> None:
            nonlocal metric
            metric = trainer.metric
            outputs = trainer.target.outputs(trainer.val_logits)
            by_epoch.append([_measure(trainer, outputs[half], labels[half]) for half in _HALVES])
            if on_epoch is not None:
                on_epoch(trainer)

        few = len(split.val) < crossed_below
        trial = self.train(split, config, test=False, on_epoch=watch if few else on_epoch, kinds=kinds)
        if not few or np.isnan(by_epoch).any():
            return Judged(trial, trial.val, None)
        halves = crossed(by_epoch, metric)
        return Judged(trial, float(np.mean(halves)), halves)


def _measure(trainer: Trainer, outputs: np.ndarray, labels: np.ndarray) -> float:
    """Return the metric of some validation nodes; NaN where they have none."""
    try:
        return measure(trainer.metric, outputs, labels, trainer.task)
    except GraphError:  # no known label
        return math.nan


def crossed(by_epoch: ArrayLike, metric: str = "accuracy") -> tuple[float, float]:
    """Return the metric of each half of the validation nodes at the epoch that is best on the other half.

    Parameters
    ----------
    by_epoch : [epochs, 2]
        The metric of both halves after each epoch.

    >>> crossed([[1.0, 0.5], [0.0, 1.0]])  # the first half chooses the first epoch, the second half the second
    (0.0, 0.5)
    """
    table = np.asarray(by_epoch, dtype=np.float64)
    first, second = (-table if metric in LOWER_IS_BETTER else table).argmax(0)
    return float(table[second, 0]), float(table[first, 1])
