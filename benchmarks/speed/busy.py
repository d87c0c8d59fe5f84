"""Time of a training beside a busy process: with the threads that the command chooses, and with others.

    python -m benchmarks busy --data ROOT                 about eight minutes on two cores that do nothing else

Trains the default model on digits and PubMed, each time in a new process: alone, and beside one process that counts
without end. All cases take turns, several rounds, and the median counts. "Asleep": threads that wait for others sleep,
as the command `vcr-graphormer` asks for. "Counting" is how OpenMP waits if nobody says anything. Writes
results/busy.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import markdown_table, new_parser, print_table, write_result
from benchmarks.speed.steps import rounded

# Name → settings of OpenMP, options of the command. 300,000 is what libgomp takes if nothing is set.
CASES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "as chosen": ({}, ()),
    "two threads, asleep": ({}, ("--threads", "2")),
    "two threads, spinning": ({"GOMP_SPINCOUNT": "300000"}, ("--threads", "2")),
}
EPOCHS = {"digits": 15, "PubMed": 4}
PROCESSES = (0, 1)  # busy ones beside the training


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep so many processes busy meanwhile."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def seconds(case: str, dataset: str, root: str, folder: Path) -> float:
    """Return how long the training took, without imports and token lists."""
    settings, options = CASES[case]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    command = [sys.executable, "-m", "vcr_graphormer", "train", "--out", str(folder), "--force", "--device", "cpu"]
    command += ["--quiet", "--baselines", "none", "--dataset", dataset, "--data", root, "--variant", "adaptive"]
    epochs = EPOCHS[dataset]
    command += ["--set", f"training.epochs={epochs}", "--set", f"training.patience={epochs}"]
    subprocess.run([*command, *options], env=environment | settings, check=True, stdout=subprocess.DEVNULL)
    return float(json.loads((folder / "metrics.json").read_text())["timings"]["train"])


def measure(dataset: str, root: str, rounds: int) -> list[dict[str, Any]]:
    """Return one row per case: seconds alone and beside a busy process, and their ratio."""
    times: dict[tuple[str, int], list[float]] = {(case, count): [] for case in CASES for count in PROCESSES}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for (case, count), measured in times.items():
                with busy(count):
                    measured.append(seconds(case, dataset, root, Path(folder) / "run"))
    rows = []
    for case in CASES:
        alone, beside = (float(np.median(times[case, count])) for count in PROCESSES)
        row = {"graph": dataset, "threads": case, "alone s": alone, "beside one busy process s": beside}
        rows.append({**row, "ratio": beside / alone})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    header = ["graph", "threads", "alone", "beside one busy process", "ratio"]
    times = [[f"{row[name]:.1f} s" for name in ("alone s", "beside one busy process s")] for row in rows]
    lines = [
        [row["graph"], row["threads"], *time, f"{row['ratio']:.2f}"] for row, time in zip(rows, times, strict=True)
    ]
    return markdown_table(header, lines)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, graphs=tuple(EPOCHS), out="results/busy.json")
    parser.add_argument("--rounds", type=int, default=3, help="trainings of each case")
    return parser


def main() -> None:
    """Measure and write the rows."""
    arguments = make_parser().parse_args()
    before = os.getloadavg()[0]
    rows = [rounded(row) for name in arguments.graphs for row in measure(name, arguments.data, arguments.rounds)]
    print_table(rows)
    write_result(arguments.out, {"load before": round(before, 1), "rows": rows})
