"""Training of baselines: one graph on one device, full batches, early stop, the same recipe for all."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

import vcr_graphormer as vcr
from benchmarks.baselines.features import Rows, chosen, contents, read_features, with_contents, with_sum_one
from benchmarks.baselines.links import Links
from benchmarks.baselines.network import Network, Sizes
from benchmarks.baselines.together import Together, padded
from vcr_graphormer.data.columns.preparation import Preparation
from vcr_graphormer.data.datasets import DataConfig
from vcr_graphormer.data.inductive import Seen
from vcr_graphormer.data.tasks import TASKS, measure
from vcr_graphormer.runs.networks import early_stop
from vcr_graphormer.runs.trials import Workbench, crossed

EPOCHS, PATIENCE = 500, 100
JUDGED_AT_ONCE = 20  # epochs: reading every one would wait for the GPU every time
WARMUP_EPOCHS = 20  # of the cosine schedule
# Networks of several splits are trained together, as long as all their features together have so many entries; chosen
# by hand. On a larger graph the operations themselves take the time, not starting them.
MOST_AT_ONCE, ENTRIES_AT_ONCE = 10, 1 << 26
NO_LABEL = -100  # what torch's cross entropy leaves out


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one training gave.

    Attributes
    ----------
    by_epoch : [epochs, 3]
        The metric of all validation nodes, of the even and of the odd ones, after each epoch.
    outputs : [n, c]
        The logits or probabilities of all nodes after the best epoch.
    best_epoch : int
        Its number, from 1 on.
    """

    by_epoch: NDArray[np.float64]
    outputs: Tensor
    best_epoch: int = 1

    @property
    def val(self) -> float:
        """Return the metric of all validation nodes at the best epoch."""
        return float(self.by_epoch[self.best_epoch - 1, 0])

    @property
    def score(self) -> float:
        """Return the crossed score: each half is judged at the epoch that is best on the other half."""
        return float(np.mean(crossed(self.by_epoch[:, 1:])))


@dataclass(frozen=True)
class Measured:
    """The numbers of one training that result files keep.

    Attributes
    ----------
    score : float
        What a search compares: the crossed score of validation nodes.
    val, test : float
        The metric at the best epoch; `test` is None where it was not asked for.
    """

    score: float
    val: float
    test: float | None
    epochs: int = 1
    best_epoch: int = 1


