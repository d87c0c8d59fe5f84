"""Measure the paper's four criteria of a good tokenization: topology, long range, heterophily, cost."""

from __future__ import annotations

import time
from dataclasses import astuple, dataclass
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

_ROWS_AT_ONCE = 16  # rows of P^l held in memory at a time: each may reach every node
_NEAR_HOPS = 2  # tokens further away count as long range
_ENTRY_BYTES = 8  # of a neighbour in a list: an int32 id and a float32 score
COLUMNS = ("neighbourhood", "clusters", "beyond two hops", "same label", "edge visits", "seconds", "bytes")


@dataclass(frozen=True)
class Criteria:
    """One way to make token lists, measured on a sample of nodes; a value is None where the graph does not allow it.

    Attributes
    ----------
    neighbourhood : float
        Local topology: fraction of a node's neighbours that its tokens cover. A hop token covers all nodes it averages.
    clusters : float
        Global topology: fraction of the clusters that its tokens cover.
    beyond : float
        Long range: fraction of the tokens that are more than two hops away or cannot be reached.
    same_label : float
        Heterophily: fraction of the labelled token nodes that have the node's own label. For a hop token it is the
        weight of such nodes, without the node itself. Compare it with the fraction among the node's neighbours.
    visits, seconds, bytes : float
        Cost for all nodes of the graph; each hop visits every arc once.
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
        """Return the values in the order of `COLUMNS`."""
        return list(astuple(self)[1:])


@dataclass(frozen=True, eq=False)
class _Covered:
    """What some tokens cover: `marks` [m, clusters] are the clusters, the other fields are as in `Criteria`."""

    neighbourhood: float
    marks: NDArray[np.bool_]
    beyond: float
    same_label: float | None


def measure_criteria(
    graph: Graph, store: TokenStore, nodes: NDArray[np.int64], stages: dict[str, dict[str, float]]
) -> list[Criteria]:
    """Measure hops only, PageRank without super nodes, and the token lists of the store, on the same nodes.

    `stages` is the content of `stages.json`. The plain ranking is timed here and scaled to all nodes.
    """
    clusters = np.asarray(store.assignment("structure"))
    count = int(clusters.max()) + 1 if len(clusters) else 0
    hops = _cover_by_hops(graph, store, nodes=nodes, clusters=clusters, count=count)
    hop_visits = graph.num_arcs * store.num_hops
    rows = [
        _criteria(
            "hops only",
            hops,
            visits=float(hop_visits),
            seconds=stages["hop features"]["seconds"] if "hop features" in stages else None,
            bytes=float(sum(array.nbytes for name, array in store.arrays.items() if name.startswith("hop_"))),
        )
    ]
    lists = store.neighbours(nodes)
    if lists.shape[1]:
        ids, cost = _rank_without_supers(graph, store, nodes=nodes, k=lists.shape[1])
        plain = _cover_by_lists(graph, ids, nodes=nodes, clusters=clusters, count=count)
        neighbours = _cover_by_lists(graph, lists, nodes=nodes, clusters=clusters, count=count)
        length = float((lists >= 0).sum(1).mean())  # without padding
        rows += [
            _criteria("PageRank without super nodes", plain, **cost),
            _criteria(
                "all tokens",
                _join(hops, neighbours, num_hops=store.num_hops, num_neighbours=length),
                visits=float(hop_visits + sum(row["visits"] for row in stages.values())) if stages else None,
                seconds=float(sum(row["seconds"] for row in stages.values())) if stages else None,
                bytes=float(store.num_bytes),
            ),
        ]
    return rows


def _criteria(name: str, covered: _Covered, **cost: Any) -> Criteria:
    """Return the criteria of tokens from what they cover and what they cost."""
    count = covered.marks.shape[1]
    return Criteria(
        name=name,
        neighbourhood=covered.neighbourhood,
        clusters=_mean(covered.marks.sum(1) / count) if count else None,
        beyond=covered.beyond,
        same_label=covered.same_label,
        **cost,
    )


def _rank_without_supers(
    graph: Graph, store: TokenStore, *, nodes: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int32], dict[str, float]]:
    """Rank the nodes on the graph without super nodes; return the ids and the cost for all nodes."""
    settings = store.settings
    start = time.perf_counter()
    ranker = Ranker.prepare(graph, None, settings.restart, store.coarse_clusters(graph))
    prepared = time.perf_counter() - start
    ranker.rank(nodes[:1], k, settings.tolerance)  # the first call also compiles or loads the kernels
    start = time.perf_counter()
    ranking = ranker.rank(nodes, k, settings.tolerance)
    scale = graph.num_nodes / max(1, len(nodes))
    seconds = prepared + (time.perf_counter() - start) * scale
    visits = round(ranking.visits * scale) + ranker.visits
    return ranking.ids, {"visits": visits, "seconds": seconds, "bytes": float(_ENTRY_BYTES * k * graph.num_nodes)}


def _join(hops: _Covered, neighbours: _Covered, *, num_hops: int, num_neighbours: float) -> _Covered:
    """Return what hops and neighbours cover together: the union, and means over all tokens."""

    def mean(first: Any, second: Any) -> Any:
        if first is None or second is None:
            return second if first is None else first
        return (num_hops * first + num_neighbours * second) / (num_hops + num_neighbours)

    return _Covered(
        neighbourhood=max(hops.neighbourhood, neighbours.neighbourhood),
        marks=hops.marks | neighbours.marks,
        beyond=mean(hops.beyond, neighbours.beyond),
        same_label=mean(hops.same_label, neighbours.same_label),
    )


def _cover_by_lists(graph: Graph, ids: Any, *, nodes: Any, clusters: Any, count: int) -> _Covered:
    """Return what lists of neighbours cover; padding does not count."""
    shown = ids >= 0
    distances = hop_distances(graph, nodes, ids)
    near = np.array([len(np.unique(row[direct])) for row, direct in zip(ids, distances == 1, strict=True)])
    degrees = np.asarray(graph.degrees)[nodes]
    far = shown & ((distances > _NEAR_HOPS) | (distances < 0))
    same_label = None
    if _has_classes(graph):
        labels = np.asarray(graph.labels)
        labelled = shown & (labels[ids] >= 0) & (labels[nodes] >= 0)[:, None]
        same = labelled & (labels[ids] == labels[nodes][:, None])
        same_label = float(same.sum() / max(1, labelled.sum()))
    marks = np.zeros((len(ids), count + 1), dtype=np.bool_)  # the last column is for nodes without a cluster
    if count:
        columns = np.where(shown, clusters[np.where(shown, ids, 0)], -1)
        np.put_along_axis(marks, np.where(columns >= 0, columns, count), True, 1)
    return _Covered(
        neighbourhood=_mean(np.minimum(near / np.maximum(degrees, 1), 1)[degrees > 0]),
        marks=marks[:, :count],
        beyond=float(far.sum() / max(1, shown.sum())),
        same_label=same_label,
    )


def _cover_by_hops(graph: Graph, store: TokenStore, *, nodes: Any, clusters: Any, count: int) -> _Covered:
    """Return what the hop tokens cover."""
    hops = store.num_hops
    marks = np.zeros((len(nodes), count), dtype=np.bool_)
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    seen, queue = np.full(graph.num_nodes, -1, np.int32), np.empty(graph.num_nodes, np.int32)
    for row, node in enumerate(nodes):
        mark_clusters(indptr, indices, node, hops, clusters, seen, queue, marks[row])
    return _Covered(
        neighbourhood=float(hops >= 1),
        marks=marks,
        beyond=max(0, hops - _NEAR_HOPS) / max(1, hops),
        same_label=_same_label_in_hops(graph, nodes, hops=hops, self_loops=store.settings.self_loops)
        if _has_classes(graph) and hops
        else None,
    )


def _same_label_in_hops(graph: Graph, nodes: Any, *, hops: int, self_loops: bool) -> float:
    """Return the mean fraction of the weight of labelled nodes in P^l(u, :) on nodes of u's label, without u itself."""
    labels = np.asarray(graph.labels)
    adjacency = normalized_adjacency(graph, self_loops)
    labelled = nodes[labels[nodes] >= 0]
    fractions: list[list[float]] = [[] for _ in range(hops)]
    for start in range(0, len(labelled), _ROWS_AT_ONCE):
        sources = labelled[start : start + _ROWS_AT_ONCE]
        count = len(sources)
        rows = sp.csr_matrix((np.ones(count), (np.arange(count), sources)), shape=(count, graph.num_nodes))
        for hop in range(hops):
            rows = sp.csr_matrix(rows @ adjacency)
            row_of = np.repeat(np.arange(count), np.diff(rows.indptr))
            others = (rows.indices != sources[row_of]) & (labels[rows.indices] >= 0)
            same = others & (labels[rows.indices] == labels[sources[row_of]])
            total, own = (np.bincount(row_of, rows.data * entries, count) for entries in (others, same))
            fractions[hop] += (own[total > 0] / total[total > 0]).tolist()
    return float(np.mean([_mean(values) for values in fractions]))


def same_label_neighbours(graph: Graph, nodes: NDArray[np.int64]) -> float | None:
    """Return the mean local homophily, with which to compare the fraction of same-label tokens."""
    if not _has_classes(graph):
        return None
    fractions = local_homophily(graph, nodes)
    return _mean(fractions[~np.isnan(fractions)])


def _has_classes(graph: Graph) -> bool:
    return graph.labels is not None and TASKS[graph.task].has_classes


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else 0.0
