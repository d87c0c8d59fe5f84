"""Compute one hop: rows of P times a dense matrix, compiled."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numba.extending import overload

# A float16 is sign, exponent and fraction: 1, 5 and 10 bits; a float32 1, 8 and 23. With exponent and fraction moved to
# the places of a float32, the number is too small by the difference of the two zero points, 2^(127 - 15).
_SIGN, _REST = np.uint32(1 << 15), np.uint32((1 << 15) - 1)
_SIGN_UP, _REST_UP, _SCALE = np.uint32(16), np.uint32(13), np.float32(2.0**112)


def value(number):
    """Return a number as it is, and the float16 whose bits are a uint16 as float32; not for infinity and NaN."""
    return number


# Numba compares the signatures of both functions, so that neither has types.
@overload(value)
def _value(number):
    if number != nb.uint16:
        return lambda number: number

    def from_bits(number):
        bits = np.uint32(number)
        moved = np.uint32((bits & _SIGN) << _SIGN_UP | (bits & _REST) << _REST_UP)  # numba counts in 64 bits
        return moved.view(np.float32) * _SCALE

    return from_bits


@nb.njit(nogil=True, cache=True)
def add_rows(
    indptr: Any, indices: Any, weights: Any, left: Any, right: Any, loops: bool, source: Any, first: int, out: Any
) -> None:
    """Add row `first + i` of P times `source` to out[i], where P(u, v) = weight · left(u) · right(v).

    Neighbours are added by ascending id, and with `loops` the node itself in its place among them. A `source` of uint16
    holds the bits of float16.
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
def _add(factor, row, out):
    for j in range(len(out)):
        out[j] += factor * value(row[j])  # type: ignore[no-untyped-call]
