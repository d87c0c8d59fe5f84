"""Push probability mass from a node over the graph, compiled: the first level of the ranking.

Each node has a residual, mass that it has still to spread, and a settled part, its score so far. Pushing a node settles
the fraction `restart` of its residual and sends the rest to its neighbours.

Names: u source, v and w ordinary nodes, s super node, q vector (see `second_level`), e arc or list entry.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np
from numba.core.options import DefaultOptions

from .prefetch import prefetch

jit = nb.njit(nogil=True, cache=True)
# For functions that make no array: they count no references. Numba counts by atomic additions, twelve a call, and these
# took half the time of the push (docs/log.md). The option is not documented, so a numba without it just counts.
uncounted: dict[str, Any] = {"nogil": True, "cache": True}
if hasattr(DefaultOptions, "_nrt"):
    uncounted["_nrt"] = False
bare = nb.njit(**uncounted)
inlined = nb.njit(forceinline=True, **uncounted)  # for loops: a call copies all fields of all tuples
# Columns of the scratch table. The four numbers of a node share a cache line. Indices in inner loops are unsigned,
# because numba then leaves out its test for negative ones.
RESIDUAL, SETTLED, LIMIT, SCORE = (np.uint64(column) for column in range(4))
# How many pushes ahead a row of arcs is fetched, and before that the number that says where it starts. The neighbours
# of the next push are fetched in graphs of more than LARGE nodes, whose states fill more than half of a cache.
NEAR, FAR, LARGE = 3, 6, 32_768
LINE = np.uint64(16)  # numbers of four bytes in a line of memory
COLUMNS = np.uint64(4)  # of the scratch table
PIVOTS = 8  # eliminated together
TINY = 1e-30  # keeps divisors above zero; small enough to change no other number
# The residual after a push is the negative zero, which adds up as the other does: only its bits tell that the node is
# touched already.
PUSHED, UNTOUCHED = np.float32(-0.0), np.uint32(0)
# About the smallest normal float32. A pushed node settles at least this, so that it never looks untouched.
SMALLEST = 1.2e-38


class Arcs(NamedTuple):
    """The graph without super nodes, as CSR; empty weights mean that every arc weighs 1."""

    indptr: Any  # int64 [n + 1]
    indices: Any  # uint32 [arcs]
    weights: Any  # float32 [arcs] or [0]


class LooseArcs(NamedTuple):
    """The same with rows in any place, so that a row can grow: it moves to the end (`ranking.live`)."""

    start: Any  # int64 [room]
    stop: Any  # int64 [room]
    indices: Any  # uint32
    weights: Any  # float32, or [0]


def row_start(arcs: Any, v: Any) -> Any:
    """Return the first arc of v; compiled for both kinds of arcs."""
    raise NotImplementedError


def row_stop(arcs: Any, v: Any) -> Any:
    """Return the arc after the last one of v; compiled for both kinds of arcs."""
    raise NotImplementedError


def fetch_row_start(arcs: Any, v: Any) -> None:
    """Start to load the first arc of v; compiled for both kinds of arcs."""
    raise NotImplementedError


@nb.extending.overload(row_start, inline="always")
def _row_start(arcs, v):
    return (lambda arcs, v: arcs.indptr[v]) if "indptr" in arcs.fields else (lambda arcs, v: arcs.start[v])


@nb.extending.overload(row_stop, inline="always")
def _row_stop(arcs, v):
    return (lambda arcs, v: arcs.indptr[v + 1]) if "indptr" in arcs.fields else (lambda arcs, v: arcs.stop[v])


@nb.extending.overload(fetch_row_start, inline="always")
def _fetch_row_start(arcs, v):
    if "indptr" in arcs.fields:
        return lambda arcs, v: prefetch(arcs.indptr, v)
    return lambda arcs, v: prefetch(arcs.start, v)


class Scratch(NamedTuple):
    """Working memory of one thread, O(n); between two sources the state is zero but for LIMIT."""

    state: Any  # float32 [n, 4]
    queue: Any  # int32 [a power of two above n]
    touched: Any  # int32 [2 n + 2]
    density: Any  # float64 [vectors]
    stamp: Any  # int32 [n] for directed graphs, else [0]: the source that a node was last reached from


class Members(NamedTuple):
    """The nodes of each super node, as CSR."""

    ptr: Any  # int64 [super nodes + 1]
    node: Any  # int32


@inlined
def push_node(v, own_edge, arcs, total, assignment, scratch, absorbed, tail, count, tolerance, restart):
    """Settle restart · residual at v and send the rest to its neighbours; return the new queue end and count.

    Mass for the super node of v is added to `absorbed` and goes no further. Without `own_edge` v has no super node. A
    neighbour joins the queue when its residual crosses its limit, tolerance · degree. Residuals only grow between two
    visits, so no node is in the queue twice.
    """
    state, queue, touched = scratch.state, scratch.queue, scratch.touched
    mass = state[v, RESIDUAL]
    state[v, RESIDUAL] = PUSHED
    s = assignment[v]
    degree = total[v]
    if s >= 0 and not own_edge:
        degree -= 1.0
    if degree <= 0.0:  # without edges the walk stays at v
        state[v, SETTLED] += mass
        return tail, count
    state[v, SETTLED] += np.float32(max(restart * mass, SMALLEST))
    per_weight = (1.0 - restart) * mass / degree
    if s >= 0 and own_edge:
        absorbed[s] += per_weight
    sent, bound = np.float32(per_weight), np.float32(tolerance)
    if sent == 0.0:  # too little for a float32
        return tail, count
    weighted = len(arcs.weights) > 0
    # The queue is a ring whose length is a power of two, so that `& wrap` takes the index modulo the length.
    end, reached, wrap = np.uint64(tail), np.uint64(count), np.uint64(len(queue) - 1)
    for e in range(np.uint64(row_start(arcs, v)), np.uint64(row_stop(arcs, v))):
        w = arcs.indices[e]
        old = state[w, RESIDUAL]
        new = old + (sent * arcs.weights[e] if weighted else sent)
        state[w, RESIDUAL] = new
        limit = bound * state[w, LIMIT]
        # Always written, and kept only if the index advances: a branch here would often be mispredicted.
        touched[reached] = w
        is_new = np.float32(old).view(np.uint32) == UNTOUCHED
        if weighted:  # a tiny weight may add nothing, and -0 + 0 is 0: then only the settled mass tells
            is_new = is_new & (new > 0.0) & (state[w, SETTLED] == 0.0)
        reached += np.uint64(is_new)
        queue[end] = w
        end = (end + np.uint64((old <= limit) & (limit < new))) & wrap
    return np.int64(end), np.int64(reached)


@bare
def settle(arcs, total, assignment, scratch, absorbed, count, tolerance, restart, apart):
    """Push, first in first out, until no residual exceeds tolerance · degree; return the count and the edge visits.

    Node `apart` is pushed as if it had no super node; -1 for none.
    """
    state, queue, touched = scratch.state, scratch.queue, scratch.touched
    bound = np.float32(tolerance)
    head, tail, visits, wrap = 0, 0, 0, len(queue) - 1
    for i in range(count):
        v = touched[i]
        if state[v, RESIDUAL] > bound * state[v, LIMIT]:
            queue[tail] = v
            tail += 1
    while head != tail:
        v = queue[head]
        # Entries behind the end are of earlier pushes, or 0: any node may be fetched.
        far, near = np.uint64(queue[(head + FAR) & wrap]), np.uint64(queue[(head + NEAR) & wrap])
        fetch_row_start(arcs, far)
        prefetch(total, far)
        prefetch(assignment, far)
        first = np.uint64(row_start(arcs, near))
        prefetch(arcs.indices, first)
        prefetch(arcs.indices, first + LINE)
        head = (head + 1) & wrap
        # The entry at the end is the last neighbour of an earlier push. It may be a hub, whose row is long.
        if len(state) > LARGE and head != tail:
            after = np.uint64(queue[head])
            for e in range(np.uint64(row_start(arcs, after)), np.uint64(row_stop(arcs, after))):
                prefetch(state, np.uint64(arcs.indices[e]) * COLUMNS)
        visits += row_stop(arcs, v) - row_start(arcs, v)
        tail, count = push_node(
            v, v != apart, arcs, total, assignment, scratch, absorbed, tail, count, tolerance, restart
        )
    return count, visits


@bare
def close(scratch, count, vector_of, coefficient, restart):
    """Turn SCORE into the local score less its former value; add the residual left to the vectors' coefficients."""
    state, touched = scratch.state, scratch.touched
    for i in range(count):
        v = touched[i]
        residual = state[v, RESIDUAL]
        coefficient[vector_of[v]] += residual
        state[v, SCORE] = state[v, SETTLED] + np.float32(restart) * residual - state[v, SCORE]


