"""What all networks among the baselines share: their sizes, their loss, layers with norm and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.baselines.links import Links

Settings = dict[str, Any]


class Sizes(NamedTuple):
    """The numbers of a graph that a network depends on."""

    nodes: int
    features: int
    classes: int


class Network(nn.Module):
    """A network that reads all features and links of a graph at once.

    Attributes
    ----------
    warmup : float
        The fraction of all epochs in which `warming` is true; there is no early stop then.
    """

    warmup = 0.0

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__()
        self.sizes, self.settings, self.warming = sizes, settings, self.warmup > 0
        self.dropout: float = settings.get("dropout", 0.0)

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits of all nodes, [n, c]."""
        raise NotImplementedError

    def loss(self, x: Tensor, links: Links, nodes: Tensor, labels: Tensor) -> Tensor:
        """Return what training minimizes; `labels` are those of the training nodes `nodes`."""
        return F.cross_entropy(self(x, links).index_select(0, nodes), labels)

    def drop(self, x: Tensor) -> Tensor:
        """Return the tensor with dropout, if the network is in training."""
        return F.dropout(x, self.dropout, self.training)


def make_norm(name: Any, width: int) -> nn.Module:
    """Return batch norm (`batch`, or True), layer norm (`layer`) or nothing (`none`, or False)."""
    if name in ("batch", True):
        return nn.BatchNorm1d(width)
    return nn.LayerNorm(width) if name == "layer" else nn.Identity()


class Layers(nn.Module):
    """Linear layers with norm, ReLU and dropout between them."""

    def __init__(self, widths: Sequence[int], dropout: float, norm: Any = "none") -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.linear = nn.ModuleList(nn.Linear(before, after) for before, after in pairs)
        self.norms = nn.ModuleList(make_norm(norm, width) for width in widths[1:-1])
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the last layer."""
        for linear, norm in zip(self.linear, self.norms, strict=False):
            x = F.dropout(F.relu(norm(linear(x))), self.dropout, self.training)
        result: Tensor = self.linear[-1](x)
        return result


def make_layers(sizes: Sizes, settings: Settings) -> Layers:
    """Return a feed-forward network from features to classes."""
    widths = [sizes.features, *[settings["hidden"]] * (settings["layers"] - 1), sizes.classes]
    return Layers(widths, settings["dropout"], settings.get("norm", "none"))


def walk_weights(restart: float, steps: int) -> tuple[float, ...]:
    """Return α(1-α)^j for j = 0 … K-1 and (1-α)^K in the end, which sum to 1: the weights of APPNP.

    >>> walk_weights(0.5, 2)
    (0.5, 0.25, 0.25)
    """
    return (*(restart * (1 - restart) ** step for step in range(steps)), (1 - restart) ** steps)


def glorot(*shape: int) -> nn.Parameter:
    """Return a matrix of weights drawn by Glorot's rule."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(*shape)))
