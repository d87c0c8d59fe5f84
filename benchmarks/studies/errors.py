"""Validation accuracy of a variant by class, by degree and by local homophily.

    python -m benchmarks errors --data ROOT --device cuda --graphs PubMed Squirrel --variants reduced hops

Split seeds 100 to 102, which are never reported; the test part is not read. Each half of the validation nodes is judged
at the epoch that is best on the other half. All variants have the same nodes, so a difference is due to the variant.
Writes results/errors.json, which keeps the rows of other graphs and variants.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import (
    GRAPHS,
    load_graph,
    new_parser,
    print_table,
    random_splits,
    read_rows,
    this_command,
    variant_config,
    write_result,
)
from vcr_graphormer.explain.slices import Slice, by_class, by_degree, by_homophily, local_homophily
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.training.devices import find_device
from vcr_graphormer.training.trainer import Trainer

SEEDS = [100, 101, 102]


def predict_validation(bench: Workbench, split: vcr.Split, config: vcr.Config) -> Any:
    """Return predicted classes of the validation nodes, each half at the epoch that is best on the other half."""
    epochs: list[Any] = []

    def keep(trainer: Trainer) -> None:
        epochs.append(trainer.val_logits.argmax(1))

    bench.train(split, config, test=False, on_epoch=keep)
    classes = np.stack(epochs)  # [epochs, nodes]
    right = classes == np.asarray(bench.graph.labels)[split.val]
    predicted = np.empty_like(classes[0])
    for start in (0, 1):
        predicted[start::2] = classes[right[:, 1 - start :: 2].mean(1).argmax(), start::2]
    return predicted


def slices(graph: vcr.Graph, nodes: Any, right: Any) -> dict[str, list[Slice]]:
    """Return accuracy by class, degree and homophily, of the validation nodes of all splits together."""
    labels = np.asarray(graph.labels)[nodes]
    names = [str(number) for number in range(graph.num_classes)]
    return {
        "class": by_class(labels, right, names),
        "degree": by_degree(np.asarray(graph.degrees)[nodes], right),
        "homophily": by_homophily(local_homophily(graph, nodes), right),
    }


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True, graphs=GRAPHS, out="results/errors.json")
    parser.add_argument("--variants", nargs="+", default=["reduced", "hops"])
    return parser


def main() -> None:
    """Train every graph and variant, print its slices and write them."""
    arguments = make_parser().parse_args()
    rows = read_rows(arguments.out)
    for name in arguments.graphs:
        for variant in arguments.variants:
            config = variant_config(name, variant)
            bench = Workbench(load_graph(name, arguments.data, config.data.directed), find_device(arguments.device))
            splits = random_splits(bench.graph, SEEDS)
            predicted = np.concatenate([predict_validation(bench, split, config) for split in splits])
            nodes = np.concatenate([split.val for split in splits])
            # Some variants keep the direction of links; degree and homophily are those of the undirected graph for all.
            graph = load_graph(name, arguments.data)
            right = predicted == np.asarray(graph.labels)[nodes]
            cuts = {by: [asdict(part) for part in parts] for by, parts in slices(graph, nodes, right).items()}
            row = {"graph": name, "variant": variant, "accuracy": float(right.mean()), "slices": cuts}
            made_by = {"command": this_command(), "device": arguments.device}
            rows = [row | made_by, *(old for old in rows if (old["graph"], old["variant"]) != (name, variant))]
            rows.sort(key=lambda old: (GRAPHS.index(old["graph"]), old["variant"]))
            for by, parts in cuts.items():
                print_table([{"graph": name, "variant": variant, "by": by, **part} for part in parts])
            write_result(arguments.out, {"seeds": SEEDS, "rows": rows})
