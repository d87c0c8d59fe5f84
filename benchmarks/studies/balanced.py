"""Test accuracy on class-balanced splits, which the best published numbers of heterophilous graphs come from.

    python -m benchmarks balanced --data ROOT --device cuda --graphs Texas Actor Squirrel

Many papers on these graphs state 60/20/20 but draw 0.6 n / c training nodes of every class: GPR-GNN, BernNet and the
ACM networks, whose results are the best published. Training then uses up the small classes. The validation and test
parts consist of the large ones, which are easier to guess. MLP and our preset run on such splits with seeds 0 to 9.
Their settings are those found for protocol A; nothing is searched again. Writes results/balanced.json.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.baselines.bench import Bench
from benchmarks.baselines.methods.mlp import MLP
from benchmarks.common import (
    load_graph,
    markdown_table,
    new_parser,
    percent,
    read_rows,
    variant_config,
    write_result,
)
from benchmarks.records import result_file
from vcr_graphormer.base.files import read_json
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.training.devices import find_device

GRAPHS = ("Texas", "Actor", "Squirrel")
NAMES = {"MLP": "MLP", "reduced": "our reduced settings"}
PUBLISHED = {"Texas": 96.56, "Actor": 41.86, "Squirrel": 69.98}  # the best to our knowledge: ACM networks
PROTOCOL_A = Path(__file__).parent.parent.parent / "results" / "accuracy"


def balanced_split(labels: Any, seed: int) -> vcr.Split:
    """Return a split with the same number of training nodes of every class, or all nodes of a small class.

    A fifth of all nodes is for validation, the rest for the test.

    >>> split = balanced_split(np.array([0] * 8 + [1] * 2), seed=0)
    >>> len(split.train), len(split.val), len(split.test)
    (5, 2, 3)
    """
    random, labels = np.random.default_rng(seed), np.asarray(labels)
    classes = np.unique(labels)
    most = round(0.6 * len(labels) / len(classes))
    train = np.concatenate([random.permutation(np.flatnonzero(labels == label))[:most] for label in classes])
    rest = random.permutation(np.setdiff1d(np.arange(len(labels)), train))
    cut = round(0.2 * len(labels))
    return vcr.Split(np.sort(train), np.sort(rest[:cut]), np.sort(rest[cut:]))


def largest_class(labels: Any) -> float:
    """Return the fraction of the most frequent class."""
    return float(np.bincount(labels).max() / len(labels))


def run(name: str, root: str, device: str, seeds: int) -> dict[str, Any]:
    """Return test accuracies of both models on one graph by seed, and the fraction of the largest class."""
    config = variant_config(name, "reduced")
    graph, torch_device = load_graph(name, root, config.data.directed), find_device(device)
    ours, mlp = Workbench(graph, torch_device), Bench(graph, graph, torch_device)
    settings = read_json(result_file(PROTOCOL_A, name, "A", "MLP"))["config"]
    labels = np.asarray(graph.labels)
    row: dict[str, Any] = {"graph": name, "MLP": [], "reduced": [], "largest class of the test part": []}
    for seed in range(seeds):
        split = balanced_split(labels, seed)
        [outcome] = mlp.train(MLP, settings, [(split, seed)])
        row["MLP"].append(mlp.test(outcome, split))
        seeded = replace(config, training=replace(config.training, seed=seed))
        row["reduced"].append(ours.train(split, seeded).test)
        row["largest class of the test part"].append(largest_class(labels[split.test]))
        print(f"{name} seed {seed}: MLP {row['MLP'][-1]:.4f}, ours {row['reduced'][-1]:.4f}", flush=True)
    return {**row, "largest class of the graph": largest_class(labels)}


def table(rows: list[dict[str, Any]]) -> str:
    """Return both kinds of splits side by side, as Markdown."""
    lines = []
    for model, text in NAMES.items():
        files = [result_file(PROTOCOL_A, row["graph"], "A", model) for row in rows]
        random = [[run["test"] for run in read_json(file)["runs"]] for file in files]
        lines.append([f"{text}, protocol A", *map(percent, random)])
        lines.append([f"{text}, class-balanced splits", *(percent(row[model]) for row in rows)])
    lines.append(["best published, class-balanced splits", *(f"{PUBLISHED[row['graph']]}" for row in rows)])
    key = "largest class of the"
    cells = [f"{100 * row[f'{key} graph']:.0f} and {100 * np.mean(row[f'{key} test part']):.0f}" for row in rows]
    lines.append(["largest class, of all nodes and of a class-balanced test part", *cells])
    return markdown_table(["test accuracy, %", *(row["graph"] for row in rows)], lines)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True, graphs=GRAPHS, out="results/balanced.json")
    parser.add_argument("--seeds", type=int, default=10, help="run seeds 0 to SEEDS-1")
    return parser


def main() -> None:
    """Run every graph, write its row, print the table."""
    arguments = make_parser().parse_args()
    rows = {row["graph"]: row for row in read_rows(arguments.out)}
    for name in arguments.graphs:
        rows[name] = run(name, arguments.data, arguments.device, arguments.seeds)
        write_result(arguments.out, {"rows": [rows[graph] for graph in GRAPHS if graph in rows]})
    print(table(list(rows.values())))
