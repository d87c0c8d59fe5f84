"""Tables and pictures of the comparison with baselines, made from the files; nothing is trained.

    python -m benchmarks compare --out results/baselines --plot docs

Prints the test metric of every method and graph, what our method gains split by split, average ranks with the critical
difference of Nemenyi, seconds and memory, and the check against published numbers. What is not there is "not measured".
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import studentized_range

from benchmarks.baselines.baselines import ALL_GRAPHS, BY_AUC, CHECK_FILE
from benchmarks.baselines.journal import TRIAL, read, runs_of
from benchmarks.baselines.pictures import draw_costs, draw_ranks
from benchmarks.baselines.published import CHECKS
from benchmarks.baselines.spaces import DEFAULT, METHODS
from benchmarks.common import markdown_table, new_parser, percent

OURS = "VCR-Graphormer"
ABSENT = "not measured"
FEWEST_GRAPHS = 3  # that average ranks are computed from
Runs = dict[tuple[str, str], dict[int, dict[str, Any]]]


def read_runs(folder: Path) -> Runs:
    """Return the runs by graph and method, and by seed."""
    runs: Runs = {}
    for graph in ALL_GRAPHS:
        rows = read(folder / f"{graph}.jsonl")
        for method in METHODS:
            if by_seed := runs_of(rows, method):
                runs[graph, method] = by_seed
    return runs


def measured(runs: Runs) -> tuple[list[str], list[str]]:
    """Return the graphs and the methods that have a run, in the order of the tables."""
    graphs = [graph for graph in ALL_GRAPHS if any(graph == other for other, _ in runs)]
    return graphs, [method for method in METHODS if any(method == other for _, other in runs)]


def tests(runs: Mapping[int, dict[str, Any]]) -> list[float]:
    """Return the test metric of every seed."""
    return [runs[seed]["test"] for seed in sorted(runs)]


def accuracy_table(runs: Runs) -> str:
    """Return mean ± standard deviation of the test metric in percent, the best mean of each graph in bold."""
    graphs, methods = measured(runs)
    best = {graph: max(np.mean(tests(runs[graph, m])) for m in methods if (graph, m) in runs) for graph in graphs}

    def cell(graph: str, method: str) -> str:
        values = tests(runs[graph, method]) if (graph, method) in runs else []
        if len(values) < 2:
            return f"{100 * values[0]:.2f}" if values else ABSENT
        return f"**{percent(values)}**" if np.mean(values) == best[graph] else percent(values)

    header = ["test metric, %", *(f"{graph} (ROC-AUC)" if graph in BY_AUC else graph for graph in graphs)]
    return markdown_table(header, [[method, *(cell(graph, method) for graph in graphs)] for method in methods])


def gain(runs: Runs, graph: str, method: str, ours: str = OURS) -> tuple[float, float] | None:
    """Return what ours gains over a method in points, and its standard error, over the seeds that both have."""
    mine, other = runs.get((graph, ours), {}), runs.get((graph, method), {})
    seeds = sorted(mine.keys() & other.keys())
    if len(seeds) < 2:
        return None
    gains = 100 * np.array([mine[seed]["test"] - other[seed]["test"] for seed in seeds])
    return float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))


def differences_table(runs: Runs, ours: str = OURS) -> str:
    """Return what our method gains over each other one, split by split, ± standard error."""
    graphs, methods = measured(runs)
    lines = []
    for method in methods:
        if method != ours:
            found = (gain(runs, graph, method, ours) for graph in graphs)
            lines.append([method, *(ABSENT if pair is None else f"{pair[0]:+.2f} ± {pair[1]:.2f}" for pair in found)])
    return markdown_table([f"{ours} minus, points", *graphs], lines)


def average_ranks(runs: Runs) -> tuple[dict[str, float], list[str], list[str]]:
    """Return the average rank of methods by mean test metric, 1 is best, the graphs it counts, and who is left out.

    A method counts if it has a run on most graphs that any method has; a graph counts if all those methods have it.
    """
    graphs, methods = measured(runs)
    counted = [m for m in methods if 2 * sum((graph, m) in runs for graph in graphs) > len(graphs)]
    whole = [graph for graph in graphs if all((graph, method) in runs for method in counted)]
    if not counted or not whole:
        return {}, [], methods
    table = np.array([[np.mean(tests(runs[graph, method])) for method in counted] for graph in whole])
    above, equal = table[:, None, :] > table[:, :, None], table[:, None, :] == table[:, :, None]
    ranks = (1 + above.sum(2) + (equal.sum(2) - 1) / 2).mean(0)
    named = dict(sorted(zip(counted, ranks.tolist(), strict=True), key=lambda item: item[1]))
    return named, whole, [method for method in methods if method not in counted]


def critical_difference(methods: int, graphs: int, level: float = 0.05) -> float:
    """Return Nemenyi's critical difference of average ranks: q √(k (k + 1) / 6 N) (Demšar 2006).

    >>> round(critical_difference(4, 14, 0.10), 2)
    1.12
    """
    quantile = float(studentized_range.ppf(1 - level, methods, np.inf)) / np.sqrt(2)
    return float(quantile * np.sqrt(methods * (methods + 1) / (6 * graphs)))


def ranks_text(runs: Runs) -> str:
    """Return average ranks as a table, with the critical difference, and what they leave out."""
    ranks, graphs, left_out = average_ranks(runs)
    if len(ranks) < 2 or len(graphs) < FEWEST_GRAPHS:
        return f"Average ranks: {ABSENT} (they need two methods on {FEWEST_GRAPHS} graphs)."
    table = markdown_table(["", "average rank"], [[method, f"{rank:.2f}"] for method, rank in ranks.items()])
    difference = critical_difference(len(ranks), len(graphs))
    note = f"Graphs: {', '.join(graphs)}. Critical difference (Nemenyi, 5 %): {difference:.2f}."
    return f"{table}\n\n{note}" + (f" Left out: {', '.join(left_out)}." if left_out else "")


def costs_of(rows: Sequence[dict[str, Any]], runs: Mapping[int, dict[str, Any]]) -> tuple[float, float, float | None]:
    """Return the median seconds of one training, seconds of search and runs together, and peak gigabytes.

    Where several networks were trained as one, one training is the run that was alone.
    """
    alone = [row for row in runs.values() if "together" not in row] or list(runs.values())
    median = float(np.median([row["seconds"] for row in alone]))
    searched = sum(row["seconds"] for row in rows if row["stage"] == TRIAL)
    memory = [row["memory"] for row in alone if row.get("memory")]
    total = searched + sum(row["seconds"] for row in runs.values())
    return median, total, max(memory) / 1e9 if memory else None


def costs(folder: Path, runs: Runs) -> dict[tuple[str, str], tuple[float, float, float | None]]:
    """Return the costs of every graph and method that has runs."""
    found = {}
    for (graph, method), by_seed in runs.items():
        rows = [row for row in read(folder / f"{graph}.jsonl") if row["method"] == method]
        found[graph, method] = costs_of(rows, by_seed)
    return found


def costs_table(found: Mapping[tuple[str, str], tuple[float, float, float | None]], runs: Runs) -> str:
    """Return seconds of one training, seconds of everything, and peak memory, as one cell per graph and method."""
    graphs, methods = measured(runs)

    def cell(graph: str, method: str) -> str:
        if (graph, method) not in found:
            return ABSENT
        one, total, memory = found[graph, method]
        return f"{one:.1f} s, {total:.0f} s" + ("" if memory is None else f", {memory:.2f} GB")

    header = ["one training, search and runs, peak memory", *graphs]
    return markdown_table(header, [[method, *(cell(graph, method) for graph in graphs)] for method in methods])


def check_table(folder: Path) -> str:
    """Return published numbers beside ours on the same split."""
    rows, lines = read(folder / CHECK_FILE), []
    for method, check in CHECKS.items():
        runs = runs_of([row for row in rows if row["graph"] == check.graph], method)
        values = tests(runs)
        ours = percent(values) if len(values) > 1 else ABSENT
        printed = f"{check.accuracy}" + ("" if check.deviation is None else f" ± {check.deviation}")
        lines.append([method, check.graph, check.split, printed, ours, check.source])
    return markdown_table(["", "graph", "split", "published", "here", "source"], lines)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, data=False, out="results/baselines")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="draw baselines-ranks.svg and baselines-costs.svg")
    return parser


def main() -> None:
    """Print all tables and draw the pictures."""
    arguments = make_parser().parse_args()
    runs = read_runs(arguments.out)
    if not runs:
        print(f"Nothing is measured yet in {arguments.out}.\n")
    else:
        found = costs(arguments.out, runs)
        gains = [differences_table(runs, ours) for ours in (OURS, DEFAULT) if any(ours == name for _, name in runs)]
        tables = (accuracy_table(runs), *gains, ranks_text(runs), costs_table(found, runs))
        print("\n\n".join(tables) + "\n")
        if arguments.plot is not None:
            ranks, graphs, _ = average_ranks(runs)
            if len(ranks) > 1 and len(graphs) >= FEWEST_GRAPHS:
                draw_ranks(arguments.plot / "baselines-ranks.svg", ranks, critical_difference(len(ranks), len(graphs)))
            means = {key: 100 * float(np.mean(tests(by_seed))) for key, by_seed in runs.items()}
            draw_costs(arguments.plot / "baselines-costs.svg", means, found, ours=OURS)
    print(check_table(arguments.out))
