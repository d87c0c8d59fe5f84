"""Compute one hop: rows of P times a dense matrix, compiled."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np


@nb.njit(nogil=True, cache=True)
def add_rows(
    indptr: Any, indices: Any, weights: Any, left: Any, right: Any, loops: bool, source: Any, first: int, out: Any
) -> None:
    """Add row `first + i` of P times `source` to out[i], where P(u, v) = weight · left(u) · right(v).

    Neighbours are added by ascending id, and with `loops` the node itself in its place among them.
    """
    for i in range(len(out)):
        u = first + i
        loop_due = loops
        for e in range(indptr[u], indptr[u + 1]):
            v = indices[e]
            if loop_due and v > u:
                _add(np.float32(left[u] * right[u]), source[u], out[i])
                loop_due = False
            weight = np.float64(weights[e]) if len(weights) else 1.0
            _add(np.float32(weight * left[u] * right[v]), source[v], out[i])
        if loop_due:
            _add(np.float32(left[u] * right[u]), source[u], out[i])


@nb.njit(nogil=True, cache=True)
def _add(factor: Any, row: Any, out: Any) -> None:
    for j in range(len(out)):
        out[j] += factor * row[j]
