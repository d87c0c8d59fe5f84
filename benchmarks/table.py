"""The tables of all result files in a folder, as Markdown; with `--plot`, as a picture too.

python -m benchmarks table --plot docs
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import run_command
from benchmarks.records import PROTOCOLS
from benchmarks.tables import accuracy_table, draw_accuracy, not_measured, read_results
from vcr_graphormer import StoreError


def table(
    out: Annotated[Path, typer.Option(help="Folder of the result files.")] = Path("results/accuracy"),
    plot: Annotated[
        Path | None, typer.Option(help="Also draw the table into this folder, accuracy-A.png and -B.png.")
    ] = None,
) -> None:
    """Print the tables of all result files in a folder, as Markdown."""
    rows = read_results(out)
    if not rows:
        raise StoreError(f"{out} holds no result files: run python -m benchmarks accuracy first, or name another --out")
    for protocol, meaning in PROTOCOLS.items():
        if any(row["protocol"] == protocol for row in rows):
            typer.echo(f"Protocol {protocol}: {meaning}; test metric in percent, mean ± deviation\n")
            typer.echo(accuracy_table(rows, protocol) + "\n")
            if plot is not None:
                draw_accuracy(rows, protocol, plot / f"accuracy-{protocol}.png")
                typer.echo(f"written: {plot / f'accuracy-{protocol}.png'}\n")
    if missing := not_measured(rows):
        typer.echo(f"Not measured: {', '.join(missing)}")


def main() -> None:
    """Run the command."""
    run_command(table)


if __name__ == "__main__":
    main()
