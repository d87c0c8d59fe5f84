"""METIS and propagation as partitioners: edges cut, balance, seconds, memory, and what rankings on them recall.

    python benchmarks/partitioners.py --data ROOT [--folder FOLDER]     results/partitioners.json

Clusters as the authors use them, and as many as the second level of the rankings has. Value recall@20 of 100 sources on
the graph with these super nodes, the second level made by the same partitioner. FOLDER is one that
`scale.py --keep` left: its largest graph is then cut too (no recall: the exact ranking would take hours).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import print_table, write_result
from benchmarks.peers import value_recall
from benchmarks.scale import in_a_process
from benchmarks.training import load
from vcr_graphormer.base.machine import peak_memory, reset_peak_memory
from vcr_graphormer.ranking.connections import PARTITIONERS
from vcr_graphormer.ranking.second_level import coarse_clusters

CLUSTERS = {"PubMed": 10, "Computer": 10, "Photo": 10, "Physics": 50, "Squirrel": 10}


def measure(name: str, root: str, partitioner: str, count: int, recall: bool) -> dict[str, Any]:
    """One row."""
    vcr.structure_connections(vcr.generate(500, 2000), 3, partitioner=partitioner)  # compile
    graph = load(name, root)
    largest = int(np.asarray(graph.indices).max())  # read the edges, so that they do not count
    assert largest < graph.num_nodes
    reset_peak_memory()
    before, start = peak_memory(), time.perf_counter()
    made = vcr.structure_connections(graph, count, partitioner=partitioner)
    row = {"graph": name, "clusters": count, "partitioner": partitioner, "seconds": time.perf_counter() - start}
    row |= {"edges_cut": cut(graph, made.assignment)}
    row |= {"largest_over_mean": float(made.sizes.max() * count / graph.num_nodes)}
    start = time.perf_counter()
    coarse = coarse_clusters(graph, partitioner=partitioner)
    row |= {"coarse_clusters": int(coarse.max()) + 1, "coarse_seconds": time.perf_counter() - start}
    row |= {"coarse_edges_cut": cut(graph, coarse)}
    used = peak_memory() - before
    row |= {"bytes_per_arc": used / graph.num_arcs, "bytes_per_node": used / graph.num_nodes}
    if recall:
        sources = np.random.default_rng(0).choice(graph.num_nodes, 100, replace=False)
        exact = vcr.exact_pagerank(graph, made, sources)[:, : graph.num_nodes]
        found = vcr.rank(graph, made, k=20, sources=sources, partitioner=partitioner)
        row["value_recall"] = value_recall(found.ids, exact, sources, 20)
    return row


def cut(graph: vcr.Graph, clusters: Any) -> float:
    """Share of arcs between clusters, by blocks of rows."""
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
    """The rows of results/partitioners.json as Markdown."""
    lines = [f"| graph, clusters | partitioner | {' | '.join(COLUMNS)} |", "| --- " * (len(COLUMNS) + 2) + "|"]
    for row in rows:
        cells = [
            f"{row[key]:.3g}" if key != "value_recall" else f"{row[key]:.4f}" for key in COLUMNS.values() if key in row
        ]
        cells += ["not measured"] * (len(COLUMNS) - len(cells))
        lines.append(f"| {row['graph']}, {row['clusters']} | {row['partitioner']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Every graph by both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data")
    parser.add_argument("--graphs", nargs="*", default=list(CLUSTERS))
    parser.add_argument("--folder", type=Path, help="as of scale.py")
    parser.add_argument("--out", type=Path, default=Path("results/partitioners.json"))
    arguments = parser.parse_args()
    cases = [(name, arguments.data, CLUSTERS[name], True) for name in arguments.graphs]
    if arguments.folder is not None:
        largest = max(arguments.folder.iterdir(), key=lambda folder: float(folder.name))
        cases.append(("graph", str(largest), 300, False))
    rows = []
    for name, root, count, recall in cases:
        for partitioner in PARTITIONERS:
            rows.append(in_a_process(measure, name, root, partitioner, count, recall))
            print_table(rows[-1:])
    for row in rows:
        row["graph"] = "Amazon2M's shape" if row["graph"] == "graph" else row["graph"]
    write_result(arguments.out, {"rows": rows})


if __name__ == "__main__":
    main()