class Bench:
    """One graph on one device, for all baselines.

    Parameters
    ----------
    directed
        The same graph with its published directions.
    metric
        `accuracy`, or `roc_auc` of two classes.
    record
        Whether a GPU records an epoch and replays it.
    """

    def __init__(
        self,
        graph: vcr.Graph,
        directed: vcr.Graph,
        device: torch.device,
        metric: str = "accuracy",
        record: bool = True,
    ) -> None:
        self.graph, self.arcs, self.device = graph, directed, device
        self.metric, self.record = metric, record
        self.directed = directed.num_arcs != graph.num_arcs
        self.labels = torch.from_numpy(np.asarray(graph.labels).astype(np.int64)).to(device)
        # A row of the published matrix has whom a node points to. "out": it reads messages from them.
        self.adjacency = {"both": graph.to_scipy()}
        if self.directed:
            self.adjacency |= {"out": directed.to_scipy(), "in": directed.to_scipy().T.tocsr()}
        self._links: dict[str, Links] = {}
        self._workbenches: dict[str, Workbench] = {}

    @cached_property
    def features(self) -> Tensor | Rows:
        """Return the features as they are, [1, n, d], or sparse with entries [1, nnz]."""
        return _read_all(self.graph, self.device)

    def workbench_of(self, name: str) -> Workbench:
        """Return our own trainer on the links of a direction: `both`, `out` or `in`."""
        if name not in self._workbenches:
            graph = {"both": self.graph, "out": self.arcs}.get(name) or reversed_arcs(self.arcs)
            self._workbenches[name] = Workbench(graph, self.device)
        return self._workbenches[name]

    @property
    def sizes(self) -> Sizes:
        """Return what networks depend on."""
        return Sizes(self.graph.num_nodes, self.graph.num_features, self.graph.num_classes)

    def links(self, name: str = "both") -> Links:
        """Return the links by direction: `both`, `out` or `in`; a graph without directions has `both` only."""
        if name not in self._links:
            self._links[name] = Links(self.adjacency[name], self.device)
        return self._links[name]

    def prepared(self, split: vcr.Split) -> Tensor | Rows:
        """Return the features as our own method reads them: columns of very different scales are standardized."""
        prepared = Preparation.learn(self.graph, split.train, DataConfig()).apply(self.graph)
        return self.features if prepared is self.graph else _read_all(prepared, self.device)

    def judge(self, logits: Tensor, split: vcr.Split) -> NDArray[np.float64]:
        """Return the metric of all, even and odd validation nodes, from logits [epochs, n, c]."""
        val = torch.from_numpy(split.val).to(self.device)
        parts = (val, val[::2], val[1::2])
        values = [score(self.metric, logits[:, part], self.labels[part]) for part in parts]
        return torch.stack(values, 1).double().cpu().numpy()

    def outcome(self, outputs: Tensor, split: vcr.Split) -> Outcome:
        """Return the outcome of a method without epochs."""
        return Outcome(self.judge(outputs[None], split), outputs)

    def test(self, outcome: Outcome, split: vcr.Split) -> float:
        """Return the metric of the test nodes."""
        outputs = outcome.outputs[torch.from_numpy(split.test).to(self.device)].float()
        predicted = torch.softmax(outputs, 1).cpu().numpy()
        return measure(self.metric, predicted, np.asarray(self.graph.labels)[split.test], TASKS["classification"])

    @property
    def at_once(self) -> int:
        """Return how many networks to train together; with large features it would save nothing."""
        return max(1, min(MOST_AT_ONCE, ENTRIES_AT_ONCE // max(1, self.graph.num_nodes * self.graph.num_features)))

    def train(
        self,
        make: Callable[[Sizes, dict[str, Any]], Network],
        settings: dict[str, Any],
        pairs: Sequence[tuple[vcr.Split, int]],
        *,
        epochs: int | None = None,
        inductive: bool = False,
    ) -> list[Outcome]:
        """Train one network for each split and seed on full batches, all together, each with early stop.

        If it is `inductive`, a single network is trained on the graph without validation and test nodes. The edges of
        that graph have no direction.
        """
        splits, networks = [split for split, _ in pairs], list[Network]()
        for _, seed in pairs:
            torch.manual_seed(seed)
            networks.append(make(self.sizes, settings))
        x, links = self._read(splits, settings), self.links(settings.get("links", "both"))
        nodes = padded([self._tensor(split.train) for split in splits], lambda row: row[0])
        lengths = torch.tensor([[len(split.train)] for split in splits], device=self.device)
        beyond = torch.arange(nodes.shape[1], device=self.device) >= lengths
        labels = self.labels[nodes].masked_fill(beyond, NO_LABEL)
        known_links, known_x, places = links, x, nodes
        if inductive:
            seen = Seen.of(self.graph, *splits)
            known_links, known_x = Links(seen.graph.to_scipy(), self.device), chosen(x, seen.nodes)
            places = self._tensor(seen.train)[None]
        count = epochs or settings.get("epochs", EPOCHS)
        shape = (len(pairs), self.graph.num_nodes, self.graph.num_classes)
        run = _Training(Together(networks).to(self.device), settings, count, shape)
        progress = [_Progress(self, split, run.patience) for split in splits]
        val = [self._tensor(split.val) for split in splits]

        def run_epoch() -> None:
            read = known_x
            if run.input_dropout:  # without it nothing is copied: features can be a gigabyte
                entries = contents(known_x)
                entries = entries.expand(len(pairs), *entries.shape[1:])
                read = with_contents(known_x, F.dropout(entries, run.input_dropout))
            run.step(lambda: run.network.loss(read, known_links, places, labels).sum())
            run.look(lambda: run.judged(x, links), lambda logits: self._losses(logits, val))

        for done, call in enumerate(self._calls(run, run_epoch), start=1):
            call()
            if done % JUDGED_AT_ONCE == 0 or done == run.epochs:
                for number, one in enumerate(progress):
                    one.judge(run.logits[:, number], run.losses[:, number], done)
                if all(one.ended for one in progress):
                    break
        return [one.outcome for one in progress]

    def _read(self, splits: Sequence[vcr.Split], settings: dict[str, Any]) -> Tensor | Rows:
        """Return the features as each split prepares them, [B, n, d]; [1, n, d] or sparse if all have the same."""
        each = [self.prepared(split) for split in splits]
        same = len(each) == 1 or all(one is self.features for one in each)
        x = each[0] if same else torch.cat([contents(one) for one in each])
        return with_sum_one(x) if settings.get("normalize_rows") else x

    def _losses(self, logits: Tensor, val: Sequence[Tensor]) -> Tensor:
        """Return the validation loss of each network."""
        pairs = zip(logits, val, strict=True)
        return torch.stack([F.cross_entropy(one[nodes], self.labels[nodes]) for one, nodes in pairs])

    def _tensor(self, nodes: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(nodes).to(self.device)

    def _calls(self, run: _Training, work: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Yield a function for each epoch; the epochs of the warm-up are recorded apart."""
        warm = round(run.network.warmup * run.epochs)
        for warming, times in ((True, warm), (False, run.epochs - warm)):
            if times:
                run.network.set_warming(warming)
                run.judged.set_warming(warming)
                yield from recorded(work, self.device if self.record else torch.device("cpu"), times)


class _Training:
    """The state of networks in training: optimizer, schedule, mean of weights, and what the last epochs predicted."""

    def __init__(self, network: Together, settings: dict[str, Any], epochs: int, shape: tuple[int, int, int]) -> None:
        self.network, self.epochs = network, epochs
        self.patience: int = epochs if network.warmup else settings.get("patience", PATIENCE)
        device = next(network.parameters()).device
        on_gpu = device.type == "cuda"
        self.input_dropout: float = settings.get("input_dropout", 0.0)
        self.rates = schedule(settings.get("schedule", "constant"), settings["learning_rate"], epochs).to(device)
        self.rate = self.rates[0].clone()
        # The weight decay of Adam is part of the gradient, which suits few labels; most papers have that.
        kind = torch.optim.Adam if settings.get("optimizer", "adamw") == "adam" else torch.optim.AdamW
        self.optimizer = kind(network.parameters(), self.rate, weight_decay=settings["weight_decay"], capturable=on_gpu)
        self.average: float = settings.get("average", 0.0)
        self.judged = copy.deepcopy(network) if self.average else network
        self.logits = torch.zeros(min(JUDGED_AT_ONCE, epochs), *shape, device=device)
        self.losses = torch.zeros(epochs, shape[0], device=device)
        self.at = torch.zeros(1, dtype=torch.long, device=device)

    def step(self, loss: Callable[[], Tensor]) -> None:
        """Make one step of the optimizer."""
        self.network.train()
        self.rate.copy_(self.rates.index_select(0, self.at)[0])
        self.optimizer.zero_grad()
        torch.autograd.backward(loss())
        self.optimizer.step()
        if self.average:
            with torch.no_grad():
                # The first epochs count evenly, so that the first weights are forgotten.
                share = (1 / (self.at + 1)).clamp(min=1 - self.average)[0]
                for mean, weight in zip(self.judged.parameters(), self.network.parameters(), strict=True):
                    mean.lerp_(weight, share)
                for kept, now in zip(self.judged.buffers(), self.network.buffers(), strict=True):
                    kept.copy_(now)

    def look(self, predict: Callable[[], Tensor], loss: Callable[[Tensor], Tensor]) -> None:
        """Keep the predictions of this epoch and their loss."""
        self.judged.eval()
        with torch.no_grad():
            logits = predict()
            self.logits.index_copy_(0, self.at % len(self.logits), logits[None])
            self.losses.index_copy_(0, self.at, loss(logits)[None])
            self.at.add_(1)


class _Progress:
    """What one of the networks in training has reached."""

    def __init__(self, bench: Bench, split: vcr.Split, patience: int) -> None:
        self.bench, self.split, self.patience = bench, split, patience
        self.values, self.losses = np.empty((0, 3)), list[float]()
        self.best, self.last, self.outputs = 0, 0, torch.empty(0)

    @property
    def ended(self) -> bool:
        """Return whether it stops early."""
        return self.last < len(self.values)

    def judge(self, logits: Tensor, losses: Tensor, done: int) -> None:
        """Judge the epochs since the last call by their logits [epochs, n, c] and by the losses of all epochs."""
        if self.ended:
            return
        start = len(self.values)
        self.values = np.concatenate([self.values, self.bench.judge(logits[: done - start], self.split)])
        self.losses += losses[start:done].tolist()
        self.best, self.last = early_stop(self.values[:, 0], self.losses, self.patience)
        if self.best >= start:
            self.outputs = logits[self.best - start].clone()

    @property
    def outcome(self) -> Outcome:
        """Return the outcome at the best epoch."""
        return Outcome(self.values[: self.last], self.outputs, self.best + 1)


def schedule(name: str, rate: float, epochs: int) -> Tensor:
    """Return the learning rate of every epoch: `constant`, or `cosine` with a linear warm-up, down to 0.

    >>> schedule("cosine", 1.0, 60)[[0, 19, 40, 59]].tolist()
    [0.05000000074505806, 1.0, 0.5, 0.0015413331566378474]
    """
    if name == "constant":
        return torch.full((epochs,), rate)
    rising = min(WARMUP_EPOCHS, epochs // 2)
    falling = [0.5 + 0.5 * math.cos(math.pi * (epoch - rising) / (epochs - rising)) for epoch in range(rising, epochs)]
    return rate * torch.tensor([*((epoch + 1) / rising for epoch in range(rising)), *falling])


def reversed_arcs(graph: vcr.Graph) -> vcr.Graph:
    """Return a directed graph with all arcs turned round.

    >>> reversed_arcs(vcr.Graph.from_edges([[0, 0], [1, 2]], num_nodes=3, directed=True)).indptr.tolist()
    [0, 0, 1, 2]
    """
    turned = vcr.Graph.from_scipy(graph.to_scipy().T.tocsr(), directed=True)
    return replace(graph, indptr=turned.indptr, indices=turned.indices, weights=turned.weights)


def score(metric: str, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the metric of every epoch, from logits [epochs, m, c].

    >>> score("roc_auc", torch.tensor([[[0, 1.0], [0, 2], [0, 0], [0, 1]]]), torch.tensor([0, 1, 0, 1])).tolist()
    [0.875]
    """
    if metric == "accuracy":
        return (logits.argmax(2) == labels).double().mean(1)
    margins = (logits[:, :, 1] - logits[:, :, 0]).contiguous()
    ordered = margins.sort(1).values
    below, up_to = (torch.searchsorted(ordered, margins, right=right) for right in (False, True))
    ranks = (below + up_to + 1).double() / 2  # equal margins share the mean of their ranks
    positive = (labels == 1).double()
    count = positive.sum()
    return ((ranks * positive).sum(1) - count * (count + 1) / 2) / (count * (len(labels) - count))


def recorded(work: Callable[[], None], device: torch.device, times: int) -> Iterator[Callable[[], None]]:
    """Yield a function to call, so many times: `work` itself, on a GPU a recording of it after the first three.

    These models are small. Launching their kernels one by one takes ten times as long as running them.
    """
    if device.type != "cuda" or times <= 3:
        yield from [work] * times
        return
    stream, graph = torch.cuda.Stream(device), torch.cuda.CUDAGraph()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield from [work] * 3
        with torch.cuda.graph(graph, stream=stream):
            work()
        yield from [graph.replay] * (times - 3)
    torch.cuda.current_stream().wait_stream(stream)


def _read_all(graph: vcr.Graph, device: torch.device) -> Tensor | Rows:
    x = read_features(graph, device)
    entries: Tensor = contents(x)[None]
    return Rows(x.places, entries) if isinstance(x, Rows) else entries
