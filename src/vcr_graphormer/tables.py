"""One table of a user's file (csv, tsv, txt, parquet, npy, npz) → named columns, errors with the line they are on."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import GraphError, StoreError

TEXT = (".csv", ".tsv", ".txt")
TABLE = (*TEXT, ".parquet", ".npy")
_DELIMITERS = "\t,; "


@dataclass(frozen=True)
class Table:
    """Columns of equal length; `header` is None where the file names none."""

    file: Path
    columns: list[NDArray[Any]]
    header: list[str] | None

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    def find(self, names: Sequence[str]) -> int | None:
        """Position of the first column with one of these names, case ignored."""
        lowered = [name.lower() for name in self.header or []]
        return next((lowered.index(name) for name in names if name in lowered), None)

    def place(self, row: int) -> str:
        """Where a row stands in the file: its line in a text file, its number elsewhere."""
        if self.file.suffix not in TEXT:
            return f"{self.file} row {row}"
        skip = row + (self.header is not None)
        with self.file.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip() and not line.startswith("#"):
                    if skip == 0:
                        return f"{self.file} line {number}"
                    skip -= 1
        return f"{self.file} row {row}"

    def numbers(self, position: int, what: str) -> NDArray[Any]:
        """A column as numbers; the first entry that is not one is named."""
        column = self.columns[position]
        if column.dtype.kind in "iufb":
            return column
        for row, text in enumerate(column):
            try:
                float(text)
            except (TypeError, ValueError):
                raise GraphError(f"{self.place(row)}: {what} is {str(text)!r}; it must be a number") from None
        return column.astype(np.float64)

    def ids(self, position: int, what: str) -> NDArray[Any]:
        """A column of node ids, whole numbers or texts, none missing."""
        column = self.columns[position]
        if column.dtype.kind == "f":
            wrong = ~(np.isfinite(column) & (column == np.floor(np.where(np.isfinite(column), column, 0))))
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                value = "missing" if np.isnan(column[row]) else column[row]
                raise GraphError(f"{self.place(row)}: {what} is {value}; it must be a whole number or a name")
            return column.astype(np.int64)
        if column.dtype.kind in "iu":
            return column
        texts = column.astype(np.str_)
        empty = np.flatnonzero(np.char.str_len(texts) == 0)
        if empty.size:
            raise GraphError(f"{self.place(int(empty[0]))}: {what} is missing; every row needs one")
        return texts


def read_table(file: Path, known: Sequence[str]) -> Table:
    """Read a table. A text file has a header where its first line uses one of the `known` column names.

    Lines at the top that begin with `#` are comments; tab, comma, semicolon or space separates columns.
    """
    if not file.is_file():
        raise StoreError(f"{file} does not exist")
    if file.stat().st_size == 0:
        raise StoreError(f"{file} is empty")
    if file.suffix in TEXT:
        return _read_text(file, known)
    if file.suffix == ".parquet":
        return _read_parquet(file)
    if file.suffix == ".npy":
        array = read_npy(file)
        if array.ndim > 2:
            raise GraphError(f"{file} has shape {list(array.shape)}; a table has one or two dimensions")
        return Table(file, [array] if array.ndim == 1 else list(array.T), None)
    raise StoreError(f"{file} has the unknown ending '{file.suffix}'; known are {', '.join(TABLE)}")


def read_npy(file: Path) -> NDArray[Any]:
    """A `.npy` array, memory-mapped where it can be; pickled ones are refused."""
    if not file.is_file():
        raise StoreError(f"{file} does not exist")
    try:
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise StoreError(f"{file} is not a readable .npy file of plain numbers: {error}") from error
    return array


def _read_text(file: Path, known: Sequence[str]) -> Table:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    comments, first = 0, ""
    try:
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                first = line.rstrip("\r\n")
                if first.strip() and not first.startswith("#"):
                    break
                comments += 1
            else:
                raise StoreError(f"{file} has no data line")
    except UnicodeDecodeError as error:
        raise StoreError(f"{file} is not a UTF-8 text file: {error}") from error
    delimiter = next((mark for mark in _DELIMITERS if mark in first), ",")
    fields = [field.strip() for field in next(csv.reader([first], delimiter=delimiter))]
    has_header = bool({field.lower() for field in fields} & set(known))
    try:
        table = arrow_csv.read_csv(
            file,
            read_options=arrow_csv.ReadOptions(skip_rows=comments, autogenerate_column_names=not has_header),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter),
        )
    except pa.ArrowInvalid as error:
        raise GraphError(f"{file} is not a regular table: {error}{_ragged_line(file, delimiter)}") from error
    return Table(file, [_to_numpy(column) for column in table.columns], fields if has_header else None)


def _ragged_line(file: Path, delimiter: str) -> str:
    """Name the first line with another number of columns than the first one."""
    expected = 0
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            count = len(next(csv.reader([line], delimiter=delimiter)))
            expected = expected or count
            if count != expected:
                return f" (line {number} has {count} columns, the first has {expected})"
    return ""


def _read_parquet(file: Path) -> Table:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.read_table(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreError(f"{file} is not a readable parquet file: {error}") from error
    return Table(file, [_to_numpy(column) for column in table.columns], list(table.column_names))


def _to_numpy(column: Any) -> NDArray[Any]:
    """Arrow column → NumPy; missing numbers become NaN, missing texts become empty."""
    import pyarrow as pa

    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        array: NDArray[Any] = column.to_numpy()
        return array if array.dtype.kind in "iufb" else array.astype(np.float64)
    texts = column.cast(pa.string()).to_pylist()
    return np.array([text or "" for text in texts], dtype=np.str_)
