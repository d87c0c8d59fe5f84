"""Open a table of any kind as columns of Arrow: a text file, a columnar file, or a table in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...base.jobs import Progress
from ...base.problems import Problems
from ...errors import GraphError, StoreError
from .tables import JSON, TEXT, read_arrow_file
from .text import TextFile, data_lines, first_line, in_order, show

if TYPE_CHECKING:
    import pyarrow as pa

Result = TypeVar("Result")
MAPPED = (*TEXT, ".parquet", ".feather", *JSON)  # endings of the tables that a mapping can name
_ROWS_AT_ONCE = 1 << 18  # rows of other tables that are read at once


class Source(Protocol):
    """A table whose columns are read by name."""

    @property
    def title(self) -> str:
        """Return how errors name it: a file, or an argument."""
        ...

    @property
    def names(self) -> list[str]:
        """Return the names of its columns."""
        ...

    @property
    def line_of(self) -> Callable[[int], int] | None:
        """Return the function that gives the line of a row, or None if there are no lines."""
        ...

    def read(self, *, text: Sequence[str], problems: Problems, leave_out: Sequence[str] = ()) -> pa.Table:
        """Return the whole table, with the columns `text` exactly as written."""
        ...

    def map(
        self,
        function: Callable[[pa.Table], Result],
        types: Mapping[str, pa.DataType],
        *,
        problems: Problems,
        progress: Progress | None = None,
    ) -> Iterator[Result]:
        """Yield what the function makes of some columns, many rows at a time, in order; threads read and call it.

        Text files give the columns these types, other files their own.
        """
        ...


@dataclass(frozen=True, eq=False)
class Frame:
    """A table in memory."""

    title: str
    table: pa.Table
    line_of: None = field(default=None, init=False)

    @property
    def names(self) -> list[str]:
        """Return the names of its columns."""
        return list(self.table.column_names)

    def read(self, *, text: Sequence[str], problems: Problems, leave_out: Sequence[str] = ()) -> pa.Table:
        """Return the table."""
        return self.table.drop_columns(list(leave_out))

    def map(
        self,
        function: Callable[[pa.Table], Result],
        types: Mapping[str, pa.DataType],
        *,
        problems: Problems,
        progress: Progress | None = None,
    ) -> Iterator[Result]:
        """Yield what the function makes of some columns, many rows at a time."""
        columns = self.table.select(list(types))
        starts = range(0, len(columns), _ROWS_AT_ONCE)
        yield from in_order(partial(_on_rows, function, columns, start) for start in starts)


@dataclass(frozen=True, eq=False)
class ColumnFile:
    """A parquet or feather file, or one of JSON lines."""

    file: Path

    @property
    def title(self) -> str:
        """Return how errors name it."""
        return str(self.file)

    @cached_property
    def names(self) -> list[str]:
        """Return the names of its columns."""
        if self.file.suffix.lower() == ".parquet":
            from pyarrow import parquet

            with _readable(self.file):
                return list(parquet.read_schema(self.file).names)
        return list(self._table.column_names)

    @property
    def line_of(self) -> Callable[[int], int] | None:
        """Return the function that gives the line of a row of JSON."""
        return self._line_of if self.file.suffix.lower() in JSON else None

    @cached_property
    def _lines(self) -> NDArray[np.int64]:
        return data_lines(self.file)

    def _line_of(self, row: int) -> int:
        return int(self._lines[row])

    @cached_property
    def _table(self) -> pa.Table:
        return read_arrow_file(self.file)

    def read(self, *, text: Sequence[str], problems: Problems, leave_out: Sequence[str] = ()) -> pa.Table:
        """Return the whole table."""
        return self._table.drop_columns(list(leave_out))

    def map(
        self,
        function: Callable[[pa.Table], Result],
        types: Mapping[str, pa.DataType],
        *,
        problems: Problems,
        progress: Progress | None = None,
    ) -> Iterator[Result]:
        """Yield what the function makes of some columns, many rows at a time."""
        with _readable(self.file):  # a text that is no UTF-8 is found where it is compared
            yield from in_order(partial(function, table) for table in self._tables(list(types), progress))

    def _tables(self, columns: list[str], progress: Progress | None) -> Iterator[pa.Table]:
        import pyarrow as pa

        done = 0
        if self.file.suffix.lower() == ".parquet":
            from pyarrow import parquet

            with _readable(self.file), parquet.ParquetFile(self.file) as opened:
                total = opened.metadata.num_rows
                for batch in opened.iter_batches(_ROWS_AT_ONCE, columns=columns):
                    done += batch.num_rows
                    show(progress, self.file, done=done, total=total)
                    yield pa.Table.from_batches([batch])
            return
        for start in range(0, self._table.num_rows, _ROWS_AT_ONCE):
            table = self._table.select(columns).slice(start, _ROWS_AT_ONCE)
            done += table.num_rows
            show(progress, self.file, done=done, total=self._table.num_rows)
            yield table


def open_source(file: Path) -> Source:
    """Return the table in a file; nothing is read yet."""
    try:
        if not file.is_file():
            raise StoreError(f"{file} is a folder; name a file" if file.is_dir() else f"{file} does not exist")
    except OSError as error:  # a name that is too long
        raise StoreError(str(error) if isinstance(error, StoreError) else f"{file}: {error.strerror}") from error
    ending = file.suffix.lower()
    if ending not in MAPPED:
        raise StoreError(f"{file} has the ending '{file.suffix}'; tables of a mapping end in {', '.join(MAPPED)}")
    if file.stat().st_size == 0:
        raise StoreError(f"{file} is empty")
    return TextFile(file) if ending in TEXT else ColumnFile(file)


def to_arrow(value: Any, what: str) -> pa.Table:
    """Return a table of pandas, polars, pyarrow or any library with Arrow's interface, or a dictionary of columns."""
    import pyarrow as pa

    if isinstance(value, pa.Table):
        return value
    try:
        if isinstance(value, Mapping):
            return pa.table({str(name): _plain(column) for name, column in value.items()})
        if hasattr(value, "__arrow_c_stream__"):
            return pa.table(value)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise GraphError(f"{what} cannot be read as a table: {first_line(error)}") from error
    raise GraphError(
        f"{what} is a {type(value).__name__}; give a table of pandas, polars or pyarrow, or a dictionary of columns"
    )


def _plain(column: Any) -> Any:
    """Return a column as Arrow can read it: texts of NumPy as a list, tensors as arrays."""
    if hasattr(column, "detach"):
        column = column.detach().cpu().numpy()
    if isinstance(column, np.ndarray) and column.dtype.kind in "US":
        return column.tolist()
    return column


def _on_rows(function: Callable[[pa.Table], Result], table: pa.Table, start: int) -> Result:
    return function(table.slice(start, _ROWS_AT_ONCE))


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except StoreError:  # is an OSError, and has said what is wrong
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{file} is not a readable {file.suffix[1:]} file: {first_line(error)}") from error
