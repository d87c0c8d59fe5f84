"""LINKX (Lim et al. 2021): rows of the adjacency matrix and features, each through an MLP, then joined."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.baselines.links import Links
from benchmarks.baselines.network import Layers, Network, Settings, Sizes, glorot


class LINKX(Network):
    """h_A = MLP(A), h_X = MLP(X); logits = MLP(ReLU(W [h_A, h_X] + h_A + h_X)).

    PyG's LINKX takes lists of links, whose messages need more memory than a product with the adjacency matrix.
    """

    def __init__(self, sizes: Sizes, settings: Settings) -> None:
        super().__init__(sizes, settings)
        width, norm = settings["hidden"], settings.get("norm", "none")
        self.rows = glorot(sizes.nodes, width)
        self.of_links = Layers([width, width], self.dropout, norm)
        self.of_features = Layers([sizes.features, width, width], self.dropout, norm)
        self.from_links, self.from_features = nn.Linear(width, width), nn.Linear(width, width)
        self.head = Layers([*[width] * settings["layers"], sizes.classes], self.dropout, norm)

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return logits."""
        by_links = self.of_links(F.relu(links.matrix("plain") @ self.rows))
        by_features = self.of_features(x)
        joined = by_links + self.from_links(by_links) + by_features + self.from_features(by_features)
        logits: Tensor = self.head(self.drop(F.relu(joined)))
        return logits
