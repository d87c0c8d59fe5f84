"""Plain graph networks of PyG as baselines: MLP, GCN, GraphSAGE and APPNP, trained on full batches with early stop."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..data.graph import Graph
from ..data.inductive import Seen
from ..data.metrics import LOWER_IS_BETTER
from ..data.split import Split
from ..data.tasks import TASKS, Target, known_labels, measure
from ..training.config import TrainConfig
from ..training.devices import find_device
from .baselines import measure_parts

# The common settings of these models (Kipf and Welling 2017, Shchur et al. 2018); validation nodes choose the width.
WIDTHS = (64, 128)
SETTINGS = {"layers": 2, "dropout": 0.5, "learning_rate": 0.01, "weight_decay": 5e-4}
MORE = {"norm": False, "jump": False, "restart": 0.1}  # of some models only
EPOCHS, PATIENCE = 200, 50
MOST_NUMBERS = 1 << 29  # features and messages of all nodes at a time: 2 GiB of float32


def run_network(
    name: str,
    graph: Graph,
    split: Split,
    *,
    metric: str,
    target: Target,
    training: TrainConfig,
    device: str = "cpu",
    seen: Seen | None = None,
) -> dict[str, Any]:
    """Train a network at every width; return settings, `val` and `test` of the best on validation nodes, or a note."""
    numbers = graph.num_nodes * graph.num_features + graph.num_arcs * max(WIDTHS)
    if numbers > MOST_NUMBERS:
        return {"note": f"left out: full batches of {numbers:,} numbers, more than {MOST_NUMBERS:,}"}
    try:
        import torch_geometric  # noqa: F401
    except ImportError:
        return {"note": "left out: it needs PyG (pip install torch-geometric)"}
    best, place = None, find_device(device)
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse")  # torch calls its CSR matrices a prototype
        full_batch = FullBatch(graph, split, place, target, seen)
        for width in WIDTHS:
            settings = {"hidden": width, **SETTINGS}
            val, outputs, epoch = full_batch.train(name, settings | MORE, metric=metric, seed=training.seed)
            if best is None or val > best[0]:
                best = val, outputs, {**settings, "epochs": epoch}
    assert best is not None  # there are widths
    both = [best[1][part] for part in (split.val, split.test)]
    parts = measure_parts(graph, split, metric=metric, target=target, threshold=training.threshold, outputs=both)
    return {"settings": best[2], **parts}


class FullBatch:
    """A graph and its split on one device, for networks that read the whole graph in each step.

    If only a part of the graph is `seen` in training, steps read that part, and validation the whole graph.
    """

    def __init__(
        self,
        graph: Graph,
        split: Split,
        device: torch.device,
        target: Target | None = None,
        seen: Seen | None = None,
    ) -> None:
        labels = np.asarray(graph.labels)
        self.graph, self.device = graph, device
        self.train_nodes, self.val_nodes = (part[known_labels(labels[part])] for part in (split.train, split.val))
        self.target = target or Target.of(graph.task, labels, split.train)
        weights = self.target.weights
        self.weights = None if weights is None else torch.from_numpy(weights).to(device)
        self.wanted = torch.from_numpy(np.asarray(self.target.wanted(labels))).to(device)
        self.whole = _on_device(graph, device)
        self.learned = self.whole if seen is None else _on_device(seen.graph, device)
        self.places = self.train_nodes if seen is None else seen.places(self.train_nodes)

    def train(
        self, name: str, settings: dict[str, Any], *, metric: str, seed: int
    ) -> tuple[float, NDArray[np.float32], int]:
        """Return the best validation metric, negated for an error, the outputs of all nodes then, and its epoch."""
        torch.manual_seed(seed)
        task, outputs = self.target.task, TASKS[self.graph.task].count_outputs(np.asarray(self.graph.labels))
        settings = {**settings, "cached": self.learned is self.whole}
        network = make_network(name, self.graph.num_features, outputs, settings).to(self.device)
        rate, decay = settings["learning_rate"], settings["weight_decay"]
        optimizer = torch.optim.Adam(network.parameters(), rate, weight_decay=decay)
        parts = (self.train_nodes, self.places, self.val_nodes)
        train, places, val = (torch.from_numpy(nodes).to(self.device) for nodes in parts)
        labels, sign = np.asarray(self.graph.labels)[self.val_nodes], -1 if metric in LOWER_IS_BETTER else 1
        values, losses = list[float](), list[float]()
        for _ in range(EPOCHS):
            network.train()
            optimizer.zero_grad()
            logits = network(*self.learned)
            torch.autograd.backward(task.loss(logits[places], self.wanted[train], weights=self.weights))
            optimizer.step()
            network.eval()
            with torch.no_grad():
                logits = network(*self.whole)
                losses.append(float(task.loss(logits[val], self.wanted[val], weights=self.weights)))
            predicted = self.target.outputs(logits.cpu().numpy())
            values.append(sign * measure(metric, predicted[self.val_nodes], labels, task))
            best, last = early_stop(values, losses, PATIENCE)
            if best == len(values) - 1:
                chosen = predicted
            if last < len(values):
                break
        return values[best], chosen, best + 1


def _on_device(graph: Graph, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return features and edges; on a CPU as a sparse matrix (row = receiver), several times faster than lists."""
    from torch_geometric.utils import to_torch_csr_tensor

    data, size = graph.to_pyg(), (graph.num_nodes, graph.num_nodes)
    edges = data.edge_index
    on_gpu = device.type == "cuda"
    return data.x.float().to(device), edges.to(device) if on_gpu else to_torch_csr_tensor(edges.flip(0), size=size)


