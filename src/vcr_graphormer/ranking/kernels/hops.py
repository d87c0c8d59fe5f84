"""The compiled loop of one hop: rows of P times a dense matrix."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np


@nb.njit(nogil=True, cache=True)
def add_rows(
    indptr: Any, indices: Any, weights: Any, left: Any, right: Any, loops: bool, source: Any, first: int, out: Any
) -> None:
    """out[i] += row first + i of P times source, by ascending neighbours, with a loop the node itself among them."""
    for i in range(len(out)):
        u = first + i
        alone = loops
        for e in range(indptr[u], indptr[u + 1]):
            v = indices[e]
            if alone and v > u:
                _add(np.float32(left[u] * right[u]), source[u], out[i])
                alone = False
            weight = np.float64(weights[e]) if len(weights) else 1.0
            _add(np.float32(weight * left[u] * right[v]), source[v], out[i])
        if alone:
            _add(np.float32(left[u] * right[u]), source[u], out[i])


@nb.njit(nogil=True, cache=True)
def _add(factor: Any, row: Any, out: Any) -> None:
    for j in range(len(out)):
        out[j] += factor * row[j]
