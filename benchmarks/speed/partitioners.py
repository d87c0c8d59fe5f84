"""METIS, KaMinPar and propagation as partitioners: edges cut, balance, seconds, memory, recall of rankings on them.

    python -m benchmarks partitioners --data ROOT                    the published graphs
    python -m benchmarks partitioners --graphs --sizes 0.03 0.3      generated ones only, which need no data

Sizes are fractions of Amazon2M. Graphs of its shape are generated, or read from `--folder`, where the benchmark scale
leaves them with `--keep`. The numbers of clusters are the authors', and that of the coarse clusters of the rankings.
Value recall@20 is that of rankings of 300 sources, fewer in larger graphs, on the graph with these super nodes. The
same partitioner makes the coarse clusters, with three seeds, whose mean is given. Exact rankings of the largest graphs
would take hours. Seconds are those of the clock and those of all processors. KaMinPar is measured with one thread and
with `--threads`, although `tokenize` gives it several in large graphs only. Writes results/partitioners.json, where
rows that are not measured stay.
"""

from __future__ import annotations

import argparse
import tempfile
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
from benchmarks.speed.scale import make_graph
from vcr_graphormer.base.machine import default_threads, peak_memory, reset_peak_memory
from vcr_graphormer.ranking import partitioners
from vcr_graphormer.ranking.connections import PARTITIONERS
from vcr_graphormer.ranking.second_level import coarse_clusters

GRAPHS = ("PubMed", "Computer", "Photo", "Physics", "Squirrel")
# Exact rankings touch every arc about 150 times for each source. Chosen by hand, for half a minute.
MOST_ARCS, MOST_SOURCES, LEAST_SOURCES, ARCS_OF_ALL_SOURCES = 1 << 22, 300, 20, 1 << 27
SEEDS = (0, 1, 2)  # of coarse clusters: on Squirrel recall differs by 0.003 from seed to seed (docs/log.md)


