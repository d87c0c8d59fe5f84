"""MLP, GCN, GraphSAGE, GAT, APPNP and LINKX from PyG on the very same splits, with a search of their own.

    python benchmarks/yardsticks.py --data ROOT --graphs Photo Squirrel --models GCN LINKX --trials 20 --device cuda

Settings are searched on split seeds 100 and 101 (Texas, whose validation parts have 37 nodes: 100 to 109) by validation
accuracy (optuna's TPE, the log goes to results/search), then seeds 0 to 9 are run and kept in the same files as our own
results: DATASET-A-MODEL.json. Where published links have a direction, whether to keep, reverse or drop it is part of
the search, as it was of ours. AdamW, a constant rate and dropout between layers: plain training, without the schedules,
averages and input dropout that our own search has.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch_geometric.nn import APPNP, MLP
from torch_geometric.nn.models import GAT, GCN, LINKX, GraphSAGE
from torch_geometric.utils import add_self_loops, remove_self_loops, to_torch_csr_tensor

import vcr_graphormer as vcr
from benchmarks.common import percent
from benchmarks.records import Record, choose_split, result_file
from benchmarks.training import load
from benchmarks.tune import SCORE, crossed
from vcr_graphormer.base.files import read_json
from vcr_graphormer.training.devices import find_device

MODELS = ("MLP", "GCN", "GraphSAGE", "GAT", "APPNP", "LINKX")
LINKS = ("both", "out", "in")  # whose messages a node reads: all its neighbours', those it points to, or at it
FIRST_SEED = 100
SPLITS = {"Texas": 10}  # of the search; 2 elsewhere
RECIPE = 2  # of the reported runs: since 2 the lower validation loss wins where epochs tie, as in our own training


class Propagated(nn.Module):
    """APPNP: an MLP, then personalized propagation of its predictions."""

    def __init__(self, features: int, classes: int, settings: dict[str, Any]) -> None:
        super().__init__()
        hidden, layers = settings["hidden"], settings["layers"]
        self.mlp = MLP([features, *[hidden] * (layers - 1), classes], dropout=settings["dropout"], norm=None)
        self.spread = APPNP(K=10, alpha=settings["restart"], cached=True)

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        """Logits."""
        result: Tensor = self.spread(self.mlp(features), edges)
        return result


class Alone(nn.Module):
    """An MLP that never looks at the edges."""

    def __init__(self, features: int, classes: int, settings: dict[str, Any]) -> None:
        super().__init__()
        widths = [features, *[settings["hidden"]] * (settings["layers"] - 1), classes]
        self.mlp = MLP(widths, dropout=settings["dropout"], norm="batch_norm" if settings["norm"] else None)

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        """Logits."""
        result: Tensor = self.mlp(features)
        return result


def propose(trial: Any, model: str, directed: bool) -> dict[str, Any]:
    """One point of a model's search space."""
    settings: dict[str, Any] = {
        "hidden": trial.suggest_categorical("hidden", [64, 128] if model == "GAT" else [64, 128, 256, 512]),
        "layers": trial.suggest_int("layers", 1 if model == "LINKX" else 2, 4),
        "dropout": trial.suggest_float("dropout", 0.0, 0.8, step=0.1),
        "learning_rate": trial.suggest_float("learning_rate", 1e-3, 5e-2, log=True),
        "weight_decay": trial.suggest_float("weight_decay", 1e-6, 1e-2, log=True),
    }
    if model not in ("APPNP", "LINKX"):
        settings["norm"] = trial.suggest_categorical("norm", [False, True])
    if model in ("GCN", "GraphSAGE", "GAT"):
        settings["jump"] = trial.suggest_categorical("jump", [False, True])
    if model == "APPNP":
        settings["restart"] = trial.suggest_categorical("restart", [0.1, 0.2, 0.5, 0.9])
    if directed and model != "MLP":
        settings["links"] = trial.suggest_categorical("links", LINKS)
    return settings


