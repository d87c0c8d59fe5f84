"""The plainest yardstick: a node has the label of the training node whose links are most like its own.

    python benchmarks/nearest.py --data ROOT [--graphs Squirrel Photo]

Nothing is trained and no feature is read: the cosine of rows of the adjacency matrix, ties to the smaller id, the most
frequent class where no training node shares a link. Where published links have a direction, whether to keep, reverse or
drop it is chosen by validation accuracy on split seeds 100 and 101. Seeds 0 to 9 go to results/accuracy, as those of
the other yardsticks.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import vcr_graphormer as vcr
from benchmarks.common import percent
from benchmarks.records import Record, choose_split, result_file
from benchmarks.training import load
from vcr_graphormer.base.files import read_json

GRAPHS = ("PubMed", "Computer", "Photo", "CS", "Physics", "Squirrel", "Actor", "Texas")
ROWS_AT_ONCE = 512


def unit_rows(adjacency: Any) -> Any:
    """Rows of length 1, or 0 where a node has no link; `adjacency_rows` of our inputs in float64, for ties."""
    lengths = np.sqrt(np.asarray(adjacency.multiply(adjacency).sum(axis=1)).ravel())
    return (sp.diags(1 / np.maximum(lengths, 1e-12)) @ adjacency).tocsr()


def guess(rows: Any, labels: Any, train: Any, nodes: Any) -> Any:
    """The label of the nearest training node, for each of the nodes.

    >>> rows = unit_rows(sp.csr_matrix([[0, 1, 1], [0, 1, 0], [0, 1, 1.0], [0, 0, 0]]))
    >>> guess(rows, np.array([0, 1, 2, 0]), np.array([0, 1]), np.array([2, 3]))
    array([0, 0])
    """
    usual, columns = np.bincount(labels[train]).argmax(), rows[train].T.tocsc()
    found = []
    for start in range(0, len(nodes), ROWS_AT_ONCE):
        # As float32, for the last bit of float64 would break ties.
        alike = (rows[nodes[start : start + ROWS_AT_ONCE]] @ columns).toarray().astype(np.float32)
        best = alike.argmax(1)
        found.append(np.where(alike[np.arange(len(best)), best] > 0, labels[train[best]], usual))
    return np.concatenate(found)


def accuracy(rows: Any, labels: Any, train: Any, nodes: Any) -> float:
    """Share of the nodes that are guessed right."""
    return float((guess(rows, labels, train, nodes) == labels[nodes]).mean())


def main() -> None:
    """Choose the direction, then guess the reported seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data")
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/accuracy"))
    arguments = parser.parse_args()
    for name in arguments.graphs:
        graph, directed = load(name, arguments.data), load(name, arguments.data, directed=True)
        kinds = {"both": graph.to_scipy()}
        if directed.num_arcs != graph.num_arcs:
            kinds |= {"out": directed.to_scipy(), "in": directed.to_scipy().T.tocsr()}
        rows, labels = {kind: unit_rows(matrix) for kind, matrix in kinds.items()}, np.asarray(graph.labels)
        trials = [vcr.Split.random(labels, 0.6, 0.2, seed) for seed in (100, 101)]
        val = {
            kind: [accuracy(made, labels, split.train, split.val) for split in trials] for kind, made in rows.items()
        }
        best = max(val, key=lambda kind: float(np.mean(val[kind])))
        about = {"dataset": name, "protocol": "A", "variant": "nearest", "metric": "accuracy"}
        settings, file = {"links": best, "val": val}, result_file(arguments.out, name, "A", "nearest")
        outdated = file.is_file() and read_json(file)["config"] != settings
        record = Record(arguments.out, about, settings, force=outdated)
        for seed in record.missing(list(range(arguments.seeds))):
            split, start = choose_split(name, graph, "A", seed, arguments.data), time.perf_counter()
            seen, test = (accuracy(rows[best], labels, split.train, part) for part in (split.val, split.test))
            record.add(seed, seen, test, time.perf_counter() - start, device="cpu")
        print(f"{name}: {percent([run['test'] for run in record.content['runs']])}, links {best}")


if __name__ == "__main__":
    main()
