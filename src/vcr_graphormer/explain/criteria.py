"""The paper's four criteria of a good tokenization, measured: topology, long range, heterophily, cost."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..data.graph import Graph
from ..data.tasks import TASKS
from ..ranking.kernels.search import mark_clusters
from ..ranking.pagerank import Ranker
from ..tokens.hops import normalized_adjacency
from ..tokens.store import TokenStore
from .distances import hop_distances
from .slices import local_homophily

_ROWS_AT_ONCE = 16  # rows of P^l held at a time: each may reach every node
COLUMNS = ("neighbourhood", "clusters", "beyond two hops", "same label", "edge visits", "seconds", "bytes")


@dataclass(frozen=True)
class Criteria:
    """One way to make token lists, measured on a sample of nodes. None: cannot be measured on this graph.

    Attributes
    ----------
    neighbourhood : float
        Local topology: share of a node's neighbours that its tokens cover. An aggregate covers all it is made of.
    clusters : float
        Global topology: share of the clusters that its tokens cover.
    beyond : float
        Long range: share of the tokens that are more than two hops away, or cannot be reached at all.
    same_label : float
        Heterophily: share of labelled token nodes that have the node's own label, to be compared with the share among
        its neighbours. Of a hop aggregate, the weight of such nodes in it, the node itself not counted.
    visits, seconds, bytes : float
        Cost for all nodes of the graph; hops visit every arc once each.
    """

    name: str
    neighbourhood: float
    clusters: float | None
    beyond: float
    same_label: float | None
    visits: float | None
    seconds: float | None
    bytes: float

    @property
    def values(self) -> list[float | None]:
        """In the order of `COLUMNS`."""
        return [
            self.neighbourhood, self.clusters, self.beyond, self.same_label, self.visits, self.seconds, self.bytes
        ]  # fmt: skip


def measure_criteria(
    graph: Graph, store: TokenStore, nodes: NDArray[np.int64], stages: dict[str, dict[str, float]]
) -> list[Criteria]:
    """Hops only, PageRank without super nodes, and the token lists of the store, on the same nodes.

    `stages`: what `tokenize` wrote to `stages.json`; the plain ranking is timed here and scaled to all nodes.
    """
    clusters = np.asarray(store.assignment("structure"))
    count = int(clusters.max()) + 1 if len(clusters) else 0
    hops = _Hops.measure(graph, store, nodes, clusters, count)
    rows = [
        Criteria(
            "hops only",
            hops.neighbourhood,
            _mean(hops.clusters / count) if count else None,
            hops.beyond,
            hops.same_label,
            float(graph.num_arcs * store.num_hops),
            stages["hop features"]["seconds"] if "hop features" in stages else None,
            float(sum(array.nbytes for name, array in store.arrays.items() if name.startswith("hop_"))),
        )
    ]
    lists = store.neighbours(nodes)
    if lists.shape[1]:
        rows += [
            _plain(graph, store, nodes, clusters, count, lists.shape[1]),
            _whole(graph, store, nodes, clusters, count, lists, hops, stages),
        ]
    return rows


def _plain(graph: Graph, store: TokenStore, nodes: Any, clusters: Any, count: int, k: int) -> Criteria:
    settings = store.settings
    start = time.perf_counter()
    ranker = Ranker.prepare(graph, None, settings.restart, seed=settings.seed, partitioner=settings.partitioner)
    prepared = time.perf_counter() - start
    tolerance = settings.tolerance
    ranker.rank(nodes[:1], k, tolerance)  # what only the first call costs is no cost of a node
    start = time.perf_counter()
    ranking = ranker.rank(nodes, k, tolerance)
    scale = graph.num_nodes / max(1, len(nodes))
    seconds = prepared + (time.perf_counter() - start) * scale
    visits = round(ranking.visits * scale) + ranker.visits
    cost = {"visits": visits, "seconds": seconds, "bytes": 8.0 * k * graph.num_nodes}
    return Criteria("PageRank without super nodes", **_lists(graph, nodes, ranking.ids, clusters, count), **cost)


def _whole(
    graph: Graph, store: TokenStore, nodes: Any, clusters: Any, count: int, lists: Any, hops: _Hops, stages: Any
) -> Criteria:
    """Neighbours and hops together: covered is what either covers; shares are over all tokens."""
    measured = _lists(graph, nodes, lists, clusters, count)
    neighbours = float((lists >= 0).sum(1).mean())  # padding is no token

    def mixed(first: Any, second: Any) -> Any:
        if first is None or second is None:
            return second if first is None else first
        return (store.num_hops * first + neighbours * second) / (store.num_hops + neighbours)

    both = None
    if count:
        marks = _token_clusters(lists, clusters, count) | hops.marks
        both = _mean(marks.sum(1) / count)
    return Criteria(
        "all tokens",
        max(hops.neighbourhood, measured["neighbourhood"]),
        both,
        mixed(hops.beyond, measured["beyond"]),
        mixed(hops.same_label, measured["same_label"]),
        float(graph.num_arcs * store.num_hops + sum(row["visits"] for row in stages.values())) if stages else None,
        float(sum(row["seconds"] for row in stages.values())) if stages else None,
        float(store.num_bytes),
    )


def _lists(graph: Graph, nodes: Any, ids: Any, clusters: Any, count: int) -> dict[str, Any]:
    """What lists of node tokens cover. Super nodes and padding are no node tokens."""
    ids = np.where((ids >= 0) & (ids < graph.num_nodes), ids, -1)
    shown = ids >= 0
    distances = hop_distances(graph, nodes, ids)
    near = np.array([len(np.unique(row[place])) for row, place in zip(ids, distances == 1, strict=True)])
    degrees = np.asarray(graph.degrees)[nodes]
    far = shown & ((distances > 2) | (distances < 0))
    same = None
    if graph.labels is not None and TASKS[graph.task].has_classes:
        labels = np.asarray(graph.labels)
        known = shown & (labels[ids] >= 0) & (labels[nodes] >= 0)[:, None]
        same = float((known & (labels[ids] == labels[nodes][:, None])).sum() / max(1, known.sum()))
    return {
        "neighbourhood": _mean(np.minimum(near / np.maximum(degrees, 1), 1)[degrees > 0]),
        "clusters": _mean(_token_clusters(ids, clusters, count).sum(1) / count) if count else None,
        "beyond": float(far.sum() / max(1, shown.sum())),
        "same_label": same,
    }


def _token_clusters(ids: Any, clusters: Any, count: int) -> NDArray[np.bool_]:
    """Which clusters have a token in the list [m, count]."""
    marks = np.zeros((len(ids), count + 1), dtype=np.bool_)
    inside = (ids >= 0) & (ids < len(clusters))
    place = np.where(inside, clusters[np.where(inside, ids, 0)], -1)
    np.put_along_axis(marks, np.where(place >= 0, place, count), True, 1)
    return marks[:, :count]


@dataclass(frozen=True, eq=False)
class _Hops:
    """What the hop tokens cover."""

    neighbourhood: float
    marks: NDArray[np.bool_]
    beyond: float
    same_label: float | None

    @property
    def clusters(self) -> NDArray[np.int64]:
        covered: NDArray[np.int64] = self.marks.sum(1)
        return covered

    @classmethod
    def measure(cls, graph: Graph, store: TokenStore, nodes: Any, clusters: Any, count: int) -> _Hops:
        hops = store.num_hops
        marks = np.zeros((len(nodes), count), dtype=np.bool_)
        seen, queue = np.full(graph.num_nodes, -1, np.int32), np.empty(graph.num_nodes, np.int32)
        for row, node in enumerate(nodes):
            mark_clusters(
                np.asarray(graph.indptr), np.asarray(graph.indices), node, hops, clusters, seen, queue, marks[row]
            )
        same = None
        if graph.labels is not None and TASKS[graph.task].has_classes and hops:
            same = _same_label_in_hops(graph, nodes, hops, store.settings.self_loops)
        return cls(float(hops >= 1), marks, max(0, hops - 2) / max(1, hops), same)


def _same_label_in_hops(graph: Graph, nodes: Any, hops: int, self_loops: bool) -> float:
    """Mean share of the weight of labelled nodes in P^l(u, :), u itself left out, that lies on nodes of u's label."""
    labels = np.asarray(graph.labels)
    step = normalized_adjacency(graph, self_loops)
    chosen = nodes[labels[nodes] >= 0]
    shares: list[list[float]] = [[] for _ in range(hops)]
    for start in range(0, len(chosen), _ROWS_AT_ONCE):
        part = chosen[start : start + _ROWS_AT_ONCE]
        rows = sp.csr_matrix((np.ones(len(part)), (np.arange(len(part)), part)), shape=(len(part), graph.num_nodes))
        for hop in range(hops):
            rows = sp.csr_matrix(rows @ step)
            owner, weights = np.repeat(np.arange(len(part)), np.diff(rows.indptr)), rows.data
            others = (rows.indices != part[owner]) & (labels[rows.indices] >= 0)
            same = others & (labels[rows.indices] == labels[part[owner]])
            total, own = (np.bincount(owner, weights * chosen_arcs, len(part)) for chosen_arcs in (others, same))
            shares[hop] += (own[total > 0] / total[total > 0]).tolist()
    return float(np.mean([_mean(values) for values in shares]))


def same_label_neighbours(graph: Graph, nodes: NDArray[np.int64]) -> float | None:
    """Mean local homophily: what the share of same-label tokens is compared with."""
    if graph.labels is None or not TASKS[graph.task].has_classes:
        return None
    shares = local_homophily(graph, nodes)
    return _mean(shares[~np.isnan(shares)])


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else 0.0
