"""Label propagation (Zhou et al. 2004) and Correct and Smooth (Huang et al. 2021), both of PyG.

Neither has weights of its own: the first spreads training labels over the links. The second spreads the errors of an
MLP on training nodes, and then its predictions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch_geometric.nn.models import CorrectAndSmooth, LabelPropagation

import vcr_graphormer as vcr
from benchmarks.baselines.bench import Bench, Outcome
from benchmarks.baselines.methods.mlp import MLP
from benchmarks.baselines.network import Settings


def propagate_labels(bench: Bench, settings: Settings, split: vcr.Split, seed: int) -> Outcome:
    """Return the outcome of Y ← α S Y + (1 - α) Y_train, `steps` times; nothing is trained."""
    links = bench.links(settings.get("links", "both"))
    train = torch.from_numpy(split.train).to(bench.device)
    known = F.one_hot(bench.labels, bench.graph.num_classes).float()
    spread = LabelPropagation(settings["steps"], 1 - settings["restart"])
    outputs: Tensor = spread(known, links.edges, mask=train)
    return bench.outcome(outputs, split)


def correct_and_smooth(bench: Bench, settings: Settings, split: vcr.Split, seed: int) -> Outcome:
    """Return the outcome of an MLP whose errors on training nodes are spread, and then its predictions."""
    [base] = bench.train(MLP, settings, [(split, seed)])
    links = bench.links(settings.get("links", "both"))
    train = torch.from_numpy(split.train).to(bench.device)
    outputs = correct(torch.softmax(base.outputs, 1), bench.labels, train, links.edges, settings)
    judged = bench.outcome(outputs, split)
    return Outcome(judged.by_epoch, outputs)


def correct(guesses: Tensor, labels: Tensor, train: Tensor, edges: Tensor, settings: Settings) -> Tensor:
    """Return probabilities after both steps; of `labels` those of training nodes are read."""
    process = CorrectAndSmooth(
        settings["steps"], settings["correct"], settings["steps"], settings["smooth"], settings["autoscale"]
    )
    corrected = process.correct(guesses, labels[train], train, edges)
    result: Tensor = process.smooth(corrected, labels[train], train, edges)
    return result
