"""APPNP (Gasteiger et al. 2019): an MLP, then its predictions spread by personalized PageRank."""

from __future__ import annotations

from torch import Tensor

from benchmarks.baselines.links import Links
from benchmarks.baselines.network import Network, Settings, Sizes, make_layers


class APPNP(Network):
    """Z_0 = H = MLP(X); Z_k = (1 - α) S Z_(k-1) + α H, `steps` times; α is `restart`."""

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__(sizes, settings)
        self.layers = make_layers(sizes, settings)

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits."""
        matrix, restart = links.matrix("symmetric-loops"), float(self.settings["restart"])
        first: Tensor = self.layers(x)
        spread = first
        for _ in range(self.settings["steps"]):
            spread = (1 - restart) * (matrix @ self.drop(spread)) + restart * first
        return spread