def make(model: str, graph: vcr.Graph, settings: dict[str, Any]) -> nn.Module:
    """The model with fresh weights."""
    features, classes = graph.num_features, graph.num_classes
    if model == "MLP":
        return Alone(features, classes, settings)
    if model == "APPNP":
        return Propagated(features, classes, settings)
    if model == "LINKX":
        linkx: nn.Module = LINKX(
            graph.num_nodes, features, settings["hidden"], classes, settings["layers"], dropout=settings["dropout"]
        )
        return linkx
    kinds = {"GCN": GCN, "GraphSAGE": GraphSAGE, "GAT": GAT}
    # Loops are added to the edges once, by the bench.
    more = {"heads": 8, "add_self_loops": False} if model == "GAT" else {"cached": True} if model == "GCN" else {}
    made: nn.Module = kinds[model](
        features,
        settings["hidden"],
        settings["layers"],
        classes,
        dropout=settings["dropout"],
        norm="batch_norm" if settings["norm"] else None,
        jk="cat" if settings["jump"] else None,
        **more,
    )
    return made


class Bench:
    """One graph on one device for all yardsticks."""

    def __init__(self, graph: vcr.Graph, directed: vcr.Graph, device: torch.device) -> None:
        self.graph, self.device = graph, device
        self.directed = directed.num_arcs != graph.num_arcs
        data, arcs = graph.to_pyg(), directed.to_pyg().edge_index.to(device)
        self.features, self.labels = data.x.float().to(device), data.y.to(device)
        # PyG's messages go from the first row to the second.
        self.edges = {"both": data.edge_index.to(device), "out": arcs.flip(0), "in": arcs}
        # The same as sparse matrices, row = receiver: several times faster on a CPU. Attention needs single edges, and
        # on a GPU the gradient of such a product converts the matrix, which a recorded epoch cannot.
        shape = (graph.num_nodes, graph.num_nodes)
        self.matrices = {name: to_torch_csr_tensor(edges.flip(0), size=shape) for name, edges in self.edges.items()}
        self.with_loops = {
            name: add_self_loops(remove_self_loops(edges)[0], num_nodes=graph.num_nodes)[0]
            for name, edges in self.edges.items()
        }

    def train(
        self, model: str, settings: dict[str, Any], split: vcr.Split, seed: int, epochs: int = 500, patience: int = 100
    ) -> tuple[Any, Tensor, int]:
        """Full-batch training with early stop.

        Returns which validation nodes were right after each epoch [epochs, nodes], which nodes of the graph were
        right after the best of them, and which epoch that was.
        """
        torch.manual_seed(seed)
        made, on_gpu = make(model, self.graph, settings).to(self.device), self.device.type == "cuda"
        optimizer = torch.optim.AdamW(
            made.parameters(), settings["learning_rate"], weight_decay=settings["weight_decay"], capturable=on_gpu
        )
        kind = self.with_loops if model == "GAT" else self.edges if on_gpu else self.matrices
        edges = kind[settings.get("links", "both")]
        train, val = (torch.from_numpy(part).to(self.device) for part in (split.train, split.val))
        wanted = self.labels[train]
        seen = torch.zeros(epochs, self.graph.num_nodes, dtype=torch.bool, device=self.device)
        losses = torch.zeros(epochs, device=self.device)
        at = torch.zeros(1, dtype=torch.long, device=self.device)

        def run_epoch() -> None:
            made.train()
            optimizer.zero_grad()
            torch.autograd.backward(F.cross_entropy(made(self.features, edges)[train], wanted))
            optimizer.step()
            made.eval()
            with torch.no_grad():
                logits = made(self.features, edges)
                seen.index_copy_(0, at, (logits.argmax(1) == self.labels)[None])
                losses.index_copy_(0, at, F.cross_entropy(logits[val], self.labels[val])[None])
                at.add_(1)

        for done, run in enumerate(recorded(run_epoch, self.device, epochs), start=1):
            run()
            if done % 20 == 0 or done == epochs:  # looking at every epoch would wait for the GPU at every epoch
                right = seen[:done, val].cpu().numpy()
                best, last = early_stop(right.mean(1), losses[:done].tolist(), patience)
                if last < done:
                    break
        return right[:last], seen[best].clone(), best + 1


