"""What class-balanced splits, on which the best published numbers of heterophilous graphs were measured, change.

    python benchmarks/balanced.py --data ROOT [--device cuda] [--graphs Texas Actor Squirrel]

Many papers on these graphs (GPR-GNN, BernNet and the ACM networks, whose results are the best published) say 60/20/20
but draw 0.6 n / c training nodes of every class. Small classes are then used up by training, and validation and test
parts consist of the large ones, which are easier to guess. Here MLP and our preset, with settings found for protocol A
and nothing searched again, run on such splits, seeds 0 to 9. Writes results/balanced.json.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import percent, write_result
from benchmarks.records import result_file, variant_config
from benchmarks.training import load
from benchmarks.workbench import Workbench
from benchmarks.yardsticks import Bench, test_accuracy
from vcr_graphormer.base.files import read_json
from vcr_graphormer.training.devices import find_device

GRAPHS = ("Texas", "Actor", "Squirrel")
NAMES = {"MLP": "MLP", "default": "our preset"}
PUBLISHED = {"Texas": 96.56, "Actor": 41.86, "Squirrel": 69.98}  # the best to our knowledge: ACM networks
PROTOCOL_A = Path(__file__).parent.parent / "results" / "accuracy"


def balanced_split(labels: Any, seed: int) -> vcr.Split:
    """As many training nodes of every class, if it has so many; a fifth of all nodes validates, the rest tests.

    >>> split = balanced_split(np.array([0] * 8 + [1] * 2), seed=0)
    >>> len(split.train), len(split.val), len(split.test)
    (5, 2, 3)
    """
    random, labels = np.random.default_rng(seed), np.asarray(labels)
    classes = np.unique(labels)
    most = round(0.6 * len(labels) / len(classes))
    train = np.concatenate([random.permutation(np.flatnonzero(labels == which))[:most] for which in classes])
    rest = random.permutation(np.setdiff1d(np.arange(len(labels)), train))
    cut = round(0.2 * len(labels))
    return vcr.Split(np.sort(train), np.sort(rest[:cut]), np.sort(rest[cut:]))


def largest_share(labels: Any) -> float:
    """What guessing the most frequent class gives."""
    return float(np.bincount(labels).max() / len(labels))


def run(name: str, root: str, device: str, seeds: int) -> dict[str, Any]:
    """Test accuracies of both models on one graph, seed by seed, and the share of the largest class."""
    config = variant_config(name, "default")
    graph, place = load(name, root, config.data.directed), find_device(device)
    ours = Workbench(graph, place)
    mlp, settings = Bench(graph, graph, place), read_json(result_file(PROTOCOL_A, name, "A", "MLP"))["config"]
    labels = np.asarray(graph.labels)
    found: dict[str, Any] = {"graph": name, "MLP": [], "default": [], "largest class of the test part": []}
    for seed in range(seeds):
        split = balanced_split(labels, seed)
        _, right, _ = mlp.train("MLP", settings, split, seed)
        found["MLP"].append(test_accuracy(right, split))
        seeded = replace(config, training=replace(config.training, seed=seed))
        found["default"].append(ours.train(split, seeded).test)
        found["largest class of the test part"].append(largest_share(labels[split.test]))
        print(f"{name} seed {seed}: MLP {found['MLP'][-1]:.4f}, ours {found['default'][-1]:.4f}", flush=True)
    return {**found, "largest class of the graph": largest_share(labels)}


def table(rows: list[dict[str, Any]]) -> str:
    """Both kinds of splits side by side, as Markdown."""
    lines = [
        "| test accuracy, % | " + " | ".join(row["graph"] for row in rows) + " |",
        "| --- |" + " --- |" * len(rows),
    ]
    for model, text in NAMES.items():
        usual = [
            [run["test"] for run in read_json(result_file(PROTOCOL_A, row["graph"], "A", model))["runs"]]
            for row in rows
        ]
        lines.append(f"| {text}, protocol A | " + " | ".join(map(percent, usual)) + " |")
        lines.append(f"| {text}, class-balanced splits | " + " | ".join(percent(row[model]) for row in rows) + " |")
    lines.append(
        "| best published, class-balanced splits | " + " | ".join(f"{PUBLISHED[row['graph']]}" for row in rows) + " |"
    )
    share = "largest class of the"
    cells = [f"{100 * row[f'{share} graph']:.0f} and {100 * np.mean(row[f'{share} test part']):.0f}" for row in rows]
    lines.append(f"| largest class, of all nodes and of a class-balanced test part | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/balanced.json"))
    arguments = parser.parse_args()
    earlier = read_json(arguments.out)["rows"] if arguments.out.is_file() else []
    rows = {row["graph"]: row for row in earlier}
    for name in arguments.graphs:
        rows[name] = run(name, arguments.data, arguments.device, arguments.seeds)
        write_result(arguments.out, {"rows": [rows[graph] for graph in GRAPHS if graph in rows]})
    print(table(list(rows.values())))


if __name__ == "__main__":
    main()
