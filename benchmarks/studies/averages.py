"""Test accuracy of the mean of several trainings: same split and settings, other first weights.

    python -m benchmarks averages --data ROOT --device cuda

Seeds 0 to 9 are the random 60/20/20 splits of protocol A. Member m of split s has the training seed s + 10 m.
Probabilities are averaged. The settings are `reduced` of each dataset, for they train fastest; PubMed has those of
`no-neighbours`. Rows are appended to results/averages.jsonl; only missing splits are trained.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import vcr_graphormer as vcr
from benchmarks.common import load_graph, markdown_table, new_parser, percent, variant_config
from benchmarks.records import choose_split
from benchmarks.studies.default import read_rows
from vcr_graphormer.runs.adapt import adapt
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.training.devices import find_device
from vcr_graphormer.training.inference import compute
from vcr_graphormer.training.trainer import Trainer

GRAPHS = {"CS": "reduced", "Physics": "reduced", "Computer": "reduced", "Photo": "reduced", "Actor": "reduced"}
GRAPHS |= {"PubMed": "no-neighbours"}
SHOWN = (1, 3, 5)  # sizes of the averages that are measured


def train_members(bench: Workbench, config: vcr.Config, split: vcr.Split, seed: int) -> list[dict[str, Any]]:
    """Return validation and test accuracy of the averages of the first 1, 3 and 5 trainings."""
    start, nodes, rows = time.perf_counter(), np.concatenate([split.val, split.test]), list[dict[str, Any]]()
    truth, total = np.asarray(bench.graph.labels)[nodes], np.zeros(())
    for member in range(max(SHOWN)):
        settings = replace(config, training=replace(config.training, seed=seed + 10 * member))
        settings = adapt(settings, bench.graph, split).config
        inputs = bench.inputs(split, settings.tokens, settings.model)
        with torch.random.fork_rng(devices=[bench.device] if bench.device.type == "cuda" else []):
            how: dict[str, Any] = {"inputs": inputs, "model": settings.model, "training": settings.training}
            trainer = Trainer.of(bench.graph, split, **how)
            trainer.fit()
            logits = compute(trainer.best_model(), inputs, nodes, trainer.micro_batch)
        total = total + trainer.target.outputs(logits)
        if member + 1 in SHOWN:
            val, test = (part.mean() for part in np.split(total.argmax(1) == truth, [len(split.val)]))
            scores = {"val": float(val), "test": float(test), "seconds": round(time.perf_counter() - start, 2)}
            rows.append({"members": member + 1, **scores})
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return mean and deviation of the test accuracy, a line for each number of trainings.

    >>> print(table([{"graph": "CS", "members": 1, "test": test} for test in (0.95, 0.97)]))
    | test accuracy, % | CS |
    | --- | --- |
    | 1 training | 96.00 ± 1.41 |
    """
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    lines = []
    for count in dict.fromkeys(row["members"] for row in rows):
        tests = [[row["test"] for row in rows if (row["graph"], row["members"]) == (name, count)] for name in graphs]
        name = "1 training" if count == 1 else f"mean of {count} trainings"
        lines.append([name, *(percent(values) if len(values) > 1 else "" for values in tests)])
    return markdown_table(["test accuracy, %", *graphs], lines)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True, graphs=tuple(GRAPHS), out="results/averages.jsonl")
    parser.add_argument("--seeds", type=int, default=10, help="splits of seeds 0 to SEEDS-1")
    return parser


def main() -> None:
    """Train what is missing and print the table."""
    arguments = make_parser().parse_args()
    done = {(row["graph"], row["seed"]) for row in read_rows(arguments.out) if row["members"] == max(SHOWN)}
    for name in arguments.graphs:
        config = variant_config(name, GRAPHS[name])
        graph = load_graph(name, arguments.data, config.data.directed)
        bench = Workbench(graph, find_device(arguments.device))
        for seed in range(arguments.seeds):
            if (name, seed) in done:
                continue
            split = choose_split(name, graph, "A", seed, arguments.data)
            with arguments.out.open("a") as log:
                for scores in train_members(bench, config, split, seed):
                    row = {"graph": name, "variant": GRAPHS[name], "seed": seed, **scores}
                    log.write(json.dumps(row) + "\n")
                    print(row, flush=True)
    print(table(read_rows(arguments.out)))
