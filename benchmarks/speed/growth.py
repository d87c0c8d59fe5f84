"""Time and memory of each stage of tokenize, as the edges, the neighbours or the clusters grow.

    python -m benchmarks growth     about ten minutes on two cores

Generated graphs with 10^5 to 10^7 edges, 10 edges per node and 1,000 nodes per community. Unless they are varied:
10 clusters, 5 + 5 neighbours, 3 hops, 32 features. Neighbours and clusters are varied at 10^6 edges. Each point has a
process of its own; its memory is the peak minus what it used before. A slope is the exponent of a power law fitted to
all points of an axis. Writes results/growth.json and results/growth.png.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import in_a_process, markdown_table, new_parser, print_table, write_result
from vcr_graphormer.base.machine import peak_memory, reset_peak_memory

mpl.use("Agg")
import matplotlib.pyplot as plt

SIZES = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
MIDDLE = 1_000_000
NEIGHBOURS = (2, 5, 10, 20, 40, 80)
CLUSTERS = (10, 30, 100, 300, 1000)
CONFIG = vcr.TokenConfig(hops=3, clusters=10, structure_tokens=5, content_tokens=5, distinct=False)
STAGES = {
    "METIS": ("structure connections", "coarse clusters"),
    "vectors": ("structure vectors", "content vectors"),
    "rankings": ("structure ranking", "content ranking"),
    "hops": ("hop features",),
}
COLOURS = {"METIS": "#E69F00", "vectors": "#56B4E9", "rankings": "#009E73", "hops": "#CC79A7", "all": "#000000"}


def measure(edges: int, config: vcr.TokenConfig) -> dict[str, Any]:
    """Tokenize one graph in a temporary folder and return seconds and bytes of its stages."""
    with tempfile.TemporaryDirectory() as folder:
        small = vcr.generate(2_000, 20_000, communities=10)  # compile
        vcr.tokenize(small, vcr.Split.random(small.labels, seed=0).train, CONFIG, Path(folder) / "small")
        graph = vcr.generate(edges // 10, edges, communities=max(10, edges // 10_000), homophily=0.8, seed=0)
        split = vcr.Split.random(graph.labels, seed=0)
        reset_peak_memory()
        before = peak_memory()
        store = vcr.tokenize(graph, split.train, config, Path(folder) / "tokens")
        stages = json.loads((store.path / "stages.json").read_text())
    row: dict[str, Any] = {"edges": edges, "neighbours": config.structure_tokens, "clusters": config.clusters}
    for name, parts in STAGES.items():
        row[name] = sum(stages[part]["seconds"] for part in parts)
        row[f"{name} bytes"] = max(stages[part]["peak_bytes"] for part in parts) - before
    row["all"] = sum(stage["seconds"] for stage in stages.values())
    row["all bytes"] = max(row[f"{name} bytes"] for name in STAGES)
    row["ranking visits per edge"] = sum(stages[part]["visits"] for part in STAGES["rankings"]) / edges
    return row


def slope(rows: list[dict[str, Any]], axis: str, column: str) -> float:
    """Return the fitted exponent of a column over the axis."""
    x, y = (np.log([max(1e-9, row[key]) for row in rows]) for key in (axis, column))
    return float(np.polyfit(x, y, 1)[0])


def slopes_table(slopes: dict[str, dict[str, float]]) -> str:
    """Return the fitted exponents as Markdown: time over each axis, and memory over edges."""
    columns = [("time over edges", "edges", ""), ("memory over edges", "edges", " bytes")]
    columns += [(f"time over {axis}", axis, "") for axis in ("neighbours", "clusters")]
    rows = [[stage, *(f"{slopes[axis][stage + unit]:.2f}" for _, axis, unit in columns)] for stage in COLOURS]
    return markdown_table(["", *(title for title, _, _ in columns)], rows)


def draw(axes: dict[str, list[dict[str, Any]]], slopes: dict[str, dict[str, float]], file: Path) -> None:
    """Draw time over each axis, and memory over edges."""
    figure, panels = plt.subplots(2, 2, figsize=(13, 7.5), dpi=110, layout="constrained")
    contents = [("edges", "", "seconds on two cores"), ("edges", " bytes", "bytes")]
    contents += [(axis, "", "seconds on two cores") for axis in ("neighbours", "clusters")]
    for panel, (axis, unit, label) in zip(panels.flat, contents, strict=True):
        rows = axes[axis]
        for stage, colour in COLOURS.items():
            x, y = [row[axis] for row in rows], [row[f"{stage}{unit}"] for row in rows]
            panel.loglog(x, y, marker="o", color=colour, label=f"{stage}: {slopes[axis][f'{stage}{unit}']:.2f}")
        panel.set(xlabel=axis, ylabel=label)
        if axis != "edges":
            panel.set_xticks(x, [str(value) for value in x])
            panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, title="slope", loc="upper left", bbox_to_anchor=(1, 1))
    figure.suptitle("tokenize on generated graphs, ten edges per node")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, data=False, out="results/growth.json")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of edges")
    parser.add_argument("--middle", type=int, default=MIDDLE, help="edges where neighbours and clusters are varied")
    parser.add_argument("--draw", action="store_true", help="only draw the figure, from the file that is there")
    return parser


def main() -> None:
    """Measure every point of the three axes, print, draw and write."""
    arguments = make_parser().parse_args()
    if arguments.draw:
        result = json.loads(arguments.out.read_text())
        draw(result["rows"], result["slopes"], arguments.out.with_suffix(".png"))
        return
    by_neighbours = [replace(CONFIG, structure_tokens=count, content_tokens=count) for count in NEIGHBOURS]
    by_clusters = [replace(CONFIG, clusters=count) for count in CLUSTERS]
    axes = {
        "edges": [in_a_process(measure, edges, CONFIG) for edges in arguments.sizes],
        "neighbours": [in_a_process(measure, arguments.middle, config) for config in by_neighbours],
        "clusters": [in_a_process(measure, arguments.middle, config) for config in by_clusters],
    }
    measured = [name for stage in COLOURS for name in (stage, f"{stage} bytes")]
    slopes = {axis: {name: slope(rows, axis, name) for name in measured} for axis, rows in axes.items()}
    for axis, rows in axes.items():
        print_table(rows)
        print(f"slopes over {axis}:", ", ".join(f"{name} {value:.2f}" for name, value in slopes[axis].items()))
    draw(axes, slopes, arguments.out.with_suffix(".png"))
    write_result(arguments.out, {"rows": axes, "slopes": slopes})
