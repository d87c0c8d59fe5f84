"""Turn the push from a source into its k best nodes, compiled: second level, candidates, heap.

Names as in `push`. The bar of a source is a lower bound of its k-th score.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np

from .heap import ONE, ZERO, key, node_of, offer, unload
from .prefetch import prefetch
from .push import (
    LIMIT,
    LINE,
    RESIDUAL,
    SCORE,
    SETTLED,
    bare,
    clear,
    close,
    follow_arcs,
    inlined,
    jit,
    look_back,
    push_node,
    row_start,
    row_stop,
    settle,
    uncounted,
)

# Only for sums without branches: the order of additions may follow the vector units of the processor.
fast = nb.njit(fastmath=True, **uncounted)
# For sums whose order is fixed: a product and the addition after it may be one instruction, as in `fast`.
contracted = nb.njit(fastmath={"contract"}, **uncounted)
# Fractions of the bar below which terms are neglected. With these values and the default tolerance, value recall@20 is
# above 0.99 on every graph in results/ranking.json.
LEAST_COEFFICIENT = 0.5  # smaller coefficients of vectors go through the mean row of M, all at once
LEAST_TERM = 0.1  # smaller terms of the second level do not make a node a candidate
LEAST_ESTIMATE = 0.7  # candidates with a smaller sum of those terms are not evaluated in full
# Candidates evaluated in full beyond the k best by estimate: their full scores may rank them higher.
SPARE_CANDIDATES = 20

TWO, THREE, FOUR = np.uint64(2), np.uint64(3), np.uint64(4)


class Vectors(NamedTuple):
    """The second level: the walk once it has left the neighbourhood of its source; see `second_level`.

    The names of the fields are the names of the arrays of a saved ranker.
    """

    restart: float
    total: Any  # float64 [n]: weight of all edges of a node, the one to its super node included
    limit: Any  # float32 [n]: total, or infinity for hubs, which are never pushed
    members: Any  # float64 [super nodes]
    group: Any  # int32 [n]: coarse cluster, or the number of clusters for hubs
    mass: Any  # float32 [n]: weight of the edges into a node
    vector_of: Any  # int32 [n]: the vector for the residual left at a node
    volume: Any  # float64 [vectors]: weight of a cluster, 0 for super nodes and hubs
    hubs: Any  # int32 [hubs]
    ptr: Any  # int64 [vectors + 1]: the lists L, best first …
    ids: Any  # int32
    values: Any  # float32
    largest: Any  # float32 [vectors]
    row_ptr: Any  # int64 [n + 1]: … and the same entries by node
    row_vector: Any  # int32
    row_value: Any  # float32, less what `spill` would count for the entry
    spill: Any  # float32 [clusters + 1, vectors]: what the lists leave out of a cluster, per weight of unlisted nodes
    matrix: Any  # float32 [vectors, vectors]: M
    mean_row: Any  # float32 [vectors]: mean row of M over clusters and hubs
    component: Any  # int32 [n + super nodes]: component of the rewired graph
    position: Any  # int32 [n + super nodes]: position in a depth-first order of components and super nodes
    cut_start: Any  # int32 [n]: without its own super edge a node reaches the positions inside the interval
    cut_stop: Any  # int32 [n]: cut_start to cut_stop …
    cut_inside: Any  # bool [n]: … if this is true, else those outside of it


# ---------------------------------------------------------------- the second level


@fast
def add_scaled(row, factor, out):
    """Add factor · row to out."""
    for j in range(len(out)):
        out[j] += factor * row[j]


@fast
def dot(a, b):
    """Return Σ a_i b_i in float32."""
    x = np.float32(0.0)
    for i in range(len(a)):
        x += a[i] * b[i]
    return x


@contracted
def add_four(a, b, c, d, factors, out):
    """Add four rows, each times its factor, to out, in this order."""
    fa, fb, fc, fd = factors
    for j in range(len(out)):
        x = out[j] + fa * a[j]
        x += fb * b[j]
        x += fc * c[j]
        out[j] = x + fd * d[j]


@bare
def mix(coefficient, least, matrix, mean_row, out):
    """Write coefficient @ matrix to `out`; coefficients below `least` are summed and multiply the mean row.

    Four rows are added at a time, so that `out` is read and written less often.
    """
    out[:] = 0.0
    small = 0.0
    a, b, c, waiting = 0, 0, 0, 0
    for q in range(len(coefficient)):
        if abs(coefficient[q]) < least:
            small += coefficient[q]
        elif waiting < 3:
            a, b, c, waiting = b, c, q, waiting + 1
        else:
            factors = (
                np.float32(coefficient[a]),
                np.float32(coefficient[b]),
                np.float32(coefficient[c]),
                np.float32(coefficient[q]),
            )
            add_four(matrix[a], matrix[b], matrix[c], matrix[q], factors, out)
            waiting = 0
    if waiting == 3:
        add_scaled(matrix[a], np.float32(coefficient[a]), out)
    if waiting >= 2:
        add_scaled(matrix[b], np.float32(coefficient[b]), out)
    if waiting >= 1:
        add_scaled(matrix[c], np.float32(coefficient[c]), out)
    if small != 0.0:
        add_scaled(mean_row, np.float32(small), out)


@inlined
def unlisted(v, vectors, mixed, dropped):
    """Return what the lists leave out of the score of v: the rest of its cluster, spread over nodes by weight.

    `dropped` caches it by cluster, infinite where it is not computed yet: candidates lie in few clusters.
    """
    g = vectors.group[v]
    if dropped[g] == np.inf:
        dropped[g] = dot(vectors.spill[g], mixed)
    return vectors.mass[v] * dropped[g]


@inlined
def add_terms(x, first, stop, vectors, mixed):
    """Add the terms mixed_q L_q(v) of some entries of a row to x."""
    for e in range(first, stop):
        x += mixed[np.uint64(vectors.row_vector[e])] * vectors.row_value[e]
    return x


@inlined
def value(v, vectors, mixed, dropped):
    """Return Σ_q mixed_q L_q(v), the score of v by the second level."""
    x = unlisted(v, vectors, mixed, dropped)
    return np.float64(add_terms(x, np.uint64(vectors.row_ptr[v]), np.uint64(vectors.row_ptr[v + 1]), vectors, mixed))


@bare
def four_values(a, b, c, d, vectors, mixed, dropped):
    """Return `value` of four nodes: the additions of one row wait for each other, those of four rows do not."""
    ptr, vector, entry = vectors.row_ptr, vectors.row_vector, vectors.row_value
    i, j, k, m = np.uint64(ptr[a]), np.uint64(ptr[b]), np.uint64(ptr[c]), np.uint64(ptr[d])
    last_a, last_b = np.uint64(ptr[a + ONE]), np.uint64(ptr[b + ONE])
    last_c, last_d = np.uint64(ptr[c + ONE]), np.uint64(ptr[d + ONE])
    x, y = unlisted(a, vectors, mixed, dropped), unlisted(b, vectors, mixed, dropped)
    z, t = unlisted(c, vectors, mixed, dropped), unlisted(d, vectors, mixed, dropped)
    together = min(last_a - i, last_b - j, last_c - k, last_d - m)
    for _ in range(together):
        x += mixed[np.uint64(vector[i])] * entry[i]
        y += mixed[np.uint64(vector[j])] * entry[j]
        z += mixed[np.uint64(vector[k])] * entry[k]
        t += mixed[np.uint64(vector[m])] * entry[m]
        i, j, k, m = i + ONE, j + ONE, k + ONE, m + ONE
    x, y = add_terms(x, i, last_a, vectors, mixed), add_terms(y, j, last_b, vectors, mixed)
    z, t = add_terms(z, k, last_c, vectors, mixed), add_terms(t, m, last_d, vectors, mixed)
    return np.float64(x), np.float64(y), np.float64(z), np.float64(t)


@bare
def scatter(mixed, vectors, cutoff, state, touched, count):
    """Add all terms mixed_q L_q(v) of at least `cutoff` to the scores; return the new count of touched nodes.

    This finds candidates that the push has not reached, and orders them well enough to choose which to evaluate in
    full. The lists are sorted, so each is read only as far as needed.
    """
    for q in range(len(mixed)):
        factor = mixed[q]
        if factor <= 0.0 or factor * vectors.largest[q] < cutoff:
            continue
        for e in range(np.uint64(vectors.ptr[q]), np.uint64(vectors.ptr[q + 1])):
            x = factor * vectors.values[e]
            if x < cutoff:
                break
            v = np.uint64(vectors.ids[e])
            if state[v, SCORE] == 0.0:
                touched[count] = v
                count += 1
            state[v, SCORE] += x
    return count


@inlined
def leave_edge_out(z_s, s_s, s_u, size, settled_u, z_u, degree, restart):
    """Return x and y of r'_u = x · z + y · r_s: the walk from u without its edge to s, a rank-two update.

    z is the vector pushed with u's row changed and everything else unchanged; z_s and z_u are its values at s and u;
    s_s = r_s(s), s_u = r_s(u); size = members of s; degree = weight of u's other edges. The two unknowns stand for
    r'_u(u) = settled_u + restart · degree · own and r'_u(s) = back · restart · (size - 1) / (1 - restart). The formula
    holds at every node but u and s.
    """
    if degree <= 0.0:
        return 1.0, 0.0
    go = 1.0 - restart
    f = settled_u / (restart * degree)
    h = 1.0 + f
    k = 1.0 / go - go * f / h
    m11 = restart * degree + (restart + go * s_u - z_u) / h
    m12 = (z_u + restart * f) / h - s_u * k
    right = z_u - restart * degree * f
    if size <= 1.0:  # s has no other member: nothing can pass through it
        own, back = right / m11, 0.0
    else:
        m21 = (go * s_s - z_s) / h
        m22 = restart * size / go + z_s / h - s_s * k
        determinant = m11 * m22 - m12 * m21
        own, back = (right * m22 - m12 * z_s) / determinant, (m11 * z_s - m21 * right) / determinant
    return 1.0 + (own - back) / h, back / go - go * (own + f * back) / h


# ---------------------------------------------------------------- one shard of sources


@bare
def local_bar(scratch, count, u, restart, best):
    """Return the k-th score by the push alone, a lower bound; 0 if the push has reached fewer than k nodes."""
    state, touched = scratch.state, scratch.touched
    size = ZERO
    for i in range(count):
        v = touched[i]
        if v != u:
            size = offer(best, size, np.float64(state[v, SETTLED] + restart * state[v, RESIDUAL]))
    return best[0] if size == len(best) else 0.0


@bare
def walk(u, own_edge, arcs, vectors, assignment, scratch, coefficient, best, limits):
    """Push u itself, then all to a coarse tolerance, then to one in proportion to the k-th score so far.

    Return the number of touched nodes, the edge visits and the bar.
    """
    apart = -1 if own_edge else u
    restart, first = vectors.restart, limits.first
    scratch.state[u, RESIDUAL] = 1.0
    scratch.touched[0] = u
    _, count = push_node(u, own_edge, arcs, vectors.total, assignment, scratch, coefficient, 0, 1, np.inf, restart)
    visits = row_stop(arcs, u) - row_start(arcs, u)
    count, more = settle(arcs, vectors.total, assignment, scratch, coefficient, count, first, restart, apart)
    visits += more
    bar = local_bar(scratch, count, u, restart, best)
    fine = max(limits.tolerance * bar, limits.floor)
    if fine < first:
        count, more = settle(arcs, vectors.total, assignment, scratch, coefficient, count, fine, restart, apart)
        visits += more
    close(scratch, count, vectors.vector_of, coefficient, restart)
    if limits.back:
        visits += look_back(arcs, vectors.vector_of, vectors.volume, scratch, count, coefficient, restart)
    return count, visits, bar


@bare
def correct_own_edge(u, s, vectors, state, mixed, dropped):
    """Change `mixed` to the weights without the edge u - s; return the factor of the local part."""
    row, restart = vectors.matrix[s], vectors.restart
    if state[u, LIMIT] == np.inf:
        z_u = state[u, SETTLED] + restart * mixed[vectors.vector_of[u]]
        s_u = np.float64(restart * row[vectors.vector_of[u]])
    else:
        dropped[:] = np.inf
        z_u = state[u, SCORE] + value(u, vectors, mixed, dropped)
        dropped[:] = np.inf
        s_u = value(u, vectors, row, dropped)
    x, y = leave_edge_out(
        restart * mixed[s],
        restart * row[s],
        s_u,
        vectors.members[s],
        np.float64(state[u, SETTLED]),
        z_u,
        vectors.total[u] - 1.0,
        restart,
    )
    for q in range(len(mixed)):
        mixed[q] = np.float32(x * mixed[q] + y * row[q])
    return x


@inlined
def reachable(u, v, apart, vectors):
    """Return whether v is in the component of u and, with `apart`, on the side of u of its own super edge."""
    if vectors.component[v] != vectors.component[u]:
        return False
    if not apart:
        return True
    within = vectors.cut_start[u] <= vectors.position[v] < vectors.cut_stop[u]
    return within == vectors.cut_inside[u]


@bare
def offer_positive(keys, size, score, v):
    """Offer node v to the heap if its score is above 0; return the heap's size."""
    return offer(keys, size, key(score, v)) if score > 0.0 else size