@bare
def look_back(arcs, vector_of, volume, scratch, count, coefficient, restart):
    """Move the residual that is left by one exact step, into pushed nodes only; return the edge visits.

    For undirected graphs only. The second level spreads the residual of a cluster by weight and forgets where it lies;
    yet a neighbour of degree d sends 1/d of it straight back. Each pushed node w therefore gains
    (1 - restart) · Σ_v A(v, w) (residual(v) / degree(v) - density of the cluster of v), and the clusters of the v lose
    the same mass. Hubs are exact already (infinite limit, volume 0) and contribute no term.
    """
    state, touched, density = scratch.state, scratch.touched, scratch.density
    weighted = len(arcs.weights) > 0
    for group in range(len(volume)):
        density[group] = coefficient[group] / volume[group] if volume[group] > 0.0 else 0.0
    visits = 0
    for i in range(count):
        w = touched[i]
        if state[w, SETTLED] == 0.0 or state[w, LIMIT] == np.inf:
            continue
        gain = 0.0
        for e in range(np.uint64(row_start(arcs, w)), np.uint64(row_stop(arcs, w))):
            v = arcs.indices[e]
            q = np.uint64(vector_of[v])
            x = state[v, RESIDUAL] / state[v, LIMIT] - density[q]
            if weighted:
                x *= arcs.weights[e]
            gain += x
            coefficient[q] -= x
        visits += row_stop(arcs, w) - row_start(arcs, w)
        gain *= 1.0 - restart
        state[w, SCORE] += restart * gain
        coefficient[vector_of[w]] += gain
    return visits


