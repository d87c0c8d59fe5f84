"""Slow, obvious twins of every fast path."""

from collections.abc import Iterable

import numpy as np

from vcr_graphormer import Graph


def neighbours(n: int, edges: Iterable[tuple[int, int]], directed: bool) -> list[list[int]]:
    """Adjacency lists without self-loops and repetitions, by sets."""
    found: list[set[int]] = [set() for _ in range(n)]
    for u, v in edges:
        if u != v:
            found[u].add(v)
            if not directed:
                found[v].add(u)
    return [sorted(row) for row in found]


def weights(edges: Iterable[tuple[int, int]], values: Iterable[float], directed: bool) -> dict[tuple[int, int], float]:
    """Weight of each arc: repetitions add up, then the larger of both directions counts."""
    total: dict[tuple[int, int], float] = {}
    for (u, v), weight in zip(edges, values, strict=True):
        if u != v:
            total[u, v] = total.get((u, v), 0.0) + weight
    if directed:
        return total
    both = set(total) | {(v, u) for u, v in total}
    return {(u, v): max(total.get((u, v), 0.0), total.get((v, u), 0.0)) for u, v in both}


def components(graph: Graph) -> list[set[int]]:
    """Connected components by walking, direction ignored."""
    around = neighbours(graph.num_nodes, arcs(graph), directed=False)
    left = set(range(graph.num_nodes))
    found = []
    while left:
        stack, seen = [min(left)], {min(left)}
        while stack:
            for node in around[stack.pop()]:
                if node not in seen:
                    seen.add(node)
                    stack.append(node)
        left -= seen
        found.append(seen)
    return found


def arcs(graph: Graph) -> list[tuple[int, int]]:
    return [(u, int(v)) for u in range(graph.num_nodes) for v in graph.indices[graph.indptr[u] : graph.indptr[u + 1]]]


def homophily(graph: Graph) -> tuple[float | None, float | None]:
    """Edge and node homophily by a loop over all arcs with known labels."""
    labels = graph.labels
    assert labels is not None
    same: dict[int, list[bool]] = {}
    for u, v in arcs(graph):
        if labels[u] >= 0 and labels[v] >= 0:
            same.setdefault(u, []).append(bool(labels[u] == labels[v]))
    if not same:
        return None, None
    everything = [flag for flags in same.values() for flag in flags]
    return float(np.mean(everything)), float(np.mean([np.mean(flags) for flags in same.values()]))
