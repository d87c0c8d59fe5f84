"""Code that all benchmarks share: options, graphs, tables, and result files that say how to repeat them."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from rich.console import Console
from rich.table import Table

import vcr_graphormer as vcr
from vcr_graphormer.base.files import read_json
from vcr_graphormer.data.growth import subgraph
from vcr_graphormer.data.readers.raw import read_geom
from vcr_graphormer.runs.config import load_config

T = TypeVar("T")
# The graphs of protocol A, in the order of the accuracy tables.
GRAPHS = ("PubMed", "Computer", "Photo", "CS", "Physics", "Squirrel", "Actor", "Texas")
FILTERED = "Squirrel-filtered"


def new_parser(
    about: str | None,
    *,
    data: bool = True,
    device: bool = False,
    graphs: Sequence[str] = (),
    more_graphs: bool = False,
    out: str | None = None,
) -> argparse.ArgumentParser:
    """Return a parser with the options that most benchmarks have.

    Parameters
    ----------
    about
        The docstring of the benchmark, shown by `--help`.
    data, device
        Whether it has `--data` and `--device`.
    graphs
        The default of `--graphs`; without any there is no such option.
    more_graphs
        Whether `--graphs` takes other names too.
    out
        The default of `--out`; without it there is no such option.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if data:
        parser.add_argument("--data", default="data", metavar="ROOT", help="folder of the published raw files")
    if device:
        parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    if graphs:
        choices = None if more_graphs else list(graphs)
        parser.add_argument(
            "--graphs", nargs="+", choices=choices, default=list(graphs), help=f"default: {' '.join(graphs)}"
        )
    if out is not None:
        parser.add_argument("--out", type=Path, default=Path(out), help=f"default: {out}")
    return parser


def load_graph(name: str, root: str | Path, directed: bool = False) -> vcr.Graph:
    """Return a published graph, or one that `Graph.save` wrote as ROOT/NAME (ROOT/NAME-directed if directed).

    `Squirrel-filtered` is Squirrel without its near-duplicates.
    """
    saved = Path(root) / (f"{name}-directed" if directed else name) / "manifest.json"
    if name == FILTERED and not saved.is_file():
        graph = load_graph("Squirrel", root, directed)
        raw = read_geom(Path(root) / "WikipediaNetwork" / "squirrel" / "geom_gcn" / "raw")
        return replace(subgraph(graph, without_duplicates(raw.edges, np.asarray(graph.labels))), name=FILTERED)
    return vcr.Graph.open(saved.parent) if saved.is_file() else vcr.load_dataset(name, root, directed)


def without_duplicates(edges: Any, labels: Any) -> Any:
    """Return the nodes that are left if near-duplicates are removed, by the rule of Platonov et al. (2023).

    A node is removed if no link points to it, and a node with links to it has the same label and the same outgoing
    links. Self-loops count as links. Squirrel keeps 2,223 of 5,201 nodes, as published.

    Parameters
    ----------
    edges
        Directed links [2, m], with self-loops.

    >>> without_duplicates(np.array([[0, 1, 2, 3, 4], [1, 1, 1, 1, 0]]), np.array([0, 1, 0, 1, 0]))
    array([0, 1, 4])
    """
    count = len(labels)
    matrix = sp.csr_matrix((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=(count, count))
    matrix.sum_duplicates()
    outgoing = np.split(matrix.indices, matrix.indptr[1:-1])
    rows = [(ids.tobytes(), int(label)) for ids, label in zip(outgoing, labels, strict=True)]
    is_reached = np.bincount(edges[1], minlength=count) > 0
    originals = {rows[node] for node in np.flatnonzero(is_reached)}
    return np.array([node for node in range(count) if is_reached[node] or rows[node] not in originals])


def random_splits(graph: vcr.Graph, seeds: Sequence[int]) -> list[vcr.Split]:
    """Return one random 60/20/20 split per seed."""
    return [vcr.Split.random(graph.labels, 0.6, 0.2, seed) for seed in seeds]


def variant_config(dataset: str, variant: str) -> vcr.Config:
    """Return the preset of a dataset, without checkpoints. The variant `paper` has the authors' settings."""
    return load_config(
        options={"data": {"dataset": dataset}}, overrides=["training.checkpoint_every=0"], variant=variant
    )


def in_a_process(work: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a fresh process, so that the peak memory it reads is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def percent(values: Any) -> str:
    """Return mean ± standard deviation of fractions in percent, as all tables print them.

    >>> percent([0.5, 0.7])
    '60.00 ± 14.14'
    """
    return f"{100 * np.mean(values):.2f} ± {100 * np.std(values, ddof=1):.2f}"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table.

    >>> print(markdown_table(["", "Photo"], [["GCN", "92.00"]]))
    | | Photo |
    | --- | --- |
    | GCN | 92.00 |
    """
    lines = [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
    return "\n".join(lines).replace("|  |", "| |")


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print one line per row; the columns are all keys of all rows."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table()
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_text(row.get(column, "")) for column in columns))
    Console(width=200).print(table)


def _text(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def this_command() -> str:
    """Return how this process was called, without the folders of this machine."""
    words = list(sys.argv)
    for option, name in (("--data", "ROOT"), ("--folder", "FOLDER")):
        if option in words[:-1]:
            words[words.index(option) + 1] = name
    for option in ("--out", "--logs"):
        if option in words[:-1]:
            del words[words.index(option) : words.index(option) + 2]
    return " ".join([words[0], shlex.join(words[1:])]).strip()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def write_result(file: Path, content: dict[str, Any]) -> None:
    """Write a result as JSON, with the command, the machine and the versions that made it."""
    about = {
        "command": this_command(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "versions": {name: _version(name) for name in ("numpy", "scipy", "numba", "torch", "torch-geometric")}
        | {"vcr-graphormer": vcr.__version__},
        "python": platform.python_version(),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**about, **content}, indent=1) + "\n")
    print(f"written: {file}")


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of an earlier result, which a benchmark keeps or replaces one by one; none without a file."""
    rows: list[dict[str, Any]] = read_json(file)["rows"] if file.is_file() else []
    return rows
