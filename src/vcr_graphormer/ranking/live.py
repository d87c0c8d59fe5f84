"""A graph in memory that grows by a few nodes at a time; every change can be taken back.

Arrays are copied once, with room at their ends. New nodes write their own rows, and the ends of their neighbours' rows.
So the price of a new node does not depend on the size of the graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.checks import Array
from ..data.graph import Graph
from .second_level import LEAST_WEIGHT

LEAST_ROOM = 1024  # new nodes, or arcs, that fit before arrays are made larger
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
        room = count + LEAST_ROOM
        self.start, self.stop = (with_room(np.asarray(part), room) for part in (indptr[:-1], indptr[1:]))
        self.room = self.stop - self.start
        self.indices = with_room(np.asarray(indices).view(np.uint32), arcs + LEAST_ROOM)
        self.weighted = weights is not None
        self.weights = self.scaled = np.empty(0, dtype=np.float32)
        if self.weighted:
            self.weights = with_room(np.asarray(weights, dtype=np.float32), arcs + LEAST_ROOM)
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
            size = self.num_nodes + self.num_nodes // 2 + LEAST_ROOM
            same = self.out is self.into
            self.out = with_room(self.out, size)
            self.into = self.out if same else with_room(self.into, size)
        self.rows.reserve(self.num_nodes, addition)
        self.rows.add(addition, undo)
        for degrees, ends in ((self.out, addition.source), (self.into, addition.target))[: 1 + self.directed]:
            undo.write(degrees, addition.nodes, 0.0)
            nodes, place = np.unique(ends, return_inverse=True)
            undo.write(degrees, nodes, add_in_order(degrees[nodes], place, addition.weight))
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


def add_in_order(sums: NDArray[np.float64], place: Any, values: Any) -> NDArray[np.float64]:
    """Return the sums after adding each value to the sum at its place, one after the other."""
    result = sums.copy()
    np.add.at(result, place, values)
    return result
