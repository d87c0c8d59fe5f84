"""Training of baselines: one graph on one device, full batches, early stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch_geometric.utils import add_self_loops, remove_self_loops, to_torch_csr_tensor

import vcr_graphormer as vcr
from benchmarks.baselines.models import make
from vcr_graphormer.data.inductive import Seen
from vcr_graphormer.runs.networks import early_stop


class Bench:
    """One graph on one device, for all baselines; `directed` is the same graph with its published directions."""

    def __init__(self, graph: vcr.Graph, directed: vcr.Graph, device: torch.device) -> None:
        self.graph, self.device = graph, device
        self.directed = directed.num_arcs != graph.num_arcs
        data, arcs = graph.to_pyg(), directed.to_pyg().edge_index.to(device)
        self.features, self.labels = data.x.float().to(device), data.y.to(device)
        # In PyG messages go from the first row to the second.
        self.edges = {"both": data.edge_index.to(device), "out": arcs.flip(0), "in": arcs}
        # The same as sparse matrices (row = receiver), which are several times faster on a CPU. Attention needs single
        # edges. On a GPU the gradient of such a product converts the matrix, which a recorded epoch cannot do.
        shape = (graph.num_nodes, graph.num_nodes)
        self.matrices = {name: to_torch_csr_tensor(edges.flip(0), size=shape) for name, edges in self.edges.items()}
        self.with_loops = {
            name: add_self_loops(remove_self_loops(edges)[0], num_nodes=graph.num_nodes)[0]
            for name, edges in self.edges.items()
        }

    def train(
        self,
        model: str,
        settings: dict[str, Any],
        split: vcr.Split,
        seed: int,
        epochs: int = 500,
        patience: int = 100,
        inductive: bool = False,
    ) -> tuple[Any, Tensor, int]:
        """Train a model on full batches with early stop.

        If it is `inductive`, training reads the graph without validation and test nodes, whose edges have no direction.

        Returns
        -------
        right_by_epoch
            Which validation nodes were right after each epoch, booleans [epochs, nodes].
        right
            Which nodes of the graph were right after the best epoch, booleans [nodes].
        best_epoch
            The number of that epoch, from 1 on.
        """
        torch.manual_seed(seed)
        network, on_gpu = make(model, self.graph, settings).to(self.device), self.device.type == "cuda"
        optimizer = torch.optim.AdamW(
            network.parameters(), settings["learning_rate"], weight_decay=settings["weight_decay"], capturable=on_gpu
        )
        by_links = self.with_loops if model == "GAT" else self.edges if on_gpu else self.matrices
        edges = by_links[settings.get("links", "both")]
        train, val = (torch.from_numpy(part).to(self.device) for part in (split.train, split.val))
        labels, places = self.labels[train], train
        features, known_edges = self.features, edges
        if inductive:
            seen = Seen.of(self.graph, split)
            other = Bench(seen.graph, seen.graph, self.device)
            features, known_edges = other.features, (other.edges if on_gpu else other.matrices)["both"]
            places = torch.from_numpy(seen.train).to(self.device)
        right_by_epoch = torch.zeros(epochs, self.graph.num_nodes, dtype=torch.bool, device=self.device)
        losses = torch.zeros(epochs, device=self.device)
        at = torch.zeros(1, dtype=torch.long, device=self.device)

        def run_epoch() -> None:
            network.train()
            optimizer.zero_grad()
            torch.autograd.backward(F.cross_entropy(network(features, known_edges)[places], labels))
            optimizer.step()
            network.eval()
            with torch.no_grad():
                logits = network(self.features, edges)
                right_by_epoch.index_copy_(0, at, (logits.argmax(1) == self.labels)[None])
                losses.index_copy_(0, at, F.cross_entropy(logits[val], self.labels[val])[None])
                at.add_(1)

        for done, run in enumerate(recorded(run_epoch, self.device, epochs), start=1):
            run()
            if done % 20 == 0 or done == epochs:  # reading every epoch would wait for the GPU every time
                right = right_by_epoch[:done, val].cpu().numpy()
                best, last = early_stop(right.mean(1), losses[:done].tolist(), patience)
                if last < done:
                    break
        return right[:last], right_by_epoch[best].clone(), best + 1


def test_accuracy(right: Tensor, split: vcr.Split) -> float:
    """Return the fraction of test nodes that are right, from the booleans of all nodes."""
    return float(right[torch.from_numpy(split.test).to(right.device)].float().mean())


def recorded(work: Callable[[], None], device: torch.device, times: int) -> Iterator[Callable[[], None]]:
    """Yield a function to call, so many times: `work` itself, on a GPU a recording of it after the first three.

    These models are small. Launching their kernels one by one takes ten times as long as running them.
    """
    if device.type != "cuda":
        yield from [work] * times
        return
    stream, graph = torch.cuda.Stream(device), torch.cuda.CUDAGraph()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield from [work] * min(3, times)
        with torch.cuda.graph(graph, stream=stream):
            work()
        yield from [graph.replay] * (times - 3)
    torch.cuda.current_stream().wait_stream(stream)
