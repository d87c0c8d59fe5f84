"""Polynormer (Deng et al. 2024): products of gates and messages, first along links, later over all nodes.

The first third of the training has layers along links only. PyG's Polynormer cannot be recorded by a CUDA graph.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.baselines.links import Links
from benchmarks.baselines.methods.convolutional import Convolution
from benchmarks.baselines.network import Network, Settings, Sizes


def kernel_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return σ(Q) (σ(K)ᵀ V) / (σ(Q) σ(K)ᵀ 1)."""
    query, key = torch.sigmoid(query), torch.sigmoid(key)
    return (query @ (key.T @ value)) / (query @ key.sum(0))[:, None]


class GlobalLayer(nn.Module):
    """LayerNorm(attention) ∘ (gate + β), ReLU and dropout behind it."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.gate, *others = (nn.Linear(width, width) for _ in range(4))
        self.attention, self.norm = nn.ModuleList(others), nn.LayerNorm(width)
        self.beta, self.dropout = nn.Parameter(torch.zeros(width)), dropout

    def forward(self, x: Tensor) -> Tensor:
        """Return the new state of every node."""
        read = kernel_attention(*(linear(x) for linear in self.attention))
        gated = self.norm(read) * (self.gate(x) + torch.sigmoid(self.beta))
        return F.dropout(F.relu(gated), self.dropout, self.training)


class LocalLayer(nn.Module):
    """β ∘ m + (1 - β) ∘ LayerNorm(gate ∘ m), with m a convolution with a residual."""

    def __init__(self, kind: str, width: int, dropout: float) -> None:
        super().__init__()
        self.convolution, self.skip = Convolution(kind, width, width), nn.Linear(width, width)
        self.gate, self.between, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width), nn.LayerNorm(width)
        self.beta, self.dropout = nn.Parameter(torch.zeros(width)), dropout

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return the new state of every node."""
        gate, share = F.relu(self.gate(x)), torch.sigmoid(self.beta)
        new = self.between(self.convolution(x, links) + self.skip(x))
        new = F.dropout(F.relu(new), self.dropout, self.training)
        return torch.lerp(self.norm(gate * new), new, share)


class Polynormer(Network):
    """Local layers, whose outputs are added; after the warm-up global layers behind them."""

    warmup = 1 / 3

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__(sizes, settings)
        width, kind = settings["hidden"], settings["local"]
        self.first = nn.Linear(sizes.features, width)
        self.local = nn.ModuleList(LocalLayer(kind, width, self.dropout) for _ in range(settings["layers"]))
        self.wide = nn.ModuleList(GlobalLayer(width, self.dropout) for _ in range(settings["global_layers"]))
        self.norm, self.heads = nn.LayerNorm(width), nn.ModuleList(nn.Linear(width, sizes.classes) for _ in range(2))

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits."""
        x, total = self.first(x), torch.zeros((), device=x.device)
        for layer in self.local:
            x = layer(x, links)
            total = total + x
        if self.warming:
            return torch.as_tensor(self.heads[0](total))
        total = self.norm(total)
        for layer in self.wide:
            total = layer(total)
        return torch.as_tensor(self.heads[1](total))
