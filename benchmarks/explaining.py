"""Time to explain nodes of a run: one at a time, and a thousand.

    python benchmarks/explaining.py --data ROOT [--dataset PubMed] [--variant paper]

Trains one epoch first: how long explaining takes does not depend on how good the model is. Prints; nothing is written
but the run, into a temporary folder.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import print_table
from benchmarks.records import variant_config
from benchmarks.training import load


def main() -> None:
    """Train, explain, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data")
    parser.add_argument("--dataset", default="PubMed")
    parser.add_argument("--variants", nargs="+", default=["default", "paper"])
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    rows = []
    for variant in arguments.variants:
        config = variant_config(arguments.dataset, variant)
        config = replace(config, training=replace(config.training, epochs=1))
        graph = load(arguments.dataset, arguments.data, config.data.directed)
        split = vcr.Split.random(graph.labels, 0.6, 0.2, seed=0)
        with tempfile.TemporaryDirectory() as folder:
            run = vcr.train(graph, split, config, Path(folder) / "run", device=arguments.device)
            run.explain(0)  # opens the files, compiles the search for distances
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


if __name__ == "__main__":
    main()
