"""Recall and edge visits of the ranking with one part of it changed at a time.

    python -m benchmarks ranking_ablation --data ROOT      about five minutes on two cores

Structure connections with the authors' number of clusters, 200 sources. Writes results/ranking_ablation.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import new_parser, print_table, variant_config, write_result
from benchmarks.speed.peers import random_sources, value_recall
from vcr_graphormer.ranking import second_level
from vcr_graphormer.ranking.exact import TOLERANCE

K, SOURCES = 20, 200


def random_clusters(graph: vcr.Graph, count: int) -> Any:
    """Return a random cluster for every node."""
    return np.random.default_rng(0).integers(0, count, graph.num_nodes).astype(np.int32)


def run(name: str, root: str) -> list[dict[str, Any]]:
    """Return the rows of all variants on one graph."""
    graph = vcr.load_dataset(name, root)
    structure = vcr.structure_connections(graph, variant_config(name, "paper").tokens.clusters)
    sources = random_sources(graph, SOURCES, seed=2)
    exact = vcr.exact_pagerank(graph, structure, sources)[:, : graph.num_nodes]
    coarse = second_level.coarse_clusters(graph)
    count = int(coarse.max()) + 1
    rows: list[dict[str, Any]] = []

    def measure(variant: str, make: Callable[[], vcr.Ranker], tolerance: float = TOLERANCE) -> None:
        start = time.perf_counter()
        ranker = make()
        seconds = time.perf_counter() - start
        ranking = ranker.rank(sources, K, tolerance)
        recall = value_recall(ranking.ids, exact, sources, K)
        visits = ranking.visits / SOURCES
        rows.append({"graph": name, "variant": variant, "recall": recall, "visits": visits, "prepare_seconds": seconds})

    def prepare(clusters: Any = coarse) -> vcr.Ranker:
        return vcr.Ranker.prepare(graph, structure, coarse=clusters)

    prepare()  # compile
    for tolerance in (TOLERANCE, 0.05, 0.1, 0.2, 0.7):
        measure(f"tolerance {tolerance}", prepare, tolerance)
    with mock.patch.object(second_level, "MOST_HUBS", 0):
        for tolerance in (TOLERANCE, 0.015):
            measure(f"no hubs, tolerance {tolerance}", prepare, tolerance)
    for factor in (2, 4):
        clusters = vcr.structure_connections(graph, factor * count, recursive=True).assignment
        measure(f"{factor} times as many clusters", lambda clusters=clusters: prepare(clusters))  # type: ignore[misc]
    measure("k-way METIS for the clusters", lambda: prepare(vcr.structure_connections(graph, count).assignment))
    measure("random clusters", lambda: prepare(random_clusters(graph, count)))
    measure("the ten clusters of the super nodes", lambda: prepare(structure.assignment))
    return rows


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    return new_parser(__doc__, out="results/ranking_ablation.json")


def main() -> None:
    """Run the three graphs, print the rows and write them."""
    arguments = make_parser().parse_args()
    rows = [row for name in ("Computer", "Squirrel", "PubMed") for row in run(name, arguments.data)]
    print_table(rows)
    write_result(arguments.out, {"k": K, "sources": SOURCES, "rows": rows})
