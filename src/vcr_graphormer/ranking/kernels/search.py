"""Breadth-first searches, compiled."""

from __future__ import annotations

from typing import Any

import numba


@numba.njit(cache=True)
def search_targets(
    indptr: Any, indices: Any, source: int, targets: Any, seen: Any, queue: Any, most_visits: int, hops: Any
) -> None:
    """Write the hops from one source to each of its targets, where a path is found within `most_visits` arcs.

    `seen` is -1 everywhere before and after; during the search it holds hops, and -2 for targets not met yet.
    """
    missing = 0
    for target in targets:
        if target >= 0 and seen[target] == -1:
            seen[target] = -2
            missing += 1
    missing -= seen[source] == -2
    seen[source] = 0
    queue[0] = source
    head, tail, visits = 0, 1, 0
    while head < tail and missing > 0 and visits < most_visits:
        node = queue[head]
        head += 1
        for arc in range(indptr[node], indptr[node + 1]):
            visits += 1
            other = indices[arc]
            if seen[other] < 0:
                missing -= seen[other] == -2
                seen[other] = seen[node] + 1
                queue[tail] = other
                tail += 1
    for i in range(len(targets)):
        if targets[i] >= 0 and seen[targets[i]] >= 0:
            hops[i] = seen[targets[i]]
    for target in targets:
        if target >= 0:
            seen[target] = -1
    for i in range(tail):
        seen[queue[i]] = -1


@numba.njit(cache=True)
def mark_clusters(
    indptr: Any, indices: Any, source: int, depth: int, clusters: Any, seen: Any, queue: Any, marks: Any
) -> None:
    """Mark the clusters of all nodes within `depth` hops of the source; `seen` is -1 everywhere before and after."""
    seen[source] = 0
    queue[0] = source
    head, tail = 0, 1
    while head < tail and seen[queue[head]] < depth:
        node = queue[head]
        head += 1
        for arc in range(indptr[node], indptr[node + 1]):
            other = indices[arc]
            if seen[other] < 0:
                seen[other] = seen[node] + 1
                queue[tail] = other
                tail += 1
                if len(marks) and clusters[other] >= 0:
                    marks[clusters[other]] = True
    for i in range(tail):
        seen[queue[i]] = -1
