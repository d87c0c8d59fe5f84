"""Accuracy tables of all result files in a folder, as Markdown; with `--plot`, as a picture too.

    python -m benchmarks table --plot docs

Nothing is trained. The tables of the documentation come from here.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from benchmarks.common import new_parser
from benchmarks.records import PROTOCOLS
from benchmarks.tables import accuracy_table, arrange, draw_accuracy, not_measured, read_results
from vcr_graphormer import StoreError


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, data=False, out="results/accuracy")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="draw accuracy-A.png and accuracy-B.png there too")
    return parser


def main() -> None:
    """Read the result files and print a table per protocol."""
    arguments = make_parser().parse_args()
    folder = arguments.out
    rows = read_results(folder)
    if not rows:
        raise StoreError(
            f"{folder} holds no result files: run python -m benchmarks accuracy first, or name another --out"
        )
    metrics = dict.fromkeys(["accuracy", *(row.get("metric", "accuracy") for row in rows)])
    for protocol, metric in itertools.product(PROTOCOLS, metrics):
        if arrange(rows, protocol, metric):
            print(f"Protocol {protocol}: {PROTOCOLS[protocol]}; test metric in percent, mean ± deviation\n")
            print(accuracy_table(rows, protocol, metric=metric) + "\n")
            if arguments.plot is not None and metric == "accuracy":
                picture = arguments.plot / f"accuracy-{protocol}.png"
                draw_accuracy(rows, protocol, picture)
                print(f"written: {picture}\n")
    if missing := not_measured(rows):
        print(f"Not measured: {', '.join(missing)}")
