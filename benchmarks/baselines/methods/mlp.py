"""MLP: features only, no links."""

from __future__ import annotations

from torch import Tensor

from benchmarks.baselines.links import Links
from benchmarks.baselines.network import Network, Settings, Sizes, make_layers


class MLP(Network):
    """A feed-forward network on the features of a node."""

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__(sizes, settings)
        self.layers = make_layers(sizes, settings)

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits; links are not read."""
        result: Tensor = self.layers(x)
        return result
