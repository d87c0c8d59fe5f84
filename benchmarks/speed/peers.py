"""Methods that the ranking is compared with: exact scores, plain push and PyG's get_ppr; and the recall of a list."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numba as nb
import numpy as np
from numpy.typing import NDArray

import vcr_graphormer as vcr
from vcr_graphormer.ranking.exact import transition_matrix

T = TypeVar("T")


def least(work: Callable[[], T], repeats: int) -> tuple[T, float, float]:
    """Return the last result of a function, its least seconds and its least processor seconds."""
    seconds, processor = [], []
    for _ in range(repeats):
        start, used = time.perf_counter(), time.process_time()
        result = work()
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)
    return result, min(seconds), min(processor)


def generated_graph() -> vcr.Graph:
    """Return the generated graph of the ranking benchmarks: 200,000 nodes, 2 million edges, 200 communities."""
    return vcr.generate(200_000, 2_000_000, classes=10, communities=200, homophily=0.75, seed=0, features=0)


def random_sources(graph: vcr.Graph, count: int, seed: int) -> NDArray[np.int64]:
    """Return distinct random nodes in ascending order."""
    return np.sort(np.random.default_rng(seed).choice(graph.num_nodes, count, replace=False))


def exact_scores(
    graph: vcr.Graph, connections: vcr.Connections, sources: NDArray[np.int64], restart: float
) -> NDArray[np.float64]:
    """Return the exact scores of ordinary nodes [sources, nodes], computed in eight blocks to save memory."""
    blocks = [vcr.exact_pagerank(graph, connections, part, restart) for part in np.array_split(sources, 8)]
    return np.concatenate(blocks)[:, : graph.num_nodes]


@nb.njit(cache=True)
def _plain_push(indptr, indices, source, restart, epsilon, estimate, residual, queued):  # type: ignore[no-untyped-def]
    """Run the push of Andersen, Chung and Lang on an unweighted graph; return touched nodes and edge visits."""
    queue, touched, visits = [source], [source], 0
    residual[source] = 1.0
    queued[source] = True
    head = 0
    while head < len(queue):
        v = queue[head]
        head += 1
        queued[v] = False
        mass = residual[v]
        estimate[v] += restart * mass
        residual[v] = 0.0
        degree = indptr[v + 1] - indptr[v]
        visits += degree
        for e in range(indptr[v], indptr[v + 1]):
            w = indices[e]
            if residual[w] == 0.0 and estimate[w] == 0.0:
                touched.append(w)
            residual[w] += (1 - restart) * mass / degree
            if not queued[w] and residual[w] > epsilon * (indptr[w + 1] - indptr[w]):
                queued[w] = True
                queue.append(w)
    return np.array(touched), visits


def plain_push(
    graph: vcr.Graph, connections: vcr.Connections, sources: NDArray[np.int64], k: int, restart: float, epsilon: float
) -> tuple[NDArray[np.int32], float]:
    """Return the top k by plain push on the rewired graph, and the mean number of edge visits per source."""
    matrix = transition_matrix(graph, connections)
    estimate, residual = (np.zeros(matrix.shape[0]) for _ in range(2))
    queued = np.zeros(matrix.shape[0], dtype=np.bool_)
    ids, total = np.full((len(sources), k), -1, dtype=np.int32), 0
    for row, source in enumerate(sources):
        touched, visits = _plain_push(
            matrix.indptr, matrix.indices, source, restart, epsilon, estimate, residual, queued
        )
        total += visits
        chosen = touched[(touched < graph.num_nodes) & (touched != source)]
        best = chosen[np.lexsort((chosen, -estimate[chosen]))][:k]
        ids[row, : len(best)] = best
        estimate[touched] = residual[touched] = 0.0
    return ids, total / len(sources)


def pyg_ranking(
    graph: vcr.Graph,
    connections: vcr.Connections | None,
    sources: Any,
    k: int,
    restart: float,
    epsilon: float,
    repeats: int,
) -> tuple[NDArray[np.int32], float, float]:
    """Return the top k by PyG's get_ppr on the rewired graph, its seconds and processor seconds per node.

    Each call sorts the edges first. For all nodes that happens once, so a call with two sources is subtracted, and
    counted once for all nodes. Compilation and sorting the scores do not count. Both are the least of several runs.
    """
    import torch
    from torch_geometric.utils import get_ppr

    matrix = transition_matrix(graph, connections).tocoo()
    edge_index = torch.from_numpy(np.stack([matrix.row, matrix.col]).astype(np.int64))
    target = torch.as_tensor(sources)
    call = partial(get_ppr, edge_index, alpha=restart, eps=epsilon, num_nodes=matrix.shape[0])
    call(target=target[:2])  # compile
    _, *once = least(partial(call, target=target[:2]), repeats)
    (pairs, weight), *all_sources = least(partial(call, target=target), repeats)
    per_node = [
        (together - first) / (len(sources) - 2) + first / graph.num_nodes
        for together, first in zip(all_sources, once, strict=True)
    ]
    source, node = pairs.numpy()
    kept = (node < graph.num_nodes) & (node != source)
    source, node, score = source[kept], node[kept], weight.numpy()[kept]
    order = np.lexsort((node, -score, source))
    ids = np.full((len(sources), k), -1, dtype=np.int32)
    starts = np.searchsorted(source[order], sources)
    stops = np.searchsorted(source[order], sources, side="right")
    for row, (begin, end) in enumerate(zip(starts, stops, strict=True)):
        best = node[order[begin : min(end, begin + k)]]
        ids[row, : len(best)] = best
    return ids, per_node[0], per_node[1]


def value_recall(ids: NDArray[np.int32], exact: NDArray[np.float64], sources: Any, k: int) -> float:
    """Return the fraction of listed nodes with an exact score of at least 0.99 × the exact k-th; mean over sources."""
    recalls = []
    for row, source, scores in zip(ids, sources, exact, strict=True):
        others = np.delete(scores, source)
        reachable = min(k, int((others > 0).sum()))
        if reachable == 0:
            continue
        bar = 0.99 * np.sort(others)[-reachable]
        listed = row[row >= 0]
        recalls.append(float((scores[listed] >= bar).sum() / reachable))
    return float(np.mean(recalls))