@jit
def follow_arcs(u, apart, limit, arcs, assignment, members, stamp, queue, now):
    """Mark the nodes that a walk from u can reach along directed arcs with the stamp `now`; return their number.

    The search ends when it has found more than `limit` nodes. With `apart` u has no edge to its super node.
    """
    stamp[u] = now
    queue[0] = u
    head, tail = 0, 1
    seen = np.zeros(len(members.ptr) - 1, np.bool_)
    while head < tail <= limit:
        v = queue[head]
        head += 1
        for e in range(row_start(arcs, v), row_stop(arcs, v)):
            w = arcs.indices[e]
            if stamp[w] != now and tail <= limit:
                stamp[w] = now
                queue[tail] = w
                tail += 1
        s = assignment[v]
        if s >= 0 and not seen[s] and not (apart and v == u):
            seen[s] = True
            for i in range(members.ptr[s], members.ptr[s + 1]):
                w = members.node[i]
                if stamp[w] != now and tail <= limit and not (apart and w == u):
                    stamp[w] = now
                    queue[tail] = w
                    tail += 1
    return tail


@bare
def clear(scratch, count):
    """Set the touched rows of the scratch table to zero for the next source."""
    for i in range(count):
        v = scratch.touched[i]
        scratch.state[v, RESIDUAL] = 0.0
        scratch.state[v, SETTLED] = 0.0
        scratch.state[v, SCORE] = 0.0


@bare
def local_vector(
    start_node,
    start_mass,
    is_group,
    is_hub,
    tolerance,
    arcs,
    total,
    assignment,
    vector_of,
    volume,
    restart,
    back,
    scratch,
    left,
    score,
    node,
):
    """Compute the local part of one vector by the same push as for sources; return its length and the edge visits.

    The entries go to `score` and `node`, the mass left goes to `left` by vector. The sources themselves count the part
    restart · start of a group (a cluster or hub), so it is subtracted here. A hub's own score is restart · M and is not
    listed.
    """
    state, touched = scratch.state, scratch.touched
    count, visits, listed = len(start_node), 0, 0
    for i in range(count):
        touched[i] = start_node[i]
        state[start_node[i], RESIDUAL] = start_mass[i]
        if is_group:
            state[start_node[i], SCORE] = restart * start_mass[i]
    if is_hub:  # the only push of a hub
        _, count = push_node(touched[0], True, arcs, total, assignment, scratch, left, 0, count, np.inf, restart)
        visits += arcs.indptr[touched[0] + 1] - arcs.indptr[touched[0]]
    count, more = settle(arcs, total, assignment, scratch, left, count, tolerance, restart, -1)
    visits += more
    close(scratch, count, vector_of, left, restart)
    if back:
        visits += look_back(arcs, vector_of, volume, scratch, count, left, restart)
    for i in range(count):
        v = touched[i]
        if state[v, SCORE] > 0.0 and state[v, LIMIT] < np.inf:
            score[listed], node[listed] = state[v, SCORE], v
            listed += 1
    clear(scratch, count)
    return listed, visits