class Propagated(nn.Module):
    """APPNP: an MLP, then personalized propagation of its predictions."""

    def __init__(self, features: int, outputs: int, settings: dict[str, Any]) -> None:
        from torch_geometric.nn import APPNP, MLP

        super().__init__()
        hidden, layers = settings["hidden"], settings["layers"]
        self.mlp = MLP([features, *[hidden] * (layers - 1), outputs], dropout=settings["dropout"], norm=None)
        self.spread = APPNP(K=10, alpha=settings["restart"], cached=settings.get("cached", True))

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        """Return the logits."""
        result: Tensor = self.spread(self.mlp(features), edges)
        return result


class Alone(nn.Module):
    """An MLP that ignores the edges."""

    def __init__(self, features: int, outputs: int, settings: dict[str, Any]) -> None:
        from torch_geometric.nn import MLP

        super().__init__()
        widths = [features, *[settings["hidden"]] * (settings["layers"] - 1), outputs]
        self.mlp = MLP(widths, dropout=settings["dropout"], norm="batch_norm" if settings["norm"] else None)

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        """Return the logits."""
        result: Tensor = self.mlp(features)
        return result


def make_network(name: str, features: int, outputs: int, settings: dict[str, Any]) -> nn.Module:
    """Return MLP, GCN, GraphSAGE, GAT or APPNP with fresh weights; GAT expects edges with self-loops.

    Unless the setting `cached` is False, normalized edges are kept: the network reads one graph only.
    """
    from torch_geometric.nn.models import GAT, GCN, GraphSAGE

    if name == "MLP":
        return Alone(features, outputs, settings)
    if name == "APPNP":
        return Propagated(features, outputs, settings)
    more = (
        {"heads": 8, "add_self_loops": False}
        if name == "GAT"
        else {"cached": settings.get("cached", True)}
        if name == "GCN"
        else {}
    )
    network: nn.Module = {"GCN": GCN, "GraphSAGE": GraphSAGE, "GAT": GAT}[name](
        features,
        settings["hidden"],
        settings["layers"],
        outputs,
        dropout=settings["dropout"],
        norm="batch_norm" if settings["norm"] else None,
        jk="cat" if settings["jump"] else None,
        **more,
    )
    return network


def early_stop(values: Any, losses: Any, patience: int) -> tuple[int, int]:
    """Return the best epoch before patience ended, and the number of epochs until then.

    As in our own training the lower loss wins where values tie. Patience counts from the last better value.

    >>> early_stop([0.1, 0.3, 0.2, 0.2, 0.9], [5, 4, 3, 2, 1], patience=2)
    (1, 4)
    >>> early_stop([0.1, 0.3, 0.3, 0.2, 0.9], [5, 4, 3, 2, 1], patience=2)
    (2, 4)
    """
    best = improved = 0
    for epoch, value in enumerate(values):
        if value > values[best]:
            best = improved = epoch
        elif value == values[best] and losses[epoch] < losses[best]:
            best = epoch
        if epoch - improved >= patience:
            return best, epoch + 1
    return best, len(values)