@bare
def evaluate(pool_keys, pool, scale, vectors, state, mixed, dropped, keys):
    """Put the best of the candidates into the heap by their full scores, four at a time; return its size."""
    for p in range(pool):
        v = np.uint64(node_of(pool_keys[p]))
        prefetch(vectors.row_ptr, v)
        prefetch(vectors.mass, v)
        prefetch(vectors.group, v)
    for p in range(pool):
        v = np.uint64(node_of(pool_keys[p]))
        for e in range(np.uint64(vectors.row_ptr[v]), np.uint64(vectors.row_ptr[v + ONE]), LINE):
            prefetch(vectors.row_vector, e)
            prefetch(vectors.row_value, e)
    dropped[:] = np.inf
    i, size = ZERO, ZERO
    while i + FOUR <= pool:
        a, b = np.uint64(node_of(pool_keys[i])), np.uint64(node_of(pool_keys[i + ONE]))
        c, d = np.uint64(node_of(pool_keys[i + TWO])), np.uint64(node_of(pool_keys[i + THREE]))
        xa, xb, xc, xd = four_values(a, b, c, d, vectors, mixed, dropped)
        size = offer_positive(keys, size, scale * state[a, RESIDUAL] + xa, a)
        size = offer_positive(keys, size, scale * state[b, RESIDUAL] + xb, b)
        size = offer_positive(keys, size, scale * state[c, RESIDUAL] + xc, c)
        size = offer_positive(keys, size, scale * state[d, RESIDUAL] + xd, d)
        i += FOUR
    while i < pool:
        v = np.uint64(node_of(pool_keys[i]))
        size = offer_positive(keys, size, scale * state[v, RESIDUAL] + value(v, vectors, mixed, dropped), v)
        i += ONE
    return size


