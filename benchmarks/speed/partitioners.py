"""METIS, KaMinPar and propagation as partitioners: edges cut, balance, seconds, memory, recall of rankings on them.

    python -m benchmarks partitioners --data ROOT --folder FOLDER

The numbers of clusters are the authors', and that of the coarse clusters of the rankings. Value recall@20 of 100
sources is on the graph with these super nodes; the same partitioner makes the coarse clusters. FOLDER, which is
optional, is one that `python -m benchmarks scale --keep` left: its largest graph is partitioned too, without recall,
since its exact ranking would take hours. Seconds are those of the processor; all three have one thread. Writes
results/partitioners.json, and keeps there what is not measured this time.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import (
    in_a_process,
    load_graph,
    markdown_table,
    new_parser,
    print_table,
    read_rows,
    variant_config,
    write_result,
)
from benchmarks.speed.peers import value_recall
from vcr_graphormer.base.machine import peak_memory, reset_peak_memory
from vcr_graphormer.ranking.connections import PARTITIONERS
from vcr_graphormer.ranking.second_level import coarse_clusters

GRAPHS = ("PubMed", "Computer", "Photo", "Physics", "Squirrel")


def measure(name: str, root: str, partitioner: str, count: int, recall: bool) -> dict[str, Any]:
    """Return one row: a graph cut by one partitioner."""
    vcr.structure_connections(vcr.generate(500, 2000), 3, partitioner=partitioner)  # compile
    graph = load_graph(name, root)
    largest = int(np.asarray(graph.indices).max())  # read the edges now, so that they do not count
    assert largest < graph.num_nodes
    reset_peak_memory()
    before, start = peak_memory(), time.process_time()
    connections = vcr.structure_connections(graph, count, partitioner=partitioner)
    row = {"graph": name, "clusters": count, "partitioner": partitioner, "seconds": time.process_time() - start}
    row |= {"edges_cut": cut(graph, connections.assignment)}
    row |= {"largest_over_mean": float(connections.sizes.max() * count / graph.num_nodes)}
    start = time.process_time()
    coarse = coarse_clusters(graph, partitioner=partitioner)
    row |= {"coarse_clusters": int(coarse.max()) + 1, "coarse_seconds": time.process_time() - start}
    row |= {"coarse_edges_cut": cut(graph, coarse)}
    used = peak_memory() - before
    row |= {"bytes_per_arc": used / graph.num_arcs, "bytes_per_node": used / graph.num_nodes}
    if recall:
        sources = np.random.default_rng(0).choice(graph.num_nodes, 100, replace=False)
        exact = vcr.exact_pagerank(graph, connections, sources)[:, : graph.num_nodes]
        ranking = vcr.rank(graph, connections, k=20, sources=sources, partitioner=partitioner)
        row["value_recall"] = value_recall(ranking.ids, exact, sources, 20)
    return row


def cut(graph: vcr.Graph, clusters: Any) -> float:
    """Return the fraction of arcs between clusters, counted by blocks of rows."""
    crossing = 0
    for start in range(0, graph.num_nodes, 1 << 16):
        stop = min(start + (1 << 16), graph.num_nodes)
        others = clusters[graph.indices[graph.indptr[start] : graph.indptr[stop]]]
        own = np.repeat(clusters[start:stop], np.diff(graph.indptr[start : stop + 1]))
        crossing += int((own != others).sum())
    return crossing / max(1, graph.num_arcs)


COLUMNS = {
    "edges cut": "edges_cut",
    "largest / mean": "largest_over_mean",
    "seconds": "seconds",
    "bytes per arc": "bytes_per_arc",
    "bytes per node": "bytes_per_node",
    "value recall@20": "value_recall",
}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows of results/partitioners.json as Markdown."""
    lines = []
    for row in rows:
        cells = [
            f"{row[key]:.3g}" if key != "value_recall" else f"{row[key]:.4f}" for key in COLUMNS.values() if key in row
        ]
        cells += ["not measured"] * (len(COLUMNS) - len(cells))
        lines.append([f"{row['graph']}, {row['clusters']}", row["partitioner"], *cells])
    return markdown_table(["graph, clusters", "partitioner", *COLUMNS], lines)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, graphs=GRAPHS, out="results/partitioners.json")
    parser.add_argument("--folder", type=Path, help="a folder that the benchmark scale left")
    return parser


def main() -> None:
    """Cut every graph by all partitioners, each in a process of its own."""
    arguments = make_parser().parse_args()
    cases = [(name, arguments.data, variant_config(name, "paper").tokens.clusters, True) for name in arguments.graphs]
    if arguments.folder is not None:
        largest = max(arguments.folder.iterdir(), key=lambda folder: float(folder.name))
        cases.append(("graph", str(largest), variant_config("Amazon2M", "paper").tokens.clusters, False))
    rows = []
    for name, root, count, recall in cases:
        for partitioner in PARTITIONERS:
            rows.append(in_a_process(measure, name, root, partitioner, count, recall))
            print_table(rows[-1:])
    for row in rows:
        size = "" if row["graph"] != "graph" or float(largest.name) == 1 else f" × {largest.name}"
        row["graph"] = f"Amazon2M's shape{size}" if row["graph"] == "graph" else row["graph"]
    kept = [row for row in read_rows(arguments.out) if row["graph"] not in {row["graph"] for row in rows}]
    write_result(arguments.out, {"rows": rows + kept})
