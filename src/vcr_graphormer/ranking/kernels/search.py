"""The compiled breadth-first searches."""

from __future__ import annotations

from typing import Any

import numba


@numba.njit(cache=True)
def search_targets(
    indptr: Any, indices: Any, source: int, wanted: Any, seen: Any, queue: Any, most_visits: int, found: Any
) -> None:
    """Breadth first from one source until every target is met. `seen` is all -1 before and after.

    A target that was not met yet is marked by -2.
    """
    missing = 0
    for target in wanted:
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
    for place in range(len(wanted)):
        if wanted[place] >= 0 and seen[wanted[place]] >= 0:
            found[place] = seen[wanted[place]]
    for target in wanted:
        if target >= 0:
            seen[target] = -1
    for place in range(tail):
        seen[queue[place]] = -1


@numba.njit(cache=True)
def mark_clusters(
    indptr: Any, indices: Any, source: int, depth: int, clusters: Any, seen: Any, queue: Any, marks: Any
) -> None:
    """Mark the clusters of all nodes within `depth` hops. `seen` is all -1 before and after."""
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
    for place in range(tail):
        seen[queue[place]] = -1
