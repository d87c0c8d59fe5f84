"""Test metric with hops that are stored as float16 instead of float32: same splits, weights and settings.

    python -m benchmarks half_hops --data ROOT --device cpu

The settings are the default, which adapts to each graph. Seeds are those of split and weights; Minesweeper and Tolokers
have their published splits. Rows are appended to results/half_hops.jsonl; only missing ones are trained.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import load_graph, markdown_table, new_parser, variant_config
from benchmarks.records import choose_split
from benchmarks.studies.default import read_rows
from benchmarks.studies.neighbours import BY_AUC
from vcr_graphormer.runs.adapt import adapt
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.tokens.lists import make_lists
from vcr_graphormer.training.devices import find_device

GRAPHS = ("PubMed", "Photo", "Minesweeper", "Tolokers")  # their hops are dense, at least from some hop on
TYPES = ("float32", "float16")
NO_NEIGHBOURS: dict[str, Any] = {f"{kind}_tokens": 0 for kind in ("structure", "content", "link", "nearest")}


def hop_gigabytes(graph: vcr.Graph, tokens: vcr.TokenConfig) -> float:
    """Return the size of all hops in a store: numbers, and where hops are sparse their columns."""
    lists = make_lists(graph, config=replace(tokens, **NO_NEIGHBOURS))
    return sum(array.nbytes for name, array in lists.arrays.items() if name.startswith("hop")) / 1e9


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the mean of each type, and the mean difference over splits with its standard error.

    >>> rows = [{"graph": "Photo", "type": name, "seed": seed, "test": test, "gigabytes": size}
    ...         for name, size, tests in (("float32", 2.0, (0.90, 0.94)), ("float16", 1.0, (0.91, 0.93)))
    ...         for seed, test in enumerate(tests)]
    >>> print(table(rows))
    | graph | hops, GB, float32 | float16 | test metric, %, float32 | float16 | difference | splits |
    | --- | --- | --- | --- | --- | --- | --- |
    | Photo | 2.000 | 1.000 | 92.00 | 92.00 | +0.00 ± 1.00 | 2 |
    """
    lines = []
    for graph in dict.fromkeys(row["graph"] for row in rows):
        both = [{row["seed"]: row for row in rows if (row["graph"], row["type"]) == (graph, name)} for name in TYPES]
        seeds = sorted(both[0].keys() & both[1].keys())
        tests = 100 * np.array([[one[seed]["test"] for seed in seeds] for one in both])
        gains = tests[1] - tests[0]
        error = gains.std(ddof=1) / np.sqrt(len(seeds)) if len(seeds) > 1 else np.nan
        sizes = [f"{one[seeds[0]]['gigabytes']:.3f}" for one in both]
        means = [f"{value:.2f}" for value in tests.mean(1)]
        lines.append([graph, *sizes, *means, f"{gains.mean():+.2f} ± {error:.2f}", str(len(seeds))])
    header = ["graph", "hops, GB, float32", "float16", "test metric, %, float32", "float16", "difference", "splits"]
    return markdown_table(header, lines)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True, graphs=GRAPHS, out="results/half_hops.jsonl")
    parser.add_argument("--seeds", type=int, default=5)
    return parser


def main() -> None:
    """Train what is missing and print the table."""
    arguments = make_parser().parse_args()
    done = {(row["graph"], row["type"], row["seed"]) for row in read_rows(arguments.out)}
    for name in arguments.graphs:
        config = variant_config(name, "adaptive")
        bench = Workbench(load_graph(name, arguments.data), find_device(arguments.device))
        for seed in range(arguments.seeds):
            split = choose_split(name, bench.graph, "B" if name in BY_AUC else "A", seed, arguments.data)
            for hop_type in TYPES:
                if (name, hop_type, seed) in done:
                    continue
                tokens = replace(config.tokens, hop_type=hop_type)
                settings = replace(config, tokens=tokens, training=replace(config.training, seed=seed))
                trial = bench.train(split, settings)
                row = {"graph": name, "type": hop_type, "seed": seed, "val": trial.val, "test": trial.test}
                row["gigabytes"] = hop_gigabytes(bench.graph, adapt(settings, bench.graph, split).config.tokens)
                with arguments.out.open("a") as log:
                    log.write(json.dumps(row | {"seconds": round(trial.seconds, 2)}) + "\n")
                print(row, flush=True)
    print(table(read_rows(arguments.out)))
