"""Read a text file of columns: in blocks of whole rows, which several threads parse."""

from __future__ import annotations

import csv
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...base.jobs import Progress
from ...base.machine import default_threads
from ...base.problems import Problems
from ...errors import GraphError
from .tables import count_quotes, find_delimiter, first_lines, single_spaces

if TYPE_CHECKING:
    import pyarrow as pa

Result = TypeVar("Result")
_BLOCK = 8 << 20  # bytes that are parsed at once
_MOST_LINES = 10  # lines of one kind that are named


class Again(Exception):  # noqa: N818 - a signal, not an error
    """Lines that cannot be read are known now and will be skipped: read the file again from its start."""


class WrongTypeError(GraphError):
    """An entry of a text file has another type than was asked for."""


@dataclass(frozen=True, eq=False)
class TextFile:
    """A text file whose first line, after comments, names its columns."""

    file: Path

    @property
    def title(self) -> str:
        """Return how errors name it."""
        return str(self.file)

    @cached_property
    def _first_lines(self) -> tuple[int, list[str]]:
        return first_lines(self.file)

    @cached_property
    def _top(self) -> tuple[int, str, list[str]]:
        """Return the number of comment lines, the delimiter and the names of the columns."""
        comments, sample = self._first_lines
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

    def _rows(self) -> Iterator[tuple[int, int]]:
        """Yield the first line and the number of columns of each row below the header; a quoted text may have lines."""
        comments, delimiter, _ = self._top
        with self.file.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
            content = (" ".join(line.split()) + "\n" for line in lines) if delimiter == " " else lines
            reader = csv.reader(itertools.islice(content, comments, None), delimiter=delimiter)
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
        lines = data_lines(self.file)
        return lines[lines > self._top[0]][1:]

    @cached_property
    def _quotes(self) -> int:
        """Return the number of quotes in the file. A quoted text may have line ends in it."""
        return count_quotes(self.file, self._top[0], self._top[1])

    @property
    def _skips(self) -> bool:
        return "_ragged" in self.__dict__ and bool(self._ragged)

    def _options(self, types: Mapping[str, Any], columns: Sequence[str] | None, *, block: int = 0) -> Any:
        """Return the options of Arrow for the whole file, or for a block of so many bytes."""
        from pyarrow import csv as arrow_csv

        comments, delimiter, names = self._top
        handler = (lambda _: "skip") if self._skips else None
        return {
            "read_options": arrow_csv.ReadOptions(
                skip_rows=comments + 1, column_names=names, block_size=block or _BLOCK
            ),
            "parse_options": arrow_csv.ParseOptions(
                delimiter=delimiter, invalid_row_handler=handler, newlines_in_values=not block and self._quotes > 0
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
        try:
            return arrow_csv.read_csv(self._input(), **self._options(types, columns))
        except pa.ArrowException as error:
            if self._tell_ragged(problems):
                return self.read(text=text, problems=problems, leave_out=leave_out)
            raise GraphError(f"{self.file} is not a regular table: {first_line(error)}") from error

    def _data(self) -> list[str]:
        """Return the first lines below the header."""
        return self._first_lines[1][1:]

    def map(
        self,
        function: Callable[[pa.Table], Result],
        types: Mapping[str, pa.DataType],
        *,
        problems: Problems,
        progress: Progress | None = None,
    ) -> Iterator[Result]:
        """Yield what the function makes of some columns of these types, many rows at a time.

        Raises `WrongTypeError` if an entry is of another type, `Again` if lines have another number of columns.
        """
        import pyarrow as pa

        if len(self._data()) == 0:
            return
        size, done = self.file.stat().st_size, 0
        tasks = (partial(self._on_block, function, block, types, first) for block, first in self._blocks())
        try:
            for length, result in in_order(tasks):
                done += length
                show(progress, self.file, done=min(done, size - 1), total=size)
                yield result
        except pa.ArrowException as error:
            if self._tell_ragged(problems):
                raise Again from error
            if "conversion error" in str(error):
                raise WrongTypeError(f"{self.file}: {first_line(error)}") from error
            raise GraphError(f"{self.file} is not a regular table: {first_line(error)}") from error
        show(progress, self.file, done=size, total=size)

    def _on_block(
        self,
        function: Callable[[pa.Table], Result],
        block: Sequence[memoryview],
        types: Mapping[str, pa.DataType],
        first: bool,
    ) -> tuple[int, Result]:
        """Return the bytes of a block and what the function makes of its rows; the first has the header in it."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        content = b"".join(block)
        options = self._options(types, list(types), block=len(content) + 1)
        options["read_options"].use_threads = False  # blocks are read side by side
        if not first:
            options["read_options"].skip_rows = 0
        return len(content), function(arrow_csv.read_csv(pa.BufferReader(content), **options))

    def _blocks(self) -> Iterator[tuple[Sequence[memoryview], bool]]:
        """Yield the bytes of many whole rows at a time, as parts to be joined, and whether they are the first."""
        first, rest, size = True, b"", _BLOCK
        with single_spaces(self.file) if self._top[1] == " " else self.file.open("rb") as content:
            while data := content.read(size):
                inside = rest.count(b'"') % 2
                cut = _end_of_rows(data, inside)
                size = _BLOCK if cut else 2 * size  # a quoted text that is longer than a block
                if cut and not (rest.isspace() and data.isspace()):  # blank lines make no table
                    yield (memoryview(rest), memoryview(data)[:cut]), first
                    first = False
                rest = data[cut:] if cut else rest + data
        if rest.count(b'"') % 2:
            _ = self._quotes  # refuses a quote that is never closed
        if rest and not rest.isspace():
            yield (memoryview(rest),), first


def _end_of_rows(data: bytes, inside: int) -> int:
    r"""Return where the last whole row ends: behind a line end that no quoted text holds; 0 if there is none.

    Parameters
    ----------
    inside
        1 if the data begins inside a quoted text, else 0.

    >>> _end_of_rows(b'a,"x"\nb,"y\nz', 0), _end_of_rows(b'a",x\nb"', 1), _end_of_rows(b'a,"x\n', 0)
    (6, 5, 0)
    """
    end = data.rfind(b"\n") + 1
    inside = (inside + data.count(b'"', 0, end)) % 2
    while inside and end:
        before = data.rfind(b"\n", 0, end - 1) + 1
        inside = (inside + data.count(b'"', before, end)) % 2
        end = before
    return end


def in_order(tasks: Iterable[Callable[[], Result]]) -> Iterator[Result]:
    """Yield the results of tasks in order. Threads do them, few ahead of the caller, so that memory stays small."""
    threads = default_threads(None)
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for task in tasks:
                waiting.append(pool.submit(task))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def data_lines(file: Path) -> NDArray[np.int64]:
    """Return the numbers of the lines that are not empty."""
    with file.open("rb") as lines:
        numbers = (number for number, line in enumerate(lines, 1) if line.strip(b"\r\n"))
        return np.fromiter(numbers, dtype=np.int64)


def show(progress: Progress | None, file: Path, *, done: int, total: int) -> None:
    """Tell how much of a file is read."""
    if progress is not None:
        progress(f"reading {file.name}", done, total)


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return str(error).strip().split("\n", maxsplit=1)[0][:300]
