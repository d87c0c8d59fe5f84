"""Exphormer (Shirzad et al. 2023): attention over links, over a random expander graph, and to one virtual node."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.utils import softmax

from benchmarks.baselines.links import Links
from benchmarks.baselines.methods.graphgps import GraphGPS


def expander_edges(nodes: int, degree: int, seed: int = 0) -> np.ndarray:
    """Return a random regular graph: each of `degree` / 2 random permutations links a node with its image, both ways.

    >>> expander_edges(5, 2).shape
    (2, 10)
    """
    random, own = np.random.default_rng(seed), np.arange(nodes)
    pairs = [np.stack([own, random.permutation(nodes)]) for _ in range(degree // 2)]
    return np.concatenate([np.concatenate([pair, pair[::-1]], 1) for pair in pairs], 1)


class SparseAttention(nn.Module):
    """Attention over given pairs of nodes; a learned vector tells links, expander and virtual node apart."""

    def __init__(self, width: int, heads: int, degree: int) -> None:
        super().__init__()
        self.heads, self.degree = heads, degree
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.kinds, self.virtual = nn.Embedding(4, width), nn.Parameter(torch.randn(1, width) / width**0.5)

    def pairs(self, links: Links) -> tuple[Tensor, Tensor]:
        """Return sender and receiver of all pairs, and the kind of each; the virtual node is the last."""
        own = np.arange(links.count)
        virtual = np.full_like(own, links.count)
        parts = [
            links.edges.cpu().numpy(),
            expander_edges(links.count, self.degree),
            np.stack([own, virtual]),
            np.stack([virtual, own]),
        ]
        kinds = np.repeat(np.arange(4), [part.shape[1] for part in parts])
        pairs = torch.from_numpy(np.concatenate(parts, 1))
        return pairs.to(links.device), torch.from_numpy(kinds).to(links.device)

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return what each node reads."""
        (senders, receivers), kinds = links.keep(("expander", self.degree), lambda: self.pairs(links))
        states = torch.cat([x, self.virtual])
        query, key, value = self.project(states).view(len(states), 3, self.heads, -1).unbind(1)
        of_kind = self.kinds.weight.view(4, self.heads, -1).index_select(0, kinds)
        pairs = query.index_select(0, receivers) * key.index_select(0, senders)
        scores = (pairs * of_kind).sum(2) / query.shape[2] ** 0.5
        shares = softmax(scores, receivers, num_nodes=len(states))
        read = torch.zeros_like(value).index_add(0, receivers, shares[:, :, None] * value.index_select(0, senders))
        result: Tensor = self.out(read[: len(x)].flatten(1))
        return result


class Exphormer(GraphGPS):
    """GraphGPS with this attention in the place of the full one."""

    def make_attention(self, width: int) -> nn.Module:
        """Return the attention of one layer."""
        return SparseAttention(width, self.settings["heads"], self.settings["degree"])
