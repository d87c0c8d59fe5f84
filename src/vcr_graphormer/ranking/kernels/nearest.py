"""Rank nodes by the products of their rows with the source's row, compiled.

Rows are CSR. Every product is a sum of float32 in an order that the other node's row alone decides. So it depends on
neither the sources that are compared at the same time nor the number of threads.
"""

from __future__ import annotations

import numpy as np

from .heap import ZERO, key, offer, score_of, unload
from .push import jit

# Sources compared at a time. Of 16 to 512, 128 and more were fastest on PubMed, CS and Physics.
LANES = 128


@jit
def rank_all_rows(sources, indptr, indices, values, step, table, ids, scores):
    """Compare each source with all nodes; write those with the largest products to a row of ids and scores.

    Products are rounded to multiples of `step`; only positive ones count. `table`: float32 [columns, sources at a
    time], zero before and after.
    """
    lanes, k = table.shape[1], ids.shape[1]
    keys, size = np.empty((lanes, k), np.uint64), np.empty(lanes, np.uint64)
    product, bar = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    for start in range(0, len(sources), lanes):
        count = min(lanes, len(sources) - start)
        for i in range(count):
            put(indptr, indices, values, sources[start + i], table[:, i])
        bar[:], size[:] = np.float32(step / 2), 0
        for v in range(len(indptr) - 1):
            multiply(indptr, indices, values, v, table, product)
            for i in range(count):
                # Nodes come by ascending id, so one that only equals the k-th best cannot enter.
                if product[i] > bar[i] and v != sources[start + i]:
                    size[i] = offer(keys[i], size[i], key(rounded(product[i], step), v))
                    if size[i] == k:
                        bar[i] = score_of(keys[i, 0])
        for i in range(count):
            clear(indptr, indices, sources[start + i], table[:, i])
            unload(keys[i], size[i], ids[start + i], scores[start + i])


@jit
def rank_candidates(sources, indptr, indices, values, step, candidates, column, seen, ids, scores):
    """Compare each source with its candidates and with theirs only; the rest is as in `rank_all_rows`.

    `column`: float32 [columns], zero before and after. `seen`: int64 [n], -1 before.
    """
    keys = np.empty(ids.shape[1], np.uint64)
    for row in range(len(sources)):
        u = sources[row]
        put(indptr, indices, values, u, column)
        size, seen[u] = ZERO, row
        for i in range(-1, candidates.shape[1]):
            w = u if i < 0 else candidates[u, i]  # first the source's own candidates
            for j in range(candidates.shape[1] if w >= 0 else 0):
                v = candidates[w, j]
                if v >= 0 and seen[v] != row:
                    seen[v] = row
                    product = multiply_column(indptr, indices, values, v, column)
                    if product > np.float32(step / 2):
                        size = offer(keys, size, key(rounded(product, step), v))
        clear(indptr, indices, u, column)
        unload(keys, size, ids[row], scores[row])


@jit
def rank_among(sources, indptr, indices, values, step, lists, starts, more, column, seen, ids, scores):
    """Compare each source with its own candidates only: `lists[row]` and `more[starts[row] : starts[row + 1]]`.

    `column` and `seen` are as in `rank_candidates`.
    """
    keys = np.empty(ids.shape[1], np.uint64)
    for row in range(len(sources)):
        u = sources[row]
        put(indptr, indices, values, u, column)
        size = ZERO
        for i in range(starts[row] - lists.shape[1], starts[row + 1]):
            v = more[i] if i >= starts[row] else lists[row, i - starts[row]]
            if v >= 0 and seen[v] != row:
                seen[v] = row
                product = multiply_column(indptr, indices, values, v, column)
                if product > np.float32(step / 2):
                    size = offer(keys, size, key(rounded(product, step), v))
        clear(indptr, indices, u, column)
        unload(keys, size, ids[row], scores[row])


@jit
def put(indptr, indices, values, u, column):
    """Write the row of node u to a column of the table."""
    for e in range(indptr[u], indptr[u + 1]):
        column[indices[e]] = values[e]


@jit
def clear(indptr, indices, u, column):
    """Undo `put`."""
    for e in range(indptr[u], indptr[u + 1]):
        column[indices[e]] = 0


@jit
def multiply(indptr, indices, values, v, table, product):
    """Write the row of node v times the table to `product`.

    Four entries at a time: `product` is then read and written a quarter as often, and that is what takes the time.
    """
    product[:] = 0
    e, stop = indptr[v], indptr[v + 1]
    while e + 4 <= stop:
        a, b, c, d = values[e], values[e + 1], values[e + 2], values[e + 3]
        first, second = table[np.uint32(indices[e])], table[np.uint32(indices[e + 1])]
        third, fourth = table[np.uint32(indices[e + 2])], table[np.uint32(indices[e + 3])]
        for i in range(len(product)):
            product[i] += (a * first[i] + b * second[i]) + (c * third[i] + d * fourth[i])
        e += 4
    while e < stop:
        a, first = values[e], table[np.uint32(indices[e])]
        for i in range(len(product)):
            product[i] += a * first[i]
        e += 1


@jit
def multiply_column(indptr, indices, values, v, column):
    """Return the row of node v times one column, added in the order of `multiply`, so to the same bits."""
    product = np.float32(0.0)
    e, stop = indptr[v], indptr[v + 1]
    while e + 4 <= stop:
        a, b = values[e] * column[indices[e]], values[e + 1] * column[indices[e + 1]]
        c, d = values[e + 2] * column[indices[e + 2]], values[e + 3] * column[indices[e + 3]]
        product += (a + b) + (c + d)
        e += 4
    while e < stop:
        product += values[e] * column[indices[e]]
        e += 1
    return product


@jit
def rounded(product, step):
    """Return the multiple of `step` that is nearest to a product, at most 1."""
    return min(np.float32(1.0), np.float32(np.rint(product / step) * step))
