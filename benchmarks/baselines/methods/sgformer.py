"""SGFormer (Wu et al. 2023): one layer of linear attention over all nodes, beside a small GCN.

PyG's SGFormer sorts and pads batches in each step, which a CUDA graph cannot record; a test compares the attention.
"""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.baselines.links import Links
from benchmarks.baselines.methods.convolutional import Convolution
from benchmarks.baselines.network import Network, Settings, Sizes


def linear_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return (V + Q (Kᵀ V) / n) / (1 + Q Kᵀ 1 / n), with rows of Q and K of length 1."""
    query, key = F.normalize(query, dim=1), F.normalize(key, dim=1)
    count = len(value)
    above = count * value + query @ (key.T @ value)
    return above / (count + query @ key.sum(0))[:, None]


class SGFormer(Network):
    """weight · GCN(X) + (1 - weight) · attention(X), then a linear layer."""

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__(sizes, settings)
        width = settings["hidden"]
        self.to_global, self.to_local = (nn.Linear(sizes.features, width) for _ in range(2))
        self.global_norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.layers = nn.ModuleList(Convolution("GCN", width, width) for _ in range(settings["layers"]))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(settings["layers"] + 1))
        self.head = nn.Linear(width, sizes.classes)

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits."""
        wide = self.drop(F.relu(self.global_norms[0](self.to_global(x))))
        read = linear_attention(*(linear(wide) for linear in self.attention))
        wide = self.drop(F.relu(self.global_norms[1]((read + wide) / 2)))
        near = first = self.drop(F.relu(self.norms[0](self.to_local(x))))
        for layer, norm in zip(self.layers, list(self.norms)[1:], strict=True):
            near = self.drop(F.relu(norm(layer(near, links)))) + first
        weight = self.settings["local_weight"]
        logits: Tensor = self.head(weight * near + (1 - weight) * wide)
        return logits
