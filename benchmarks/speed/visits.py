"""Edge visits against value recall, for our ranking and for plain push, on a generated graph.

    python -m benchmarks visits     about six minutes on two cores

The graph has 200,000 nodes, 2 million edges and 200 clusters. Edge visits do not depend on the machine. Writes
results/visits.json and results/visits.png.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl

import vcr_graphormer as vcr
from benchmarks.common import new_parser, print_table, write_result
from benchmarks.speed.peers import exact_scores, generated_graph, plain_push, random_sources, value_recall

mpl.use("Agg")
import matplotlib.pyplot as plt

K, RESTART = 20, 0.15
TOLERANCES = (0.9, 0.7, 0.5, 0.3, 0.2, 0.15, 0.1, 0.08, 0.06, 0.04)
EPSILONS = (1e-4, 3e-5, 1e-5, 3e-6, 1e-6)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, data=False, out="results/visits.json")
    parser.add_argument("--sources", type=int, default=200)
    return parser


def main() -> None:
    """Run both methods, print the rows, draw and write them."""
    arguments = make_parser().parse_args()
    graph = generated_graph()
    structure = vcr.structure_connections(graph, 200)
    sources = random_sources(graph, arguments.sources, seed=1)
    exact = exact_scores(graph, structure, sources, RESTART)
    ranker = vcr.Ranker.prepare(graph, structure, RESTART)
    rows: list[dict[str, Any]] = []
    for tolerance in TOLERANCES:
        ranking = ranker.rank(sources, K, tolerance)
        recall = value_recall(ranking.ids, exact, sources, K)
        visits = ranking.visits / len(sources)
        rows.append({"method": "two-level", "tolerance": tolerance, "visits": visits, "recall": recall})
    for epsilon in EPSILONS:
        ids, visits = plain_push(graph, structure, sources, K, RESTART, epsilon)
        recall = value_recall(ids, exact, sources, K)
        rows.append({"method": "plain push", "tolerance": epsilon, "visits": visits, "recall": recall})
    print_table(rows)
    draw(rows, arguments.out.with_suffix(".png"))
    write_result(arguments.out, {"k": K, "restart": RESTART, "sources": arguments.sources, "rows": rows})


def draw(rows: list[dict[str, Any]], file: Path) -> None:
    """Draw recall over visits for both methods."""
    figure, axes = plt.subplots(figsize=(7, 4), dpi=110)
    for method, marker, colour in (("two-level", "o", "#0072B2"), ("plain push", "s", "#D55E00")):
        points = [(row["visits"], row["recall"]) for row in rows if row["method"] == method]
        axes.plot(*zip(*points, strict=True), marker=marker, color=colour, label=method)
    axes.set_xscale("log")
    axes.axhline(0.99, color="#999999", lw=0.8, ls="--")
    axes.set(xlabel="edge visits per source", ylabel="value recall@20", title="200,000 nodes, 200 super nodes")
    axes.legend(frameon=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, bbox_inches="tight")
