"""Accuracy of datasets × variants × seeds, one JSON file each.

python -m benchmarks accuracy PubMed Photo --data ROOT --variant default --protocol A --seeds 10
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import run_command
from benchmarks.records import measure_accuracy
from vcr_graphormer.cli.options import DataRoot, Device


def accuracy(
    datasets: Annotated[list[str], typer.Argument(help="Known datasets, for example PubMed Photo.")],
    data: DataRoot = None,
    variant: Annotated[
        list[str] | None, typer.Option("--variant", help="default, paper, hops or pagerank; repeatable.")
    ] = None,
    protocol: Annotated[str, typer.Option(help="A: random 60/20/20 by seed. B: the published fixed split.")] = "A",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0 to N-1.")] = 10,
    out: Annotated[Path, typer.Option(help="Folder of the result files.")] = Path("results/accuracy"),
    device: Device = "auto",
    force: Annotated[bool, typer.Option("--force", help="Run all seeds again, whatever there is.")] = False,
) -> None:
    """Train every dataset, variant and seed that has no result yet; interrupted, the same command goes on."""

    def tell(content: dict[str, Any], run: dict[str, Any]) -> None:
        name = f"{content['dataset']} {content['protocol']} {content['variant']} seed {run['seed']}"
        typer.echo(f"{name}: val {100 * run['val']:.2f} test {100 * run['test']:.2f} ({run['seconds']:.1f} s)")

    for dataset in datasets:
        chosen = variant or ["default"]
        files = measure_accuracy(
            dataset, chosen, list(range(seeds)), out, data or "data", protocol, device, force, on_run=tell
        )
        for file in files:
            typer.echo(f"written: {file}")


def main() -> None:
    """Run the command."""
    run_command(accuracy)


if __name__ == "__main__":
    main()
