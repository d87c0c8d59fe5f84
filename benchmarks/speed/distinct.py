"""What lists without repeats cost: processor time of make_lists, and how many tokens repeat a node without them.

    python -m benchmarks distinct --data ROOT     about ten minutes on one core

The neighbours of the default settings, 8 + 8, without hops. Clusters and vectors are made anew each time. Both ways
take turns on one thread. Seconds are medians of processor time, which other programs change little. The ratio is the
median over neighbouring turns. The generated graph has 200,000 nodes and 10^6 edges. Value recall is that of the
content neighbours of 100 nodes: the fraction whose exact score is at least 0.99 times that of the last node that should
be there. Writes results/distinct.json.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import vcr_graphormer as vcr
from benchmarks.common import load_graph, new_parser, print_table, random_splits, write_result
from benchmarks.speed.peers import value_recall

GENERATED = "generated"
GRAPHS = ("PubMed", "Computer", GENERATED)
CONFIG = vcr.TokenConfig(hops=0, link_tokens=0, nearest_tokens=0)
SOURCES = 100  # for the recall: their exact scores lie in memory, 160 MB on the generated graph


def repeated(lists: vcr.TokenLists) -> float:
    """Return the fraction of neighbours that stand in their list before.

    >>> arrays = {"structure_ids": np.array([[1, 2], [0, -1], [0, 1]]), "content_ids": np.array([[2], [0], [-1]])}
    >>> repeated(vcr.TokenLists({**replace(CONFIG, content="features").to_dict()}, arrays))
    0.2857142857142857
    """
    rows = [row[row >= 0] for row in lists.neighbours(np.arange(lists.num_nodes))]
    return 1 - sum(len(np.unique(row)) for row in rows) / sum(len(row) for row in rows)


def recall(graph: vcr.Graph, lists: vcr.TokenLists, train: NDArray[np.int64]) -> float:
    """Return the value recall of the content neighbours, as nodes that are not among the structure neighbours."""
    connections = vcr.content_connections(graph.labels, train)
    # The ranking leaves out the own label of training nodes, exact PageRank does not.
    others = np.setdiff1d(np.arange(graph.num_nodes), train)
    nodes = np.random.default_rng(0).choice(others, min(SOURCES, len(others)), replace=False)
    exact = vcr.exact_pagerank(graph, connections, nodes)[:, : graph.num_nodes]
    for scores, earlier in zip(exact, lists.ids("structure")[nodes], strict=True):
        scores[earlier[earlier >= 0]] = 0
    return value_recall(lists.ids("content")[nodes], exact, nodes, lists.layout.counts["content"])


def measure(name: str, root: str, repeats: int) -> dict[str, Any]:
    """Return one row: a graph, its times both ways, and what they give."""
    if name == GENERATED:
        graph = vcr.generate(200_000, 1_000_000, classes=10, features=4, seed=0)
    else:
        graph = load_graph(name, root)
    [split] = random_splits(graph, [0])
    seconds: dict[bool, list[float]] = {False: [], True: []}
    lists: dict[bool, vcr.TokenLists] = {}
    for _ in range(repeats):
        for distinct in (False, True):
            start = time.process_time()
            lists[distinct] = vcr.make_lists(graph, split.train, replace(CONFIG, distinct=distinct), threads=1)
            seconds[distinct].append(time.process_time() - start)
    return {
        "graph": name,
        "seconds": float(np.median(seconds[False])),
        "seconds_distinct": float(np.median(seconds[True])),
        "ratio": float(np.median(np.divide(seconds[True], seconds[False]))),
        "repeated": repeated(lists[False]),
        "repeated_distinct": repeated(lists[True]),
        "value_recall_distinct": recall(graph, lists[True], split.train),
    }


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, graphs=GRAPHS, more_graphs=True, out="results/distinct.json")
    parser.add_argument("--repeats", type=int, default=3)
    return parser


def main() -> None:
    """Measure every graph, one after another."""
    arguments = make_parser().parse_args()
    small = vcr.generate(500, 2000, classes=3)  # compile
    vcr.make_lists(small, np.arange(100), CONFIG)
    rows = []
    for name in arguments.graphs:
        rows.append(measure(name, arguments.data, arguments.repeats))
        print_table(rows[-1:])
    write_result(arguments.out, {"rows": rows})
