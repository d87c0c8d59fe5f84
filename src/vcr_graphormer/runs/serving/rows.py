"""Rows of an array in a store, mapped, with the rows of new nodes after them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ...base.checks import Array


class Rows:
    """An array with a row per node, dense or CSR, that grows at its end.

    >>> rows = Rows(np.array([[1.0], [2.0]]))
    >>> rows.extend(np.array([[3.0]]))
    >>> rows.take(np.array([2, 0])).tolist(), len(rows)
    ([[3.0], [1.0]], 3)
    """

    def __init__(self, old: Any) -> None:
        self.old, self.count, self.is_sparse = old, int(old.shape[0]), bool(sp.issparse(old))
        self.new: list[Any] = []

    def __len__(self) -> int:
        return self.count + len(self.new)

    def extend(self, values: Any) -> None:
        """Append rows."""
        if self.is_sparse:
            values = sp.csr_matrix(values)
            self.new.extend(values[row] for row in range(values.shape[0]))
        else:
            dense = values.toarray() if sp.issparse(values) else np.asarray(values)
            self.new.extend(np.array(row, dtype=self.old.dtype) for row in dense)

    def drop(self, count: int) -> None:
        """Drop the last rows."""
        del self.new[len(self.new) - count :]

    def take(self, nodes: NDArray[np.int64]) -> Any:
        """Return the rows of some nodes, dense or CSR."""
        is_new = nodes >= self.count
        if not is_new.any():
            return self.old[nodes]
        fresh = [self.new[node - self.count] for node in nodes[is_new].tolist()]
        if self.is_sparse:
            order = np.argsort(np.argsort(is_new, kind="stable"), kind="stable")
            return sp.vstack([self.old[nodes[~is_new]], *fresh], format="csr")[order]
        result: Array = np.empty((len(nodes), *self.old.shape[1:]), dtype=self.old.dtype)
        result[~is_new], result[is_new] = self.old[nodes[~is_new]], np.stack(fresh)
        return result
