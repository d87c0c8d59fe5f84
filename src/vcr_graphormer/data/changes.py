"""What changed between two states of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import GraphError
from .graph import Graph


@dataclass(frozen=True, eq=False)
class Growth:
    """What changed between two states of a graph; old nodes have the same numbers in both.

    Attributes
    ----------
    before, graph : Graph
        Then and now.
    """

    before: Graph
    graph: Graph

    def check(self) -> Growth:
        """Refuse a graph that is no later state of the other."""
        old, new = self.before, self.graph
        if new.num_nodes < old.num_nodes:
            raise GraphError(
                f"the graph has {new.num_nodes:,} nodes, fewer than the {old.num_nodes:,} before: keep nodes that are "
                f"gone, without edges, or tokenize anew"
            )
        if (old.names is None) != (new.names is None) or (
            old.names is not None and new.names is not None and (old.names != new.names[: old.num_nodes]).any()
        ):
            raise GraphError("the first nodes have other names than before: old nodes must keep their order")
        for name in ("num_features", "directed", "task"):
            if getattr(old, name) != getattr(new, name):
                raise GraphError(f"{name} was {getattr(old, name)} and is {getattr(new, name)}: tokenize anew")
        return self

    @cached_property
    def new(self) -> NDArray[np.int64]:
        """Return the new nodes."""
        return np.arange(self.before.num_nodes, self.graph.num_nodes)

    @cached_property
    def _kept(self) -> sp.csr_matrix:
        """Return the arcs between old nodes in the graph of now."""
        graph, count = self.graph, self.before.num_nodes
        among_old = np.asarray(graph.indices[: graph.indptr[count]]) < count
        starts = np.concatenate([[0], np.cumsum(among_old)])[graph.indptr[: count + 1]]
        places = np.flatnonzero(among_old)
        parts = (graph.to_scipy().data[places], np.asarray(graph.indices)[places], starts)
        return sp.csr_matrix(parts, shape=(count, count))

    @cached_property
    def old_to_old(self) -> NDArray[np.int64]:
        """Return the old nodes with a new, changed or lost edge to another old node."""
        if (self.before.weights is None) != (self.graph.weights is None):
            raise GraphError("edges have weights in only one of the two graphs: tokenize anew")
        kept, earlier = self._kept, self.before.to_scipy()
        if all(np.array_equal(getattr(kept, part), getattr(earlier, part)) for part in ("indptr", "indices", "data")):
            return np.empty(0, dtype=np.int64)
        return np.unique((kept != earlier).nonzero()[0]).astype(np.int64)

    @cached_property
    def changed(self) -> NDArray[np.int64]:
        """Return the old nodes whose edges, or their weights, are others than before."""
        is_changed = np.diff(self._kept.indptr) < self.graph.degrees[: self.before.num_nodes]
        is_changed[self.old_to_old] = True
        return np.flatnonzero(is_changed)

    @cached_property
    def other_arrivals(self) -> NDArray[np.int64]:
        """Return the old nodes of a directed graph whose weight of incoming edges changed: a factor of hops."""
        if not self.graph.directed:
            return np.empty(0, dtype=np.int64)
        then, now = (np.asarray(graph.to_scipy().sum(axis=0)).ravel() for graph in (self.before, self.graph))
        return np.flatnonzero(then != now[: len(then)])

    @cached_property
    def other_features(self) -> NDArray[np.int64]:
        """Return the old nodes whose features are others than before."""
        old: Any = self.before.features
        new: Any = self.graph.features
        if old is None:
            return np.empty(0, dtype=np.int64)
        first = new[: self.before.num_nodes]
        if sp.issparse(old):
            return np.unique((old != first).nonzero()[0]).astype(np.int64)
        return np.flatnonzero((np.asarray(old) != np.asarray(first)).any(axis=1))

    def around(self, steps: int) -> list[NDArray[np.int64]]:
        """Return the nodes whose hop 1, 2, … differs from before: those so many steps from a change."""
        adjacency = self.graph.to_scipy()
        near = np.zeros(self.graph.num_nodes, dtype=np.bool_)
        near[np.concatenate([self.new, self.changed, self.other_features, self.other_arrivals])] = True
        sets = []
        for _ in range(steps):
            near |= adjacency.dot(near.astype(np.float32)) > 0
            sets.append(np.flatnonzero(near))
        return sets
