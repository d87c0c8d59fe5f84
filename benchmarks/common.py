"""What every benchmark does at its end: print a table, write JSON with the command and the versions."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


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


def write_result(file: Path, content: dict[str, Any]) -> None:
    """Write content with all that is needed to run it again."""
    about = {
        "command": shlex.join(["python", *sys.argv]),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "versions": {name: version(name) for name in ("vcr-graphormer", "numpy", "scipy", "numba", "torch-geometric")},
        "python": platform.python_version(),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**about, **content}, indent=1) + "\n")
    print(f"written: {file}")
