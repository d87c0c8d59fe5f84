"""SGC (Wu et al. 2019): one linear layer on features that were averaged K times.

S^K (X W) equals (S^K X) W and has far fewer columns, so the linear layer comes first.
"""

from __future__ import annotations

from torch import Tensor, nn

from benchmarks.baselines.links import Links
from benchmarks.baselines.network import Network, Settings, Sizes


class SGC(Network):
    """S^K X W + b with S = D^-1/2 (A + I) D^-1/2."""

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__(sizes, settings)
        self.linear = nn.Linear(sizes.features, sizes.classes, bias=False)
        self.bias = nn.Parameter(self.linear.weight.new_zeros(sizes.classes))

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits."""
        hidden: Tensor = self.linear(x)
        for _ in range(self.settings["steps"]):
            hidden = links.matrix("symmetric-loops") @ hidden
        return hidden + self.bias
