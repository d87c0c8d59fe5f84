"""MixHop (Abu-El-Haija et al. 2019): each layer joins several powers of the normalized adjacency matrix."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.baselines.links import Links
from benchmarks.baselines.network import Network, Settings, Sizes, make_norm


class MixHopLayer(nn.Module):
    """[H W_0, S H W_1, …, S^P H W_P], side by side."""

    def __init__(self, before: int, after: int, powers: int) -> None:
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(before, after, bias=False) for _ in range(powers + 1))

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return the joined powers, [n, (P + 1) · after]."""
        matrix, parts = links.matrix("symmetric-loops"), []
        for power, linear in enumerate(self.linear):
            part = linear(x)
            for _ in range(power):
                part = matrix @ part
            parts.append(part)
        return torch.cat(parts, 1)


class MixHop(Network):
    """MixHop layers and a linear layer to the classes."""

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__(sizes, settings)
        powers = settings["powers"]
        width = max(1, settings["hidden"] // (powers + 1))
        joined = width * (powers + 1)
        widths = [sizes.features, *[joined] * (settings["layers"] - 1)]
        self.layers = nn.ModuleList(MixHopLayer(before, width, powers) for before in widths)
        self.norms = nn.ModuleList(make_norm(settings.get("norm", "none"), joined) for _ in widths)
        self.head = nn.Linear(joined, sizes.classes)

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits."""
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = self.drop(F.relu(norm(layer(x, links))))
        logits: Tensor = self.head(x)
        return logits
