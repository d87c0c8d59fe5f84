"""Tables and pictures of accuracy, made from the result files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import markdown_table
from vcr_graphormer.base.files import read_json
from vcr_graphormer.data.catalogue import DATASETS
from vcr_graphormer.errors import ConfigError, StoreError
from vcr_graphormer.runs.presets import VARIANTS

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
# The best published on the fixed splits of protocol B, to our knowledge: tuned GAT, GraphSAGE, GraphSAGE and GCN.
BEST_PUBLISHED = {"Computer": 94.09, "Photo": 96.78, "CS": 96.38, "Physics": 97.46}
# The last row of a table by protocol: its name, its numbers, and the text where there is no number.
COMPARED = {"A": (PRINTED, PAPER_RESULTS, "figure only"), "B": ("best published", BEST_PUBLISHED, "not looked up")}
METRIC_NAMES = {"roc_auc": "ROC-AUC"}  # where the name in a table is another than in the settings
# The names of methods in tables, in the order of the rows.
METHODS = {
    "nearest": "nearest by links",
    "MLP": "MLP",
    "GCN": "GCN",
    "GraphSAGE": "GraphSAGE",
    "GAT": "GAT",
    "APPNP": "APPNP",
    "LINKX": "LINKX",
    "hops": "hops only",
    "pagerank": "hops and PageRank, no super nodes",
    "paper": "VCR-Graphormer, the paper's settings",
    "adaptive": "VCR-Graphormer, default",
    "reduced": "our settings with parts left out",
    "no-neighbours": "our presets without neighbours",
    "default": "VCR-Graphormer, our presets",
}

OURS = VARIANTS  # rows that are no baselines


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Return the content of every result file, with mean and deviation of its runs in percent."""
    rows = []
    for file in sorted(folder.glob("*-[AB]-*.json")):
        try:
            content = read_json(file)
            values = [100 * float(run["test"]) for run in content["runs"]]
            _ = content["dataset"], content["protocol"], content["variant"]
        except (StoreError, KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{file} is damaged or no result file: delete it and measure again") from error
        if not values:
            continue
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        rows.append({**content, "mean": float(np.mean(values)), "std": spread, "count": len(values)})
    return rows


def arrange(
    rows: list[dict[str, Any]], protocol: str, metric: str = "accuracy"
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the rows of one protocol and metric by dataset and variant, in the order of the paper's tables."""
    rows_here = [row for row in rows if (row["protocol"], row.get("metric", "accuracy")) == (protocol, metric)]
    chosen = {(row["dataset"], row["variant"]): row for row in rows_here}
    datasets = dict.fromkeys([*DATASETS, *(name for name, _ in chosen)])
    variants = methods(rows)
    arranged = {
        name: {variant: chosen[name, variant] for variant in variants if (name, variant) in chosen} for name in datasets
    }
    return {name: results for name, results in arranged.items() if results}


def methods(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return the name in tables of every variant; unknown variants come last, under their own name."""
    return METHODS | {row["variant"]: row["variant"] for row in rows if row["variant"] not in METHODS}


def accuracy_table(
    rows: list[dict[str, Any]], protocol: str, only: tuple[str, ...] = (), metric: str = "accuracy"
) -> str:
    """Return a Markdown table of one protocol and metric: a row per method, a column per dataset.

    The best number of a column is bold, if there are several. `only` names the variants to show (default: all); the
    others still count for what is bold.
    """
    by_dataset = arrange(rows, protocol, metric)
    shown = {
        name: method
        for name, method in methods(rows).items()
        if (not only or name in only) and any(name in results for results in by_dataset.values())
    }
    means = {name: {variant: row["mean"] for variant, row in results.items()} for name, results in by_dataset.items()}
    # What others print is accuracy.
    label, numbers, absent = COMPARED[protocol] if metric == "accuracy" else ("", {}, "")
    for name in means.keys() & numbers.keys():
        means[name][label] = numbers[name]
    lines = []
    for variant, method in shown.items():
        cells = [
            _cell(means[name], variant, f"{results[variant]['mean']:.2f} ± {results[variant]['std']:.2f}")
            if variant in results
            else "not measured"
            for name, results in by_dataset.items()
        ]
        lines.append([method, *cells])
    if label:
        last = [_cell(means[name], label, f"{numbers[name]:.2f}") if name in numbers else absent for name in by_dataset]
        lines.append([label, *last])
    return markdown_table([f"test {METRIC_NAMES.get(metric, metric)}, %", *by_dataset], lines)


def paired_table(rows: list[dict[str, Any]], protocol: str = "A") -> str:
    """Return a Markdown table of our presets against the best baseline of each dataset, split by split.

    Both methods have the same splits, so the mean difference has a smaller error than two means by themselves.
    """
    lines = []
    for name, results in arrange(rows, protocol).items():
        others = [variant for variant in results if variant not in OURS]
        if "default" not in results or not others:
            continue
        best = max(others, key=lambda variant: float(results[variant]["mean"]))
        tests = [{run["seed"]: 100 * run["test"] for run in results[which]["runs"]} for which in ("default", best)]
        seeds = sorted(tests[0].keys() & tests[1].keys())
        gain = np.array([tests[0][seed] - tests[1][seed] for seed in seeds])
        error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.nan
        missing = "" if len(others) == len(METHODS) - len(OURS) else f" (of {len(others)} measured)"
        cells = [name, METHODS.get(best, best) + missing, f"{gain.mean():+.2f}", f"{error:.2f}"]
        lines.append([*cells, f"{(gain > 0).sum()} of {len(gain)}"])
    header = ["", "best baseline", "ours minus it", "standard error", "splits on which ours is better"]
    return markdown_table(header, lines)


def _cell(means: dict[str, float], variant: str, text: str) -> str:
    return f"**{text}**" if len(means) > 1 and means[variant] == max(means.values()) else text


def not_measured(rows: list[dict[str, Any]]) -> list[str]:
    """Return the names of the paper's datasets without a result."""
    measured = {row["dataset"] for row in rows}
    return [name for name, dataset in DATASETS.items() if dataset.paper is not None and name not in measured]


def draw_accuracy(rows: list[dict[str, Any]], protocol: str, file: Path) -> None:
    """Draw a panel per dataset: the mean of each method, its deviation and every single run."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ConfigError("a plot needs the package matplotlib: pip install matplotlib") from error
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    by_dataset = arrange(rows, protocol)
    columns = min(4, len(by_dataset))
    lines = -(-len(by_dataset) // columns)
    figure, panels = plt.subplots(lines, columns, figsize=(3.4 * columns, 2.9 * lines), dpi=110, squeeze=False)
    for panel in panels.flat[len(by_dataset) :]:
        panel.set_visible(False)
    names = methods(rows)
    variants = [name for name in names if any(name in results for results in by_dataset.values())]
    for number, (panel, (dataset, results)) in enumerate(zip(panels.flat, by_dataset.items(), strict=False)):
        for variant, row in results.items():
            height = variants.index(variant)
            # Colours that colour-blind readers can tell apart; ours also has another marker.
            colour, marker = ("#D55E00", "D") if variant == "default" else ("#0072B2", "o")
            runs = [100 * run["test"] for run in row["runs"]]
            panel.plot(runs, [height] * len(runs), "|", color="#999999", zorder=1)
            panel.errorbar(row["mean"], height, xerr=row["std"], fmt=marker, color=colour, capsize=3, zorder=2)
        if protocol == "A" and dataset in PAPER_RESULTS:
            panel.axvline(PAPER_RESULTS[dataset], color="#009E73", linestyle="--", linewidth=1)
        labels = [names[name] for name in variants] if number % columns == 0 else []
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
