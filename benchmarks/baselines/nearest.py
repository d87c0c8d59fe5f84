"""The simplest baseline: a node gets the label of the training node with the most similar links.

    python -m benchmarks nearest --data ROOT --graphs Squirrel Photo

Nothing is trained and no feature is read. Similarity is the cosine of rows of the adjacency matrix; the smaller id wins
a tie. A node that shares no link with a training node gets the most frequent class. Where published links have a
direction, validation accuracy on split seeds 100 and 101 chooses whether to keep, reverse or drop it. Seeds 0 to 9 go
to results/accuracy, like those of the other baselines.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F  # noqa: N812

import vcr_graphormer as vcr
from benchmarks.baselines.bench import Bench, Outcome
from benchmarks.common import GRAPHS, load_graph, new_parser, percent, random_splits
from benchmarks.records import Record, choose_split

ROWS_AT_ONCE = 512


def unit_rows(adjacency: Any) -> Any:
    """Return the rows scaled to length 1 in float64; a node without links keeps a row of zeros."""
    lengths = np.sqrt(np.asarray(adjacency.multiply(adjacency).sum(axis=1)).ravel())
    return (sp.diags(1 / np.maximum(lengths, 1e-12)) @ adjacency).tocsr()


def guess(rows: Any, labels: Any, train: Any, nodes: Any) -> Any:
    """Return the label of the nearest training node for each of the nodes.

    >>> rows = unit_rows(sp.csr_matrix([[0, 1, 1], [0, 1, 0], [0, 1, 1.0], [0, 0, 0]]))
    >>> guess(rows, np.array([0, 1, 2, 0]), np.array([0, 1]), np.array([2, 3]))
    array([0, 0])
    """
    most_frequent, columns = np.bincount(labels[train]).argmax(), rows[train].T.tocsc()
    blocks = []
    for start in range(0, len(nodes), ROWS_AT_ONCE):
        # As float32: the last bits of float64 would break ties at random.
        similarity = (rows[nodes[start : start + ROWS_AT_ONCE]] @ columns).toarray().astype(np.float32)
        best = similarity.argmax(1)
        blocks.append(np.where(similarity[np.arange(len(best)), best] > 0, labels[train[best]], most_frequent))
    return np.concatenate(blocks)


def accuracy(rows: Any, labels: Any, train: Any, nodes: Any) -> float:
    """Return the fraction of nodes whose label is guessed right."""
    return float((guess(rows, labels, train, nodes) == labels[nodes]).mean())


def predict(bench: Bench, settings: dict[str, Any], split: vcr.Split, seed: int) -> Outcome:
    """Return the outcome of this rule as that of the other baselines; nothing is trained."""
    rows, labels = unit_rows(bench.adjacency[settings.get("links", "both")]), np.asarray(bench.graph.labels)
    guessed = torch.from_numpy(guess(rows, labels, split.train, np.arange(len(labels)))).to(bench.device)
    return bench.outcome(F.one_hot(guessed, bench.graph.num_classes).float(), split)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, graphs=GRAPHS, out="results/accuracy")
    parser.add_argument("--seeds", type=int, default=10, help="run seeds 0 to SEEDS-1")
    return parser


def main() -> None:
    """Choose the direction of links, then guess the labels of the reported seeds."""
    arguments = make_parser().parse_args()
    for name in arguments.graphs:
        graph, directed = load_graph(name, arguments.data), load_graph(name, arguments.data, directed=True)
        adjacency = {"both": graph.to_scipy()}
        if directed.num_arcs != graph.num_arcs:
            adjacency |= {"out": directed.to_scipy(), "in": directed.to_scipy().T.tocsr()}
        rows, labels = {links: unit_rows(matrix) for links, matrix in adjacency.items()}, np.asarray(graph.labels)
        splits = random_splits(graph, (100, 101))
        val = {
            links: [accuracy(matrix, labels, split.train, split.val) for split in splits]
            for links, matrix in rows.items()
        }
        best = max(val, key=lambda links: float(np.mean(val[links])))
        record = Record.of_baseline(arguments.out, name, "nearest", {"links": best, "val": val})
        for seed in record.missing(list(range(arguments.seeds))):
            split, start = choose_split(name, graph, "A", seed, arguments.data), time.perf_counter()
            on_val, on_test = (accuracy(rows[best], labels, split.train, part) for part in (split.val, split.test))
            record.add(seed, on_val, on_test, time.perf_counter() - start, device="cpu")
        print(f"{name}: {percent(record.tests)}, links {best}")
