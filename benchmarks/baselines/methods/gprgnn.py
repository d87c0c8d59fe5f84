"""GPR-GNN (Chien et al. 2021): APPNP with a learned weight, of any sign, for each number of steps."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.baselines.links import Links
from benchmarks.baselines.network import Network, Settings, Sizes, make_layers, walk_weights


class GPRGNN(Network):
    """Σ γ_k S^k MLP(X); γ starts as the weights of personalized PageRank."""

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__(sizes, settings)
        self.layers = make_layers(sizes, settings)
        self.gamma = nn.Parameter(torch.tensor(walk_weights(settings["restart"], settings["steps"])))

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits."""
        matrix, power = links.matrix("symmetric-loops"), self.drop(self.layers(x))
        total = self.gamma[0] * power
        for weight in self.gamma[1:]:
            power = matrix @ power
            total = total + weight * power
        return total
