"""The command `update`: token lists of a graph that has grown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from .options import Threads, show_reading
from .output import say

if TYPE_CHECKING:
    from ..data.columns.preparation import Preparation
    from ..data.graph import Graph
    from ..runs.config import Config

SETTINGS_FILE = "config.toml"  # beside token lists, as in a run: how to read a later state of the data
STAGES_FILE = "stages.json"  # what the token lists cost


def update(
    lists: Annotated[Path, typer.Argument(metavar="RUN|STORE", help="A run folder, or a folder of token lists.")],
    dataset: Annotated[str, typer.Option("--dataset", metavar="PATH", help="Your data as it is now.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder of the new token lists.")],
    refresh: Annotated[
        str,
        typer.Option(
            metavar="DEPTH",
            help="Which lists to make: new (of new nodes only), affected (also of old nodes near a change) or all.",
        ),
    ] = "affected",
    before: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="For a STORE: your data as it was, if old nodes changed or moved."),
    ] = None,
    threads: Threads = None,
) -> None:
    """Make the token lists of a run, or of `tokenize`, for a graph that has grown. Those of before stay as they are."""
    from ..runs.run import RUN_FILE
    from ..tokens.growth import AFFECTED, summarize, update
    from .console import StageProgress

    how: dict[str, Any] = {"refresh": refresh, "threads": threads}
    origin, graph, then = (_of_run if (lists / RUN_FILE).is_file() else _of_store)(lists, dataset, before)
    with StageProgress() as progress:
        store = update(origin, graph, out, before=then, progress=progress, **how)
    say(store)
    if refresh == AFFECTED and not store.growth:
        say("more than one node in twenty is new or has other edges: everything was made anew")
    say(summarize(store))


def _of_run(run: Path, dataset: str, before: str | None) -> tuple[Any, Graph, None]:
    """Return a run and the graph of now."""
    from ..data.datasets import load_later
    from ..runs.run import Run

    if before is not None:
        raise ConfigError(f"{run} is a run, which knows the data as it was: leave out --before")
    opened = Run.open(run, "cpu")
    with show_reading() as reading:
        return opened, load_later(opened.config.data, dataset, opened.schema, **reading), None


def _of_store(folder: Path, dataset: str, before: str | None) -> tuple[Any, Graph, Graph | None]:
    """Return token lists, the graph of now and that of then, with features as `tokenize` prepared them."""
    from ..base.files import read_json
    from ..base.problems import Problems
    from ..data.columns.matching import match
    from ..data.columns.preparation import Preparation
    from ..data.columns.schema import SCHEMA_FILE, Schema
    from ..data.datasets import DataConfig, load_later
    from ..data.growth import align
    from ..runs.config import load_run_config
    from ..tokens.store import TokenStore

    store, settings, file = TokenStore.open(folder), folder / SETTINGS_FILE, folder / SCHEMA_FILE
    # Lists that were made in Python have no settings of data beside them.
    data = load_run_config(settings).data if settings.is_file() else DataConfig()
    schema = Schema.from_dict(read_json(file), file) if file.is_file() else Schema()

    def load(path: str) -> Graph:
        problems = Problems()
        with show_reading() as reading:
            graph = match(load_later(data, path, schema, **reading), schema, problems)
        problems.raise_any()
        return Preparation.open(folder).apply(graph)

    now = load(dataset)
    if before is None:
        return store, now, None
    then = load(before)
    return store, align(then, now), then


def keep_source(folder: Path, config: Config, *, source: Graph, preparation: Preparation | None) -> None:
    """Write beside token lists how their graph was read and prepared, so that a later state can be read alike."""
    from dataclasses import replace

    from ..base.checksums import record
    from ..base.files import replace_file, write_json
    from ..data.columns.matching import schema_of
    from ..data.columns.preparation import PREPARATION_FILE
    from ..data.columns.schema import SCHEMA_FILE
    from ..data.datasets import with_absolute_paths
    from ..runs.config import to_toml

    with replace_file(folder / SETTINGS_FILE) as temporary:
        temporary.write_text(to_toml(replace(config, data=with_absolute_paths(config.data))), encoding="utf-8")
    write_json(folder / SCHEMA_FILE, schema_of(source).to_dict())
    if preparation is not None:
        preparation.save(folder)
    # The manifest knows the arrays only; `verify` finds a changed bit in these files by their own checksums.
    beside = (SETTINGS_FILE, SCHEMA_FILE, PREPARATION_FILE, STAGES_FILE)
    record(folder, [name for name in beside if (folder / name).is_file()])
