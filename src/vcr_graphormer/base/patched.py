"""Arrays and sparse matrices with some rows replaced and new ones at their ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .checks import Array

_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False)
class Patched:
    """An array with some rows replaced and new ones at its end.

    Attributes
    ----------
    old : [n, …]
        The rows of before.
    rows : int64 [r]
        The rows that are replaced or new, ascending.
    values : [r, …]
        Their content.
    """

    old: Array
    rows: NDArray[np.int64]
    values: Array
    num_rows: int

    def take(self, rows: NDArray[np.int64]) -> Array:
        """Return some rows."""
        place, fresh = _places(self.rows, rows)
        result = np.empty((len(rows), *self.old.shape[1:]), dtype=self.old.dtype)
        result[fresh] = self.values[place[fresh]]
        result[~fresh] = self.old[rows[~fresh]]
        return result

    def blocks(self) -> Iterator[Array]:
        """Yield all rows, some at a time."""
        for start in range(0, self.num_rows, _ROWS_AT_ONCE):
            yield self.take(np.arange(start, min(start + _ROWS_AT_ONCE, self.num_rows)))


def _places(rows: NDArray[np.int64], wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return where wanted rows stand among ascending `rows`, and which of them do."""
    place = np.searchsorted(rows, wanted)
    place[place == len(rows)] = 0
    return place, rows[place] == wanted if len(rows) else np.zeros(len(wanted), dtype=np.bool_)


def patched_csr(
    old: Array | sp.csr_matrix, rows: NDArray[np.int64], values: sp.csr_matrix, *, num_rows: int
) -> sp.csr_matrix:
    """Return sparse rows of before with some replaced and new ones at the end."""
    order = np.arange(num_rows)
    place, fresh = _places(rows, order)
    pick = np.where(fresh, old.shape[0] + place, np.minimum(order, old.shape[0] - 1))
    values.sort_indices()
    joined = sp.csr_matrix(sp.vstack([old, values], format="csr")[pick])
    joined.sort_indices()
    return joined
