"""How long work shows itself: bars on a terminal, plain lines in a log, one closing table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from .summary import format_bytes


class StageProgress:
    """A `progress(stage, done, total)` callback: a bar per stage on a terminal, a line per finished stage elsewhere."""

    def __init__(self) -> None:
        self.on_terminal = sys.stderr.isatty()
        self.tasks: dict[str, TaskID] = {}
        columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bars = Progress(*columns, console=Console(stderr=True), disable=not self.on_terminal)

    def __enter__(self) -> StageProgress:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of `total` parts of a stage are finished."""
        if stage not in self.tasks:
            self.tasks[stage] = self.bars.add_task(stage, total=total)
        self.bars.update(self.tasks[stage], completed=done)
        if done == total and not self.on_terminal:
            sys.stderr.write(f"{stage}: done\n")
            sys.stderr.flush()


def print_stages(file: Path) -> None:
    """The closing table: time, edge visits and peak memory of each stage."""
    if not file.is_file():
        return
    table = Table(title="what it cost")
    table.add_column("stage")
    for title in ("seconds", "edge visits", "peak memory"):
        table.add_column(title, justify="right")
    for stage, row in json.loads(file.read_text()).items():
        visits = f"{int(row['visits']):,}" if row["visits"] else ""
        table.add_row(stage, f"{row['seconds']:.2f}", visits, format_bytes(row["peak_bytes"]))
    Console().print(table)
