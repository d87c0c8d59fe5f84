"""GCNII (Chen et al. 2020): deep GCN with a link to the first state and weights near the identity."""

from __future__ import annotations

import math

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.baselines.links import Links
from benchmarks.baselines.network import Network, Settings, Sizes


class GCNII(Network):
    """H_(l+1) = ReLU(((1 - α) S H_l + α H_0) ((1 - β_l) I + β_l W_l)), β_l = log(θ / l + 1); α is `restart`."""

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__(sizes, settings)
        width = settings["hidden"]
        self.first, self.head = nn.Linear(sizes.features, width), nn.Linear(width, sizes.classes)
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(settings["layers"]))

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits."""
        matrix, restart = links.matrix("symmetric-loops"), self.settings["restart"]
        first = hidden = F.relu(self.first(self.drop(x) if self.settings.get("drop_features") else x))
        for number, layer in enumerate(self.layers, start=1):
            share = math.log(self.settings["theta"] / number + 1)
            mixed = (1 - restart) * (matrix @ self.drop(hidden)) + restart * first
            hidden = F.relu((1 - share) * mixed + share * layer(mixed))
        logits: Tensor = self.head(self.drop(hidden))
        return logits
