"""PPRGo (Bojchevski et al. 2020): predictions of an MLP, averaged over the k best nodes by personalized PageRank."""

from __future__ import annotations

from torch import Tensor

from benchmarks.baselines.links import Links
from benchmarks.baselines.network import Network, Settings, Sizes, make_layers, walk_weights

STEPS = 20  # of the walk; what is left after them is (1 - restart)^20


class PPRGo(Network):
    """Π_k MLP(X), Π_k the k largest scores of each row; the paper ranks by push, here by the steps of a walk."""

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__(sizes, settings)
        self.layers = make_layers(sizes, settings)

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits."""
        weights = walk_weights(self.settings["restart"], STEPS)
        logits: Tensor = links.mixed(weights, self.settings["k"]) @ self.layers(x)
        return logits