def test_accuracy(right: Tensor, split: vcr.Split) -> float:
    """Of which nodes of the graph were right, the share of the test part."""
    return float(right[torch.from_numpy(split.test).to(right.device)].float().mean())


def recorded(work: Callable[[], None], device: torch.device, times: int) -> Iterator[Callable[[], None]]:
    """`work` so many times; on a GPU a recording of it after the first three.

    These models are small: launching their kernels one by one takes ten times as long as running them.
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


def early_stop(values: Any, losses: Any, patience: int) -> tuple[int, int]:
    """The best epoch before patience was out, and how many epochs that took: `(best, count)`.

    As in our own training the lower loss wins where values tie, and patience counts from the last better value.

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


def search(bench: Bench, model: str, trials: int, log: Path) -> dict[str, Any]:
    """The settings with the best score on the search's own splits, judged as our own trials are.

    As in our own search, a trial goes on to the next split only if it is among the better half so far.
    """
    count = SPLITS.get(str(bench.graph.name), 2)
    splits = [vcr.Split.random(bench.graph.labels, 0.6, 0.2, FIRST_SEED + number) for number in range(count)]
    means: list[list[float]] = [[] for _ in splits]  # by number of splits, of all trials that came so far
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
    # The same values lead the sampler to the same proposals, so an interrupted search goes through its log first.
    earlier = {json.dumps(row["settings"], sort_keys=True): row["val"] for row in rows if row.get("splits", 2) == count}

    def judge(settings: dict[str, Any]) -> list[float]:
        values: list[float] = []
        for split, others in zip(splits, means, strict=True):
            values.append(crossed(bench.train(model, settings, split, seed=0)[0]))
            if np.mean(values) < np.median([*others, np.mean(values)]):
                break
        row = {"dataset": bench.graph.name, "model": model, "score": SCORE, "val": values, "settings": settings}
        with log.open("a") as file:
            file.write(json.dumps({**row, "splits": count}) + "\n")
        return values

    def objective(trial: optuna.Trial) -> float:
        settings = propose(trial, model, bench.directed)
        values = earlier.get(json.dumps(settings, sort_keys=True))
        try:
            values = judge(settings) if values is None else values
        except torch.cuda.OutOfMemoryError as error:
            raise optuna.TrialPruned from error
        for number, others in enumerate(means[: len(values)], start=1):
            others.append(float(np.mean(values[:number])))
        return float(np.mean(values)) - (0.0 if len(values) == count else 0.003)

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=trials)
    return propose(optuna.trial.FixedTrial(study.best_params), model, bench.directed)


def main() -> None:
    """Search, then run the reported seeds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--graphs", nargs="+", required=True)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/accuracy"))
    parser.add_argument("--logs", type=Path, default=Path("results/search"))
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    for folder in (arguments.out, arguments.logs):
        folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.graphs:
        graph = load(name, arguments.data)
        bench = Bench(graph, load(name, arguments.data, directed=True), find_device(arguments.device))
        for model in arguments.models:
            about = {"dataset": name, "protocol": "A", "variant": model, "metric": "accuracy"}
            file = result_file(arguments.out, name, "A", model)
            settings = search(bench, model, arguments.trials, arguments.logs / f"{name}-{model}.jsonl")
            settings |= {"recipe": RECIPE}
            outdated = file.is_file() and read_json(file)["config"] != settings
            record = Record(arguments.out, about, settings, force=outdated)
            for seed in record.missing(list(range(arguments.seeds))):
                split = choose_split(name, graph, "A", seed, arguments.data)
                start = time.perf_counter()
                seen, right, best = bench.train(model, settings, split, seed)
                test = test_accuracy(right, split)
                seconds, about_run = time.perf_counter() - start, {"epochs": len(seen), "best_epoch": best}
                record.add(seed, float(seen.mean(1).max()), test, seconds, device=str(bench.device), **about_run)
            print(f"{name} {model}: {percent([run['test'] for run in record.content['runs']])}")


if __name__ == "__main__":
    main()
