"""Keep the k best entries seen so far: a compiled heap in one array, whose root is the worst entry.

An entry is one number, its key, so that two entries are compared at once: the bits of the score above those of the id.
Scores are float32 and not negative; their bits then have the order of the numbers. Of equal scores the smaller id has
the larger key. This is three times as fast as a heap of scores and a heap of ids side by side (docs/log.md).
"""

from __future__ import annotations

import numpy as np

from .push import bare, inlined

ZERO, ONE, ID_BITS = np.uint64(0), np.uint64(1), np.uint64(32)
LARGEST_ID = np.uint64(2**32 - 1)


@inlined
def key(score, v):
    """Return the key of node v with a score, which is rounded to float32."""
    return np.uint64(np.float32(score).view(np.uint32)) << ID_BITS | LARGEST_ID - np.uint64(v)


@inlined
def score_of(key):
    """Return the score that a key was made of, as float32."""
    return np.uint32(key >> ID_BITS).view(np.float32)


@inlined
def node_of(key):
    """Return the node that a key was made of."""
    return np.int32(LARGEST_ID - (key & LARGEST_ID))


@inlined
def sink(keys, size, key):
    """Put a key in the place of the root, and move it down until no child is smaller."""
    i, child = ZERO, ONE
    while child < size:
        if child + ONE < size:
            child += np.uint64(keys[child + ONE] < keys[child])
        if key <= keys[child]:
            break
        keys[i] = keys[child]
        i, child = child, child + child + ONE
    keys[i] = key


@inlined
def offer(keys, size, key):
    """Add a key if it is among the len(keys) largest so far; return the new size, which is unsigned.

    Works for keys of any type, float64 too.
    """
    if size < np.uint64(len(keys)):
        i = size
        while i > ZERO:
            parent = (i - ONE) >> ONE
            if keys[parent] <= key:
                break
            keys[i] = keys[parent]
            i = parent
        keys[i] = key
        return size + ONE
    if key > keys[ZERO]:
        sink(keys, size, key)
    return size


@bare
def unload(keys, size, ids, scores):
    """Move all entries of the heap to a row, best first."""
    while size > ZERO:
        size -= ONE
        ids[size], scores[size] = node_of(keys[ZERO]), score_of(keys[ZERO])
        sink(keys, size, keys[size])
