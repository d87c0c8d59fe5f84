"""GRAND+ (Feng et al. 2022): random propagation over the k best nodes, and predictions that must agree.

Nodes are dropped at random before the propagation, twice in each step. Besides the labels, the loss asks both
predictions of an unlabelled node to agree, if they are confident.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.baselines.links import Links
from benchmarks.baselines.network import Layers, Network, Settings, Sizes, walk_weights

TIMES = 2  # S of the paper
WARMUP = 100  # epochs until agreement has its whole weight


class GrandPlus(Network):
    """MLP(Π (z ∘ X)) with Π = Σ w_j P^j cut to k entries in each row, z random zeros; the first layer goes before Π."""

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__(sizes, settings)
        self.first = nn.Linear(sizes.features, settings["hidden"], bias=False)
        self.bias = nn.Parameter(torch.zeros(settings["hidden"]))
        widths = [*[settings["hidden"]] * (settings["layers"] - 1), sizes.classes]
        self.rest = Layers(widths, self.dropout, settings.get("norm", "none"))
        self.step: Tensor
        self.register_buffer("step", torch.zeros(()))

    def propagate(self, links: Links, x: Tensor) -> Tensor:
        """Return Π x by the kind of weights: personalized PageRank, the mean of all steps, or the last one."""
        steps = self.settings["steps"]
        kinds = {"mean": (1 / (steps + 1),) * (steps + 1), "last": (*(0.0,) * steps, 1.0)}
        weights = kinds.get(self.settings["weights"], walk_weights(self.settings.get("restart", 0.2), steps))
        return links.mixed(weights, self.settings["k"]) @ x

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits; while training, whole nodes are dropped."""
        rate, hidden = self.settings["drop_nodes"], self.first(x)
        if self.training:
            hidden = hidden * F.dropout(torch.ones(len(x), 1, device=x.device), rate)
        result: Tensor = self.rest(self.drop(F.relu(self.propagate(links, hidden) + self.bias)))
        return result

    def loss(self, x: Tensor, links: Links, nodes: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of all predictions, and how much those of confident unlabelled nodes disagree."""
        logits = [self(x, links) for _ in range(TIMES)]
        by_labels = sum(F.cross_entropy(one[nodes], labels) for one in logits) / TIMES
        guesses = torch.stack([torch.softmax(one, 1) for one in logits])
        mean = guesses.mean(0).detach()
        sharp = mean ** (1 / self.settings["temperature"])
        sharp = sharp / sharp.sum(1, keepdim=True)
        # Confident: well above an even guess. The fraction γ of the way from 1 / c to 1.
        classes = mean.shape[1]
        counted = (mean.amax(1) >= 1 / classes + self.settings["confidence"] * (1 - 1 / classes)).float()
        counted = counted.index_fill(0, nodes, 0.0)
        apart = ((guesses - sharp) ** 2).sum(2).mean(0)
        self.step.add_(1)
        weight = self.settings["agreement"] * (self.step / WARMUP).clamp(max=1)
        total: Tensor = by_labels + weight * (apart * counted).sum() / counted.sum().clamp(min=1)
        return total
