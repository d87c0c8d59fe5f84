"""A graph in memory that grows by a few nodes at a time, and rankers on it; every change can be taken back.

Arrays are copied once, with room at their ends. New nodes write their own rows, and the ends of their neighbours' rows.
So the price of a new node does not depend on the size of the graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array
from ..data.graph import Graph
from .growth import join_clusters
from .kernels.links import rank_by_links
from .kernels.push import LIMIT, LooseArcs
from .kernels.topk import rank_sources
from .links import MOST_LINKS, LinkRanker
from .nearest import STEP, FeatureRanker
from .pagerank import Ranker, entry_after, make_limits
from .ranker import empty_lists
from .second_level import LEAST_WEIGHT, TINY, new_scratch

_LEAST_ROOM = 1024  # new nodes, or arcs, that fit before arrays are made larger
_ROW_ROOM = 2  # a row that moves gets this many times the room it needs, so that a hub does not move each time


class Undo:
    """The values that were overwritten, to be put back."""

    def __init__(self) -> None:
        self._written: list[tuple[Array, Any, Any]] = []

    def write(self, array: Array, index: Any, values: Any) -> None:
        """Write values into an array and remember those of before."""
        self._written.append((array, index, np.copy(array[index])))
        array[index] = values

    def back(self) -> None:
        """Put all values back, the last one first."""
        while self._written:
            array, index, values = self._written.pop()
            array[index] = values


@dataclass(frozen=True, eq=False)
class Addition:
    """New nodes and their arcs.

    Attributes
    ----------
    first, count : int
        The new nodes are first, first + 1, … first + count - 1.
    source, target : int64 [a]
        Arcs, sorted by source and target. Each has a new node at one end. An undirected edge is two arcs.
    weight : float32 [a]
        1 if the graph has no weights.
    """

    first: int
    count: int
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    weight: NDArray[np.float32]

    @property
    def nodes(self) -> NDArray[np.int64]:
        """Return the new nodes."""
        return np.arange(self.first, self.first + self.count)

    def links(self, node: int) -> dict[int, float]:
        """Return the neighbours of a new node with the weights of the arcs from and to it; direction is ignored."""
        weights: dict[int, float] = {}
        for ends, others in ((self.source, self.target), (self.target, self.source)):
            arcs = ends == node
            for other, weight in zip(others[arcs].tolist(), self.weight[arcs].tolist(), strict=True):
                weights[other] = weights.get(other, 0.0) + weight
        return weights


def with_room(array: Any, size: int, fill: Any = 0) -> Array:
    """Return a copy with room for `size` entries, the new ones filled."""
    result = np.full((size, *array.shape[1:]), fill, dtype=array.dtype)
    result[: len(array)] = array[:size]
    return result


class LiveRows:
    """Rows of arcs that can grow.

    Attributes
    ----------
    start, stop, room : int64 [nodes with room]
        Row v lies at `start[v]:stop[v]` and may grow up to `start[v] + room[v]`.
    indices, weights, scaled : uint32, float32, float32 [arcs with room]
        Targets; weights as given; weights as PageRank takes them. Both are empty if the graph has no weights.
    used : int
        Where the next row begins.
    """

    def __init__(self, indptr: Any, indices: Any, weights: Any, unit: float) -> None:
        count, arcs = len(indptr) - 1, len(indices)
        self.unit, self.used = unit, arcs
        room = count + _LEAST_ROOM
        self.start, self.stop = (with_room(np.asarray(part), room) for part in (indptr[:-1], indptr[1:]))
        self.room = self.stop - self.start
        self.indices = with_room(np.asarray(indices).view(np.uint32), arcs + _LEAST_ROOM)
        self.weighted = weights is not None
        self.weights = self.scaled = np.empty(0, dtype=np.float32)
        if self.weighted:
            self.weights = with_room(np.asarray(weights, dtype=np.float32), arcs + _LEAST_ROOM)
            self.scaled = self.scale(self.weights)

    def scale(self, weights: Any) -> NDArray[np.float32]:
        """Return weights in the unit of an edge to a super node."""
        scaled: NDArray[np.float32] = np.maximum(weights / self.unit, LEAST_WEIGHT).astype(np.float32)
        return scaled

    def reserve(self, nodes: int, addition: Addition) -> None:
        """Make room, so that arrays stay in place while the addition is written."""
        if nodes > len(self.start):
            size = nodes + nodes // 2
            self.start, self.stop, self.room = (with_room(part, size) for part in (self.start, self.stop, self.room))
        rows, more = np.unique(addition.source, return_counts=True)
        needed = self.used + _ROW_ROOM * int((self.stop[rows] - self.start[rows] + more).sum())
        if needed > len(self.indices):
            size = needed + needed // 4
            self.indices = with_room(self.indices, size)
            if self.weighted:
                self.weights, self.scaled = (with_room(part, size) for part in (self.weights, self.scaled))

    def add(self, addition: Addition, undo: Undo) -> None:
        """Append the arcs to their rows; a row without room moves to the end."""
        undo.write(self.start, addition.nodes, 0)
        undo.write(self.stop, addition.nodes, 0)
        undo.write(self.room, addition.nodes, 0)
        rows, first, counts = np.unique(addition.source, return_index=True, return_counts=True)
        for row, begin, count in zip(rows.tolist(), first.tolist(), counts.tolist(), strict=True):
            start, stop = int(self.start[row]), int(self.stop[row])
            if stop + count > start + self.room[row]:
                size = stop - start
                for array in (self.indices, self.weights, self.scaled)[: 3 if self.weighted else 1]:
                    array[self.used : self.used + size] = array[start:stop]
                undo.write(self.start, row, self.used)
                undo.write(self.room, row, _ROW_ROOM * (size + count))
                start, stop = self.used, self.used + size
                self.used += _ROW_ROOM * (size + count)
            new = slice(stop, stop + count)
            self.indices[new] = addition.target[begin : begin + count]
            if self.weighted:
                self.weights[new] = addition.weight[begin : begin + count]
                self.scaled[new] = self.scale(addition.weight[begin : begin + count])
            undo.write(self.stop, row, stop + count)

    def take(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        """Return the arcs of some rows: place of the row in `nodes`, target, weight."""
        starts, counts = self.start[nodes], self.stop[nodes] - self.start[nodes]
        owner = np.repeat(np.arange(len(nodes)), counts)
        places = np.arange(len(owner)) + np.repeat(starts - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        weights = self.weights[places] if self.weighted else np.ones(len(owner), dtype=np.float32)
        return owner, self.indices[places].astype(np.int64), weights

    def counts(self, nodes: Any) -> NDArray[np.int64]:
        """Return the number of arcs of some rows."""
        counts: NDArray[np.int64] = self.stop[nodes] - self.start[nodes]
        return counts


class LiveGraph:
    """The arcs and degrees of a graph that grows.

    Attributes
    ----------
    rows, back : LiveRows
        Arcs out of each node and into it; the same if the graph is undirected.
    out, into : float64 [nodes with room]
        Weight of these arcs.
    num_nodes, num_arcs : int
        Their numbers now.
    """

    def __init__(self, graph: Graph, unit: float) -> None:
        self.directed, self.unit = graph.directed, unit
        self._used = (0, 0)
        self.num_nodes, self.num_arcs = graph.num_nodes, graph.num_arcs
        self.rows = self.back = LiveRows(graph.indptr, graph.indices, graph.weights, unit)
        sources = np.repeat(np.arange(graph.num_nodes), graph.degrees)
        self.out = self.into = np.bincount(sources, graph.weights, graph.num_nodes).astype(np.float64)
        if graph.directed:
            self.into = np.bincount(graph.indices, graph.weights, graph.num_nodes).astype(np.float64)
            columns = graph.to_scipy().tocsc()
            weights = None if graph.weights is None else columns.data
            self.back = LiveRows(columns.indptr.astype(np.int64), columns.indices, weights, unit)

    def add(self, addition: Addition, undo: Undo) -> None:
        """Add nodes and arcs."""
        self._used = self.rows.used, self.back.used
        self.num_nodes += addition.count
        self.num_arcs += len(addition.source)
        if self.num_nodes > len(self.out):
            size = self.num_nodes + self.num_nodes // 2 + _LEAST_ROOM
            same = self.out is self.into
            self.out = with_room(self.out, size)
            self.into = self.out if same else with_room(self.into, size)
        self.rows.reserve(self.num_nodes, addition)
        self.rows.add(addition, undo)
        for degrees, ends in ((self.out, addition.source), (self.into, addition.target))[: 1 + self.directed]:
            undo.write(degrees, addition.nodes, 0.0)
            nodes, place = np.unique(ends, return_inverse=True)
            undo.write(degrees, nodes, _add_in_order(degrees[nodes], place, addition.weight))
        if self.directed:
            order = np.lexsort((addition.source, addition.target))
            arcs = addition.target[order], addition.source[order], addition.weight[order]
            turned = Addition(addition.first, addition.count, *arcs)
            self.back.reserve(self.num_nodes, turned)
            self.back.add(turned, undo)

    def distances(self, source: int, targets: Iterable[int], most_visits: int) -> dict[int, int]:
        """Return the hops along arcs from a node to others; those to which no path is found are left out.

        Parameters
        ----------
        most_visits
            Arcs followed before the search gives up.
        """
        wanted, found, hops, visits = set(targets), {source: 0}, 0, 0
        frontier = seen = np.array([source])
        while len(frontier) and not wanted <= found.keys() and visits < most_visits:
            _, reached, _ = self.rows.take(frontier)
            visits, hops = visits + len(reached), hops + 1
            frontier = np.setdiff1d(reached, seen)
            seen = np.union1d(seen, frontier)
            found |= dict.fromkeys(wanted.intersection(frontier.tolist()) - found.keys(), hops)
        return {node: found[node] for node in wanted if node in found}

    def drop(self, addition: Addition) -> None:
        """Count as before an addition; `Undo.back` puts the arrays back."""
        self.num_nodes -= addition.count
        self.num_arcs -= len(addition.source)
        self.rows.used, self.back.used = self._used


def _add_in_order(sums: NDArray[np.float64], place: Any, values: Any) -> NDArray[np.float64]:
    """Return the sums after adding each value to the sum at its place, one after the other."""
    result = sums.copy()
    np.add.at(result, place, values)
    return result


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
        self._make_room(count + _LEAST_ROOM)
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
        undo.write(vectors.total, changed, _add_in_order(vectors.total[changed], place, scaled))
        vectors.total[nodes] += is_member
        into = _add_in_order(np.zeros(addition.count), *_of_new(addition, scaled)) + is_member
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
