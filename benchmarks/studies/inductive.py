"""Inductive accuracy: validation and test nodes are hidden while training, as if they came later.

    python -m benchmarks inductive --data ROOT --device cuda     ten seeds on three graphs

Three methods on each graph, on the random 60/20/20 splits of protocol A: our default trained inductively
(`data.inductive = true`), the same trained on the whole graph, and GraphSAGE of PyG trained inductively. All three are
tested on the whole graph. GraphSAGE has a fixed grid of sixteen settings, searched by validation accuracy on the split
of seed 100, inductively as well. Each training appends one line to results/inductive.jsonl; those that are there are
not run again. Several processes may append to one file if they have other graphs or methods (`--graphs`, `--methods`).
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

import vcr_graphormer as vcr
from benchmarks.baselines.bench import Bench
from benchmarks.baselines.methods.convolutional import Convolutional
from benchmarks.common import load_graph, markdown_table, new_parser, percent
from benchmarks.records import choose_split
from benchmarks.studies.default import read_rows
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.training.devices import find_device

GRAPHS = ("PubMed", "Photo", "Computer")
SAGE = "GraphSAGE"
OURS, WHOLE, OTHER = "ours, inductive", "ours, transductive", f"{SAGE}, inductive"
METHODS = {"inductive": OURS, "transductive": WHOLE, "sage": OTHER}  # as the command line calls them
SEARCH_SEED = 100
GRID = {"hidden": (128, 512), "dropout": (0.2, 0.6), "learning_rate": (0.003, 0.01), "norm": (False, True)}
FIXED = {"layers": 2, "weight_decay": 5e-4, "jump": False}
NETWORK = {"kind": SAGE}  # what makes the network one of GraphSAGE


def grid() -> list[dict[str, Any]]:
    """Return the settings of GraphSAGE that are tried.

    >>> len(grid()), grid()[0]["hidden"]
    (16, 128)
    """
    return [{**dict(zip(GRID, values, strict=True)), **FIXED} for values in product(*GRID.values())]


def search(bench: Bench, split: vcr.Split, epochs: int) -> dict[str, Any]:
    """Return the settings of GraphSAGE with the best validation accuracy; the first of equal ones."""

    def judge(settings: dict[str, Any]) -> float:
        [outcome] = bench.train(Convolutional, settings | NETWORK, [(split, 0)], epochs=epochs, inductive=True)
        return outcome.val

    return max(grid(), key=judge)


class Study:
    """The rows of the result, one line of a file each. A line is appended by one write, so that processes share it."""

    def __init__(self, file: Path, device: torch.device) -> None:
        self.file, self.device, self.rows = file, device, read_rows(file)
        file.parent.mkdir(parents=True, exist_ok=True)

    def missing(self, graph: str, method: str, seeds: range) -> list[int]:
        """Return the seeds that have no row yet."""
        done = {row["seed"] for row in self.rows if (row["graph"], row["method"]) == (graph, method)}
        return [seed for seed in seeds if seed not in done]

    def settings(self, graph: str) -> dict[str, Any] | None:
        """Return the settings of GraphSAGE that an earlier search found for a graph."""
        return next((row["settings"] for row in self.rows if (row["graph"], row["method"]) == (graph, OTHER)), None)

    def add(self, graph: str, method: str, seed: int, **values: Any) -> None:
        """Add a row to the file."""
        row = {"graph": graph, "method": method, "seed": seed, **values}
        row |= {"device": self.device.type, "version": vcr.__version__}
        with self.file.open("a") as log:
            log.write(json.dumps(row) + "\n")
        print(f"{graph} {method} seed {seed}: test {100 * values['test']:.2f} ({values['seconds']:.1f} s)", flush=True)


def run_ours(
    study: Study, method: str, bench: Workbench, seeds: range, *, name: str, root: str, epochs: int | None
) -> None:
    """Train our default on every split, inductively or on the whole graph."""
    for seed in study.missing(name, method, seeds):
        config, split = vcr.Config(), choose_split(name, bench.graph, "A", seed, root)
        training = replace(config.training, seed=seed, epochs=config.training.epochs if epochs is None else epochs)
        config = replace(config, data=replace(config.data, inductive=method == OURS), training=training)
        trial = bench.train(split, config)
        study.add(name, method, seed, val=trial.val, test=trial.test, seconds=round(trial.seconds, 2))


def run_sage(study: Study, bench: Bench, seeds: range, *, name: str, root: str, epochs: int | None) -> None:
    """Search the settings of GraphSAGE once, then train it inductively on every split."""
    missing, most = study.missing(name, OTHER, seeds), 500 if epochs is None else epochs
    if not missing:
        return
    settings = study.settings(name) or search(bench, choose_split(name, bench.graph, "A", SEARCH_SEED, root), most)
    for seed in missing:
        split, start = choose_split(name, bench.graph, "A", seed, root), time.perf_counter()
        [outcome] = bench.train(Convolutional, settings | NETWORK, [(split, seed)], epochs=most, inductive=True)
        scores = {"val": outcome.val, "test": bench.test(outcome, split)}
        study.add(name, OTHER, seed, **scores, seconds=round(time.perf_counter() - start, 2), settings=settings)


def table(rows: list[dict[str, Any]]) -> str:
    """Return mean and deviation of the test accuracy as Markdown, one column per graph.

    >>> row = {"graph": "Photo", "method": OURS, "seed": 0, "test": 0.9}
    >>> print(table([row, {**row, "seed": 1, "test": 0.92}]))
    | test accuracy, % | Photo |
    | --- | --- |
    | ours, inductive | 91.00 ± 1.41 |
    """
    if not rows:
        return "Not measured yet."
    # Processes side by side append rows in any order; the table has one order.
    graphs = [graph for graph in GRAPHS if any(row["graph"] == graph for row in rows)]
    lines = []
    for method in METHODS.values():
        tests = [[row["test"] for row in rows if (row["graph"], row["method"]) == (graph, method)] for graph in graphs]
        if any(tests):
            lines.append([method, *(percent(values) if len(values) > 1 else "" for values in tests)])
    return markdown_table(["test accuracy, %", *graphs], lines)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True, graphs=GRAPHS, out="results/inductive.jsonl")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS), help="default: all three")
    parser.add_argument("--seeds", type=int, default=10, help="run seeds 0 to SEEDS-1")
    parser.add_argument("--epochs", type=int, help="at most, of all trainings; default: as the settings say")
    return parser


def main() -> None:
    """Run what is missing and print the table."""
    arguments = make_parser().parse_args()
    torch.set_float32_matmul_precision("high")
    device, seeds = find_device(arguments.device), range(arguments.seeds)
    study = Study(arguments.out, device)
    for name in arguments.graphs:
        graph = load_graph(name, arguments.data)
        how: dict[str, Any] = {"name": name, "root": arguments.data, "epochs": arguments.epochs}
        ours = Workbench(graph, device)
        for method in arguments.methods:
            if METHODS[method] == OTHER:
                run_sage(study, Bench(graph, graph, device), seeds, **how)
            else:
                run_ours(study, METHODS[method], ours, seeds, **how)
    print(table(read_rows(arguments.out)))
