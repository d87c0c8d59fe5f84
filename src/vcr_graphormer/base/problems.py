"""Collect everything that is wrong with some data, so that a user sees all of it at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import GraphError

MOST_SHOWN = 20  # problems or notes listed at once; about what fits on a screen


@dataclass(frozen=True, eq=False)
class Problems:
    """A list of problems, and one of notes, that grows while data is read.

    Attributes
    ----------
    file : path or None
        The file that problems belong to, unless they name another.
    line_of : callable or None
        Gives the line in the file for a row of the table, counted from 0. Without it, rows are named by number.
    texts, notes : list of str
        What is wrong; and what is not wrong, but should be told.

    >>> problems = Problems()
    >>> problems.add("weight is -1; it must be above 0", file="edges.csv", line=3)
    >>> problems.raise_any()
    Traceback (most recent call last):
    vcr_graphormer.errors.GraphError: edges.csv line 3: weight is -1; it must be above 0
    """

    file: str | Path | None = None
    line_of: Callable[[int], int] | None = None
    texts: list[str] = field(default_factory=list, init=False)
    notes: list[str] = field(default_factory=list, init=False)

    def of(self, file: str | Path | None, line_of: Callable[[int], int] | None = None) -> Problems:
        """Return a collector for one file; what it collects is found here, too."""
        inner = replace(self, file=file, line_of=line_of)
        object.__setattr__(inner, "texts", self.texts)
        object.__setattr__(inner, "notes", self.notes)
        return inner

    def add(
        self,
        text: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        """Add a problem.

        Parameters
        ----------
        text
            The value, the rule and the way out.
        line, row
            A line of the file, or a row of the table, counted from 0, whose line is looked up.
        """
        self._put(self.texts, text, file=file, line=line, row=row, column=column)

    def note(self, text: str, *, file: str | Path | None = None, column: str | None = None) -> None:
        """Add a note, which is told to the user and is no problem."""
        self._put(self.notes, text, file=file, line=None, row=None, column=column)

    def _put(
        self,
        texts: list[str],
        text: str,
        *,
        file: str | Path | None,
        line: int | None,
        row: int | None,
        column: str | None,
    ) -> None:
        if line is None and row is not None and self.line_of is not None:
            line = self.line_of(row)
        file = self.file if file is None else file
        place = f"line {line}" if line is not None else f"row {row}" if row is not None else ""
        where = " ".join(str(part) for part in (file, place) if part)
        where = ", ".join(part for part in (where, None if column is None else f"column '{column}'") if part)
        full = f"{where}: {text}" if where else text
        if full not in texts:
            texts.append(full)

    def raise_any(self) -> None:
        """Raise one error that lists all problems, one per line; do nothing if there is none."""
        if not self.texts:
            return
        if len(self.texts) == 1:
            raise GraphError(self.texts[0])
        raise GraphError("\n  ".join([f"{len(self.texts)} problems:", *first_texts(self.texts)]))


def first_texts(texts: Sequence[str]) -> list[str]:
    """Return as many texts as fit on a screen, and how many more there are."""
    more = [f"and {len(texts) - MOST_SHOWN:,} more"] if len(texts) > MOST_SHOWN else []
    return [*texts[:MOST_SHOWN], *more]
