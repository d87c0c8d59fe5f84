"""What new nodes cost and lose: lists, predictions and time of the three depths of `update`.

    python -m benchmarks growing --data ROOT     about half an hour on two cores

A model is trained on a graph without some of its nodes, drawn at random. Then these nodes come back with their edges.
For each depth: the overlap of lists with those of a fresh start (`all`), and with those that rank all nodes on the
clusters of the update (METIS alone changes lists, too); how many predictions are those of `all`; accuracy on the new
nodes; seconds, by the clock and of the processor, as a fraction of those of `all`. The generated graph has 100,000
nodes and 10^6 edges. Writes results/growing.json.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import vcr_graphormer as vcr
from benchmarks.common import load_graph, markdown_table, new_parser, print_table, write_result
from vcr_graphormer.data.growth import Growth
from vcr_graphormer.tokens.growth import REFRESH, Update

GENERATED = "generated"
GRAPHS = ("PubMed", "Photo", GENERATED)
FRACTIONS = (0.01, 0.1)


def part_of(graph: vcr.Graph, nodes: NDArray[np.int64]) -> vcr.Graph:
    """Return the graph of some nodes and the edges between them."""
    arcs = graph.to_scipy()[nodes][:, nodes].tocoo()
    features: Any = graph.features
    return vcr.Graph.from_edges(
        np.stack([arcs.row, arcs.col]),
        len(nodes),
        edge_weight=None if graph.weights is None else arcs.data,
        features=features[nodes],
        labels=np.asarray(graph.labels)[nodes],
        name=graph.name,
    )


def grow(graph: vcr.Graph, fraction: float, seed: int = 0) -> tuple[vcr.Graph, vcr.Graph]:
    """Return the graph without a fraction of its nodes, and with them as its last nodes."""
    order = np.random.default_rng(seed).permutation(graph.num_nodes)
    count = round((1 - fraction) * graph.num_nodes)
    old = np.sort(order[:count])
    return part_of(graph, old), part_of(graph, np.concatenate([old, order[count:]]))


def overlap(lists: vcr.TokenLists, others: vcr.TokenLists) -> float:
    """Return the fraction of the others' neighbours that stand in the lists, too.

    >>> about = vcr.TokenConfig(hops=0, content="features", link_tokens=0, nearest_tokens=0).to_dict()
    >>> first, second = (vcr.TokenLists(about, {"structure_ids": np.array([ids]), "content_ids": np.empty((1, 0), int)})
    ...     for ids in ([1, 2], [2, -1]))
    >>> overlap(first, second), overlap(second, first)
    (1.0, 0.5)
    """
    found = total = 0
    for start in range(0, lists.num_nodes, 1 << 14):
        rows = np.arange(start, min(start + (1 << 14), lists.num_nodes))
        ours, theirs = lists.neighbours(rows), others.neighbours(rows)
        there = (ours[:, :, None] == theirs[:, None, :]).any(1) & (theirs >= 0)
        found, total = found + int(there.sum()), total + int((theirs >= 0).sum())
    return found / total


def measure(name: str, root: str, fraction: float, epochs: int | None) -> list[dict[str, Any]]:
    """Return one row per depth."""
    if name == GENERATED:
        graph = vcr.generate(100_000, 1_000_000, classes=10, features=32, homophily=0.7, seed=0)
    else:
        graph = load_graph(name, root)
    before, after = grow(graph, fraction)
    split = vcr.Split.random(before.labels, seed=100)
    config = vcr.Config()
    if epochs is not None:
        config = replace(config, training=replace(config.training, epochs=epochs))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        run = vcr.train(before, split, config, Path(folder) / "run", device="cpu", baselines="none")
        store = vcr.TokenStore.open(run.tokens_folder)
        now = run.prepare(after)
        vcr.update(store, now, Path(folder) / "first", before=run.graph, refresh="new")  # keeps the rankers, compiles
        runs, seconds, processor, stores = {}, {}, {}, {}
        for refresh in reversed(REFRESH):
            start, busy = time.perf_counter(), time.process_time()
            stores[refresh] = vcr.update(store, now, Path(folder) / refresh, before=run.graph, refresh=refresh)
            seconds[refresh], processor[refresh] = time.perf_counter() - start, time.process_time() - busy
            runs[refresh] = run.on(after, stores[refresh])
        every = _Everything(store, Growth(run.graph, now), "affected").to_lists()
        new, labels = np.arange(before.num_nodes, after.num_nodes), np.asarray(after.labels)
        truth = runs["all"].predict().labels
        for refresh in REFRESH:
            predicted = runs[refresh].predict().labels
            rows.append(
                {
                    "graph": name,
                    "new nodes": fraction,
                    "refresh": refresh,
                    "overlap with all": overlap(stores[refresh], stores["all"]),
                    "overlap, same clusters": overlap(stores[refresh], every),
                    "same predictions": float((predicted == truth).mean()),
                    "accuracy of new nodes": float((predicted[new] == labels[new]).mean()),
                    "seconds": seconds[refresh],
                    "fraction of all": seconds[refresh] / seconds["all"],
                    "processor seconds": processor[refresh],
                    "fraction of all, processor": processor[refresh] / processor["all"],
                    "milliseconds per new node": 1000 * seconds[refresh] / len(new),
                }
            )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    header = ["graph, new nodes", "refresh", "same neighbours as `all`", "as all nodes ranked on the same clusters"]
    header += ["same predictions as `all`", "accuracy on new nodes", "time, of `all`", "processor time, of `all`"]
    lines = []
    for row in rows:
        overlaps = [f"{row[key]:.3f}" for key in ("overlap with all", "overlap, same clusters")]
        shares = [f"{row[key]:.2%}" for key in ("same predictions", "accuracy of new nodes")]
        costs = [f"{row[key]:.2f}" for key in ("fraction of all", "fraction of all, processor")]
        lines.append([f"{row['graph']}, {row['new nodes']:.0%}", f"`{row['refresh']}`", *overlaps, *shares, *costs])
    return markdown_table(header, lines)


class _Everything(Update):
    """Rank all nodes, with the second level made anew, on the clusters of an update."""

    @property
    def rows(self) -> NDArray[np.int64]:
        return np.arange(self.graph.num_nodes)

    @property
    def frozen(self) -> bool:
        return False

    def is_repaired(self, kind: Any) -> bool:
        return False


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, graphs=GRAPHS, out="results/growing.json")
    parser.add_argument("--epochs", type=int, help="of the training; default: as the settings say")
    parser.add_argument("--fractions", type=float, nargs="+", default=list(FRACTIONS), help="of new nodes")
    return parser


def main() -> None:
    """Measure every graph and fraction, print a table and write the result."""
    arguments = make_parser().parse_args()
    rows: list[dict[str, Any]] = []
    for name in arguments.graphs:
        for fraction in arguments.fractions:
            rows += measure(name, arguments.data, fraction, arguments.epochs)
            print_table(rows)
            write_result(arguments.out, {"rows": rows})
