"""All baselines in one table: how each is made, and the space of settings that its search draws from.

The rule is the same for all, ours included: as many trials, the same splits, the same score. Dropout of input features,
schedules and averages of weights are open to every network.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch

import vcr_graphormer as vcr
from benchmarks.baselines import nearest
from benchmarks.baselines.bench import Bench, Measured
from benchmarks.baselines.methods.acm import ACMGCN
from benchmarks.baselines.methods.appnp import APPNP
from benchmarks.baselines.methods.convolutional import Convolutional
from benchmarks.baselines.methods.exphormer import Exphormer
from benchmarks.baselines.methods.gcn2 import GCNII
from benchmarks.baselines.methods.glognn import GloGNN
from benchmarks.baselines.methods.gprgnn import GPRGNN
from benchmarks.baselines.methods.grand_plus import GrandPlus
from benchmarks.baselines.methods.graphgps import GraphGPS
from benchmarks.baselines.methods.h2gcn import H2GCN
from benchmarks.baselines.methods.label_propagation import correct_and_smooth, propagate_labels
from benchmarks.baselines.methods.linkx import LINKX
from benchmarks.baselines.methods.mixhop import MixHop
from benchmarks.baselines.methods.mlp import MLP
from benchmarks.baselines.methods.on_hops import run_on_hops
from benchmarks.baselines.methods.ours import run_ours
from benchmarks.baselines.methods.polynormer import Polynormer
from benchmarks.baselines.methods.pprgo import PPRGo
from benchmarks.baselines.methods.sgc import SGC
from benchmarks.baselines.methods.sgformer import SGFormer
from benchmarks.baselines.network import Settings
from vcr_graphormer.base.checks import AUTO

NETWORK, PREDICTOR, RUNNER = "network", "predictor", "runner"
DEFAULT = "VCR-Graphormer, default"
# The neighbours a node reads messages from: all of them, those it points to, or those that point to it.
LINKS = ("both", "out", "in")


class Log(NamedTuple):
    """A number drawn evenly by its logarithm."""

    low: float
    high: float


Space = Mapping[str, "tuple[Any, ...] | Log"]


@dataclass(frozen=True)
class Method:
    """A baseline.

    Attributes
    ----------
    make : callable
        The class of a `network`; or a function of bench, settings, split and seed: a `predictor` returns an outcome, a
        `runner` measures by itself.
    space : dict
        What the search draws: one of several values, or a number.
    fixed : dict
        Settings that do not vary.
    reads_links : bool
        Whether the search also chooses the direction of links, where published links have one.
    record : bool
        Whether a CUDA graph can record an epoch.
    together : bool
        Whether networks of several splits can be trained as one.
    """

    make: Callable[..., Any]
    space: Space
    fixed: Settings = field(default_factory=dict)
    kind: str = NETWORK
    reads_links: bool = True
    record: bool = True
    together: bool = True

    def draw(self, name: str, count: int, directed: bool) -> list[Settings]:
        """Return the settings of so many trials, or the whole space if it is not larger.

        A trial depends on the name of the method and its number only: more trials begin with the same ones.
        """
        space: dict[str, Any] = {**self.space, **({"links": LINKS} if directed and self.reads_links else {})}
        seed = zlib.crc32(name.encode())
        if any(isinstance(values, Log) for values in space.values()):
            return [{**self.fixed, **_draw(space, [seed, number])} for number in range(count)]
        points = [{**self.fixed, **dict(zip(space, point, strict=True))} for point in product(*space.values())]
        order = np.random.default_rng(seed).permutation(len(points)) if len(points) > count else range(len(points))
        return [points[number] for number in order[:count]]

    def at_once(self, bench: Bench) -> int:
        """Return on how many splits to train at a time."""
        return bench.at_once if self.kind == NETWORK and self.together else 1

    def run(
        self, bench: Bench, settings: Settings, pairs: Sequence[tuple[vcr.Split, int]], *, test: bool
    ) -> list[Measured]:
        """Train once for each split and seed, all together; labels of test nodes are read only if `test`."""
        if self.kind == RUNNER:
            return [self.make(bench, settings, split, seed, test=test) for split, seed in pairs]
        if self.kind == PREDICTOR:
            outcomes = [self.make(bench, settings, split, seed) for split, seed in pairs]
        else:
            before, bench.record = bench.record, bench.record and self.record
            try:
                outcomes = bench.train(self.make, settings, pairs)
            finally:
                bench.record = before
        measured = []
        for outcome, (split, _) in zip(outcomes, pairs, strict=True):
            on_test = bench.test(outcome, split) if test else None
            numbers = (len(outcome.by_epoch), outcome.best_epoch)
            measured.append(Measured(outcome.score, outcome.val, on_test, *numbers))
        return measured


def _draw(space: Mapping[str, Any], seed: list[int]) -> Settings:
    """Return one random point of a space."""
    random, settings = np.random.default_rng(seed), {}
    for key, values in space.items():
        if isinstance(values, Log):
            settings[key] = float(f"{np.exp(random.uniform(*np.log(values))):.3g}")
        else:
            settings[key] = values[int(random.integers(len(values)))]
    return settings


RATES: Space = {
    "learning_rate": Log(1e-3, 3e-2),
    "weight_decay": Log(1e-6, 1e-2),
    "optimizer": ("adamw", "adam"),
    "schedule": ("constant", "cosine"),
    "average": (0.0, 0.9, 0.99),
    "input_dropout": (0.0, 0.2, 0.5),
}
DROPOUT: Space = {"dropout": (0.0, 0.2, 0.4, 0.5, 0.6, 0.8)}
WIDTHS: Space = {"hidden": (64, 128, 256, 512)}
NORMS: Space = {"norm": ("none", "batch", "layer")}
BASE: Space = {**WIDTHS, **DROPOUT, **RATES}
RESTARTS: Space = {"restart": (0.05, 0.1, 0.2, 0.5, 0.9)}
PLAIN: Space = {**BASE, "layers": (2, 3, 4)}
LONG: Space = {**BASE, "layers": (2, 3, 4, 5, 7, 10), "norm": ("batch", "layer"), "residual": (False, True)}
LONG_TRAINING = {"epochs": 1500, "patience": 300}
NARROW: Space = {"hidden": (64, 128)}
TRANSFORMER: Space = {**BASE, "hidden": (64, 128, 256), "layers": (1, 2, 3, 4), "local": ("GCN", "GAT"), "heads": (4,)}
OURS: Space = {
    "tokens.hops": (1, 2, 3, 5, 7),
    "model.hidden_channels": (64, 128, 256, 512),
    "model.layers": (1, 2, 3),
    "model.dropout": (0.1, 0.3, 0.5, 0.7),
    "model.feature_dropout": (0.0, 0.3, 0.5, 0.7),
    "training.learning_rate": Log(3e-4, 1e-2),
    "training.weight_decay": Log(1e-6, 1e-1),
    "training.average": (0.0, 0.9, 0.99),
    "training.label_smoothing": (0.0, 0.1),
}
METHODS: dict[str, Method] = {
    "MLP": Method(MLP, {**PLAIN, **NORMS}, reads_links=False),
    "logistic": Method(run_on_hops, {}, {"name": "logistic regression on hops"}, RUNNER, False),
    "boosting": Method(run_on_hops, {}, {"name": "gradient boosting on hops"}, RUNNER, False),
    "nearest": Method(nearest.predict, {}, kind=PREDICTOR),
    "label propagation": Method(propagate_labels, {**RESTARTS, "steps": (5, 10, 20, 50)}, kind=PREDICTOR),
    "C&S": Method(
        correct_and_smooth,
        {
            **{**PLAIN, **NORMS, "steps": (10, 50), "correct": (0.5, 0.8, 0.95, 1.0)},
            **{"smooth": (0.2, 0.5, 0.8, 0.95), "autoscale": (False, True)},
        },
        kind=PREDICTOR,
    ),
    "SGC": Method(SGC, {**RATES, "learning_rate": Log(3e-3, 3e-1), "steps": (1, 2, 3, 5, 8)}),
    "GCN": Method(Convolutional, PLAIN, {"kind": "GCN"}),
    "GraphSAGE": Method(Convolutional, PLAIN, {"kind": "GraphSAGE"}),
    "GAT": Method(Convolutional, {**PLAIN, **NARROW}, {"kind": "GAT"}),
    "GCN tuned": Method(Convolutional, LONG, {"kind": "GCN", **LONG_TRAINING}),
    "GraphSAGE tuned": Method(Convolutional, LONG, {"kind": "GraphSAGE", **LONG_TRAINING}),
    "GAT tuned": Method(Convolutional, {**LONG, "hidden": (64, 128, 256)}, {"kind": "GAT", **LONG_TRAINING}),
    "JK": Method(Convolutional, {**PLAIN, **NORMS, "kind": ("GCN", "GraphSAGE"), "jump": ("cat", "max")}),
    "MixHop": Method(MixHop, {**PLAIN, **NORMS, "layers": (1, 2, 3), "powers": (2, 3)}),
    "APPNP": Method(APPNP, {**PLAIN, **NORMS, **RESTARTS}, {"steps": 10}),
    "GPR-GNN": Method(GPRGNN, {**PLAIN, **NORMS, **RESTARTS}, {"steps": 10}),
    "GCNII": Method(GCNII, {**BASE, "layers": (4, 8, 16, 32), "restart": (0.1, 0.2, 0.5), "theta": (0.5, 1.0, 1.5)}),
    "H2GCN": Method(H2GCN, {**BASE, **NARROW, "rounds": (1, 2)}),
    "ACM-GCN": Method(ACMGCN, {**BASE, "layers": (1, 2, 3)}),
    "LINKX": Method(LINKX, {**BASE, **NORMS, "layers": (1, 2, 3)}),
    "GloGNN": Method(
        GloGNN,
        {
            **{**BASE, "layers": (1, 2, 3), "share": (0.0, 0.2, 0.5, 0.8, 1.0), "gamma": (0.1, 0.3, 0.5, 0.8)},
            **{"beta_1": (0.1, 1.0, 10.0), "beta_2": (0.1, 1.0, 10.0, 100.0), "orders": (1, 2, 4)},
        },
        record=False,  # solving a system waits for the GPU
    ),
    "PPRGo": Method(PPRGo, {**PLAIN, **NORMS, "restart": (0.1, 0.25, 0.5), "k": (32, 64)}),
    "GRAND+": Method(
        GrandPlus,
        {
            **{
                **BASE,
                **NORMS,
                "layers": (2, 3),
                "weights": ("ppr", "mean", "last"),
                "steps": (2, 4, 8),
                "k": (32, 64),
            },
            **{"restart": (0.1, 0.2, 0.5), "drop_nodes": (0.2, 0.5), "temperature": (0.1, 0.3, 0.5)},
            **{"confidence": (0.0, 0.2, 0.5), "agreement": (0.2, 0.5, 1.0, 1.5)},
        },
    ),
    "NAGphormer": Method(run_ours, OURS, {"hops_only": True}, RUNNER, reads_links=False),
    "Exphormer": Method(Exphormer, {**TRANSFORMER, "degree": (4, 6)}),
    "GraphGPS": Method(
        GraphGPS,
        {**TRANSFORMER, "layers": (1, 2, 3)},
        together=False,  # side by side, attention of all pairs would be a table in memory
    ),
    "SGFormer": Method(SGFormer, {**BASE, "hidden": (64, 128, 256), "layers": (1, 2, 3), "local_weight": (0.5, 0.8)}),
    "Polynormer": Method(
        Polynormer,
        {**BASE, "hidden": (64, 128, 256), "layers": (3, 5, 7), "global_layers": (1, 2), "local": ("GCN", "GAT")},
        {"epochs": 900},
    ),
    "VCR-Graphormer": Method(
        run_ours,
        {
            **{**OURS, "tokens.structure_tokens": (0, 4, 8), "tokens.content_tokens": (0, 4, 8)},
            **{"tokens.link_tokens": (0, 8), "tokens.nearest_tokens": (0, 8), "model.label_hops": (0, 1)},
            "model.readout": ("target", "attention"),
        },
        {"hops_only": False},
        RUNNER,
    ),
    # As shipped: all numbers adapt to the graph, members and the direction of links included. Nothing is searched.
    DEFAULT: Method(run_ours, {}, {"hops_only": False, "model.members": AUTO, "links": "auto"}, RUNNER, False),
}


def peak_memory(device: torch.device) -> int | None:
    """Return the most bytes that tensors took on a GPU since the last call; None on a CPU."""
    if device.type != "cuda":
        return None
    peak = int(torch.cuda.max_memory_allocated(device))
    torch.cuda.reset_peak_memory_stats(device)
    return peak
