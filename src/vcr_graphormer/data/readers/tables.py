"""Read a table (csv, tsv, txt, parquet, feather, jsonl, npy) as named columns; errors name the line."""

from __future__ import annotations

import csv
import io
import itertools
import mmap
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...base.checks import to_whole_numbers
from ...base.files import read_npy
from ...errors import GraphError, StoreError
from ..columns.schema import is_number_text

if TYPE_CHECKING:
    import pyarrow as pa

TEXT = (".csv", ".tsv", ".txt")
JSON = (".jsonl", ".ndjson")  # one object per line
TABLE = (*TEXT, ".parquet", ".feather", *JSON, ".npy")
# Names of columns that pandas writes for the index of a table. It gives the first one itself; the others are an index
# only if they count the rows.
_INDEX, _MAYBE_INDEX = re.compile(r"__index_level_\d+__"), ("", "unnamed: 0", "index", "level_0")
_DELIMITERS = ("\t", ";", ",", " ")
# Data lines looked at to find the delimiter and the header.
_SAMPLE = 20


class NeedsMappingError(GraphError):
    """The columns of a table have other names or contents than those that are found without a mapping."""


@dataclass(frozen=True)
class Table:
    """Columns of equal length; `header` is None if the file does not name them."""

    file: Path
    columns: list[NDArray[Any]]
    header: list[str] | None

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    def find(self, names: Sequence[str]) -> int | None:
        """Return the position of the first column with one of these names, case ignored; None if there is none."""
        lowered = [name.lower() for name in self.header or []]
        return next((lowered.index(name) for name in names if name in lowered), None)

    def index_columns(self) -> list[int]:
        """Return the positions of columns that pandas wrote for the index of a table; they hold no data."""
        return [
            i
            for i, name in enumerate(self.header or [])
            if _INDEX.fullmatch(name)
            or (name.lower() in _MAYBE_INDEX and np.array_equal(self.columns[i], np.arange(len(self))))
        ]

    def location(self, row: int) -> str:
        """Return a text that says where a row is: its line in a text file, its number in other files."""
        if self.file.suffix.lower() in TEXT:
            lines_before = row + (self.header is not None)
            with self.file.open(encoding="utf-8-sig", errors="replace") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip() and not line.startswith("#"):
                        if lines_before == 0:
                            return f"{self.file} line {number}"
                        lines_before -= 1
        return f"{self.file} row {row}"

    def numbers(self, position: int, what: str) -> NDArray[Any]:
        """Return a column as numbers; raise for the first entry that is not a number."""
        column = self.columns[position]
        if column.dtype.kind in "iufb":
            return column
        try:
            return column.astype(np.float64)
        except ValueError:
            row = next(row for row, text in enumerate(column) if not is_number_text(str(text)))
            raise NeedsMappingError(
                f"{self.location(row)}: {what} is {str(column[row])!r}; it must be a number"
            ) from None

    def ids(self, position: int, what: str) -> NDArray[Any]:
        """Return a column of node ids, whole numbers or texts as written (007 is not 7); raise if one is missing."""
        column = self.columns[position]
        if column.dtype.kind == "U":
            empty = np.flatnonzero(np.char.str_len(column) == 0)
            if empty.size:
                raise GraphError(f"{self.location(int(empty[0]))}: {what} is missing; every row needs one")
            if np.char.isdigit(column).all() or not all(is_number_text(str(text)) for text in column):
                return column
            column = column.astype(np.float64)
        try:
            return to_whole_numbers(column, what).astype(np.int64)
        except GraphError:
            whole = np.isfinite(column) & (np.where(np.isfinite(column), column, 0.5) % 1 == 0)
            row = int(np.flatnonzero(~whole)[0]) if not whole.all() else int(np.argmax(column))
            value = self.columns[position][row]
            value = "missing" if str(value) == "nan" and self.file.suffix.lower() not in TEXT else value
            raise GraphError(f"{self.location(row)}: {what} is {value}; it must be a whole number or a name") from None


