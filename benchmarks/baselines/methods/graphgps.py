"""GraphGPS (Rampášek et al. 2022): each layer adds a convolution and attention over all nodes, then an MLP.

Positional encodings are left out: on these graphs the features of nodes take their place.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.baselines.links import Links
from benchmarks.baselines.methods.convolutional import Convolution
from benchmarks.baselines.network import Layers, Network, Settings, Sizes


class FullAttention(nn.Module):
    """Attention of every node to every node. On a GPU in bfloat16, whose kernel keeps no table of all pairs."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.project, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return what each node reads from all nodes."""
        parts = self.project(x).view(len(x), 3, self.heads, -1).permute(1, 2, 0, 3)[:, None]
        query, key, value = parts.to(torch.bfloat16) if x.is_cuda else parts
        read = F.scaled_dot_product_attention(query, key, value)[0].to(x.dtype)
        result: Tensor = self.out(read.transpose(0, 1).reshape(len(x), -1))
        return result


class Block(nn.Module):
    """x + convolution and x + attention, each with dropout and batch norm; their sum; an MLP with a residual."""

    def __init__(self, width: int, attention: nn.Module, dropout: float, local: str) -> None:
        super().__init__()
        self.local, self.attention = Convolution(local, width, width), attention
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(3))
        self.rest = Layers([width, 2 * width, width], dropout)
        self.dropout = dropout

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return the new state of every node."""
        near, far = (
            norm(x + F.dropout(module(x, links), self.dropout, self.training))
            for norm, module in zip(self.norms, (self.local, self.attention), strict=False)
        )
        x = near + far
        result: Tensor = self.norms[2](x + F.dropout(self.rest(x), self.dropout, self.training))
        return result


class GraphGPS(Network):
    """A linear layer, blocks, and a linear layer to the classes."""

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__(sizes, settings)
        width = settings["hidden"]
        self.first, self.head = nn.Linear(sizes.features, width), nn.Linear(width, sizes.classes)
        self.blocks = nn.ModuleList(
            Block(width, self.make_attention(width), self.dropout, settings["local"]) for _ in range(settings["layers"])
        )

    def make_attention(self, width: int) -> nn.Module:
        """Return the attention of one layer."""
        return FullAttention(width, self.settings["heads"])

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits."""
        x = self.drop(F.relu(self.first(x)))
        for block in self.blocks:
            x = block(x, links)
        logits: Tensor = self.head(x)
        return logits
