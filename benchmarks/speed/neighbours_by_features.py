"""Neighbours by features and by hop features: seconds, recall of the approximate search, and how many share the class.

    python -m benchmarks neighbours_by_features --data ROOT

Each graph is ranked twice for 8 neighbours by X and by [X, PX]: exactly, and by the approximate search, which the
package uses beyond 100,000 nodes. Recall is the fraction of the exact neighbours that it finds. Seconds of the search
do not count compiling, about 40 s in each process. The fraction of neighbours of the source's class stands beside that
of structure and content neighbours with the default settings, on a random split with seed 100. Writes
results/neighbours_by_features.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import GRAPHS, load_graph, new_parser, print_table, random_splits, write_result
from vcr_graphormer.ranking import nearest

K, SEED = 8, 100
T = TypeVar("T")


def measure(graph: vcr.Graph, name: str, threads: int) -> list[dict[str, Any]]:
    """Return one row per matrix: X, [X, PX]."""
    rows = []
    for matrix, ranker in (("X", vcr.FeatureRanker), ("[X, PX]", vcr.HopFeatureRanker)):
        row: dict[str, Any] = {"graph": name, "nodes": graph.num_nodes, "matrix": matrix}
        prepared, row["seconds_preparing"] = timed(partial(ranker.prepare, graph))
        row["entries_per_node"] = prepared.rows.nnz / graph.num_nodes
        exact, row["seconds_exact"] = timed(partial(prepared.rank, k=K, threads=threads))
        candidates, row["seconds_searching"] = timed(partial(nearest._candidates, prepared.rows, 0))
        found = ranker(prepared.rows, candidates)
        near, row["seconds_of_candidates"] = timed(partial(found.rank, k=K, threads=threads))
        hits = (near.ids[:, :, None] == exact.ids[:, None, :]) & (near.ids >= 0)[:, :, None]
        row["recall"] = float(hits.sum() / (exact.ids >= 0).sum())
        row["same_class"] = same_class(graph, exact.ids)
        rows.append(row)
    return rows


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a function and its seconds."""
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def same_class(graph: vcr.Graph, ids: Any) -> float:
    """Return the fraction of neighbours that are of the source's class, of those where both are known."""
    labels, ids = np.asarray(graph.labels), np.asarray(ids)
    known = (ids >= 0) & (labels[ids] >= 0) & (labels >= 0)[:, None]
    return float((labels[ids] == labels[:, None])[known].mean())


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, graphs=GRAPHS, more_graphs=True, out="results/neighbours_by_features.json")
    parser.add_argument("--threads", type=int, default=2)
    return parser


def main() -> None:
    """Measure every graph, print the rows and write them."""
    arguments = make_parser().parse_args()
    for ranker in (vcr.FeatureRanker, vcr.HopFeatureRanker):  # compile
        small = ranker.prepare(vcr.generate(200, 800, classes=2, features=8))
        small.rank(k=K)
        ranker(small.rows, nearest._candidates(small.rows, 0)).rank(k=K)
    rows = []
    for name in arguments.graphs:
        graph = load_graph(name, arguments.data)
        rows += measure(graph, name, arguments.threads)
        (split,) = random_splits(graph, [SEED])
        lists = vcr.make_lists(graph, split.train, vcr.TokenConfig(hops=0, structure_tokens=K, content_tokens=K))
        for row in rows[-2:]:
            row |= {f"same_class_{kind}": same_class(graph, lists.ids(kind)) for kind in ("structure", "content")}
        print_table(rows[-2:])
    write_result(arguments.out, {"k": K, "seed": SEED, "threads": arguments.threads, "rows": rows})
