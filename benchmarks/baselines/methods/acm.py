"""ACM-GCN (Luan et al. 2022): each node mixes what is common with its neighbours, what differs, and itself."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.baselines.links import Links
from benchmarks.baselines.network import Network, Settings, Sizes

TEMPERATURE = 3.0  # T of the paper: the number of channels


class ACMLayer(nn.Module):
    """α_L ReLU(P H W_L) + α_H ReLU((I - P) H W_H) + α_I ReLU(H W_I), P = D^-1 (A + I), α by node."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(before, after, bias=False) for _ in range(3))
        self.scores = nn.ModuleList(nn.Linear(after, 1, bias=False) for _ in range(3))
        self.mix = nn.Linear(3, 3, bias=False)

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return the mixed channels."""
        low, high, own = (linear(x) for linear in self.linear)
        matrix = links.matrix("mean-loops")
        channels = [F.relu(part) for part in (matrix @ low, high - matrix @ high, own)]
        scores = [torch.sigmoid(score(part)) for score, part in zip(self.scores, channels, strict=True)]
        shares = torch.softmax(self.mix(torch.cat(scores, 1)) / TEMPERATURE, 1)
        return (shares[:, :, None] * torch.stack(channels, 1)).sum(1)


class ACMGCN(Network):
    """Several such layers; the last one has a linear layer behind it, because ReLU would cut the logits."""

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__(sizes, settings)
        widths = [sizes.features, *[settings["hidden"]] * settings["layers"]]
        self.layers = nn.ModuleList(ACMLayer(*pair) for pair in pairwise(widths))
        self.head = nn.Linear(widths[-1], sizes.classes)

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits."""
        for layer in self.layers:
            x = self.drop(layer(x, links))
        logits: Tensor = self.head(x)
        return logits
