"""Rank on a graph that has grown, without preparing everything anew.

The vectors of the second level stay as they were; new nodes join the clusters of their neighbours. A walk starts
locally, on the arcs of today, and only its far part reads the older vectors. So a new node costs no more than a push.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array
from ..data.graph import Graph
from ..errors import GraphError
from .connections import Connections
from .exact import super_edge_weight
from .kernels.push import TINY
from .kernels.scans import degrees_both_ways
from .pagerank import Ranker, members_of
from .ranker import Candidates, Ranking
from .reachability import reachability
from .second_level import make_arcs


def join_clusters(graph: Graph, assignment: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the cluster of every node: those without one take the one that most of their edge weight leads to.

    Nodes that are linked only to others without a cluster follow in later rounds. Those without any link to a cluster
    stay without, -1. Direction is ignored; ties go to the smaller cluster.

    Parameters
    ----------
    assignment
        The clusters of the first nodes, -1 for none; the nodes after these are new.

    >>> path = Graph.from_edges([[0, 1, 2], [1, 2, 3]])
    >>> join_clusters(path, np.array([0, 1], dtype=np.int32)).tolist()
    [0, 1, 1, 1]
    """
    more = np.full(graph.num_nodes - len(assignment), -1, dtype=np.int32)
    result = np.concatenate([assignment, more])
    owner, neighbour, weight = _arcs_of(graph, np.flatnonzero(result < 0))
    while True:
        open_arcs = (result[owner] < 0) & (result[neighbour] >= 0)
        if not open_arcs.any():
            return result
        # One entry per node and cluster, with the weight between them; per node, the heaviest comes first.
        nodes, clusters = owner[open_arcs], result[neighbour[open_arcs]]
        pairs = sp.coo_matrix((weight[open_arcs], (nodes, clusters)), shape=(graph.num_nodes, int(result.max()) + 1))
        pairs = sp.coo_matrix(pairs.tocsr())
        best = np.lexsort((pairs.col, -pairs.data, pairs.row))
        node, place = np.unique(pairs.row[best], return_index=True)
        result[node] = pairs.col[best][place]