def measure(name: str, root: str, partitioner: str, threads: int, count: int) -> dict[str, Any]:
    """Return one row: a graph cut by one partitioner."""
    vcr.structure_connections(vcr.generate(500, 2000), 3, partitioner=partitioner)  # compile
    graph = load_graph(name, root)
    largest = int(np.asarray(graph.indices).max())  # read the edges now, so that they do not count
    assert largest < graph.num_nodes
    how: dict[str, Any] = {"partitioner": partitioner, "threads": threads}
    if threads > 1:
        partitioners.SEVERAL_THREADS_FROM = 0  # small graphs too
    reset_peak_memory()
    before, start, processor = peak_memory(), time.perf_counter(), time.process_time()
    connections = vcr.structure_connections(graph, count, **how)
    row: dict[str, Any] = {"graph": name, "clusters": count, **how}
    row |= {"wall_seconds": time.perf_counter() - start, "seconds": time.process_time() - processor}
    row |= {"edges_cut": cut(graph, connections.assignment)}
    row |= {"largest_over_mean": float(connections.sizes.max() * count / graph.num_nodes)}
    start, processor = time.perf_counter(), time.process_time()
    coarse = coarse_clusters(graph, **how)
    row |= {"coarse_clusters": int(coarse.max()) + 1, "coarse_wall_seconds": time.perf_counter() - start}
    row |= {"coarse_seconds": time.process_time() - processor, "coarse_edges_cut": cut(graph, coarse)}
    used = peak_memory() - before
    row |= {"bytes_per_arc": used / graph.num_arcs, "bytes_per_node": used / graph.num_nodes}
    if graph.num_arcs <= MOST_ARCS:
        many = int(np.clip(ARCS_OF_ALL_SOURCES // graph.num_arcs, LEAST_SOURCES, MOST_SOURCES))
        sources = np.random.default_rng(0).choice(graph.num_nodes, many, replace=False)
        exact = vcr.exact_pagerank(graph, connections, sources)[:, : graph.num_nodes]
        several = [coarse, *(coarse_clusters(graph, seed, **how) for seed in SEEDS[1:])]
        rankings = [vcr.Ranker.prepare(graph, connections, coarse=clusters).rank(sources, 20) for clusters in several]
        recalls = [value_recall(ranking.ids, exact, sources, 20) for ranking in rankings]
        row |= {"sources": many, "value_recall": float(np.mean(recalls)), "value_recalls": recalls}
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
    "seconds of the clock": "wall_seconds",
    "of the processors": "seconds",
    "bytes per arc": "bytes_per_arc",
    "bytes per node": "bytes_per_node",
    "value recall@20": "value_recall",
}

SHOWN = ("graph", "clusters", "partitioner", "threads", *COLUMNS.values())


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows of results/partitioners.json as Markdown."""
    lines = []
    for row in rows:
        cells = [_cell(row.get(key), digits=4 if key == "value_recall" else 3) for key in COLUMNS.values()]
        lines.append([f"{row['graph']}, {row['clusters']}", row["partitioner"], str(row.get("threads", 1)), *cells])
    return markdown_table(["graph, clusters", "partitioner", "threads", *COLUMNS], lines)


def _cell(value: float | None, *, digits: int) -> str:
    if value is None:
        return "not measured"
    return f"{value:.4f}" if digits == 4 else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def merge(earlier: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return all rows, by graph and partitioner; one that was measured again replaces the earlier one.

    >>> earlier = [{"graph": "a", "partitioner": "metis"}, {"graph": "b", "partitioner": "metis"}]
    >>> rows = [{"graph": "a", "partitioner": name, "threads": 1} for name in ("kaminpar", "metis")]
    >>> [(row["graph"], row["partitioner"], row.get("threads")) for row in merge(earlier, rows)]
    [('a', 'metis', 1), ('a', 'kaminpar', 1), ('b', 'metis', None)]
    """
    together = {_key(row): row for row in (*earlier, *rows)}
    names = list(dict.fromkeys(graph for graph, _, _ in together))
    return [together[key] for key in sorted(together, key=lambda key: (names.index(key[0]), *key[1:]))]


def _key(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["graph"], PARTITIONERS.index(row["partitioner"]), row.get("threads", 1)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, out="results/partitioners.json")
    add = parser.add_argument
    add("--graphs", nargs="*", choices=GRAPHS, default=list(GRAPHS), help="published graphs; no name: none of them")
    add("--sizes", nargs="*", type=float, default=[], help="generated graphs, as fractions of Amazon2M")
    add("--folder", type=Path, help="where generated graphs are looked for and left; default: not kept")
    add("--partitioners", nargs="+", choices=PARTITIONERS, default=list(PARTITIONERS))
    add("--threads", type=int, help="of KaMinPar, beside one; default: all cores")
    return parser


def main() -> None:
    """Cut every graph by all partitioners, each in a process of its own."""
    arguments = make_parser().parse_args()
    threads = {name: [1] for name in arguments.partitioners}
    if "kaminpar" in threads and default_threads(arguments.threads) > 1:
        threads["kaminpar"].append(default_threads(arguments.threads))
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        cases = [(name, name, arguments.data) for name in arguments.graphs]
        for size in arguments.sizes:
            shape = "Amazon2M's shape" + ("" if size == 1 else f" × {size:g}")
            cases.append((shape, "graph", str(folder / f"{size:g}")))
        rows: list[dict[str, Any]] = []
        for shown, name, root in cases:
            if name == "graph" and not (Path(root) / name / "manifest.json").is_file():
                in_a_process(make_graph, float(Path(root).name), Path(root) / name)
            count = variant_config("Amazon2M" if name == "graph" else name, "paper").tokens.clusters
            for partitioner, counts in threads.items():
                for used in counts:
                    rows.append({**in_a_process(measure, name, root, partitioner, used, count), "graph": shown})
                    print_table([{name: rows[-1].get(name, "") for name in SHOWN}])
                    write_result(arguments.out, {"rows": merge(read_rows(arguments.out), rows)})
