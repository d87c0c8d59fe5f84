"""Rankers of a graph that grows by a few nodes at a time: the price of a new node does not depend on the graph's size.

Similarity of features is the exception: a new node is compared with all older ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array
from ..data.agreement import MOST_LINKS
from ..data.graph import Graph
from .growth import join_clusters
from .kernels.links import rank_by_links
from .kernels.push import LIMIT, TINY, LooseArcs
from .kernels.topk import rank_sources
from .links import LinkRanker
from .live import LEAST_ROOM, Addition, LiveGraph, Undo, add_in_order, with_room
from .nearest import STEP, FeatureRanker
from .pagerank import Ranker, entry_after, make_limits
from .ranker import empty_lists
from .second_level import new_scratch


def join_neighbours(addition: Addition, clusters: Any, late: Any = None) -> NDArray[np.int32]:
    """Return the cluster of each new node: the one most of its edge weight leads to, as `growth.join_clusters` does.

    Parameters
    ----------
    clusters : int32 [n]
        The clusters of older nodes, -1 for none.
    late : int32 [n] or None
        Clusters that older nodes without one would join; new nodes follow these only in later rounds.
    """
    links = {node: addition.links(node) for node in addition.nodes.tolist()}
    found: dict[int, int] = {}
    is_first = True
    while len(found) < len(links):
        round_found: dict[int, int] = {}
        for node, weights in links.items():
            sums: dict[int, float] = {}
            for other, weight in weights.items() if node not in found else ():
                cluster = found.get(other, -1) if other >= addition.first else int(clusters[other])
                if cluster < 0 and late is not None and not is_first and other < addition.first:
                    cluster = int(late[other])
                if cluster >= 0:
                    sums[cluster] = sums.get(cluster, 0.0) + weight
            if sums:
                round_found[node] = min(sums, key=lambda cluster: (-sums[cluster], cluster))
        if not round_found and not (is_first and late is not None):
            break
        found |= round_found
        is_first = False
    return np.array([found.get(node, -1) for node in links], dtype=np.int32)


class LivePageRank:
    """A `Ranker` that ranks new nodes. The second level stays as it is; new nodes join the clusters of neighbours.

    Attributes
    ----------
    assignment : int32 [nodes with room]
        The super node of each node, -1 for none.
    """

    def __init__(self, ranker: Ranker, graph: Graph, live: LiveGraph) -> None:
        self.live, self.before = live, ranker
        vectors, count = ranker.vectors, graph.num_nodes
        clusters = len(vectors.spill) - 1
        # Hubs have a group of their own, which none joins; a node with hubs as its only neighbours follows them.
        self.coarse = np.where(vectors.group < clusters, vectors.group, -1).astype(np.int32)
        self.late = join_clusters(graph, self.coarse)
        self.first_cluster = len(vectors.ptr) - 1 - clusters - len(vectors.hubs)
        self.is_hub = np.zeros(count, dtype=np.bool_)
        self.is_hub[vectors.hubs] = True
        self.super_component = vectors.component[count:].copy()
        self.assignment = ranker.assignment
        self.vectors = vectors._replace(component=vectors.component[:count], position=vectors.position[:count])
        order = np.argsort(self.vectors.component, kind="stable")
        self.components = Components(order, self.vectors.component[order])
        self._make_room(count + LEAST_ROOM)
        self._kth: dict[int, NDArray[np.float32]] = {}

    def _make_room(self, size: int) -> None:
        """Copy what has a row per node into larger arrays."""
        vectors = self.vectors
        per_node = ("total", "limit", "group", "mass", "vector_of", "component", "position")
        larger: dict[str, Any] = {name: with_room(getattr(vectors, name), size) for name in per_node}
        larger |= {name: with_room(getattr(vectors, name), size) for name in ("cut_start", "cut_stop", "cut_inside")}
        # New nodes are in no list of the second level.
        larger["row_ptr"] = with_room(vectors.row_ptr, size + 1, vectors.row_ptr[-1])
        self.vectors = vectors._replace(**larger, members=np.array(vectors.members))
        self.assignment = with_room(self.assignment, size, -1)
        self.coarse, self.late = (with_room(part, size, -1) for part in (self.coarse, self.late))
        self.is_hub = with_room(self.is_hub, size)
        self.scratch = new_scratch(larger["limit"], len(vectors.ptr) - 1, self.live.directed)

    def add(self, addition: Addition, joined: NDArray[np.int32], undo: Undo) -> None:
        """Add nodes whose arcs are in the graph already.

        Parameters
        ----------
        joined
            The super node of each new node, -1 for none.
        """
        if self.live.num_nodes > len(self.assignment):
            self._make_room(self.live.num_nodes + self.live.num_nodes // 2)
        vectors, nodes = self.vectors, addition.nodes
        scaled = self.live.rows.scale(addition.weight) if self.live.rows.weighted else addition.weight
        is_member = (joined >= 0).astype(np.float64)
        undo.write(self.assignment, nodes, joined)
        undo.write(vectors.total, nodes, 0.0)
        changed, place = np.unique(addition.source, return_inverse=True)
        undo.write(vectors.total, changed, add_in_order(vectors.total[changed], place, scaled))
        vectors.total[nodes] += is_member
        into = add_in_order(np.zeros(addition.count), *_of_new(addition, scaled)) + is_member
        undo.write(vectors.mass, nodes, np.maximum(into, TINY))
        changed = np.union1d(changed, nodes)
        limit = np.where(self.is_hub[changed], np.inf, np.maximum(vectors.total[changed], TINY)).astype(np.float32)
        undo.write(vectors.limit, changed, limit)
        undo.write(self.scratch.state, (changed, LIMIT), limit)
        group = join_neighbours(addition, self.coarse, self.late)
        undo.write(self.coarse, nodes, group)
        undo.write(self.late, nodes, group)
        # A node without any neighbour in a cluster may lie in any.
        undo.write(vectors.group, nodes, np.maximum(group, 0))
        undo.write(vectors.vector_of, nodes, np.maximum(group, 0) + self.first_cluster)
        supers, counts = np.unique(joined[joined >= 0], return_counts=True)
        undo.write(vectors.members, supers, vectors.members[supers] + counts)
        self.components.add(addition, joined, self.super_component, component=vectors.component, undo=undo)

    def keep(self) -> None:
        """Make the last addition lasting."""
        self.components.keep()

    def rank(self, sources: NDArray[np.int64], k: int, *, tolerance: float, leave_out: bool) -> tuple[Array, Array]:
        """Return ids and scores of the k best nodes of each source, as `Ranker.rank` does."""
        if k not in self._kth:
            self._kth[k] = entry_after(self.vectors, k)
        ids, scores = empty_lists(len(sources), k, np.float64)
        rows = self.live.rows
        arcs = LooseArcs(rows.start, rows.stop, rows.indices, rows.scaled)
        limits = make_limits(tolerance, directed=self.live.directed, num_arcs=self.live.num_arcs)
        # The members of super nodes are those of before: they count only where a walk reaches fewer than k nodes.
        graph = (arcs, self.assignment, self.before.members)
        rank_sources(sources, leave_out, *graph, self.vectors, self._kth[k], self.scratch, limits, ids, scores)
        return ids, scores.astype(np.float32)


def _of_new(addition: Addition, weights: Any) -> tuple[Array, Array]:
    """Return the new node, counted from 0, that each arc into a new node leads to, and the weights of these arcs."""
    arcs = addition.target >= addition.first
    return addition.target[arcs] - addition.first, weights[arcs]


class Components:
    """The connected components of a graph that grows: a new node may join several into one."""

    def __init__(self, order: NDArray[np.int64], sorted_components: NDArray[np.int32]) -> None:
        self._order, self._sorted = order, sorted_components
        self._more: dict[int, list[NDArray[np.int64]]] = {}
        self._pending: list[tuple[int, list[NDArray[np.int64]]]] = []
        self._next = int(sorted_components.max(initial=-1)) + 1

    def members(self, component: int) -> list[NDArray[np.int64]]:
        """Return the nodes of a component, in pieces."""
        first, last = np.searchsorted(self._sorted, [component, component + 1])
        return [self._order[first:last], *self._more.get(component, ())]

    def add(self, addition: Addition, joined: Any, super_component: Any, *, component: Any, undo: Undo) -> None:
        """Write the components of new nodes; nodes of smaller components move to the largest that they are joined to.

        Parameters
        ----------
        joined
            The super node of each new node, -1 for none.
        super_component
            The component of each super node.
        component
            The component of each node.
        """
        self._pending = []
        group = {node: node for node in addition.nodes.tolist()}  # new nodes that are linked to each other

        def root(node: int) -> int:
            while group[node] != node:
                node = group[node]
            return node

        touched: dict[int, set[int]] = {node: set() for node in group}
        for source, target in zip(addition.source.tolist(), addition.target.tolist(), strict=True):
            if source >= addition.first and target >= addition.first:
                group[root(source)] = root(target)
            elif source >= addition.first:
                touched[source].add(int(component[target]))
            else:
                touched[target].add(int(component[source]))
        for node, cluster in zip(group, joined.tolist(), strict=True):
            if cluster >= 0:
                touched[node].add(int(super_component[cluster]))
        # Groups that touch a common component are one group, too.
        first_with: dict[int, int] = {}
        for node, components in touched.items():
            for one in components:
                group[root(node)] = root(first_with.setdefault(one, node))
        for top in [node for node in group if group[node] == node]:
            nodes = [node for node in group if root(node) == top]
            components = set().union(*(touched[node] for node in nodes))
            pieces = {one: self.members(one) for one in components}
            if not components:
                target, self._next = self._next, self._next + 1
            else:
                target = max(components, key=lambda one: (sum(map(len, pieces[one])), -one))
            moved = [piece for one in sorted(components - {target}) for piece in pieces[one] if len(piece)]
            for piece in moved:
                undo.write(component, piece, target)
            for one in components - {target}:
                undo.write(super_component, np.flatnonzero(super_component == one), target)
            undo.write(component, np.array(nodes), target)
            self._pending.append((target, [*moved, np.array(nodes)]))

    def keep(self) -> None:
        """Remember the nodes of the last addition as members."""
        for target, pieces in self._pending:
            self._more.setdefault(target, []).extend(pieces)
        self._pending = []


class LiveLinks:
    """A `LinkRanker` that ranks new nodes."""

    def __init__(self, ranker: LinkRanker, live: LiveGraph) -> None:
        self.live, self.lengths = live, np.array(ranker.lengths)

    def add(self, addition: Addition, undo: Undo) -> None:
        """Measure the rows of new nodes and of their neighbours, whose arcs are in the graph already."""
        if self.live.num_nodes > len(self.lengths):
            self.lengths = with_room(self.lengths, self.live.num_nodes + self.live.num_nodes // 2)
        changed = [addition.nodes, addition.source]
        targets, more = np.unique(addition.target, return_counts=True)
        counts = self.live.back.counts(targets)
        no_longer = targets[(counts > MOST_LINKS) & (counts - more <= MOST_LINKS)]
        changed.append(self.live.back.take(no_longer)[1])  # the nodes that link to these
        nodes = np.unique(np.concatenate(changed))
        owner, target, weight = self.live.rows.take(nodes)
        counted = self.live.back.counts(target) <= MOST_LINKS
        squares = np.bincount(owner[counted], np.square(weight[counted], dtype=np.float64), len(nodes))
        undo.write(self.lengths, nodes, np.sqrt(squares))

    def keep(self) -> None:
        """Do nothing: lengths are all there is."""

    def rank(self, sources: NDArray[np.int64], k: int, **how: Any) -> tuple[Array, Array]:
        """Return ids and scores of the k nodes with the most similar links, from a small graph around each source."""
        ids, scores = empty_lists(len(sources), k)
        for row, source in enumerate(sources.tolist()):
            _, targets, weights = self.live.rows.take(np.array([source]))
            counted = self.live.back.counts(targets) <= MOST_LINKS
            targets, weights = targets[counted], weights[counted]
            owner, others, values = self.live.back.take(targets)
            near = np.unique(np.concatenate([[source], targets, others]))  # ascending: ties go to the smaller id

            def compact(rows: Any, columns: Any, data: Any, near: Any = near) -> tuple[Array, Array, Array]:
                pair = (np.searchsorted(near, rows), np.searchsorted(near, columns))
                matrix = sp.csr_matrix((data, pair), shape=(len(near), len(near)))
                return matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32), matrix.data

            links = compact(np.full(len(targets), source), targets, weights)
            back = compact(targets[owner], others, values)
            place = np.searchsorted(near, [source])
            lists = (ids[row : row + 1], scores[row : row + 1])
            work = (np.zeros(len(near)), np.empty(len(near), dtype=np.int32))
            rank_by_links(place, *links, *back, self.lengths[near], MOST_LINKS, *work, *lists)
            found = ids[row] >= 0
            ids[row, found] = near[ids[row, found]]
        return ids, scores


class LiveNearest:
    """A `FeatureRanker` that compares new nodes with all older ones; rows of older nodes stay as they are."""

    def __init__(self, ranker: FeatureRanker) -> None:
        self.with_hop, self.old, self.new = ranker.with_hop, ranker.rows, list[NDArray[np.float32]]()

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes."""
        return int(self.old.shape[0]) + len(self.new)

    def add(self, rows: Iterable[NDArray[np.float32]]) -> None:
        """Add the rows of new nodes, of unit length."""
        self.new.extend(rows)

    def drop(self, count: int) -> None:
        """Drop the last rows."""
        del self.new[len(self.new) - count :]

    def rank(self, sources: NDArray[np.int64], k: int, **how: Any) -> tuple[Array, Array]:
        """Return ids and scores of the k nodes with the most similar features of each new node."""
        ids, scores = empty_lists(len(sources), k)
        old, new = self.old.shape[0], np.array(self.new)
        for row, source in enumerate(sources.tolist()):
            own = new[source - old]
            products = np.concatenate([self.old @ own, new @ own])
            products[source] = 0.0
            similarity = np.minimum(np.rint(products / STEP) * STEP, 1.0).astype(np.float32)
            best = np.argpartition(-similarity, min(k, len(similarity) - 1))[: k + 1]
            bar = similarity[best].min()
            best = np.flatnonzero(similarity >= max(bar, STEP / 2))
            best = best[np.lexsort((best, -similarity[best]))][:k]
            ids[row, : len(best)], scores[row, : len(best)] = best, similarity[best]
        return ids, scores


def unit_row(values: NDArray[np.float32], length: float) -> NDArray[np.float32]:
    """Return a row scaled to a length; a row of zeros stays zero."""
    norm = float(np.sqrt(np.square(values, dtype=np.float64).sum()))
    return (values * (length / norm)).astype(np.float32) if norm else values.astype(np.float32)