@bare
def choose(u, apart, stamped, now, scale, bar, vectors, scratch, count, mixed, dropped, keys, pool_keys):
    """Put the k best ordinary nodes into the heap; return its size and the number of touched nodes.

    Large terms find and order candidates, and the best are evaluated in full. Hubs, whose scores are restart · mixed,
    are added. A cluster may span components, so the second level may give mass to nodes that u cannot reach; these are
    left out. With `stamped`, exactly the nodes that u can reach along directed arcs carry the stamp `now`.
    """
    state, touched, hubs = scratch.state, scratch.touched, vectors.hubs
    for i in range(count):  # from here on RESIDUAL holds the local part of the score
        state[touched[i], RESIDUAL] = state[touched[i], SCORE]
    count = scatter(mixed, vectors, LEAST_TERM * bar, state, touched, count)
    least = np.float32(LEAST_ESTIMATE * bar)
    pool = ZERO
    for i in range(count):
        v = touched[i]
        if state[v, SCORE] > least and v != u and state[v, LIMIT] < np.inf and reachable(u, v, apart, vectors):
            if stamped and scratch.stamp[v] != now:
                continue
            pool = offer(pool_keys, pool, key(state[v, SCORE], v))
    size = evaluate(pool_keys, pool, scale, vectors, state, mixed, dropped, keys)
    for h in range(len(hubs)):
        v = hubs[h]
        x = np.float64(vectors.restart * mixed[len(mixed) - len(hubs) + h])
        if x > least and v != u and reachable(u, v, apart, vectors) and not (stamped and scratch.stamp[v] != now):
            size = offer(keys, size, key(x, v))
    return size, count


