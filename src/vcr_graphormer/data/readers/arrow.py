"""Open a table of any kind as columns of Arrow: a text file, a columnar file, or a table in memory."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...base.jobs import Progress
from ...base.problems import Problems
from ...errors import GraphError, StoreError
from .tables import JSON, TEXT, find_delimiter, first_lines, read_arrow_file, single_spaces

if TYPE_CHECKING:
    import pyarrow as pa

MAPPED = (*TEXT, ".parquet", ".feather", *JSON)  # endings of the tables that a mapping can name
_BLOCK = 4 << 20  # bytes of a text file that are parsed at once
_ROWS_AT_ONCE = 1 << 18  # the same for columnar files
_MOST_LINES = 10  # lines of one kind that are named


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

    def batches(
        self, types: Mapping[str, pa.DataType], *, problems: Problems, progress: Progress | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield some columns, batch by batch; text files give them these types, other files their own."""
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

    def batches(
        self, types: Mapping[str, pa.DataType], *, problems: Problems, progress: Progress | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield some columns, batch by batch."""
        yield from self.table.select(list(types)).to_batches(_ROWS_AT_ONCE)


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
        return _data_lines(self.file)

    def _line_of(self, row: int) -> int:
        return int(self._lines[row])

    @cached_property
    def _table(self) -> pa.Table:
        return read_arrow_file(self.file)

    def read(self, *, text: Sequence[str], problems: Problems, leave_out: Sequence[str] = ()) -> pa.Table:
        """Return the whole table."""
        return self._table.drop_columns(list(leave_out))

    def batches(
        self, types: Mapping[str, pa.DataType], *, problems: Problems, progress: Progress | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield some columns, batch by batch."""
        done = 0
        if self.file.suffix.lower() == ".parquet":
            from pyarrow import parquet

            with _readable(self.file), parquet.ParquetFile(self.file) as opened:
                total = opened.metadata.num_rows
                for batch in opened.iter_batches(_ROWS_AT_ONCE, columns=list(types)):
                    done += batch.num_rows
                    _show(progress, self.file, done=done, total=total)
                    yield batch
            return
        for batch in self._table.select(list(types)).to_batches(_ROWS_AT_ONCE):
            done += batch.num_rows
            _show(progress, self.file, done=done, total=self._table.num_rows)
            yield batch


@dataclass(frozen=True, eq=False)
class TextFile:
    """A text file whose first line, after comments, names its columns."""

    file: Path

    @property
    def title(self) -> str:
        """Return how errors name it."""
        return str(self.file)

    @cached_property
    def _top(self) -> tuple[int, str, list[str]]:
        """Return the number of comment lines, the delimiter and the names of the columns."""
        comments, sample = first_lines(self.file)
        delimiter = find_delimiter(sample)
        try:
            header = next(csv.reader(sample, delimiter=delimiter, skipinitialspace=True))
        except csv.Error as error:
            raise GraphError(f"{self.file} has no line of column names: {error}") from error
        return comments, delimiter, [name.strip() for name in header]

    @property
    def names(self) -> list[str]:
        """Return the names of its columns."""
        return list(self._top[2])

    @property
    def line_of(self) -> Callable[[int], int] | None:
        """Return the function that gives the line of a row."""
        return self._line_of

    def _line_of(self, row: int) -> int:
        return int(self._good_lines[row])

    def _rows(self, strict: bool = False) -> Iterator[tuple[int, int]]:
        """Yield the first line and the number of columns of each row below the header; a quoted text may have lines."""
        comments, delimiter, _ = self._top
        with self.file.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
            content = (" ".join(line.split()) + "\n" for line in lines) if delimiter == " " else lines
            reader = csv.reader(itertools.islice(content, comments, None), delimiter=delimiter, strict=strict)
            first, seen_header = comments + 1, False
            try:
                for row in reader:
                    if row and seen_header:
                        yield first, len(row)
                    seen_header = seen_header or bool(row)
                    first = comments + reader.line_num + 1
            except csv.Error as error:
                where = f"{self.file} line {comments + reader.line_num}"
                raise GraphError(f"{where}: {error}; shorten the text, or store the table as parquet") from error

    @cached_property
    def _ragged(self) -> list[tuple[int, int]]:
        """Return (line, columns) of the rows that have another number of columns than the header."""
        return [(line, count) for line, count in self._rows() if count != len(self.names)]

    @cached_property
    def _good_lines(self) -> NDArray[np.int64]:
        """Return the line of each row that can be read."""
        if self._quotes or self._skips:
            width = len(self.names)
            return np.array([line for line, count in self._rows() if count == width or not self._skips])
        lines = _data_lines(self.file)
        return lines[lines > self._top[0]][1:]

    @cached_property
    def _quotes(self) -> int:
        """Return the number of quotes in the file. A quoted text may have line ends in it."""
        with self.file.open("rb") as content:
            return sum(block.count(b'"') for block in iter(lambda: content.read(_BLOCK), b""))

    def _check_quotes(self) -> None:
        """Refuse a quote that is never closed: Arrow would take the rest of the file for one text."""
        if self._quotes % 2 == 0:
            return
        line = 0
        try:
            for line, _ in self._rows(strict=True):  # noqa: B007 - the last one counts
                pass
        except GraphError as error:
            if "unexpected end of data" in str(error):
                where = f"{self.file} below line {line}" if line else str(self.file)
                raise GraphError(f'{where}: a quote (") is opened and never closed; close or delete it') from error

    @property
    def _skips(self) -> bool:
        return "_ragged" in self.__dict__ and bool(self._ragged)

    def _options(self, types: Mapping[str, Any], columns: Sequence[str] | None, *, block: int = _BLOCK) -> Any:
        from pyarrow import csv as arrow_csv

        comments, delimiter, names = self._top
        handler = (lambda _: "skip") if self._skips else None
        return {
            "read_options": arrow_csv.ReadOptions(skip_rows=comments + 1, column_names=names, block_size=block),
            "parse_options": arrow_csv.ParseOptions(
                delimiter=delimiter, invalid_row_handler=handler, newlines_in_values=self._quotes > 0
            ),
            "convert_options": arrow_csv.ConvertOptions(column_types=dict(types), include_columns=columns),
        }

    def _input(self) -> Any:
        return single_spaces(self.file) if self._top[1] == " " else self.file

    def _tell_ragged(self, problems: Problems) -> bool:
        """Add lines of another length to the problems; return whether there are any."""
        if self._skips or not self._ragged:
            return False
        width = len(self.names)
        for line, count in self._ragged[:_MOST_LINES]:
            problems.add(f"the line has {count} columns, the header has {width}", file=self.file, line=line)
        if len(self._ragged) > _MOST_LINES:
            more = len(self._ragged) - _MOST_LINES
            problems.add(f"{more:,} more lines have another number of columns than the header", file=self.file)
        return True

    def read(self, *, text: Sequence[str], problems: Problems, leave_out: Sequence[str] = ()) -> pa.Table:
        """Return the whole table, with the columns `text` exactly as written."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        columns = [name for name in self.names if name not in leave_out]
        if len(self._data()) == 0:
            return pa.table({name: pa.nulls(0, pa.string()) for name in columns})
        types = {name: pa.string() for name in text}
        self._check_quotes()
        try:
            return arrow_csv.read_csv(self._input(), **self._options(types, columns))
        except pa.ArrowException as error:
            if self._tell_ragged(problems):
                return self.read(text=text, problems=problems, leave_out=leave_out)
            raise GraphError(f"{self.file} is not a regular table: {_first_line(error)}") from error

    def _data(self) -> list[str]:
        """Return the first lines below the header."""
        return first_lines(self.file)[1][1:]

    def batches(
        self, types: Mapping[str, pa.DataType], *, problems: Problems, progress: Progress | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield some columns of these types, batch by batch; raise `ValueError` if an entry is of another type."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        if len(self._data()) == 0:
            return
        self._check_quotes()
        size, rows, expected = self.file.stat().st_size, 0, 0
        block = max(_BLOCK, 2 * max(len(line) for line in first_lines(self.file)[1]))
        try:
            reader = arrow_csv.open_csv(self._input(), **self._options(types, list(types), block=block))
            for batch in reader:
                rows += batch.num_rows
                expected = expected or max(rows, batch.num_rows * size // block)
                _show(progress, self.file, done=min(rows, expected - 1), total=expected)
                yield batch
        except pa.ArrowException as error:
            if self._tell_ragged(problems):
                raise Again from error
            if "conversion error" in str(error):
                raise WrongTypeError(f"{self.file}: {_first_line(error)}") from error
            raise GraphError(f"{self.file} is not a regular table: {_first_line(error)}") from error
        _show(progress, self.file, done=max(expected, 1), total=max(expected, 1))


class Again(Exception):  # noqa: N818 - a signal, not an error
    """Lines that cannot be read are known now and will be skipped: read the file again from its start."""


class WrongTypeError(GraphError):
    """An entry of a text file has another type than was asked for."""


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
        raise GraphError(f"{what} cannot be read as a table: {_first_line(error)}") from error
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


def _data_lines(file: Path) -> NDArray[np.int64]:
    """Return the numbers of the lines that are not empty."""
    with file.open("rb") as lines:
        numbers = (number for number, line in enumerate(lines, 1) if line.strip(b"\r\n"))
        return np.fromiter(numbers, dtype=np.int64)


def _show(progress: Progress | None, file: Path, *, done: int, total: int) -> None:
    if progress is not None:
        progress(f"reading {file.name}", done, total)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", maxsplit=1)[0][:300]


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{file} is not a readable {file.suffix[1:]} file: {_first_line(error)}") from error
