"""H2GCN (Zhu et al. 2020): neighbours at distance one and two apart from the node, all rounds joined."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.baselines.links import Links
from benchmarks.baselines.network import Network, Settings, Sizes


class H2GCN(Network):
    """R_0 = ReLU(X W); R_k = [S_1 R_(k-1), S_2 R_(k-1)]; logits = [R_0, …, R_K] W'. No layer has self-loops."""

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__(sizes, settings)
        width, rounds = settings["hidden"], settings["rounds"]
        self.first = nn.Linear(sizes.features, width)
        self.head = nn.Linear(width * sum(2**number for number in range(rounds + 1)), sizes.classes)

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits."""
        one, two = links.matrix("symmetric"), links.matrix("two-hops")
        states = [F.relu(self.first(x))]
        for _ in range(self.settings["rounds"]):
            states.append(torch.cat([one @ states[-1], two @ states[-1]], 1))
        logits: Tensor = self.head(self.drop(torch.cat(states, 1)))
        return logits
