"""Tables and a picture of accuracy, made from result files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .datasets import DATASETS
from .errors import ConfigError
from .storage import read_json

# Test accuracy in percent as printed in the paper's table, for comparison.
PAPER_RESULTS = {
    "PubMed": 89.77,
    "CoraFull": 71.67,
    "Computer": 91.75,
    "Photo": 95.53,
    "CS": 95.37,
    "Physics": 97.34,
    "Reddit": 93.69,
    "AMiner": 53.59,
    "Amazon2M": 76.09,
    "arXiv-year": 54.15,
}
PRINTED = "printed in the paper"
# Our variants under the names a stranger understands; yardsticks keep theirs. Their order is the table's.
METHODS = {
    "MLP": "MLP",
    "GCN": "GCN",
    "GraphSAGE": "GraphSAGE",
    "GAT": "GAT",
    "APPNP": "APPNP",
    "LINKX": "LINKX",
    "hops": "hops only",
    "pagerank": "hops and PageRank, no super nodes",
    "paper": "VCR-Graphormer, the paper's settings",
    "default": "VCR-Graphormer, our presets",
}


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Every result file with mean and deviation of its runs, in percent."""
    rows = []
    for file in sorted(folder.glob("*-[AB]-*.json")):
        content = read_json(file)
        values = [100 * run["test"] for run in content["runs"]]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        rows.append({**content, "mean": float(np.mean(values)), "std": spread, "count": len(values)})
    return rows


def arrange(rows: list[dict[str, Any]], protocol: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Dataset → variant → row of one protocol, both in the order of the paper's tables."""
    chosen = {(row["dataset"], row["variant"]): row for row in rows if row["protocol"] == protocol}
    datasets = dict.fromkeys([*DATASETS, *(name for name, _ in chosen)])
    found = {
        name: {variant: chosen[name, variant] for variant in METHODS if (name, variant) in chosen} for name in datasets
    }
    return {name: results for name, results in found.items() if results}


def accuracy_table(rows: list[dict[str, Any]], protocol: str, only: tuple[str, ...] = ()) -> str:
    """A Markdown table of one protocol: a row per method, a column per dataset, the best of each column in bold.

    `only`: of these variants; the default is all.
    """
    found = arrange([row for row in rows if not only or row["variant"] in only], protocol)
    lines = ["| test accuracy, % | " + " | ".join(found) + " |", "| --- |" + " --- |" * len(found)]
    for variant, method in METHODS.items():
        if any(variant in results for results in found.values()):
            cells = (_cell(results, variant) for results in found.values())
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
    if protocol == "A":
        printed = (f"{PAPER_RESULTS[name]:.2f}" if name in PAPER_RESULTS else "figure only" for name in found)
        lines.append(f"| {PRINTED} | " + " | ".join(printed) + " |")
    return "\n".join(lines)


def _cell(results: dict[str, dict[str, Any]], variant: str) -> str:
    if variant not in results:
        return "not measured"
    row = results[variant]
    best = max(result["mean"] for result in results.values())
    text = f"{row['mean']:.2f} ± {row['std']:.2f}"
    return f"**{text}**" if row["mean"] == best else text


def not_measured(rows: list[dict[str, Any]]) -> list[str]:
    """The paper's datasets without a result."""
    measured = {row["dataset"] for row in rows}
    return [name for name, dataset in DATASETS.items() if dataset.paper is not None and name not in measured]


def draw_accuracy(rows: list[dict[str, Any]], protocol: str, file: Path) -> None:
    """A panel per dataset: each method's mean, its deviation and every single run."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ConfigError("a plot needs the package matplotlib: pip install matplotlib") from error
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    found = arrange(rows, protocol)
    columns = min(4, len(found))
    lines = -(-len(found) // columns)
    figure, panels = plt.subplots(lines, columns, figsize=(3.4 * columns, 2.9 * lines), dpi=110, squeeze=False)
    for panel in panels.flat[len(found) :]:
        panel.set_visible(False)
    variants = [name for name in METHODS if any(name in results for results in found.values())]
    for number, (panel, (dataset, results)) in enumerate(zip(panels.flat, found.items(), strict=False)):
        for variant, row in results.items():
            place = variants.index(variant)
            # Colours that stay apart for the colour-blind; ours also differs by its marker.
            colour, marker = ("#D55E00", "D") if variant == "default" else ("#0072B2", "o")
            runs = [100 * run["test"] for run in row["runs"]]
            panel.plot(runs, [place] * len(runs), "|", color="#999999", zorder=1)
            panel.errorbar(row["mean"], place, xerr=row["std"], fmt=marker, color=colour, capsize=3, zorder=2)
        if protocol == "A" and dataset in PAPER_RESULTS:
            panel.axvline(PAPER_RESULTS[dataset], color="#009E73", linestyle="--", linewidth=1)
        labels = [METHODS[name] for name in variants] if number % columns == 0 else []
        panel.set_yticks(range(len(variants)), labels or [""] * len(variants), fontsize=8)
        panel.set_ylim(len(variants) - 0.5, -0.5)
        panel.set_title(dataset, fontsize=10)
        panel.grid(axis="x", color="#dddddd", linewidth=0.5)
        panel.spines[["top", "right"]].set_visible(False)
    note = "; dashed: printed in the paper" if protocol == "A" else ""
    figure.suptitle(f"Test accuracy in percent, protocol {protocol}: mean, deviation and every run{note}", fontsize=11)
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)
    plt.close(figure)
