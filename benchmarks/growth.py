"""Time of each stage of tokenize against the number of edges, 10^5 to 10^7, with the fitted log-log slope.

python benchmarks/growth.py     about ten minutes on two cores

Generated graphs of 10 edges per node and 1,000 nodes per community; 10 clusters, k̄ = k̂ = 5, L = 3, 32 features. Writes
results/growth.json and .png.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from common import print_table, write_result

import vcr_graphormer as vcr

mpl.use("Agg")
import matplotlib.pyplot as plt

SIZES = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
STAGES = {
    "METIS": ("structure connections", "coarse clusters"),
    "vectors": ("structure vectors", "content vectors"),
    "rankings": ("structure ranking", "content ranking"),
    "hops": ("hop features",),
}


def measure(edges: int) -> dict[str, Any]:
    """Tokenize one graph in a temporary folder and read off its stages."""
    graph = vcr.generate(edges // 10, edges, classes=10, communities=max(10, edges // 10_000), homophily=0.8, seed=0)
    split = vcr.Split.random(graph.labels, seed=0)
    config = vcr.TokenConfig(hops=3, clusters=10, structure_tokens=5, content_tokens=5)
    with tempfile.TemporaryDirectory() as folder:
        store = vcr.tokenize(graph, split.train, config, Path(folder) / "tokens")
        stages = json.loads((store.path / "stages.json").read_text())
    row: dict[str, Any] = {"edges": edges}
    for name, parts in STAGES.items():
        row[name] = sum(stages[part]["seconds"] for part in parts)
    row["all"] = sum(stage["seconds"] for stage in stages.values())
    row["ranking visits per edge"] = sum(stages[part]["visits"] for part in STAGES["rankings"]) / edges
    row["peak bytes"] = max(stage["peak_bytes"] for stage in stages.values())
    return row


def slope(rows: list[dict[str, Any]], stage: str) -> float:
    """Fitted exponent of time over edges."""
    edges, seconds = (np.log([row[key] for row in rows]) for key in ("edges", stage))
    return float(np.polyfit(edges, seconds, 1)[0])


def main() -> None:
    """Run, print, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--out", default="results/growth.json", type=Path)
    arguments = parser.parse_args()
    measure(20_000)  # compile
    rows = [measure(edges) for edges in arguments.sizes]
    print_table(rows)
    slopes = {stage: slope(rows, stage) for stage in (*STAGES, "all")}
    print("slopes:", ", ".join(f"{stage} {value:.2f}" for stage, value in slopes.items()))
    figure, axes = plt.subplots(figsize=(7, 4), dpi=110)
    for stage, colour in zip((*STAGES, "all"), ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#000000"), strict=True):
        edges, seconds = ([row[key] for row in rows] for key in ("edges", stage))
        axes.loglog(edges, seconds, marker="o", color=colour, label=f"{stage}: slope {slopes[stage]:.2f}")
    axes.set(xlabel="edges", ylabel="seconds on two cores", title="tokenize")
    axes.legend(frameon=False)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.out.with_suffix(".png"), bbox_inches="tight")
    write_result(arguments.out, {"rows": rows, "slopes": slopes})


if __name__ == "__main__":
    main()
