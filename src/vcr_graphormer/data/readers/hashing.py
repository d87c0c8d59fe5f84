"""Find texts among many others: a compiled hash table that is made once and asked for millions of texts.

Arrow's `index_in` makes its table anew in every call, which is slow for many small batches (results/tables.json).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

_WORD = 8  # bytes of a text that are compared at once
_BLOCK = 1024  # texts that are looked up together; their words stay in the nearest cache
# Constants of MurmurHash3's last step, which spreads 64 bits well.
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_HIGH, _LOW = np.uint64(0xFFFFFFFF00000000), np.uint64(0xFFFFFFFF)


class TextIndex:
    """The place of each text in an array of distinct texts."""

    def __init__(self, texts: pa.Array) -> None:
        data, offsets = _buffers(texts)
        longest = int(np.diff(offsets).max(initial=0))
        # Each text as whole words, filled up with zeros, and its length: equal rows are equal texts.
        self._keys = np.zeros((len(texts), -(-longest // _WORD) + 1), dtype=np.uint64)
        size = 2 ** max(4, (2 * len(texts)).bit_length())
        self._table = np.zeros(size, dtype=np.uint64)
        _fill(self._table, self._keys, data, offsets)

    def rows(self, texts: pa.ChunkedArray, missing: int) -> NDArray[np.int32]:
        """Return the place of each text, `missing` where it is not there."""
        found = np.empty(len(texts), dtype=np.int32)
        start = 0
        for chunk in texts.chunks:
            _look_up(self._table, self._keys, *_buffers(chunk), found[start : start + len(chunk)], missing)
            start += len(chunk)
        return found


def _buffers(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Return the bytes of all texts and where each begins and ends."""
    _, offsets, data = texts.buffers()
    if not len(texts) or offsets is None:
        return np.zeros(1, dtype=np.uint8), np.zeros(len(texts) + 1, dtype=np.int32)
    bytes_ = np.zeros(1, dtype=np.uint8) if data is None or data.size == 0 else np.frombuffer(data, dtype=np.uint8)
    return bytes_, np.frombuffer(offsets, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]


@nb.njit(nogil=True, cache=True)
def _word(data: Any, start: int, stop: int) -> Any:  # pragma: no cover - compiled
    """Return up to eight bytes as one number."""
    word = np.uint64(0)
    for place in range(start, stop):
        word = (word << np.uint64(8)) | np.uint64(data[place])
    return word


@nb.njit(nogil=True, cache=True)
def _hash(data: Any, start: int, stop: int) -> Any:  # pragma: no cover - compiled
    mixed = np.uint64(stop - start)
    for place in range(start, stop, _WORD):
        mixed = (mixed ^ _word(data, place, min(place + _WORD, stop))) * _FIRST
        mixed ^= mixed >> np.uint64(32)
    mixed *= _SECOND
    return mixed ^ (mixed >> np.uint64(29))


@nb.njit(nogil=True, cache=True)
def _fill(table: Any, keys: Any, data: Any, offsets: Any) -> None:  # pragma: no cover - compiled
    """Write the words of each text to `keys`, and to the table half of its hash and its number + 1."""
    mask = np.uint64(len(table) - 1)
    for row in range(len(keys)):
        start, stop = offsets[row], offsets[row + 1]
        keys[row, 0] = np.uint64(stop - start)
        for column in range((stop - start + _WORD - 1) // _WORD):
            first = start + column * _WORD
            keys[row, column + 1] = _word(data, first, min(first + _WORD, stop))
        mixed = _hash(data, start, stop)
        slot = mixed & mask
        while table[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = (mixed & _HIGH) | np.uint64(row + 1)


@nb.njit(nogil=True, cache=True)
def _look_up(
    table: Any, keys: Any, data: Any, offsets: Any, found: Any, missing: int
) -> None:  # pragma: no cover - compiled
    """Find the texts of a batch in three passes over blocks: their words, likely rows, and the words of these rows.

    Reads of one pass do not wait for each other, so the processor fetches many at once: three times as fast.
    """
    mask, width = np.uint64(len(table) - 1), keys.shape[1]
    words = np.zeros((_BLOCK, width), dtype=np.uint64)
    candidates = np.zeros((_BLOCK, width), dtype=np.uint64)
    mixed = np.zeros(_BLOCK, dtype=np.uint64)
    for begin in range(0, len(found), _BLOCK):
        count = min(_BLOCK, len(found) - begin)
        for i in range(count):
            start, stop = offsets[begin + i], offsets[begin + i + 1]
            mixed[i] = _hash(data, start, stop)
            words[i, 0] = np.uint64(stop - start)
            for column in range(1, width):
                first = min(start + (column - 1) * _WORD, stop)
                words[i, column] = _word(data, first, min(first + _WORD, stop))
        for i in range(count):
            found[begin + i] = _next(table, mixed[i], mixed[i] & mask)
        for i in range(count):
            row = found[begin + i]
            for column in range(width):
                candidates[i, column] = keys[max(row, 0), column]
        for i in range(count):
            row = found[begin + i]
            slot = mixed[i] & mask
            while row >= 0 and not _equal(words, candidates, i):  # seldom: half of the hash agrees, but not the text
                while np.int64(table[slot] & _LOW) - 1 != row:
                    slot = (slot + np.uint64(1)) & mask
                slot = (slot + np.uint64(1)) & mask
                row = _next(table, mixed[i], slot)
                for column in range(width):
                    candidates[i, column] = keys[max(row, 0), column]
            found[begin + i] = row if row >= 0 else missing


@nb.njit(nogil=True, cache=True)
def _next(table: Any, mixed: Any, slot: Any) -> Any:  # pragma: no cover - compiled
    """Return the next row, from a slot on, whose hash agrees in its upper half; -1 if there is none."""
    mask = np.uint64(len(table) - 1)
    while table[slot] != 0:
        if table[slot] & _HIGH == mixed & _HIGH:
            return np.int64(table[slot] & _LOW) - 1
        slot = (slot + np.uint64(1)) & mask
    return np.int64(-1)


@nb.njit(nogil=True, cache=True)
def _equal(words: Any, candidates: Any, row: int) -> bool:  # pragma: no cover - compiled
    for column in range(words.shape[1]):  # noqa: SIM110 - numba compiles no generators
        if words[row, column] != candidates[row, column]:
            return False
    return True