@bare
def subtract_rows(row, factors, rows):
    """Subtract the rows, each times its factor, from a row, in this order."""
    whole = len(factors) - len(factors) % 4
    for t in range(0, whole, 4):
        a, b, c, d = factors[t], factors[t + 1], factors[t + 2], factors[t + 3]
        p, q, r, s = rows[t], rows[t + 1], rows[t + 2], rows[t + 3]
        for j in range(len(row)):
            row[j] = (((row[j] - a * p[j]) - b * q[j]) - c * r[j]) - d * s[j]
    for t in range(whole, len(factors)):
        a, p = factors[t], rows[t]
        for j in range(len(row)):
            row[j] -= a * p[j]


@jit
def resolvent(steps):
    """Return (I - W)^-1 by Gauss-Jordan elimination.

    Rows of W sum to less than 1, so it needs no pivoting. It avoids BLAS, whose last bits depend on threads. PIVOTS
    pivots are taken together, so that the matrix is read less often: first in their own columns, then in the others.
    Every number goes through the same steps in the same order as with one pivot at a time.
    """
    x = -steps
    n = len(x)
    for i in range(n):
        x[i, i] += 1.0
    for first in range(0, n, PIVOTS):
        stop = min(first + PIVOTS, n)
        factors, scale = np.zeros((n, stop - first)), np.empty(stop - first)
        for i in range(first, stop):
            scale[i - first] = 1.0 / x[i, i]
            x[i, i] = 1.0
            for j in range(first, stop):
                x[i, j] *= scale[i - first]
            for r in range(n):
                factor = x[r, i]
                if r != i and factor != 0.0:
                    factors[r, i - first] = factor
                    x[r, i] = 0.0
                    for j in range(first, stop):
                        x[r, j] -= factor * x[i, j]
        for low, high in ((0, first), (stop, n)):
            rows = x[first:stop, low:high].copy()  # as each is when it is the pivot
            for t in range(stop - first):
                subtract_rows(rows[t], factors[first + t, :t], rows)
                for j in range(high - low):
                    rows[t, j] *= scale[t]
            for r in range(n):
                if r < first or r >= stop:
                    subtract_rows(x[r, low:high], factors[r], rows)
                else:  # a pivot itself, changed by those after it
                    x[r, low:high] = rows[r - first]
                    after = r - first + 1
                    subtract_rows(x[r, low:high], factors[r, after:], rows[after:])
    return x


@jit
def per_unlisted_weight(spill, group, mass, ptr, ids, least):
    """Divide what truncation dropped of each vector in each cluster by the weight of the nodes not in its list.

    That weight is a difference of sums; below `least` of the cluster's weight it is rounding error.
    """
    total, listed = np.zeros(len(spill)), np.zeros(spill.shape)
    for v in range(len(group)):
        total[group[v]] += mass[v]
    for q in range(len(ptr) - 1):
        for e in range(ptr[q], ptr[q + 1]):
            listed[group[ids[e]], q] += mass[ids[e]]
    density = np.empty(spill.shape, np.float32)
    for g in range(len(spill)):
        for q in range(spill.shape[1]):
            density[g, q] = spill[g, q] / max(total[g] - listed[g, q], least * total[g] + TINY)
    return density


@jit
def subtract_unlisted(row_ptr, row_vector, row_value, group, mass, density):
    """Subtract from the entries by node what `density` would count for them, in place."""
    for v in range(len(group)):
        for e in range(row_ptr[v], row_ptr[v + 1]):
            row_value[e] -= np.float32(mass[v] * density[group[v], row_vector[e]])


@jit
def by_node(num_nodes, ptr, ids, values):
    """Return the entries of the vectors' lists as CSR by node, vectors ascending in each row (a counting sort)."""
    row_ptr = np.zeros(num_nodes + 2, np.int64)
    for e in range(len(ids)):
        row_ptr[ids[e] + 2] += 1
    for v in range(num_nodes):
        row_ptr[v + 2] += row_ptr[v + 1]
    row_vector, row_value = np.empty(len(ids), np.int32), np.empty(len(ids), np.float32)
    for q in range(len(ptr) - 1):
        for e in range(ptr[q], ptr[q + 1]):
            entry = row_ptr[ids[e] + 1]
            row_ptr[ids[e] + 1] += 1
            row_vector[entry], row_value[entry] = q, values[e]
    return row_ptr[: num_nodes + 1], row_vector, row_value
