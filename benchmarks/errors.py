"""Where a variant is right and wrong: validation accuracy by class, degree and local homophily.

    python benchmarks/errors.py --data ROOT [--device cuda] [--graphs PubMed Squirrel] [--variants default hops]

Split seeds 100 to 102, which are never reported; the test part is not read. Each half of the validation nodes is judged
at the epoch that was best on the other half. Writes results/errors.json, where rows of other graphs are kept: the same
nodes under every variant, so that a difference between variants is the variant's.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import print_table, write_result
from benchmarks.records import this_command, variant_config
from benchmarks.training import load
from benchmarks.workbench import Workbench
from vcr_graphormer.base.files import read_json
from vcr_graphormer.explain.slices import Slice, by_class, by_degree, by_homophily, local_homophily
from vcr_graphormer.training.devices import find_device
from vcr_graphormer.training.trainer import Trainer

GRAPHS = ("PubMed", "Computer", "Photo", "CS", "Physics", "Squirrel", "Actor", "Texas")


def predict_validation(bench: Workbench, split: vcr.Split, config: vcr.Config) -> Any:
    """Predicted classes of the validation nodes, each half at the epoch that is best on the other half."""
    kept: list[Any] = []

    def keep(trainer: Trainer) -> None:
        kept.append(trainer.val_logits.argmax(1))

    bench.train(split, config, test=False, on_epoch=keep)
    every = np.stack(kept)  # (epochs, nodes)
    right = every == np.asarray(bench.graph.labels)[split.val]
    found = np.empty_like(every[0])
    for start in (0, 1):
        found[start::2] = every[right[:, 1 - start :: 2].mean(1).argmax(), start::2]
    return found


def slices(graph: vcr.Graph, nodes: Any, right: Any) -> dict[str, list[Slice]]:
    """Validation nodes of all splits together, cut three ways."""
    labels = np.asarray(graph.labels)[nodes]
    names = [str(number) for number in range(graph.num_classes)]
    return {
        "class": by_class(labels, right, names),
        "degree": by_degree(np.asarray(graph.degrees)[nodes], right),
        "homophily": by_homophily(local_homophily(graph, nodes), right),
    }


def main() -> None:
    """Train, cut, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--variants", nargs="+", default=["default", "hops"])
    parser.add_argument("--out", type=Path, default=Path("results/errors.json"))
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = read_json(arguments.out)["rows"] if arguments.out.is_file() else []
    for name in arguments.graphs:
        for variant in arguments.variants:
            config = variant_config(name, variant)
            bench = Workbench(load(name, arguments.data, config.data.directed), find_device(arguments.device))
            splits = [vcr.Split.random(bench.graph.labels, 0.6, 0.2, seed) for seed in (100, 101, 102)]
            predicted = np.concatenate([predict_validation(bench, split, config) for split in splits])
            nodes = np.concatenate([split.val for split in splits])
            # Direction is kept by some variants; the cuts are by the undirected graph for all.
            graph = load(name, arguments.data)
            right = predicted == np.asarray(graph.labels)[nodes]
            cuts = {by: [asdict(part) for part in parts] for by, parts in slices(graph, nodes, right).items()}
            row = {"graph": name, "variant": variant, "accuracy": float(right.mean()), "slices": cuts}
            made = {"command": this_command(), "device": arguments.device}
            rows = [row | made, *(old for old in rows if (old["graph"], old["variant"]) != (name, variant))]
            rows.sort(key=lambda old: (GRAPHS.index(old["graph"]), old["variant"]))
            for by, parts in cuts.items():
                print_table([{"graph": name, "variant": variant, "by": by, **part} for part in parts])
            write_result(arguments.out, {"seeds": [100, 101, 102], "rows": rows})


if __name__ == "__main__":
    main()
