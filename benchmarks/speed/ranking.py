"""Recall and time of our ranking against PyG's get_ppr and plain push, in one run.

    python -m benchmarks ranking --data ROOT                       all graphs, about ten minutes on two cores
    python -m benchmarks ranking --data ROOT --graphs Computer

Value recall@20 is the mean over 200 random sources against `exact_pagerank`. Times are for all nodes on all threads,
with the time to prepare the vectors. METIS makes the coarse clusters of both rankings; its time is listed apart. Every
time is the least of several runs, PyG's too. `speed_up` compares seconds, `processor_speed_up` processor time, which a
busy machine changes less; METIS counts in full in the rows of one ranking. The row of both rankings counts it once, as
`tokenize` does, and compares with both rankings of PyG. Writes results/ranking.json, which keeps the rows of graphs
that are not run again.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import markdown_table, new_parser, print_table, read_rows, variant_config, write_result
from benchmarks.speed.peers import (
    exact_scores,
    generated_graph,
    least,
    plain_push,
    pyg_ranking,
    random_sources,
    value_recall,
)
from vcr_graphormer.ranking.exact import TOLERANCE
from vcr_graphormer.ranking.second_level import coarse_clusters

K, RESTART, SOURCES = 20, 0.15, 200
GRAPHS = ("PubMed", "Computer", "Photo", "Squirrel", "generated")
# Our methods and their titles in the table of the documentation, which begin with the connections.
TITLES = {
    "ours, structure": "structure",
    "ours, structure, tolerance 0.7": "structure, tolerance 0.7",
    "ours, content": "content",
    "ours, content, tolerance 0.7": "content, tolerance 0.7",
    "ours, content, leave_out": "content, own label left out",
}
BOTH = "ours, structure and content, METIS once"


def load(name: str, root: str) -> tuple[vcr.Graph, int]:
    """Return a graph and its number of METIS clusters, which is the authors' for published graphs."""
    if name == "generated":
        return generated_graph(), 200
    return vcr.load_dataset(name, root), variant_config(name, "paper").tokens.clusters


def exact_left_out(graph: vcr.Graph, connections: vcr.Connections, sources: Any) -> Any:
    """Return exact scores of ordinary nodes, each source on the graph without its own edge to a super node."""
    rows = []
    for source in sources:
        assignment = connections.assignment.copy()
        assignment[source] = -1
        without = vcr.Connections(assignment, connections.count)
        rows.append(vcr.exact_pagerank(graph, without, source, RESTART)[: graph.num_nodes])
    return np.stack(rows)


def measure(
    graph: vcr.Graph, connections: vcr.Connections, coarse: Any, sources: Any, truth: Any, repeats: int, **options: Any
) -> dict[str, Any]:
    """Return recall on the sources, and visits and seconds for all nodes."""
    vcr.Ranker.prepare(graph, connections, RESTART, coarse).rank(sources[:2], K)  # compile
    prepare = partial(vcr.Ranker.prepare, graph, connections, RESTART, coarse)
    ranker, vectors, used = least(prepare, repeats)
    everything, ranking, more = least(partial(ranker.rank, None, K, **options), repeats)
    sample = everything.ids[sources]
    return {
        "recall": value_recall(sample, truth, sources, K),
        "visits_per_source": everything.visits / graph.num_nodes,
        "vector_visits_per_arc": ranker.visits / graph.num_arcs,
        "vector_seconds": vectors,
        "ranking_seconds": ranking,
        "microseconds_per_node": 1e6 * (vectors + ranking) / graph.num_nodes,
        "processor_microseconds_per_node": 1e6 * (used + more) / graph.num_nodes,
        "vector_bytes": sum(array.nbytes for array in ranker.vectors[1:]),
    }


