"""Time to explain nodes of a run, one at a time and a thousand together.

    python -m benchmarks explaining --data ROOT --dataset PubMed --variants default paper

The model trains for one epoch only: the time to explain does not depend on its accuracy. Prints a table and writes no
result.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import load_graph, new_parser, print_table, random_splits, variant_config


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True)
    parser.add_argument("--dataset", default="PubMed")
    parser.add_argument("--variants", nargs="+", default=["default", "paper"])
    return parser


def main() -> None:
    """Train, explain and print the times."""
    arguments = make_parser().parse_args()
    rows = []
    for variant in arguments.variants:
        config = variant_config(arguments.dataset, variant)
        config = replace(config, training=replace(config.training, epochs=1))
        graph = load_graph(arguments.dataset, arguments.data, config.data.directed)
        [split] = random_splits(graph, [0])
        with tempfile.TemporaryDirectory() as folder:
            run = vcr.train(graph, split, config, Path(folder) / "run", device=arguments.device, baselines="none")
            run.explain(0)  # opens the files and compiles the search for distances
            nodes = np.random.default_rng(0).choice(graph.num_nodes, 1000, replace=False)
            start = time.perf_counter()
            for node in nodes[:10]:
                run.explain(int(node))
            single = (time.perf_counter() - start) / 10
            start = time.perf_counter()
            run.attributions(nodes)
            rows.append(
                {
                    "variant": variant,
                    "tokens": run.store.num_tokens,
                    "hidden": config.model.hidden_channels,
                    "one node, s": single,
                    "1,000 nodes, s": time.perf_counter() - start,
                }
            )
    print_table(rows)
