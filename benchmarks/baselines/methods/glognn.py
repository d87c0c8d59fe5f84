"""GloGNN (Li et al. 2022): every node is described by all others, with weights Z in closed form."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.baselines.links import Links
from benchmarks.baselines.network import Network, Settings, Sizes, glorot


class GloGNN(Network):
    """H_0 = MLP((1 - α) X W + α A W'); H_(l+1) = (1 - γ) Z_l H_l + γ H_0.

    Z minimizes |H - (1 - γ) Z H - γ H_0|² + β₁ |Z|² + β₂ |Z - Σ λ_k S^k|². With G = ((1 - γ)² HᵀH + (β₁ + β₂) I)^-1,
    which has as many rows as there are classes, Z H = ((1 - γ) H - γ (1 - γ) H_0) HᵀH G + β₂ Σ λ_k S^k H G.
    """

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__(sizes, settings)
        width = settings["hidden"]
        self.of_features, self.rows = nn.Linear(sizes.features, width), glorot(sizes.nodes, width)
        self.head = nn.Linear(width, sizes.classes)
        self.orders = nn.Parameter(torch.full((settings["orders"],), 1 / settings["orders"]))

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits."""
        share = self.settings["share"]  # α
        joined = (1 - share) * self.of_features(x) + share * (links.matrix("plain") @ self.rows)
        first: Tensor = self.head(self.drop(F.relu(joined)))
        hidden = first
        for _ in range(self.settings["layers"]):
            hidden = self.layer(hidden, first, links)
        return hidden

    def layer(self, hidden: Tensor, first: Tensor, links: Links) -> Tensor:
        """Return (1 - γ) Z H + γ H_0."""
        gamma, near, far = (float(self.settings[name]) for name in ("gamma", "beta_1", "beta_2"))
        inner = hidden.T @ hidden
        system = (1 - gamma) ** 2 * inner + (near + far) * torch.eye(len(inner), device=inner.device)
        solved = torch.linalg.inv(system)
        described = ((1 - gamma) * hidden - gamma * (1 - gamma) * first) @ (inner @ solved)
        power = hidden @ solved
        for weight in self.orders:
            power = links.matrix("symmetric-loops") @ power
            described = described + far * weight * power
        result: Tensor = (1 - gamma) * described + gamma * first
        return result