def read_table(
    file: Path, known: Sequence[str], ids: Sequence[str] = (), leading_ids: int = 0, free_header: bool = False
) -> Table:
    """Read a table.

    In text files tab, semicolon, comma or spaces separate columns. Lines at the top that begin with `#` are comments.

    Parameters
    ----------
    known
        Column names, lower case. A text file has a header if its first line uses one of them.
    ids
        Names of columns that hold node ids, which are kept exactly as written.
    leading_ids
        How many columns hold node ids in a file without header, unless it has only one column.
    free_header
        Whether texts above numbers are a header too, whatever their names.
    """
    if not file.is_file():
        raise StoreError(f"{file} does not exist")
    if file.stat().st_size == 0:
        raise StoreError(f"{file} is empty")
    ending = file.suffix.lower()
    if ending in TEXT:
        return _read_text(file, known, ids=ids, leading_ids=leading_ids, free_header=free_header)
    if ending in (".parquet", ".feather", *JSON):
        return _read_columns(file)
    if ending == ".npy":
        array = read_npy(file)
        if array.ndim not in (1, 2):
            raise GraphError(f"{file} has shape {list(array.shape)}; a table has one or two dimensions")
        return Table(file, [array] if array.ndim == 1 else list(array.T), None)
    raise StoreError(f"{file} has the unknown ending '{file.suffix}'; known are {', '.join(TABLE)}")


def _read_text(file: Path, known: Sequence[str], *, ids: Sequence[str], leading_ids: int, free_header: bool) -> Table:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    comments, sample = first_lines(file)
    delimiter = find_delimiter(sample)
    try:
        cells = list(csv.reader(sample, delimiter=delimiter, skipinitialspace=True))
    except csv.Error as error:  # a cell of more than 131,072 characters
        raise GraphError(f"{file}: {error}; shorten the text, or store the table as parquet") from error
    rows = [[field.strip() for field in row] for row in cells]
    header = _find_header(file, rows, known=known, free=free_header)
    names = header or [f"f{i}" for i in range(len(rows[0]))]
    as_text = [name for name in header or () if name.lower() in ids]
    if header is None and len(names) > 1:
        as_text = names[:leading_ids]
    quotes = count_quotes(file, comments, delimiter)
    try:
        table = arrow_csv.read_csv(
            single_spaces(file) if delimiter == " " else file,
            read_options=arrow_csv.ReadOptions(skip_rows=comments + (header is not None), column_names=names),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=quotes > 0),
            convert_options=arrow_csv.ConvertOptions(column_types=dict.fromkeys(as_text, pa.string())),
        )
        columns = [_to_numpy(column) for column in table.columns]
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise GraphError(f"{file} is not a regular table: {error}{_ragged_line(file, delimiter)}") from error
    return Table(file, columns, header)


def first_lines(file: Path) -> tuple[int, list[str]]:
    """Return how many lines at the top are comments or blank, and the first lines of data."""
    comments = 0
    sample: list[str] = []
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for line in lines:
                if not sample and (not line.strip() or line.startswith("#")):
                    comments += 1
                elif line.strip() and len(sample) < _SAMPLE:
                    sample.append(line.rstrip("\r\n"))
                elif len(sample) == _SAMPLE:
                    break
    except UnicodeDecodeError as error:
        raise StoreError(f"{file} is not a UTF-8 text file: {error}; save it as UTF-8") from error
    if not sample:
        raise StoreError(f"{file} has no data line")
    with file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = 0
        for _ in range(comments):
            start = content.find(b"\n", start) + 1
        # One byte is found ten times as fast as two, and most files have none.
        middle = content.find(b"\n#", start) if content.find(b"#", start) >= 0 else -1
        if middle >= 0:
            number = content[: middle + 1].count(b"\n") + 1
            raise GraphError(f"{file} line {number}: comments (#) may only stand at the top of the file")
    return comments, sample


def count_quotes(file: Path, comments: int, delimiter: str) -> int:
    """Return the number of quotes; refuse one that is never closed, or Arrow would take the rest for one text."""
    with file.open("rb") as content:
        quotes = sum(block.count(b'"') for block in iter(lambda: content.read(1 << 22), b""))
    if quotes % 2 == 0:
        return quotes
    line = comments
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        reader = csv.reader(itertools.islice(lines, comments, None), delimiter=delimiter, strict=True)
        try:
            for _ in reader:
                line = comments + reader.line_num
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                text = 'a quote (") is opened and never closed; close or delete it'
                raise GraphError(f"{file} line {line + 1}: {text}") from error
    return quotes


