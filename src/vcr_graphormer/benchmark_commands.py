"""The commands `benchmark accuracy` and `benchmark table`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .options import DataRoot, Device

app = typer.Typer(no_args_is_help=True, help="Measure accuracy on the paper's datasets, and make tables of it.")
Results = Annotated[Path, typer.Option("--out", help="Folder of the result files.")]


@app.command()
def accuracy(
    datasets: Annotated[list[str], typer.Argument(help="Known datasets, for example PubMed Photo.")],
    data: DataRoot = None,
    variant: Annotated[
        list[str] | None, typer.Option("--variant", help="default, paper, hops or pagerank; repeatable.")
    ] = None,
    protocol: Annotated[str, typer.Option(help="A: random 60/20/20 by seed. B: the published fixed split.")] = "A",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0 to N-1.")] = 10,
    out: Results = Path("results/accuracy"),
    device: Device = "auto",
    force: Annotated[bool, typer.Option("--force", help="Run all seeds again, whatever there is.")] = False,
) -> None:
    """Train every dataset, variant and seed that has no result yet; interrupted, the same command goes on."""
    from .accuracy import measure_accuracy

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


@app.command()
def table(
    out: Results = Path("results/accuracy"),
    plot: Annotated[
        Path | None, typer.Option(help="Also draw the table into this folder, accuracy-A.png and -B.png.")
    ] = None,
) -> None:
    """Print the tables of all result files in a folder, as Markdown."""
    from .accuracy import PROTOCOLS
    from .errors import StoreError
    from .standings import accuracy_table, draw_accuracy, not_measured, read_results

    rows = read_results(out)
    if not rows:
        raise StoreError(
            f"{out} holds no result files: run vcr-graphormer benchmark accuracy first, or name another --out"
        )
    for protocol, meaning in PROTOCOLS.items():
        if any(row["protocol"] == protocol for row in rows):
            typer.echo(f"Protocol {protocol}: {meaning}; test metric in percent, mean ± deviation\n")
            typer.echo(accuracy_table(rows, protocol) + "\n")
            if plot is not None:
                draw_accuracy(rows, protocol, plot / f"accuracy-{protocol}.png")
                typer.echo(f"written: {plot / f'accuracy-{protocol}.png'}\n")
    if missing := not_measured(rows):
        typer.echo(f"Not measured: {', '.join(missing)}")
