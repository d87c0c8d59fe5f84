"""PyG models on our neighbours: a GCN on the given edges and on the best nodes by PageRank, attention over token lists.

python examples/pyg_transforms.py              # handwritten digits, nothing to download
python examples/pyg_transforms.py --k 32       # longer lists
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GATv2Conv, GCNConv
from torch_geometric.transforms import Compose

import vcr_graphormer as vcr
from vcr_graphormer.pyg import AddTokens, AddTopPPR


class Network(torch.nn.Module):
    """Two convolutions; weights of edges are used where there are any."""

    def __init__(self, convolution: type[torch.nn.Module], features: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = convolution(features, 64), convolution(64, classes)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        """Return a score per class of each node."""
        hidden = torch.relu(self.first(x, edge_index, edge_weight))
        result: Tensor = self.second(hidden, edge_index, edge_weight)
        return result


def accuracy(
    data: Data, convolution: type[torch.nn.Module], edge_index: Tensor, weight: Tensor | None, *, steps: int
) -> float:
    """Train and return the accuracy on test nodes."""
    torch.manual_seed(0)
    model = Network(convolution, data.num_features, int(data.y.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        scores = model(data.x, edge_index, weight)
        loss = torch.nn.functional.cross_entropy(scores[data.train_mask], data.y[data.train_mask])
        torch.autograd.backward(loss)
        optimizer.step()
    right = model(data.x, edge_index, weight).argmax(1) == data.y
    return float(right[data.test_mask].float().mean())


def main() -> None:
    """Add neighbours to a `Data` and train three models on it."""
    parser = argparse.ArgumentParser(description="PyG models on the neighbours of VCR-Graphormer")
    parser.add_argument("--k", type=int, default=16, help="nodes per list")
    parser.add_argument("--steps", type=int, default=100, help="steps of training")
    arguments = parser.parse_args()

    graph = vcr.digits()
    data = graph.to_pyg()
    split = vcr.Split.random(graph.labels, train=0.1, val=0.1, seed=0)
    for part in ("train", "test"):
        mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
        mask[torch.from_numpy(getattr(split, part))] = True
        data[f"{part}_mask"] = mask

    half = arguments.k // 2
    tokens = vcr.TokenConfig(
        hops=2, structure_tokens=half, content_tokens=half, link_tokens=0, nearest_tokens=0
    )  # two kinds
    data = Compose([AddTopPPR(arguments.k), AddTokens(tokens)])(data)
    print(data)
    models = {
        "GCN, given edges": (GCNConv, data.edge_index, None),
        "GCN, best by PageRank": (GCNConv, data.ppr_edge_index, data.ppr_edge_weight),
        # GATv2 weights its edges by itself: which token of a list matters is learned.
        "GATv2, token lists": (GATv2Conv, data.token_edge_index, None),
    }
    for name, (convolution, edge_index, weight) in models.items():
        print(f"{name + ':':23} {accuracy(data, convolution, edge_index, weight, steps=arguments.steps):.4f}")


if __name__ == "__main__":
    main()
