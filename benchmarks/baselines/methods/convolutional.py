"""GCN (Kipf and Welling 2017), GraphSAGE (Hamilton et al. 2017) and GAT (Veličković et al. 2018).

Plain, or by the tuned recipe of Luo et al. (2024): norm, residual connections, a linear layer before the classes.
With `jump` the outputs of all layers are joined: jumping knowledge (Xu et al. 2018).
GCN and GraphSAGE multiply by a matrix, which is faster than PyG's lists of messages; a test compares both.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch_geometric.nn import GATConv

from benchmarks.baselines.links import Links
from benchmarks.baselines.network import Network, Settings, Sizes, make_norm

HEADS = 8


class Convolution(nn.Module):
    """One layer: a linear layer on the mean of neighbours (GCN, SAGE), or attention over them (GAT)."""

    def __init__(self, kind: str, before: int, after: int, heads: int = 1) -> None:
        super().__init__()
        self.kind = kind
        self.own = nn.Linear(before, after) if kind == "GraphSAGE" else None
        if kind == "GAT":
            self.attention = GATConv(before, after // heads, heads, add_self_loops=False)
            # PyG takes nothing but tensors, so its linear layer, which also reads sparse features, stands before it.
            self.linear, self.attention.lin = self.attention.lin, nn.Identity()
        else:
            self.linear = nn.Linear(before, after, bias=False)
            self.bias = nn.Parameter(torch.zeros(after)) if kind == "GCN" else None

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return the new state of every node."""
        if self.kind == "GAT":
            attended: Tensor = self.attention(self.linear(x), links.edges_with_loops)
            return attended
        matrix, hidden = links.matrix("mean" if self.own else "symmetric-loops"), self.linear(x)
        result: Tensor = matrix @ hidden + (self.own(x) if self.own else self.bias)
        return result


class Convolutional(Network):
    """Several convolutions, with norm, residual connections and joined layers where the settings say so."""

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__(sizes, settings)
        kind, width, count = settings["kind"], settings["hidden"], settings["layers"]
        residual: Any = settings.get("residual", False)
        self.jump: Any = settings.get("jump", False)
        self.has_head = bool(residual or self.jump)
        widths = [sizes.features, *[width] * (count if self.has_head else count - 1)]
        pairs = list(pairwise(widths))
        heads = HEADS if kind == "GAT" else 1
        self.layers = nn.ModuleList(Convolution(kind, *pair, heads) for pair in pairs)
        self.norms = nn.ModuleList(make_norm(settings.get("norm", "none"), after) for _, after in pairs)
        self.skips = nn.ModuleList(nn.Linear(*pair) for pair in pairs) if residual else None
        joined = width * len(pairs) if self.jump in (True, "cat") else width
        self.head: nn.Module = nn.Linear(joined, sizes.classes)
        if not self.has_head:
            self.head = Convolution(kind, widths[-1], sizes.classes)

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits."""
        states = []
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            new = layer(x, links) if self.skips is None else layer(x, links) + self.skips[number](x)
            x = self.drop(F.relu(norm(new)))
            states.append(x)
        if self.jump:
            x = torch.stack(states).amax(0) if self.jump == "max" else torch.cat(states, 1)
        logits: Tensor = self.head(x) if self.has_head else self.head(x, links)
        return logits
