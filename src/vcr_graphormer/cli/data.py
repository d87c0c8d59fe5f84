"""The commands `datasets` and `settings`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import StoreError
from .options import ConfigFile, DataRoot, Settings, read_config

if TYPE_CHECKING:
    from ..data.graph import Graph
    from ..data.split import Split


def datasets(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME|PATH", help="Describe this published dataset or your own data.")
    ] = None,
    data: DataRoot = None,
    config: ConfigFile = None,
    override: Settings = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Save the graph as a folder, which is read much faster.")
    ] = None,
) -> None:
    """List the published datasets, or describe one. The list shows which raw files are there."""
    chosen = read_config(config, override, dataset=name, root=data).data
    if name is None and config is None and save is None and not override:
        _list_datasets(Path(chosen.root))
        return
    from ..data.catalogue import find_dataset
    from ..data.datasets import load_data, load_splits

    graph, split = load_data(chosen)
    describe(graph, split)
    if save is not None:
        if save.exists():
            raise StoreError(f"{save} exists: choose another folder or delete it")
        graph.save(save)
        if split is not None and find_dataset(chosen.dataset) is None and load_splits(chosen.dataset, graph=graph):
            split.save(save / "split.npz", graph.num_nodes)  # the user's own split stays with the graph
        typer.echo(f"saved to {save}; read it again with: vcr-graphormer datasets {save}")


def _list_datasets(root: Path) -> None:
    from rich.table import Table

    from ..base.machine import format_bytes
    from ..data.catalogue import DATASETS, RANDOM
    from ..data.datasets import DIGITS, EMBEDDED
    from .console import make_console

    table = Table(title=f"Datasets under {root}", caption="edges: as the raw files count them")
    for title in ("dataset", "nodes", "edges", "features", "classes"):
        table.add_column(title, justify="left" if title == "dataset" else "right", no_wrap=True)
    table.add_column("the paper's split")
    table.add_column("raw files")
    table.add_row(EMBEDDED, *(f"{count:,}" for count in DIGITS), RANDOM.text, "[green]embedded[/]")
    missing = []
    for dataset in DATASETS.values():
        size = dataset.size(root)
        status = "downloaded when needed" if dataset.downloads else "[yellow]missing[/]"
        if size is not None:
            status = f"[green]present[/], {format_bytes(size)}"
        elif not dataset.downloads:
            missing.append(f"{dataset.name}: put {dataset.raw} and the files beside it under {root}")
        table.add_row(dataset.name, *(f"{count:,}" for count in dataset.stored), dataset.protocol.text, status)
    make_console().print(table)
    for line in missing:
        typer.echo(line)
    typer.echo("your own data: vcr-graphormer datasets PATH (a folder with edges.csv, an .npz, a .graphml, …)")


def describe(graph: Graph, split: Split | None) -> None:
    """Print the summary of a graph, the sizes of its split and its fingerprint."""
    typer.echo(str(graph.summary()))
    if split is None:
        typer.echo("  split                  none: there are no labels")
    else:
        typer.echo(
            f"  split                  {len(split.train):,} train, {len(split.val):,} val, {len(split.test):,} test"
        )
    typer.echo(f"  fingerprint            {graph.fingerprint}")


def settings() -> None:
    """List every setting with its default and its meaning."""
    from dataclasses import fields

    from rich.table import Table

    from ..runs.config import Config, shown
    from .console import make_console

    table = Table("setting", "default", "meaning", title="settings of a run, for TOML files and --set")
    for section in fields(Config):
        values = getattr(Config(), section.name)
        for item in fields(values):
            default = str(shown(values, item.name))
            default = default.lower() if isinstance(item.default, bool) else default
            table.add_row(f"{section.name}.{item.name}", default, item.metadata["help"])
        table.add_section()
    make_console().print(table)
