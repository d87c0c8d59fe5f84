"""Rank nodes by link similarity, the cosine of their rows of the adjacency, compiled."""

from __future__ import annotations

import numpy as np

from .heap import ZERO, key, offer, score_of, unload
from .push import inlined, jit

# Nodes with fewer than this fraction of the k-th score so far are not evaluated; the rest of 1 is for rounding.
SURELY_BELOW = 1.0 - 1e-6
# An entry of the table of `rank_by_shared_links`: the count above, the number of links below.
COUNT_BITS = np.uint32(16)
SHARED = np.uint32(2**16)
MOST_COUNTED = 2**16 - 1
COUNTED = np.uint32(MOST_COUNTED)


@jit
def row_lengths(indptr, indices, weights, back_indptr, most):
    """Return the Euclidean length of every row of the adjacency; columns with more than `most` entries are left out."""
    lengths = np.zeros(len(indptr) - 1)
    for u in range(len(lengths)):
        for e in range(indptr[u], indptr[u + 1]):
            w = indices[e]
            if back_indptr[w + 1] - back_indptr[w] <= most:
                weight = weights[e] if len(weights) else 1.0
                lengths[u] += weight * weight
        lengths[u] = np.sqrt(lengths[u])
    return lengths


@jit
def rank_by_links(
    sources,
    indptr,
    indices,
    weights,
    back_indptr,
    back_indices,
    back_weights,
    lengths,
    most,
    products,  # float64 [n], zero before and after
    touched,  # int32 [n], working memory
    ids,
    scores,
):
    """Write the most similar nodes of each source to a row of ids and scores; return how many arcs were read."""
    visits = 0
    keys = np.empty(ids.shape[1], np.uint64)
    for row in range(len(sources)):
        u = sources[row]
        count = 0
        for e in range(indptr[u], indptr[u + 1]):
            w = indices[e]
            start, stop = back_indptr[w], back_indptr[w + 1]
            if stop - start > most:
                continue
            visits += stop - start
            weight = weights[e] if len(weights) else 1.0
            for f in range(start, stop):
                v = back_indices[f]
                if products[v] == 0.0:
                    touched[count] = v
                    count += 1
                products[v] += weight * (back_weights[f] if len(back_weights) else 1.0)
        size, least = ZERO, 0.0
        for i in range(count):
            v = touched[i]
            product, products[v] = products[v], 0.0
            if v != u and product >= least * lengths[v]:
                size = offer(keys, size, key(cosine(product, lengths[u], lengths[v]), v))
                if size == len(keys):
                    least = SURELY_BELOW * score_of(keys[0]) * lengths[u]
        unload(keys, size, ids[row], scores[row])
    return visits


@inlined
def cosine(product, length, other):
    """Return the cosine of two rows as it is stored.

    Compared as float32, too: float64 would break ties by its last bit, which may exceed 1.
    """
    return np.float32(min(1.0, product / (length * other)))


@jit
def rank_by_shared_links(
    sources,
    indptr,
    indices,
    back_indptr,
    back_indices,
    lengths,
    most,
    table,  # uint32 [n] from `count_table`, the same before and after
    touched,  # int32 [n + 1], working memory
    ids,
    scores,
):
    """Do the same as `rank_by_links` for arcs without weights and sources of at most `MOST_COUNTED` links, faster.

    Products are then counts, so four bytes hold the count of a node and its number of links: half the memory to go
    through, and most nodes are left out by a look at the table alone. Nodes are written to `touched` always, and kept
    only if the index advances: a branch would often be mispredicted.
    """
    visits = 0
    keys = np.empty(ids.shape[1], np.uint64)
    for row in range(len(sources)):
        u = sources[row]
        count = ZERO
        for e in range(np.uint64(indptr[u]), np.uint64(indptr[u + 1])):
            w = np.uint64(indices[e])
            start, stop = back_indptr[w], back_indptr[w + np.uint64(1)]
            if stop - start > most:
                continue
            visits += stop - start
            for f in range(np.uint64(start), np.uint64(stop)):
                v = np.uint64(back_indices[f])
                entry = table[v]
                touched[count] = v
                count += np.uint64(entry < SHARED)
                table[v] = entry + SHARED
        table[u] &= COUNTED
        size, least = ZERO, 0.0
        for i in range(count):
            v = np.uint64(touched[i])
            shared, links = np.float64(table[v] >> COUNT_BITS), np.float64(table[v] & COUNTED)
            table[v] &= COUNTED
            if shared * shared >= least * links and shared > 0.0:
                # The root of the number of links is the length, to the bit, and lies in no other cache line.
                other = np.sqrt(links) if links < MOST_COUNTED else lengths[v]
                size = offer(keys, size, key(cosine(shared, lengths[u], other), v))
                if size == len(keys):
                    least = SURELY_BELOW * (np.float64(score_of(keys[0])) * lengths[u]) ** 2
        unload(keys, size, ids[row], scores[row])
    return visits


@jit
def count_table(lengths):
    """Return the table of `rank_by_shared_links`: the number of links of each node, at most `MOST_COUNTED`."""
    table = np.empty(len(lengths), np.uint32)
    for v in range(len(lengths)):
        table[v] = np.uint32(min(np.rint(lengths[v] * lengths[v]), np.float64(MOST_COUNTED)))
    return table


@jit
def rank_links_among(
    sources,
    indptr,
    indices,
    weights,
    back_indptr,
    lengths,
    most,
    lists,  # int32 [sources, w]
    starts,  # int64 [sources + 1]
    more,  # int32
    row_of,  # float64 [n], zero before and after
    seen,  # int64 [n], -1 before
    ids,
    scores,
):
    """Compare each source with its own candidates only: `lists[row]` and `more[starts[row] : starts[row + 1]]`.

    Products are added by ascending column, as in `rank_by_links`, so to the same bits.
    """
    keys = np.empty(ids.shape[1], np.uint64)
    for row in range(len(sources)):
        u = sources[row]
        for e in range(indptr[u], indptr[u + 1]):
            w = indices[e]
            if back_indptr[w + 1] - back_indptr[w] <= most:
                row_of[w] = weights[e] if len(weights) else 1.0
        size = ZERO
        for i in range(starts[row] - lists.shape[1], starts[row + 1]):
            v = more[i] if i >= starts[row] else lists[row, i - starts[row]]
            if v < 0 or seen[v] == row:
                continue
            seen[v], product = row, 0.0
            for e in range(indptr[v], indptr[v + 1]):
                product += row_of[indices[e]] * (weights[e] if len(weights) else 1.0)
            if product != 0.0:
                size = offer(keys, size, key(cosine(product, lengths[u], lengths[v]), v))
        for e in range(indptr[u], indptr[u + 1]):
            row_of[indices[e]] = 0.0
        unload(keys, size, ids[row], scores[row])
