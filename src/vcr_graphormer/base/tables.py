"""Write columns as a csv or parquet file."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .checks import Array
from .text import csv_cell

if TYPE_CHECKING:  # imported where needed: it takes a while
    import pyarrow as pa

_ROWS_AT_ONCE = 8192  # rows that are texts in memory at a time


def write_csv(path: Path, columns: Mapping[str, Array]) -> None:
    """Write columns of numbers and texts; unknown values (None, NaN, masked) are empty.

    A matrix becomes one column per dimension, such as `vector_0`. Texts are made harmless by `csv_cell`.
    """
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow([csv_cell(title) for name, column in columns.items() for title in _titles(name, column)])
        for start in range(0, len(next(iter(columns.values()))), _ROWS_AT_ONCE):
            blocks = [column[start : start + _ROWS_AT_ONCE] for column in columns.values()]
            texts = [_texts(line) for block in blocks for line in (block.T if block.ndim == 2 else [block])]
            writer.writerows(zip(*texts, strict=True))


def _titles(name: str, column: Array) -> list[str]:
    return [name] if column.ndim == 1 else [f"{name}_{number}" for number in range(column.shape[1])]


def _texts(column: Array) -> Iterator[str]:
    if column.dtype.kind == "f":
        return (text if text != "nan" else "" for text in map("{:.6g}".format, column.tolist()))
    # Numbers of Python are formatted several times faster than those of NumPy; a masked one becomes None.
    if column.dtype.kind in "iub":
        return ("" if value is None else str(value) for value in column.tolist())
    return ("" if value is None else csv_cell(value) for value in column.tolist())


def write_parquet(path: Path, columns: Mapping[str, Array]) -> None:
    """Write columns of numbers and texts exactly; unknown values are null, a matrix is a column of lists."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [name.encode("utf-8", "backslashreplace").decode() for name in columns]
    pq.write_table(pa.table([_arrow(column) for column in columns.values()], names=names), path)


def _arrow(column: Array) -> pa.Array:
    import pyarrow as pa

    if column.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(column).reshape(-1)), column.shape[1])
    if column.dtype.kind not in "OU":
        mask = np.ma.getmaskarray(column) if isinstance(column, np.ma.MaskedArray) else None
        return pa.array(np.ma.getdata(column), mask=mask, from_pandas=True)  # NaN becomes null
    # Half a surrogate pair, which a name from a JSON file may have, is no UTF-8.
    texts: list[Any] = [None if text is None else str(text).encode("utf-8", "backslashreplace") for text in column]
    return pa.array(texts, pa.binary()).cast(pa.string())
