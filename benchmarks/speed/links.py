"""Neighbours by links: seconds for all nodes, against the loop for weights and against scipy's sparse product.

    python -m benchmarks links                          10^5, 2 · 10^5 and 10^6 nodes, about two minutes on two cores
    python -m benchmarks links --nodes 100000

Generated graphs of ten edges per node. All nodes are ranked on all threads as `tokenize` does it, 4,096 at a time. The
loop that also takes weights and scipy rank 2,000 random sources, on one thread; scipy multiplies their rows with all
rows and sorts the products of each. All three give the same scores. Processor time is what a busy machine changes
least. Writes results/links.json.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import new_parser, print_table, write_result
from benchmarks.speed.peers import random_sources
from vcr_graphormer.data.agreement import MOST_LINKS
from vcr_graphormer.ranking.kernels.links import rank_by_links
from vcr_graphormer.ranking.ranker import empty_lists

K, SOURCES, SHARD = 24, 2000, 4096  # a distinct list of 8 keeps 24 nodes
SIZES = (100_000, 200_000, 1_000_000)


def by_scipy(graph: vcr.Graph, sources: Any) -> Any:
    """Return the K largest cosines of each source by a sparse product; columns of more than `MOST_LINKS` are out."""
    rows = graph.to_scipy().astype(np.float64)
    counts = np.bincount(rows.indices, minlength=graph.num_nodes)
    rows.data[counts[rows.indices] > MOST_LINKS] = 0.0
    rows.eliminate_zeros()
    lengths = np.sqrt(rows.multiply(rows).sum(axis=1)).A1
    rows.data /= np.repeat(lengths, np.diff(rows.indptr))
    products = rows[sources] @ rows.T.tocsr()
    scores = np.zeros((len(sources), K), dtype=np.float32)
    for row, source in enumerate(sources):
        entries = slice(products.indptr[row], products.indptr[row + 1])
        others = products.data[entries][products.indices[entries] != source]
        best = -np.sort(-others)[:K]
        scores[row, : len(best)] = best
    return scores


def measure(nodes: int) -> dict[str, Any]:
    """Return one row: seconds for all nodes, and microseconds of processor time per source of each way."""
    graph = vcr.generate(nodes, 10 * nodes, classes=10, communities=200, homophily=0.75, seed=0, features=0)
    ranker = vcr.LinkRanker.prepare(graph)
    start, processor, visits = time.perf_counter(), time.process_time(), 0
    for first in range(0, nodes, SHARD):
        visits += ranker.rank(np.arange(first, min(first + SHARD, nodes)), K).visits
    row: dict[str, Any] = {"nodes": nodes, "edges": 10 * nodes, "seconds": time.perf_counter() - start}
    row["processor_seconds"] = time.process_time() - processor
    row["visits_per_source"] = visits / nodes
    row["microseconds"] = 1e6 * row["processor_seconds"] / nodes
    count = min(SOURCES, nodes)
    sources = random_sources(graph, count, seed=1)
    expected = ranker.rank(sources, K)
    ids, scores = empty_lists(count, K)
    work = (np.zeros(nodes), np.empty(nodes, dtype=np.int32))
    processor = time.process_time()
    rank_by_links(sources, *ranker.links, *ranker.back, ranker.lengths, MOST_LINKS, *work, ids, scores)
    row["microseconds_with_weights"] = 1e6 * (time.process_time() - processor) / count
    processor = time.process_time()
    by_product = by_scipy(graph, sources)
    row["microseconds_scipy"] = 1e6 * (time.process_time() - processor) / count
    row["times_faster_than_scipy"] = row["microseconds_scipy"] / row["microseconds"]
    row["same_lists"] = bool((ids == expected.ids).all() and (scores == expected.scores).all())
    row["largest_difference_to_scipy"] = float(np.abs(by_product - expected.scores).max())
    return row


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, data=False, out="results/links.json")
    parser.add_argument("--nodes", type=int, nargs="+", default=list(SIZES), help="sizes of the generated graphs")
    return parser


def main() -> None:
    """Measure every size, print the rows and write them."""
    arguments = make_parser().parse_args()
    small = vcr.LinkRanker.prepare(vcr.generate(200, 800, classes=2, features=0))  # compile
    small.rank(k=K)
    small.rank([0], k=K)
    rank_by_links(
        np.array([0]),
        *small.links,
        *small.back,
        small.lengths,
        MOST_LINKS,
        np.zeros(200),
        np.empty(200, dtype=np.int32),
        *empty_lists(1, K),
    )
    rows = []
    for nodes in arguments.nodes:
        rows.append(measure(nodes))
        print_table(rows[-1:])
    write_result(Path(arguments.out), {"k": K, "rows": rows})
