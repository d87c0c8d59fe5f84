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


def pagerank(graph: Graph, assignment: list[int], count: int, source: int, restart: float) -> list[float]:
    """Personalized PageRank by following the definition for 400 steps, arc by arc, super nodes from n on."""
    n = graph.num_nodes
    unit = 1.0 if graph.weights is None or not len(graph.weights) else float(np.mean(graph.weights, dtype=np.float64))
    moves: list[dict[int, float]] = [{} for _ in range(n + count)]
    for place, (u, v) in enumerate(arcs(graph)):
        moves[u][v] = 1.0 if graph.weights is None else float(graph.weights[place])
    for v, s in enumerate(assignment):
        if s >= 0:
            moves[v][n + s] = moves[n + s][v] = unit
    score = [0.0] * (n + count)
    score[source] = 1.0
    for _ in range(400):
        following = [0.0] * (n + count)
        following[source] = restart
        for u, mass in enumerate(score):
            total = sum(moves[u].values())
            for v, weight in moves[u].items():
                following[v] += (1 - restart) * mass * weight / total
            if not moves[u]:  # a walk without a way out stays
                following[u] += (1 - restart) * mass
        score = following
    return score


def top(scores: list[float], source: int, num_nodes: int, k: int) -> list[tuple[int, float]]:
    """The k best ordinary nodes other than the source, ties by smaller id."""
    others = [(node, scores[node]) for node in range(num_nodes) if node != source and scores[node] > 0]
    return sorted(others, key=lambda pair: (-pair[1], pair[0]))[:k]


def hops(graph: Graph, count: int, self_loops: bool) -> list[np.ndarray]:
    """P X … P^L X by dense matrices in float64."""
    adjacency = graph.to_scipy().toarray().astype(np.float64)
    if self_loops:
        adjacency += np.eye(graph.num_nodes)
    out, into = adjacency.sum(axis=1), adjacency.sum(axis=0)
    scale = np.outer(out, into)
    step = np.divide(adjacency, np.sqrt(scale), out=np.zeros_like(adjacency), where=scale > 0)
    features = graph.features
    current = features.toarray() if not isinstance(features, np.ndarray) and features is not None else features
    result = []
    for _ in range(count):
        current = step @ current
        result.append(current)
    return result


def value_recall(ids: np.ndarray, exact: np.ndarray, sources: np.ndarray, k: int) -> float:
    """Share of returned nodes whose exact score is at least 0.99 × the exact k-th score; mean over sources."""
    shares = []
    for row, source, scores in zip(ids, sources, exact, strict=True):
        best = sorted((score for node, score in enumerate(scores) if node != source and score > 0), reverse=True)[:k]
        if best:
            found = [node for node in row if node >= 0]
            shares.append(sum(scores[node] >= 0.99 * best[-1] for node in found) / len(best))
    return float(np.mean(shares))
