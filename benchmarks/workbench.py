"""Many trainings on one graph in one process: what does not depend on split or settings is computed once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from vcr_graphormer import Config, Graph, Inputs, ModelConfig, Split, TokenConfig, TokenLists, make_inputs
from vcr_graphormer.data.tasks import measure
from vcr_graphormer.tokens.kinds import Kind
from vcr_graphormer.tokens.lists import Kept, make_lists
from vcr_graphormer.training.devices import choose_precision
from vcr_graphormer.training.inference import compute
from vcr_graphormer.training.trainer import Trainer


@dataclass(frozen=True)
class Trial:
    """What one training gave: the metric on the three parts at the best validation epoch."""

    train: float
    val: float
    test: float
    epochs: int
    best_epoch: int
    seconds: float


class Workbench:
    """One graph on one device, ready to be trained on with many settings and splits.

    The functions are those of `tokenize` and `train`; only nothing is written to disk.
    """

    def __init__(self, graph: Graph, device: torch.device, precision: str = "auto") -> None:
        self.graph, self.device = graph, device
        self.precision = choose_precision(precision, device)
        self.kept_lists, self.kept_tensors = Kept(), Kept()

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
        test: bool = True,
        on_epoch: Callable[[Trainer], None] | None = None,
        kinds: Sequence[Kind] = (),
    ) -> Trial:
        """Train once; the test part is read after training, from the best state, and only if `test`."""
        start = time.perf_counter()
        graph, labels = self.graph, np.asarray(self.graph.labels)
        inputs = self.inputs(split, config.tokens, config.model, kinds)
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            trainer = Trainer.of(graph, split, inputs=inputs, model=config.model, training=config.training)
            best = trainer.fit(None if on_epoch is None else lambda _: on_epoch(trainer))
            scores = [float("nan")] * 2
            if test:
                nodes = np.concatenate([split.train, split.test])
                outputs = trainer.target.outputs(compute(trainer.best_model(), inputs, nodes, trainer.micro_batch))
                parts = np.split(outputs, [len(split.train)])
                known = (labels[split.train], labels[split.test])
                scores = [
                    measure(trainer.metric, part, truth, trainer.task) for part, truth in zip(parts, known, strict=True)
                ]
        seconds = time.perf_counter() - start
        return Trial(scores[0], best.value, scores[1], trainer.epoch, best.epoch, seconds)