class Limits(NamedTuple):
    """How far a source is pushed, and what is left out."""

    first: float  # residual per edge weight at which the first push stops, whatever the scores
    tolerance: float  # the same for the second push, relative to the k-th score so far
    floor: float  # no push goes below this
    slack: float  # 1: terms that are small compared with the k-th score are left out; 0: none is
    back: bool  # whether residual is looked back at, see `look_back`


@jit
def rank_sources(sources, leave_out, arcs, assignment, members, vectors, kth, scratch, limits, ids, scores):
    """Rank each source on its own, so that the result does not depend on how sources are split; return edge visits."""
    k, num_vectors = ids.shape[1], len(vectors.ptr) - 1
    coefficient, mixed = np.zeros(num_vectors), np.zeros(num_vectors, np.float32)
    best, keys, pool_keys = np.empty(k), np.empty(k, np.uint64), np.empty(k + SPARE_CANDIDATES, np.uint64)
    dropped = np.empty(len(vectors.spill), np.float32)
    visits = 0
    for j in range(len(sources)):
        u = sources[j]
        s = assignment[u]
        apart = leave_out and s >= 0
        count, more, bar = walk(u, not apart, arcs, vectors, assignment, scratch, coefficient, best, limits)
        visits += more
        bar *= limits.slack
        mix(coefficient, LEAST_COEFFICIENT * bar, vectors.matrix, vectors.mean_row, mixed)
        scale = 1.0
        if apart:
            scale = correct_own_edge(u, s, vectors, scratch.state, mixed, dropped)
        for q in range(num_vectors):  # k nodes of this list score at least this: another lower bound
            bar = max(bar, limits.slack * mixed[q] * kth[q])
        stamped = False
        if len(scratch.stamp) > 0:  # directed: a node may be in u's component and yet out of reach
            reached = follow_arcs(u, apart, k + 1, arcs, assignment, members, scratch.stamp, scratch.queue, j + 1)
            stamped = reached <= k + 1
        size, count = choose(
            u,
            apart,
            stamped,
            j + 1,
            scale,
            bar,
            vectors,
            scratch,
            count,
            mixed,
            dropped,
            keys,
            pool_keys,
        )
        unload(keys, size, ids[j], scores[j])
        clear(scratch, count)
        coefficient[:] = 0.0
    scratch.stamp[:] = 0
    return visits
