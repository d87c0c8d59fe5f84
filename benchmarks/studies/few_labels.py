"""Test accuracy of the recipe `few-labels` on public splits: 20 labels a class.

    python -m benchmarks few_labels --data ROOT --device cpu

One model, and as many members as the default has there. Ten seeds of the weights each. Rows are appended to
results/few_labels.jsonl; only missing ones are trained.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import vcr_graphormer as vcr
from benchmarks.common import load_graph, markdown_table, new_parser, percent
from benchmarks.records import choose_split
from benchmarks.studies.default import read_rows
from vcr_graphormer.runs.adapt import choose_members
from vcr_graphormer.runs.recipes import fit_recipe, load_recipes
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.training.devices import find_device

GRAPHS = ("Cora", "CiteSeer", "PubMed")
PUBLIC = "B"  # the protocol whose split of these graphs is the public one


def settings_of(graph: vcr.Graph, split: vcr.Split, *, seed: int, members: int) -> vcr.Config:
    """Return the settings of the recipe for a graph."""
    fixed: dict[str, dict[str, Any]] = {"training": {"seed": seed, "checkpoint_every": 0}}
    return fit_recipe(load_recipes(["few-labels"])[0], graph, split, fixed | {"model": {"members": members}})


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return mean and deviation of the test accuracy, a line for each number of members.

    >>> print(table([{"graph": "Cora", "members": 5, "test": test} for test in (0.82, 0.84)]))
    | test accuracy, % | Cora |
    | --- | --- |
    | 5 members | 83.00 ± 1.41 |
    """
    graphs = [name for name in GRAPHS if any(row["graph"] == name for row in rows)]
    lines = []
    for members in sorted({row["members"] for row in rows}):
        tests = [[row["test"] for row in rows if (row["graph"], row["members"]) == (name, members)] for name in graphs]
        lines.append([f"{members} members" if members > 1 else "one model", *map(percent, tests)])
    return markdown_table(["test accuracy, %", *graphs], lines)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True, graphs=GRAPHS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/few_labels.jsonl"))
    return parser


def main() -> None:
    """Train what is missing and print the table."""
    arguments = make_parser().parse_args()
    done = {(row["graph"], row["members"], row["seed"]) for row in read_rows(arguments.out)}
    for name in arguments.graphs:
        bench = Workbench(load_graph(name, arguments.data), find_device(arguments.device))
        split = choose_split(name, bench.graph, PUBLIC, 0, arguments.data)
        for members in (1, choose_members(len(split.train))):
            for seed in range(arguments.seeds):
                if (name, members, seed) in done:
                    continue
                trial = bench.train(split, settings_of(bench.graph, split, seed=seed, members=members))
                row = {"graph": name, "members": members, "seed": seed, "val": trial.val, "test": trial.test}
                with arguments.out.open("a") as log:
                    log.write(json.dumps(row | {"seconds": round(trial.seconds, 2)}) + "\n")
                print(row, flush=True)
    print(table(read_rows(arguments.out)))
