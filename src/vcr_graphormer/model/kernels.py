"""Compiled loops over entries of sparse rows and of dropout (numba). They release the GIL: threads share the work."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numba.extending import overload

_HALF, _ONE, _SIXTEEN = np.uint32(0x7FFF), np.uint32(1), np.uint32(16)


def narrowed(number):  # type: ignore[no-untyped-def]
    """Return a number as it is, and the float32 whose bits are a uint32 as the bits of the nearest bfloat16."""
    return number


# Numba compares the signatures of both functions, so that neither has types.
@overload(narrowed)
def _narrowed(number):  # type: ignore[no-untyped-def]
    if number != nb.uint32:
        return lambda number: number

    def rounded(number):  # type: ignore[no-untyped-def]
        # A bfloat16 is the first half of a float32. Halfway between two, the even one is taken.
        odd = np.uint32(np.uint32(number >> _SIXTEEN) & _ONE)
        return np.uint16(np.uint32(number + np.uint32(_HALF + odd)) >> _SIXTEEN)

    return rounded


@nb.njit(nogil=True, cache=True)
def gather_rows(matrix: Any, copies: Any, rows: Any) -> None:
    """Copy `rows[i]` of a matrix to copies[i], narrowed."""
    for i in range(len(rows)):
        given, made = matrix[rows[i]], copies[i]
        for j in range(len(made)):
            made[j] = narrowed(given[j])  # type: ignore[no-untyped-call]


@nb.njit(nogil=True, cache=True)
def gather_entries(indptr: Any, entries: Any, copies: Any, rows: Any, starts: Any) -> None:
    """Copy the entries of `rows[i]` to the places from `starts[i]` on, narrowed."""
    for i in range(len(rows)):
        given, made = entries[indptr[rows[i]] : indptr[rows[i] + 1]], copies[starts[i] : starts[i + 1]]
        for e in range(len(made)):
            made[e] = narrowed(given[e])  # type: ignore[no-untyped-call]


@nb.njit(nogil=True, cache=True)
def copy_rows(  # noqa: PLR0913 - numba compiles plain arguments best
    indptr: Any, indices: Any, values: Any, rows: Any, starts: Any, columns: Any, copies: Any, first: int, last: int
) -> None:
    """Copy the entries of `rows[i]` to the places from `starts[i]` on, for i from `first` to `last - 1`."""
    for i in range(first, last):
        source, end = indptr[rows[i]], indptr[rows[i] + 1]
        columns[starts[i] : starts[i + 1]] = indices[source:end]
        copies[starts[i] : starts[i + 1]] = values[source:end]


@nb.njit(nogil=True, cache=True)
def count_shown(starts: Any, bits: Any, least: Any, counts: Any, first: int, last: int) -> None:
    """Write to counts[i] how many of the bits `starts[i]` … `starts[i + 1] - 1` are at least `least`."""
    for i in range(first, last):
        drawn, shown = bits[starts[i] : starts[i + 1]], 0
        for e in range(len(drawn)):
            shown += drawn[e] >= least
        counts[i] = shown


@nb.njit(nogil=True, cache=True)
def copy_shown(  # noqa: PLR0913
    indptr: Any,
    indices: Any,
    values: Any,
    rows: Any,
    starts: Any,
    bits: Any,
    least: Any,
    scale: Any,
    targets: Any,
    columns: Any,
    copies: Any,
    first: int,
    last: int,
) -> None:
    """Copy the shown entries of `rows[i]` times `scale` to the places from `targets[i]` on.

    The bits of its entries begin at `starts[i]`; an entry is shown if they are at least `least`.
    """
    for i in range(first, last):
        source, target, end = indptr[rows[i]], targets[i], targets[i + 1]
        for e in range(starts[i], starts[i + 1]):
            if target == end:
                break
            # Written always and kept if shown: a jump that depends on random bits would cost more.
            columns[target] = indices[source]
            copies[target] = values[source] * scale
            target += bits[e] >= least
            source += 1


@nb.njit(nogil=True, cache=True)
def scale_shown(values: Any, bits: Any, least: Any, scale: Any, out: Any, first: int, last: int) -> None:
    """Write value times `scale` to `out` where bits are at least `least`, and value times 0 elsewhere."""
    # Slices begin at 0, so that numba leaves out its test for negative numbers, and the loop computes many at once.
    given, drawn, made = values[first:last], bits[first:last], out[first:last]
    for e in range(len(made)):
        made[e] = given[e] * (scale if drawn[e] >= least else scale * 0)


@nb.njit(nogil=True, cache=True)
def count_columns(indices: Any, counts: Any, first: int, last: int) -> None:
    """Add to counts[c] how many of the entries first … last - 1 lie in column c."""
    for e in range(first, last):
        counts[indices[e]] += 1


@nb.njit(nogil=True, cache=True)
def sort_columns(
    indptr: Any, indices: Any, values: Any, places: Any, owners: Any, copies: Any, first: int, last: int
) -> None:
    """Write row and value of each entry of the rows first … last - 1 to the next place of its column, and count it."""
    for i in range(first, last):
        for e in range(indptr[i], indptr[i + 1]):
            place = places[indices[e]]
            places[indices[e]] = place + 1
            owners[place] = i
            copies[place] = values[e]