def run(name: str, root: str, count: int) -> list[dict[str, Any]]:
    """Return all rows of one graph."""
    graph, clusters = load(name, root)
    sources = random_sources(graph, count, seed=1)
    train = vcr.Split.random(graph.labels, seed=0).train
    structure = vcr.structure_connections(graph, clusters)
    repeats = 5 if graph.num_nodes < 50_000 else 2
    coarse, metis, metis_used = least(partial(coarse_clusters, graph), repeats)
    content = vcr.content_connections(graph.labels, train)
    few = sources if name != "generated" else sources[:40]  # each needs an exact ranking on a graph of its own
    truth = exact_scores(graph, structure, sources, RESTART)
    rows: list[dict[str, Any]] = [
        {"method": "ours, structure", **measure(graph, structure, coarse, sources, truth, repeats)},
        {
            "method": "ours, structure, tolerance 0.7",
            **measure(graph, structure, coarse, sources, truth, repeats, tolerance=0.7),
        },
    ]
    truth_content = exact_scores(graph, content, sources, RESTART)
    for method, options in (("ours, content", {}), ("ours, content, tolerance 0.7", {"tolerance": 0.7})):
        row = measure(graph, content, coarse, sources, truth_content, repeats, **options)
        rows.append({"method": method, **row})
    truth_left = exact_left_out(graph, content, few)
    left_out = measure(graph, content, coarse, few, truth_left, repeats, leave_out=True)
    rows.append({"method": "ours, content, leave_out", **left_out})
    for epsilon in (1e-5, 1e-6):
        ids, visits = plain_push(graph, structure, sources, K, RESTART, epsilon)
        recall = value_recall(ids, truth, sources, K)
        rows.append({"method": f"plain push, structure, {epsilon:g}", "recall": recall, "visits_per_source": visits})
    peers: dict[str, dict[str, Any]] = {}
    for kind, connections, exact in (("structure", structure, truth), ("content", content, truth_content)):
        ids, seconds, used = pyg_ranking(graph, connections, sources, K, RESTART, 1e-5, repeats)
        peers[kind] = {
            "method": f"PyG get_ppr, {kind}, 1e-05, {len(sources):,} sources",
            "recall": value_recall(ids, exact, sources, K),
            "microseconds_per_node": 1e6 * seconds,
            "processor_microseconds_per_node": 1e6 * used,
        }
    shared = {"graph": name, "nodes": graph.num_nodes, "coarse_metis_seconds": metis}
    shared |= {"coarse_metis_processor_seconds": metis_used}
    return with_speed_ups([{**shared, **row} for row in (*rows, *peers.values())])


def with_speed_ups(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of one graph with how many times each is faster than PyG, and a row for both rankings.

    Each ranking is compared with that of PyG on the same connections, and counts METIS in full.
    """
    peers = {kind: _the(rows, f"PyG get_ppr, {kind}") for kind in ("structure", "content")}
    pair = [_the(rows, f"ours, {kind}") for kind in peers]
    names = ("graph", "nodes", "coarse_metis_seconds", "coarse_metis_processor_seconds")
    both: dict[str, Any] = {name: rows[0][name] for name in names} | {"method": BOTH}
    for prefix in ("", "processor_"):
        time, metis = f"{prefix}microseconds_per_node", 1e6 * rows[0][f"coarse_metis_{prefix}seconds"]
        for row in rows:
            if row["method"] in TITLES:
                peer = peers[TITLES[row["method"]].split(",")[0]]
                row[f"{prefix}speed_up"] = peer[time] / (row[time] + metis / row["nodes"])
        both[time] = sum(row[time] for row in pair)
        both[f"{prefix}speed_up"] = sum(peer[time] for peer in peers.values()) / (both[time] + metis / both["nodes"])
    return [*rows, both]


def _the(rows: list[dict[str, Any]], method: str) -> dict[str, Any]:
    """Return the first row of a method, whose name begins so."""
    return next(row for row in rows if row["method"].startswith(method))


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of the documentation; times are those of all nodes, METIS included."""
    lines = []
    for row in rows:
        graph = row["graph"].replace("generated", "200,000 nodes, 2 M edges")
        time = f"{row.get('microseconds_per_node', 0) + 1e6 * row['coarse_metis_seconds'] / row['nodes']:.0f}"
        speed_ups = [f"{row[name]:.0f}" for name in ("speed_up", "processor_speed_up") if name in row]
        if row["method"] == BOTH:
            lines.append([graph, "both, one METIS", "", "", "", time, *speed_ups])
        elif row["method"] in TITLES:
            title = TITLES[row["method"]]
            peer = _the(
                [other for other in rows if other["graph"] == row["graph"]], f"PyG get_ppr, {title.split(',')[0]}"
            )
            other_links = title.endswith("left out")  # get_ppr ranks on those of all labels
            recalls = (f"{row['recall']:.3f}", "" if other_links else f"{peer['recall']:.3f}")
            lines.append([graph, title, *recalls, f"{row['visits_per_source']:,.0f}", time, *speed_ups])
    header = ["graph", "connections", "value recall@20", "that of `get_ppr`", "edge visits per node", "µs per node"]
    return markdown_table([*header, "times faster, by the clock", "by processor time"], lines)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, graphs=GRAPHS, out="results/ranking.json")
    parser.add_argument("--sources", type=int, default=SOURCES, help="sources of recall and of get_ppr")
    parser.add_argument("--tables", action="store_true", help="only print the table of the documentation")
    return parser


def main() -> None:
    """Run every graph, print its rows and write them."""
    arguments = make_parser().parse_args()
    rows = read_rows(arguments.out)
    if arguments.tables:
        print(table(rows))
        return
    for name in arguments.graphs:
        fresh = run(name, arguments.data, arguments.sources)
        print_table(fresh)
        ratios = (
            f"{fresh[0]['speed_up']:.0f} times faster than get_ppr, {fresh[0]['processor_speed_up']:.0f} by processor"
        )
        print(f"{name}: {ratios}")
        rows = [row for row in rows if row["graph"] != name] + fresh
        write_result(arguments.out, {"k": K, "restart": RESTART, "tolerance": TOLERANCE, "rows": rows})
