"""What every benchmark does at its end: print a table, write JSON with the command and the versions."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.records import this_command
from vcr_graphormer import VCRError, __version__
from vcr_graphormer.cli.options import say_error


def run_command(function: Callable[..., None]) -> None:
    """Run a function as a command of its own; errors we raise on purpose become one line."""
    try:
        typer.run(function)
    except VCRError as error:
        say_error(str(error))
        sys.exit(1)


def percent(values: Any) -> str:
    """Mean and deviation of shares, as all tables print them.

    >>> percent([0.5, 0.7])
    '60.00 ± 14.14'
    """
    return f"{100 * np.mean(values):.2f} ± {100 * np.std(values, ddof=1):.2f}"


def print_table(rows: list[dict[str, Any]]) -> None:
    """Rows of equal or different keys, one line each."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table()
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_text(row.get(column, "")) for column in columns))
    Console(width=200).print(table)


def _text(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def write_result(file: Path, content: dict[str, Any]) -> None:
    """Write content with all that is needed to run it again."""
    about = {
        "command": this_command(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "versions": {name: _version(name) for name in ("numpy", "scipy", "numba", "torch", "torch-geometric")}
        | {"vcr-graphormer": __version__},
        "python": platform.python_version(),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**about, **content}, indent=1) + "\n")
    print(f"written: {file}")
