"""Quality and time of the ranking against PyG's get_ppr and plain push, in one run.

python benchmarks/ranking.py --data ROOT            all graphs, about ten minutes on two cores
python benchmarks/ranking.py --data ROOT --graphs Computer

Writes results/ranking.json and prints a table. Value recall@20 is the mean over 200 random sources against
`exact_pagerank`; times are for all nodes, on all threads, vectors included; METIS for the coarse clusters, which serve
both rankings, is listed apart. The file keeps the rows of graphs that are not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import print_table, write_result
from benchmarks.peers import plain_push, pyg_ranking, value_recall
from vcr_graphormer.ranking.exact import TOLERANCE
from vcr_graphormer.ranking.second_level import coarse_clusters

K, RESTART, SOURCES = 20, 0.15, 200
GRAPHS = ("PubMed", "Computer", "Photo", "Squirrel", "generated")


def load(name: str, root: str) -> tuple[vcr.Graph, int]:
    """A graph and its number of METIS clusters."""
    if name == "generated":
        return vcr.generate(200_000, 2_000_000, classes=10, communities=200, homophily=0.75, seed=0, features=0), 200
    return vcr.load_dataset(name, root), 10


def exact(graph: vcr.Graph, connections: vcr.Connections, sources: Any, leave_out: bool) -> Any:
    """Exact scores of ordinary nodes; with leave_out each connected source on the graph without its own super edge."""
    if not leave_out:
        blocks = [vcr.exact_pagerank(graph, connections, part, RESTART) for part in np.array_split(sources, 8)]
        return np.concatenate(blocks)[:, : graph.num_nodes]
    rows = []
    for source in sources:
        assignment = connections.assignment.copy()
        assignment[source] = -1
        without = vcr.Connections(assignment, connections.count)
        rows.append(vcr.exact_pagerank(graph, without, source, RESTART)[: graph.num_nodes])
    return np.stack(rows)


def measure(
    graph: vcr.Graph, connections: vcr.Connections, coarse: Any, sources: Any, truth: Any, **options: Any
) -> dict[str, Any]:
    """Recall and visits on a sample, seconds for all nodes."""
    vcr.Ranker.prepare(graph, connections, RESTART, coarse).rank(sources[:2], K)  # compile
    start = time.perf_counter()
    ranker = vcr.Ranker.prepare(graph, connections, RESTART, coarse)
    vectors = time.perf_counter() - start
    everything = ranker.rank(None, K, **options)
    ranking = time.perf_counter() - start - vectors
    sample = everything.ids[sources]
    return {
        "recall": value_recall(sample, truth, sources, K),
        "visits_per_source": everything.visits / graph.num_nodes,
        "vector_visits_per_arc": ranker.visits / graph.num_arcs,
        "vector_seconds": vectors,
        "ranking_seconds": ranking,
        "microseconds_per_node": 1e6 * (vectors + ranking) / graph.num_nodes,
        "vector_bytes": sum(array.nbytes for array in ranker.vectors[1:]),
    }


def run(name: str, root: str) -> list[dict[str, Any]]:
    """All rows of one graph."""
    graph, clusters = load(name, root)
    sources = np.sort(np.random.default_rng(1).choice(graph.num_nodes, SOURCES, replace=False))
    train = vcr.Split.random(graph.labels, seed=0).train
    structure = vcr.structure_connections(graph, clusters)
    start = time.perf_counter()
    coarse = coarse_clusters(graph)
    metis = time.perf_counter() - start
    content = vcr.content_connections(graph.labels, train)
    few = sources if name != "generated" else sources[:40]  # each needs an exact ranking of its own graph
    truth = exact(graph, structure, sources, False)
    rows: list[dict[str, Any]] = [
        {"method": "ours, structure", **measure(graph, structure, coarse, sources, truth)},
        {
            "method": "ours, structure, tolerance 0.7",
            **measure(graph, structure, coarse, sources, truth, tolerance=0.7),
        },
    ]
    truth_content = exact(graph, content, sources, False)
    rows.append({"method": "ours, content", **measure(graph, content, coarse, sources, truth_content)})
    truth_left = exact(graph, content, few, True)
    left_out = measure(graph, content, coarse, few, truth_left, leave_out=True)
    rows.append({"method": "ours, content, leave_out", **left_out})
    for epsilon in (1e-5, 1e-6):
        ids, visits = plain_push(graph, structure, sources, K, RESTART, epsilon)
        recall = value_recall(ids, truth, sources, K)
        rows.append({"method": f"plain push, structure, {epsilon:g}", "recall": recall, "visits_per_source": visits})
    everyone = np.arange(graph.num_nodes) if name == "Computer" else sources
    ids, seconds = pyg_ranking(graph, structure, everyone, K, RESTART, 1e-5)
    rows.append(
        {
            "method": f"PyG get_ppr, structure, 1e-05, {len(everyone):,} sources",
            "recall": value_recall(ids[np.searchsorted(everyone, sources)], truth, sources, K),
            "microseconds_per_node": 1e6 * seconds / len(everyone),
        }
    )
    for row in rows[:4]:  # against get_ppr, with METIS for the coarse clusters counted as ours
        clustering = 1e6 * metis / graph.num_nodes
        row["speed_up"] = rows[-1]["microseconds_per_node"] / (row["microseconds_per_node"] + clustering)
    return [{"graph": name, "coarse_metis_seconds": metis, **row} for row in rows]


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data", help="folder of the published datasets' raw files")
    parser.add_argument("--graphs", nargs="+", default=GRAPHS, choices=GRAPHS)
    parser.add_argument("--out", default="results/ranking.json", type=Path)
    arguments = parser.parse_args()
    rows = json.loads(arguments.out.read_text())["rows"] if arguments.out.is_file() else []
    for name in arguments.graphs:
        fresh = run(name, arguments.data)
        print_table(fresh)
        print(f"{name}: {fresh[0]['speed_up']:.0f} times faster than get_ppr")
        rows = [row for row in rows if row["graph"] != name] + fresh
        write_result(arguments.out, {"k": K, "restart": RESTART, "tolerance": TOLERANCE, "rows": rows})


if __name__ == "__main__":
    main()
