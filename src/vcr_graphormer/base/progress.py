"""Show how far long work is: bars on a terminal and in notebooks, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .jobs import Progress
from .text import printable

if TYPE_CHECKING:  # imported when bars are shown: most programs that import this package never show any
    from rich.progress import TaskID

SECONDS_BETWEEN_DRAWINGS = 0.2  # in a notebook, where every drawing is a message to the browser
_live: ContextVar[bool] = ContextVar("live", default=False)  # whether bars are shown already


def silent(stage: str, done: int, total: int) -> None:
    """Show nothing: a `progress` for callers that must not be left without one."""


@contextmanager
def bars(progress: Progress | bool | None) -> Iterator[Progress]:
    """Yield what to call with (stage, done, total): the caller's function, bars, or a function that shows nothing.

    Bars are shown for None and True, on a terminal or in a notebook, unless others are shown already.
    """
    if callable(progress):
        yield progress
    elif progress is False or _live.get() or not (sys.stderr.isatty() or in_notebook()):
        yield silent
    else:
        with Bars(transient=True) as shown:
            yield shown


def in_notebook() -> bool:
    """Return whether this is a notebook; rich knows those of Jupyter, Colab and Databricks."""
    if "IPython" not in sys.modules:  # without it there is no notebook: do not import rich
        return False
    from rich.console import Console

    return Console().is_jupyter


class Bars:
    """A `progress(stage, done, total)` that draws one bar per stage. Use it as a context manager.

    Parameters
    ----------
    transient
        Whether the bars vanish when the work is done.
    """

    def __init__(self, transient: bool = False) -> None:
        from rich import progress as rich
        from rich.console import Console

        self.tasks: dict[str, TaskID] = {}
        self.notebook = in_notebook()
        self.page: Any = None  # the output in the notebook
        self.drawn = 0.0
        # Texts are shown as they are: names of data must not become markup.
        text = rich.TextColumn("{task.description:<22}", markup=False)
        columns = (text, rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeElapsedColumn())
        # In a notebook rich would need ipywidgets for live bars; we draw them ourselves there.
        console = Console(stderr=not self.notebook)
        self.bars = rich.Progress(*columns, console=console, transient=transient, disable=self.notebook)
        self.transient = transient

    def __enter__(self) -> Bars:
        self.token = _live.set(True)
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()
        if self.page is not None:
            self._draw(last=True)
        _live.reset(self.token)

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of `total` parts of a stage are finished."""
        self.show(stage, done, total, text=stage)

    def show(self, stage: str, done: int, total: int | None, *, text: str) -> None:
        """Show the bar of a stage with another text than its name."""
        if stage not in self.tasks:
            self.tasks[stage] = self.bars.add_task(stage, total=total)
        self.bars.update(self.tasks[stage], completed=done, total=total, description=printable(text))
        if self.notebook and (done == total or time.monotonic() - self.drawn > SECONDS_BETWEEN_DRAWINGS):
            self._draw()

    def show_epoch(self, row: dict[str, float], epochs: int) -> None:
        """Show a finished epoch of a training: the history row that `on_epoch` gets."""
        self.show("training", int(row["epoch"]), epochs, text=f"training  {describe_epoch(row)}")

    def _draw(self, last: bool = False) -> None:
        from IPython.display import HTML, display

        self.drawn = time.monotonic()
        content = HTML("") if last and self.transient else self.bars
        if self.page is None:
            self.page = display(content, display_id=True)
        else:
            self.page.update(content)


def describe_epoch(row: dict[str, float]) -> str:
    """Return loss and validation metric of an epoch in words."""
    return f"loss {row['loss']:.4f}  val {row['val']:.4f} (best at {int(row['best_epoch'])})"
