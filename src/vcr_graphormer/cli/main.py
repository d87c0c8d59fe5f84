"""The command `vcr-graphormer`. Heavy imports happen inside commands, so that `--help` answers at once."""

from __future__ import annotations

import os
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import __version__
from ..errors import ProcessError, StoreError, VCRError
from .explain import explain, report
from .options import ConfigFile, DataRoot, DatasetName, Scheduler, Settings, Threads, Variant, read_config, say_error
from .train import embed, evaluate, predict, show_progress, train

if TYPE_CHECKING:
    from ..data.graph import Graph
    from ..data.split import Split

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Node predictions on large graphs with a mini-batch graph transformer (VCR-Graphormer, ICLR 2024).",
    epilog="Start with: vcr-graphormer demo",
)


def main() -> None:
    """Run the command; errors we raise on purpose become one line, not a traceback."""
    warnings.showwarning = _show_warning
    try:
        app(prog_name="vcr-graphormer")
    except VCRError as error:
        _tell(error)
        sys.exit(1)
    except KeyboardInterrupt:
        say_error("stopped")
        sys.exit(130)


def _tell(error: VCRError) -> None:
    """One line; of several processes under torchrun, the first speaks for those that only follow it into its end."""
    rank = int(os.environ.get("RANK", "0")) if "TORCHELASTIC_RUN_ID" in os.environ else 0
    if rank == 0:
        say_error(str(error))
    elif not isinstance(error, ProcessError):
        say_error(f"process {rank}: {error}")
    else:
        time.sleep(1)  # were this process the first to end, torchrun would end rank 0 before it has spoken


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    typer.secho("warning: ", fg="yellow", bold=True, nl=False, err=True)
    typer.echo(str(message), err=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vcr-graphormer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    pass


@app.command()
def datasets(
    name: Annotated[str | None, typer.Argument(help="A known name or a path: show this graph in detail.")] = None,
    data: DataRoot = None,
    config: ConfigFile = None,
    override: Settings = None,
    save: Annotated[
        Path | None, typer.Option(help="Save the graph as a memory-mapped folder that opens at once.")
    ] = None,
) -> None:
    """List the known datasets and what is present, or describe one of them (or your own data)."""
    chosen = read_config(config, override, dataset=name, root=data).data
    if name is None and config is None and save is None and not override:
        _list_datasets(Path(chosen.root))
        return
    from ..data.datasets import load_data

    graph, split = load_data(chosen)
    _describe(graph, split)
    if save is not None:
        if save.exists():
            raise StoreError(f"{save} exists: choose another folder or delete it")
        typer.echo(f"saved to {graph.save(save)}; read it again with: vcr-graphormer datasets {save}")


def _list_datasets(root: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    from ..base.machine import format_bytes
    from ..data.datasets import DATASETS, DIGITS, EMBEDDED

    table = Table(title=f"Datasets under {root}", caption="edges as the source stores them")
    for title in ("dataset", "nodes", "edges", "features", "classes"):
        table.add_column(title, justify="left" if title == "dataset" else "right", no_wrap=True)
    table.add_column("the paper's split")
    table.add_column("raw files")
    table.add_row(EMBEDDED, *(f"{count:,}" for count in DIGITS), "random 60/20/20", "[green]embedded[/]")
    missing = []
    for dataset in DATASETS.values():
        size = dataset.size(root)
        status = "PyG downloads them" if dataset.call else "[yellow]missing[/]"
        if size is not None:
            status = f"[green]present[/], {format_bytes(size)}"
        elif not dataset.call:
            missing.append(f"{dataset.name}: put {dataset.raw} and the files beside it under {root}")
        table.add_row(dataset.name, *(f"{count:,}" for count in dataset.stored), dataset.protocol, status)
    # A log or a pipe has no width of its own; the table needs 110 columns to keep one line per dataset.
    console = Console() if sys.stdout.isatty() else Console(width=110)
    console.print(table)
    for line in missing:
        typer.echo(line)
    typer.echo("your own data: vcr-graphormer datasets PATH (a folder with edges.csv, an .npz, a .graphml, …)")


def _describe(graph: Graph, split: Split | None) -> None:
    typer.echo(str(graph.summary()))
    if split is None:
        typer.echo("  split                  none: there are no labels")
    else:
        typer.echo(
            f"  split                  {len(split.train):,} train, {len(split.val):,} val, {len(split.test):,} test"
        )
    typer.echo(f"  fingerprint            {graph.fingerprint}")


@app.command()
def tokenize(
    dataset: DatasetName = None,
    data: DataRoot = None,
    out: Annotated[Path, typer.Option(help="Folder of the token store.")] = Path("tokens"),
    config: ConfigFile = None,
    variant: Variant = "default",
    override: Settings = None,
    threads: Threads = None,
    scheduler: Scheduler = None,
) -> None:
    """Compute every node's token list once and store it; interrupted, it resumes where it was."""
    from ..data.datasets import load_data
    from ..tokens.build import tokenize as make_tokens
    from ..tokens.dask import connect
    from .console import StageProgress, print_stages

    chosen = read_config(config, override, variant, dataset=dataset, root=data)
    try:
        # First the workers, then the data: whoever is missing is missed at once.
        with nullcontext() if scheduler is None else connect(scheduler) as executor:
            graph, split = load_data(chosen.data)
            typer.echo(repr(graph))
            train = None if split is None else split.train
            with StageProgress() as progress:
                store = make_tokens(graph, train, chosen.tokens, out, threads, progress, executor)
    except KeyboardInterrupt:
        say_error(f"stopped; the same command resumes what is finished in {out}")
        raise typer.Exit(130) from None
    print_stages(store.path / "stages.json")
    typer.echo(repr(store))


@app.command()
def settings() -> None:
    """List every setting of a run with its default and its meaning."""
    from dataclasses import fields

    from rich.console import Console
    from rich.table import Table

    from ..runs.config import Config

    table = Table("setting", "default", "meaning", title="settings, for TOML files and --set")
    for section in fields(Config):
        for item in fields(getattr(Config(), section.name)):
            table.add_row(f"{section.name}.{item.name}", repr(item.default), item.metadata["help"])
        table.add_section()
    Console(width=None if sys.stdout.isatty() else 120).print(table)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for what the demo makes.")] = Path("runs/demo"),
) -> None:
    """Show the whole path on embedded real data (handwritten digits), without any download."""
    import numpy as np

    from ..data.datasets import load_data
    from ..report.page import write_report
    from ..runs.launch import train as train_run
    from .console import StageProgress, print_history, print_stages

    typer.echo("1. load scikit-learn's handwritten digits as a graph of nearest neighbours, and split it")
    config = read_config(None, ["training.epochs=60", "training.patience=20"])  # this is an easy one
    graph, split = load_data(config.data)
    assert split is not None
    _describe(graph, split)
    typer.echo(
        "2. turn every image into a list of 20 tokens: itself, 3 hops, 8 structure- and 8 content-aware neighbours,\n"
        "   and train a transformer on the lists of the training images"
    )
    mark = out / "demo"  # what an earlier demo made may be replaced; other runs are not
    own_run = mark.is_file()
    with show_progress(config.training.epochs) as (progress, on_epoch):

        def note(stage: str, done: int, total: int) -> None:
            mark.touch()
            progress(stage, done, total)

        run = train_run(graph, split, config, out, force=own_run, progress=note, on_epoch=on_epoch)
    print_stages(run.tokens_folder / "stages.json")
    run.store.verify()
    own = np.asarray(graph.labels)
    for kind in ("structure", "content"):
        shown = ", ".join(f"{i} (a {own[i]})" for i in run.store.ids(kind)[0][:5])
        typer.echo(f"   image 0 (a {own[0]}), {kind} tokens: {shown}, …")
    typer.echo("3. read the result, with images the model has never seen")
    print_history(run)
    wrong = split.test[run.predict(split.test).labels != own[split.test]]
    typer.echo(f"   {len(wrong)} of {len(split.test)} test images wrong, the first: {', '.join(map(str, wrong[:5]))}")
    typer.echo("4. write the report, a page to look at")
    with StageProgress() as progress:
        page = write_report(run, progress=progress)
    typer.echo(f"test accuracy {run.metrics['test']:.4f}; the run lies in {run.path}, its report in {page}")
    typer.echo(f"next: vcr-graphormer evaluate {run.path}")
    typer.echo(f"      vcr-graphormer predict {run.path} --nodes 0,1,2")
    typer.echo(f"      vcr-graphormer explain {run.path} --node 0")
    typer.echo("      vcr-graphormer datasets                  what else can be loaded")
    typer.echo("      vcr-graphormer train --dataset PATH      your own edges, features and labels")


for command in (train, evaluate, predict, embed, explain, report):
    app.command()(command)
