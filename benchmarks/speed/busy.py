"""Time of a training beside a busy process: with threads that wait actively, passively, and with one thread.

    python -m benchmarks busy

Trains the default model on the digits, each time in a new process: alone, and beside one process that counts without
end. All cases take turns, several rounds, and the median counts. "active" is how OpenMP waits if nobody says anything;
the command `vcr-graphormer` chooses "passive". Writes results/busy.json.
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

from benchmarks.common import new_parser, print_table, write_result
from benchmarks.speed.steps import rounded

# Name → settings of OpenMP, options of the command. 300,000 is what libgomp takes if nothing is set.
CASES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "active": ({"GOMP_SPINCOUNT": "300000"}, ()),
    "passive": ({}, ()),
    "passive, one thread": ({}, ("--threads", "1")),
}
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


def seconds(case: str, epochs: int, folder: Path) -> float:
    """Return how long the training took, without imports and token lists."""
    settings, options = CASES[case]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    command = [sys.executable, "-m", "vcr_graphormer", "train", "--out", str(folder), "--force", "--device", "cpu"]
    command += ["--quiet", "--baselines", "none"]
    command += ["--set", f"training.epochs={epochs}", "--set", f"training.patience={epochs}"]
    subprocess.run([*command, *options], env=environment | settings, check=True, stdout=subprocess.DEVNULL)
    return float(json.loads((folder / "metrics.json").read_text())["timings"]["train"])


def measure(epochs: int, rounds: int) -> list[dict[str, Any]]:
    """Return one row per case: seconds alone and beside a busy process, and their ratio."""
    times: dict[tuple[str, int], list[float]] = {(case, count): [] for case in CASES for count in PROCESSES}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for (case, count), measured in times.items():
                with busy(count):
                    measured.append(seconds(case, epochs, Path(folder) / "run"))
    rows = []
    for case in CASES:
        alone, beside = (float(np.median(times[case, count])) for count in PROCESSES)
        rows.append({"waiting": case, "alone s": alone, "beside one busy process s": beside, "ratio": beside / alone})
    return rows


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, data=False, out="results/busy.json")
    parser.add_argument("--epochs", type=int, default=15, help="of each training")
    parser.add_argument("--rounds", type=int, default=3, help="trainings of each case")
    return parser


def main() -> None:
    """Measure and write the rows."""
    arguments = make_parser().parse_args()
    before = os.getloadavg()[0]
    rows = [rounded(row) for row in measure(arguments.epochs, arguments.rounds)]
    print_table(rows)
    write_result(Path(arguments.out), {"dataset": "digits", "load before": round(before, 1), "rows": rows})