def find_delimiter(sample: list[str]) -> str:
    """Return the delimiter that cuts all lines into the same number of columns, more than one.

    If none does, return the first that occurs in the first line, else a comma.
    """
    for delimiter in _DELIMITERS:
        try:
            counts = {len(row) for row in csv.reader(sample, delimiter=delimiter, skipinitialspace=True)}
        except csv.Error:  # a very long text
            continue
        if len(counts) == 1 and counts != {1}:
            return delimiter
    return next((delimiter for delimiter in _DELIMITERS if delimiter in sample[0]), ",")


def _find_header(file: Path, rows: list[list[str]], *, known: Sequence[str], free: bool) -> list[str] | None:
    """Return the first row if it is a header, else None; see `known` and `free_header` of `read_table`."""
    first, rest = rows[0], rows[1:]
    if {name.lower() for name in first} & set(known):
        lowered = [name.lower() for name in first]
        repeated = next((name for name in lowered if lowered.count(name) > 1), None)
        if repeated is not None:
            raise GraphError(f"{file} line 1: the column '{repeated}' occurs twice")
        return first
    above_numbers = any(
        not is_number_text(name) and all(len(row) > i and is_number_text(row[i]) for row in rest)
        for i, name in enumerate(first)
    )
    if not rest or not above_numbers:
        return None
    if free:
        return first
    raise NeedsMappingError(
        f"{file}: the first line, {', '.join(first)}, looks like a header, but none of its names is known: "
        f"use {', '.join(known)}"
    )


def single_spaces(file: Path) -> io.BytesIO:
    """Return the file with each run of spaces, as aligned columns have them, replaced by one space."""
    lines = file.read_bytes().splitlines()
    return io.BytesIO(b"\n".join(re.sub(rb" +", b" ", line.strip()) for line in lines) + b"\n")


def _ragged_line(file: Path, delimiter: str) -> str:
    """Return a text about the first line that has another number of columns than the first; empty if there is none."""
    expected = 0
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                count = len(next(csv.reader([line], delimiter=delimiter)))
            except csv.Error:  # a cell of more than 131,072 characters: no reason to search further
                return ""
            expected = expected or count
            if count != expected:
                return f" (line {number} has {count} columns, the first has {expected})"
    return ""


def read_arrow_file(file: Path) -> pa.Table:
    """Return the table of a parquet or feather file, or of JSON lines."""
    import pyarrow as pa
    from pyarrow import feather, json, parquet

    ending = file.suffix.lower()
    read = {".parquet": parquet.read_table, ".feather": feather.read_table}.get(ending, json.read_json)
    try:
        table = read(file)
        _ = table.column_names  # decodes them
        table.validate(full=True)  # wrong offsets would be followed anywhere; texts may be no UTF-8
        return table
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{file} is not a readable {ending[1:]} file: {error}") from error


def _read_columns(file: Path) -> Table:
    import pyarrow as pa

    table = read_arrow_file(file)
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            columns.append(_to_numpy(column))
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise GraphError(f"{file}: the column '{name}' of type {column.type} holds no plain values") from error
    return Table(file, columns, list(table.column_names))


def _to_numpy(column: Any) -> NDArray[Any]:
    """Return an Arrow column as a NumPy array; missing numbers become NaN, missing texts empty.

    Spaces around texts are removed. Texts become int64 only if all are the usual form of a whole number: 007, 0x10
    and 1e3 stay texts.
    """
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        array: NDArray[Any] = column.to_numpy()
        return array if array.dtype.kind in "iuf" else array.astype(np.float64)
    texts = compute.utf8_trim_whitespace(compute.fill_null(column.cast(pa.string()), ""))
    try:
        numbers = texts.cast(pa.int64())
        if compute.all(compute.equal(numbers.cast(pa.string()), texts)).as_py() is not False:
            return np.asarray(numbers.to_numpy())
    except pa.ArrowInvalid:
        pass  # not all are whole numbers
    return np.asarray(texts.to_numpy(), dtype=np.str_)
