"""Divide loops over arrays among threads. Compiled loops release the GIL, so that threads share the work."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

_LEAST_ENTRIES = 1 << 16  # that are worth a thread of their own: starting one takes as long as copying so many


def ranges(size: int, entries: int, threads: int) -> list[tuple[int, int]]:
    """Return ranges that cover 0 … size - 1: one per thread, of those that so many entries are worth.

    >>> ranges(10, 1 << 20, 2)
    [(0, 5), (5, 10)]
    >>> ranges(10, 100, 2)
    [(0, 10)]
    """
    count = max(1, min(threads, size, entries // _LEAST_ENTRIES))
    bounds = [size * number // count for number in range(count + 1)]
    return list(pairwise(bounds))


def in_threads(work: Callable[[int, int, int], None], parts: list[tuple[int, int]]) -> None:
    """Call `work(number, first, last)` for every range, each in a thread of its own; the first one in this thread."""
    if len(parts) == 1:
        work(0, *parts[0])
        return
    with ThreadPoolExecutor(len(parts) - 1) as pool:
        others = [pool.submit(work, number, *part) for number, part in enumerate(parts) if number]
        work(0, *parts[0])
        for other in others:
            other.result()  # raises what was raised there
