"""The commands `datasets` and `settings`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import StoreError
from .options import ConfigFile, DataRoot, Settings, read_config, show_reading
from .output import quoted, say

if TYPE_CHECKING:
    from ..data.columns.preparation import Preparation
    from ..data.datasets import DataConfig
    from ..data.graph import Graph
    from ..data.split import Split
    from ..data.summary import FeatureSummary

LISTED_FEATURES = 40  # more are counted, not listed
LISTED_CLASSES = 20


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
    from ..base.checksums import record
    from ..data.catalogue import find_dataset
    from ..data.datasets import load_data, load_splits

    with show_reading() as shown:
        graph, split = load_data(chosen, **shown)
    describe(graph, split)
    _describe_features(graph, split, chosen)
    if save is not None:
        if save.exists():
            raise StoreError(f"{save} exists: choose another folder or delete it")
        graph.save(save)
        if split is not None and find_dataset(chosen.dataset) is None and load_splits(chosen.dataset, graph=graph):
            split.save(save / "split.npz", graph.num_nodes)  # the user's own split stays with the graph
            record(save, ["split.npz"])
        say(f"saved to {save}; read it again with: vcr-graphormer datasets {quoted(save)}")


def _list_datasets(root: Path) -> None:
    from rich.table import Table

    from ..base.machine import format_bytes
    from ..data.catalogue import DATASETS, RANDOM
    from ..data.datasets import DIGITS, EMBEDDED
    from .console import cell, show

    table = Table(title=cell(f"Datasets under {root}"), caption="edges: as the raw files count them")
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
    show(table)
    for line in missing:
        say(line)
    say("your own data: vcr-graphormer datasets PATH (a folder with edges.csv, an .npz, a .graphml, …)")


def describe(graph: Graph, split: Split | None) -> None:
    """Print the summary of a graph, the sizes of its split and its fingerprint."""
    from ..data.summary import count_classes

    say(graph.summary())
    if split is None:
        say("  split                  none: there are no labels")
    else:
        say(f"  split                  {len(split.train):,} train, {len(split.val):,} val, {len(split.test):,} test")
    say(f"  fingerprint            {graph.fingerprint}")
    counts = count_classes(graph)
    if counts:
        listed = sorted(counts.items(), key=lambda item: -item[1])[:LISTED_CLASSES]
        more = f" and {len(counts) - len(listed)} more" if len(counts) > len(listed) else ""
        say(f"  nodes of each class    {', '.join(f'{name} {count:,}' for name, count in listed)}{more}")


def _describe_features(graph: Graph, split: Split | None, config: DataConfig) -> None:
    """Print what each feature holds and what training will do to it."""
    from rich.table import Table

    from ..data.columns.preparation import Preparation
    from ..data.summary import summarize_features
    from .console import cell, show

    features = summarize_features(graph)
    preparation = None if split is None else Preparation.learn(graph, split.train, config)
    if len(features) > LISTED_FEATURES:
        lacking = sum(feature.missing > 0 for feature in features)
        constant = sum(feature.constant for feature in features)
        low, high = min(feature.low for feature in features), max(feature.high for feature in features)
        text = f"  {len(features):,} features from {low:g} to {high:g}, {constant:,} of them constant"
        text += f", {lacking:,} with missing values" if lacking else ""
        if preparation is not None:
            text += "; " + ("they are standardized" if preparation.standardizes else "they are not scaled")
        say(text)
    elif features:
        table = Table("feature", "type", "range", "missing", "in training")
        for column, feature in enumerate(features):
            span = "no values" if feature.missing == graph.num_nodes else f"{feature.low:g} to {feature.high:g}"
            done = "" if preparation is None else _preparation_text(preparation, column, feature)
            missing = f"{feature.missing:,}" if feature.missing else ""
            table.add_row(cell(feature.name), feature.type, span, missing, done)
        show(table)
    if graph.schema is not None and graph.schema.ignored:
        say(f"  columns not used       {', '.join(repr(name) for name in graph.schema.ignored)}")


def _preparation_text(preparation: Preparation, column: int, feature: FeatureSummary) -> str:
    if preparation.mean is None or preparation.deviation is None:
        return "as it is"
    if preparation.deviation[column] == 0:
        return "constant: becomes 0"
    scaled = preparation.mean[column] != 0 or preparation.deviation[column] != 1
    words = ["standardized" if scaled else "as it is"]
    if column in preparation.indicators:
        words.append("missing: median and indicator")
    elif feature.missing:
        words.append("missing: median")
    return "; ".join(words)


def settings() -> None:
    """List every setting with its default and its meaning."""
    from dataclasses import fields

    from rich.table import Table

    from ..runs.config import Config, shown
    from .console import cell, show

    table = Table("setting", "default", "meaning", title="settings of a run, for TOML files and --set")
    for section in fields(Config):
        values = getattr(Config(), section.name)
        for item in fields(values):
            default = "none" if item.default == () else str(shown(values, item.name))
            default = default.lower() if isinstance(item.default, bool) else default
            table.add_row(f"{section.name}.{item.name}", default, cell(item.metadata["help"]))
        table.add_section()
    show(table)
