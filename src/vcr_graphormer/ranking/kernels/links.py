"""Rank nodes by link similarity, the cosine of their rows of the adjacency, compiled."""

from __future__ import annotations

import numpy as np

from .heap import offer, unload
from .push import jit


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
    k = ids.shape[1]
    score, node = np.empty(k, dtype=np.float32), np.empty(k, dtype=np.int32)
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
        size = 0
        for i in range(count):
            v = touched[i]
            if v != u:
                # Compared as float32, as it is stored: float64 would break ties by its last bit, which may exceed 1.
                similarity = np.float32(min(1.0, products[v] / (lengths[u] * lengths[v])))
                size = offer(score, node, size, similarity, v)
            products[v] = 0.0
        unload(score, node, size, ids[row], scores[row])
    return visits


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
    k = ids.shape[1]
    score, node = np.empty(k, dtype=np.float32), np.empty(k, dtype=np.int32)
    for row in range(len(sources)):
        u = sources[row]
        for e in range(indptr[u], indptr[u + 1]):
            w = indices[e]
            if back_indptr[w + 1] - back_indptr[w] <= most:
                row_of[w] = weights[e] if len(weights) else 1.0
        size = 0
        for i in range(starts[row] - lists.shape[1], starts[row + 1]):
            v = more[i] if i >= starts[row] else lists[row, i - starts[row]]
            if v < 0 or seen[v] == row:
                continue
            seen[v], product = row, 0.0
            for e in range(indptr[v], indptr[v + 1]):
                product += row_of[indices[e]] * (weights[e] if len(weights) else 1.0)
            if product != 0.0:
                similarity = np.float32(min(1.0, product / (lengths[u] * lengths[v])))
                size = offer(score, node, size, similarity, v)
        for e in range(indptr[u], indptr[u + 1]):
            row_of[indices[e]] = 0.0
        unload(score, node, size, ids[row], scores[row])