def join_nearest(graph: Graph, clusters: Connections, nodes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the cluster with the nearest mean of features, for each of some nodes."""
    members, features = np.flatnonzero(clusters.assignment >= 0), cast(Any, graph.features)
    weights = 1.0 / clusters.sizes[clusters.assignment[members]]
    shape = (clusters.count, graph.num_nodes)
    sums = sp.csr_matrix((weights, (clusters.assignment[members], members)), shape=shape) @ features
    means = sums.toarray() if sp.issparse(sums) else sums
    # |x - m|² without |x|², which is the same for all clusters
    distances = np.square(means).sum(axis=1) - 2 * np.asarray(features[nodes] @ means.T)
    nearest: NDArray[np.int32] = distances.argmin(axis=1).astype(np.int32)
    return nearest


def _arcs_of(graph: Graph, nodes: NDArray[np.int64]) -> tuple[Array, Array, Array]:
    """Return source, target and weight of the arcs of some nodes; of both directions."""
    matrix = graph.to_scipy()
    rows = matrix[nodes]
    if graph.directed:
        rows = rows + matrix[:, nodes].T
    arcs = sp.coo_matrix(rows)
    return nodes[arcs.row], arcs.col.astype(np.int64), arcs.data.astype(np.float64)


def grow_ranker(ranker: Any, before: Graph, graph: Graph, connections: Connections) -> Any:
    """Return a ranker for a graph that has grown.

    A `Ranker` keeps its second level. Others are prepared anew, which costs them one pass over the data.

    Parameters
    ----------
    ranker
        The ranker of the graph `before`.
    connections
        Super nodes with the new members.
    """
    if graph.num_nodes < before.num_nodes:
        raise GraphError(f"the graph has {graph.num_nodes} nodes, fewer than the {before.num_nodes} before")
    if not isinstance(ranker, Ranker):
        return type(ranker).prepare(graph, connections)
    vectors, more = ranker.vectors, graph.num_nodes - before.num_nodes
    clusters = len(vectors.spill) - 1
    # The weight of a super edge stays what it was, or the local part would not fit the older vectors.
    arcs = make_arcs(graph, super_edge_weight(before))
    out, into = degrees_both_ways(graph, arcs.weights)
    is_member = connections.assignment >= 0
    total, mass = out + is_member, np.maximum(into + is_member, TINY)[before.num_nodes :]
    limit = np.maximum(total, TINY).astype(np.float32)
    limit[vectors.hubs] = np.inf
    # Hubs have a group of their own, which none joins. A node without any other neighbour may lie in any.
    joined = np.maximum(join_clusters(graph, coarse_of(ranker))[before.num_nodes :], 0)
    group = np.concatenate([vectors.group, joined])
    supers = len(vectors.ptr) - 1 - clusters - len(vectors.hubs)
    grown = vectors._replace(
        total=total,
        limit=limit,
        members=connections.sizes.astype(np.float64),
        group=group.astype(np.int32),
        mass=np.concatenate([vectors.mass, mass.astype(np.float32)]),  # of old nodes: as the older vectors count it
        vector_of=np.concatenate([vectors.vector_of, group[before.num_nodes :] + supers]).astype(np.int32),
        row_ptr=np.concatenate([vectors.row_ptr, np.full(more, vectors.row_ptr[-1])]),
        **reachability(graph, connections.assignment, connections.count),
    )
    return Ranker(arcs, connections.assignment, grown, members_of(connections), ranker.visits, graph.directed)


def coarse_of(ranker: Ranker) -> NDArray[np.int32]:
    """Return the coarse clusters behind the second level of a ranker; -1 for hubs, which stand for themselves."""
    clusters = len(ranker.vectors.spill) - 1
    return np.where(ranker.vectors.group < clusters, ranker.vectors.group, -1).astype(np.int32)


_MOST_PAIRS = 20_000_000  # of nodes that share a new one, about 1 GB of them


def share_new_node(
    graph: Graph, old: int, most_pairs: int = _MOST_PAIRS
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all pairs of old nodes that link to the same new node, in both orders.

    A new node has as many pairs as the square of its links. If there are more than `most_pairs`, those with most links
    are left out: to share one of them says least.

    >>> share_new_node(Graph.from_edges([[0, 1, 2], [3, 3, 4]]), old=3)
    (array([0, 1]), array([1, 0]))
    """
    links = sp.csr_matrix(graph.to_scipy()[:old, old:] != 0, dtype=np.float32)
    counts = np.bincount(links.indices, minlength=links.shape[1]).astype(np.int64)
    order = np.argsort(counts, kind="stable")
    links = links[:, np.sort(order[np.cumsum(counts[order] ** 2) <= most_pairs])]
    pairs = sp.coo_matrix(links @ links.T)
    others = pairs.row != pairs.col
    return pairs.row[others].astype(np.int64), pairs.col[others].astype(np.int64)


def repair_rankings(
    ranker: Any,
    earlier: Array,
    sources: Ranking,
    *,
    k: int,
    pairs: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    threads: int | None = None,
) -> Ranking:
    """Rank all nodes of a graph that has grown by similarity, without comparing all of them.

    Sources keep their rankings. Any other node is compared with those that it ranked before and with the sources that
    rank it. Similarities are those of now, so the lists are exact unless a node enters from behind the earlier ranking.

    Parameters
    ----------
    ranker
        A ranker of the graph of now, which can rank among candidates.
    earlier : int32 [old, w]
        What the old nodes ranked before.
    sources
        Rankings of all new nodes, and of the old ones that changed much; at least k long.
    pairs
        Further nodes, and what each is compared with.
    """
    seen = (sources.ids >= 0) & (sources.ids < len(earlier))
    rows, nodes = sources.ids[seen].astype(np.int64), np.broadcast_to(sources.sources[:, None], seen.shape)[seen]
    if pairs is not None:
        rows, nodes = np.concatenate([rows, pairs[0]]), np.concatenate([nodes, pairs[1]])
    num_nodes = int(sources.sources.max(initial=len(earlier) - 1)) + 1
    lists = np.full((num_nodes, earlier.shape[1]), -1, dtype=np.int32)
    lists[: len(earlier)] = earlier
    ranking: Ranking = ranker.rank_among(np.arange(num_nodes), Candidates.join(lists, rows, nodes), k, threads)
    ranking.ids[sources.sources], ranking.scores[sources.sources] = sources.ids[:, :k], sources.scores[:, :k]
    return ranking
