"""Graphs that grow: new nodes, new edges, edges that are gone, and what changed. Old nodes keep their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array, to_numpy
from ..errors import GraphError
from .contract import Features, build_adjacency, check_edge_index, check_edge_weight, check_features, check_names
from .tasks import TASKS, check_labels

if TYPE_CHECKING:
    from .graph import Graph

Pairs = tuple[Any, Any]


def extend(
    graph: Graph,
    *,
    names: Sequence[Any] | None,
    features: Any,
    edges: Pairs | None,
    weights: Any,
    labels: Any,
    remove_edges: Pairs | None,
) -> Graph:
    """Return the graph with more nodes and edges; see `Graph.extend`."""
    count = _count_new(graph, names, features=features, labels=labels)
    all_names = _extend_names(graph, names, count=count)
    num_nodes = graph.num_nodes + count
    row_of = None if all_names is None else {str(name): row for row, name in enumerate(all_names)}
    matrix = sp.csr_matrix(graph.to_scipy())
    matrix.resize(num_nodes, num_nodes)
    if remove_edges is not None:
        matrix = _without(matrix, _to_rows(remove_edges, row_of, what="remove_edges"), directed=graph.directed)
    weighted = graph.weights is not None or weights is not None
    if edges is not None:
        pairs, _ = check_edge_index(_to_rows(edges, row_of, what="edges"), num_nodes)
        new_weights = check_edge_weight(weights, pairs.shape[1])
        if weighted and new_weights is None:
            new_weights = np.ones(pairs.shape[1], dtype=np.float32)
        indptr, indices, values = build_adjacency(pairs, new_weights, num_nodes, graph.directed)
        data = np.ones(len(indices), dtype=np.float32) if values is None else values
        matrix = sp.csr_matrix(matrix + sp.csr_matrix((data, indices, indptr), shape=matrix.shape))
    elif weights is not None:
        raise GraphError("weights were given without edges")
    matrix.sort_indices()
    return replace(
        graph,
        indptr=matrix.indptr.astype(np.int64),
        indices=matrix.indices.astype(np.int32),
        weights=matrix.data.astype(np.float32) if weighted else None,
        features=_extend_features(graph, features, count=count),
        labels=_extend_labels(graph, labels, count=count),
        names=all_names,
    )


def align(before: Graph, graph: Graph) -> Graph:
    """Return a later state of a graph with its nodes in the order of before, new ones after them.

    Nodes are matched by name. Nodes that are gone stay, without edges, so that numbers keep their meaning. Without
    names, the first nodes must be those of before, and the graph is returned as it is.

    >>> from vcr_graphormer import Graph
    >>> before = Graph.from_edges([[0], [1]], names=["a", "b"])
    >>> align(before, Graph.from_edges([[0], [1]], names=["c", "a"])).names.tolist()
    ['a', 'b', 'c']
    """
    if (before.names is None) != (graph.names is None):
        lacking = "later" if graph.names is None else "earlier"
        raise GraphError(f"the nodes of the {lacking} graph have no names: they cannot be matched with the others")
    if before.names is None or graph.names is None:
        return graph
    old, now = np.asarray(before.names), np.asarray(graph.names)
    if len(now) >= len(old) and (old == now[: len(old)]).all():
        return graph
    order = np.argsort(now)
    place = np.searchsorted(now, old, sorter=order)
    place[place == len(now)] = 0
    found = order[place]
    gone = now[found] != old
    is_new = np.ones(len(now), dtype=np.bool_)
    is_new[found[~gone]] = False
    if gone.any():
        whole = graph.extend(
            names=old[gone].tolist(),
            features=None if before.features is None else before.features[gone],
            labels=None if before.labels is None or graph.labels is None else np.asarray(before.labels)[gone],
        )
        found[gone] = len(now) + np.arange(gone.sum())
        graph = whole
    return subgraph(graph, np.concatenate([found, np.flatnonzero(is_new)]))


def subgraph(graph: Graph, nodes: NDArray[np.int64]) -> Graph:
    """Return the graph of some nodes, in this order, and of the edges between them.

    >>> from vcr_graphormer import Graph
    >>> path = Graph.from_edges([[0, 1, 2], [1, 2, 3]], labels=[0, 1, 2, 0])
    >>> subgraph(path, np.array([3, 2, 0])).indices.tolist()
    [1, 0]
    """
    matrix = sp.csr_matrix(graph.to_scipy())[nodes][:, nodes]
    matrix.sort_indices()
    features: Any = graph.features
    return replace(
        graph,
        indptr=matrix.indptr.astype(np.int64),
        indices=matrix.indices.astype(np.int32),
        weights=None if graph.weights is None else matrix.data,
        features=None if features is None else features[nodes],
        labels=None if graph.labels is None else np.asarray(graph.labels)[nodes],
        names=None if graph.names is None else np.asarray(graph.names)[nodes],
    )


def _count_new(graph: Graph, names: Sequence[Any] | None, *, features: Any, labels: Any) -> int:
    """Return the number of new nodes, which names, features and labels must agree on."""
    counts = {
        what: value.shape[0] if hasattr(value, "shape") else len(value)
        for what, value in (("names", names), ("features", features), ("labels", labels))
        if value is not None
    }
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{what} has {count}" for what, count in counts.items())
        raise GraphError(f"each new node needs one row: {listed}")
    count = next(iter(counts.values()), 0)
    if count and graph.features is not None and features is None:
        raise GraphError(f"features of the {count} new nodes are missing: the graph has {graph.num_features} columns")
    return int(count)


def _extend_names(graph: Graph, names: Sequence[Any] | None, *, count: int) -> NDArray[np.str_] | None:
    if graph.names is None:
        if names is not None:
            raise GraphError("names were given, but the nodes of the graph have none: they are numbered")
        return None
    if count and names is None:
        raise GraphError(f"the {count} new nodes need names: the nodes of the graph have names")
    old = np.asarray(graph.names)
    if not count:
        return old
    new = check_names(names, count)
    assert new is not None  # names are given
    known = np.intersect1d(old, new)
    if known.size:
        raise GraphError(f"'{known[0]}' is in the graph already: give new nodes new names")
    return np.concatenate([old, new])


def _to_rows(pairs: Pairs, row_of: dict[str, int] | None, *, what: str) -> Any:
    """Return sources and targets as row numbers [2, m]; texts are names."""
    ends = [to_numpy(end, what) for end in pairs]
    if len(ends) != 2 or ends[0].shape != ends[1].shape or ends[0].ndim != 1:
        raise GraphError(f"{what} must be two lists of equal length: sources and targets")
    if all(end.dtype.kind in "iu" for end in ends) or not ends[0].size:
        return np.stack([end.astype(np.int64) for end in ends])
    if row_of is None:
        raise GraphError(f"{what} names nodes by text, but the nodes of the graph have no names: give row numbers")
    rows = []
    for end in ends:
        unknown = next((str(name) for name in end.tolist() if str(name) not in row_of), None)
        if unknown is not None:
            raise GraphError(f"{what}: there is no node named '{unknown}'")
        rows.append([row_of[str(name)] for name in end.tolist()])
    return np.asarray(rows, dtype=np.int64)


def _without(matrix: sp.csr_matrix, pairs: Any, *, directed: bool) -> sp.csr_matrix:
    """Return the adjacency matrix without some edges, all of which must be in it."""
    (sources, targets), _ = check_edge_index(pairs, matrix.shape[0])
    present = np.asarray(matrix[sources, targets]).ravel() != 0
    if not present.all():
        edge = int(np.flatnonzero(~present)[0])
        raise GraphError(f"remove_edges: there is no edge from node {sources[edge]} to node {targets[edge]}")
    if not directed:
        sources, targets = np.concatenate([sources, targets]), np.concatenate([targets, sources])
    owner = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    width = np.int64(matrix.shape[0])
    stays = ~np.isin(owner * width + matrix.indices, np.asarray(sources) * width + targets)
    parts = (matrix.data[stays], (owner[stays], matrix.indices[stays]))
    return sp.csr_matrix(parts, shape=matrix.shape)


def _extend_features(graph: Graph, features: Any, *, count: int) -> Features | None:
    if graph.features is None:
        if features is not None:
            raise GraphError("features were given, but the graph has none")
        return None
    if not count:
        return graph.features
    new: Any = check_features(features, count, missing=graph.schema is not None)
    if new.shape[1] != graph.num_features:
        raise GraphError(f"the new nodes have {new.shape[1]} features but the graph has {graph.num_features}")
    if isinstance(graph.features, np.ndarray):
        dense = new.toarray() if sp.issparse(new) else new
        return np.concatenate([graph.features, dense.astype(graph.features.dtype)])
    return sp.csr_matrix(sp.vstack([graph.features, sp.csr_matrix(new)], format="csr"))


def _extend_labels(graph: Graph, labels: Any, *, count: int) -> Array | None:
    """Return the labels with those of the new nodes: class names or ids; unknown if none are given."""
    if graph.labels is None:
        if labels is not None:
            raise GraphError("labels were given, but the graph has none")
        return None
    old = np.asarray(graph.labels)
    if not count:
        return old
    if labels is None:
        return np.concatenate([old, np.full((count, *old.shape[1:]), TASKS[graph.task].unknown, dtype=old.dtype)])
    values = to_numpy(labels, "labels")
    if values.dtype.kind in "UO" and graph.class_names is not None:
        class_of = {name: number for number, name in enumerate(graph.class_names)} | {"": -1}
        unknown = next((str(name) for name in values.tolist() if str(name or "") not in class_of), None)
        if unknown is not None:
            raise GraphError(f"labels: there is no class named '{unknown}' (classes: {', '.join(graph.class_names)})")
        values = np.array([class_of[str(name or "")] for name in values.tolist()], dtype=np.int64)
    new, _ = check_labels(values, count, graph.task)
    assert new is not None  # labels are given
    if graph.class_names is not None and TASKS[graph.task].has_classes and new.max(initial=-1) >= graph.num_classes:
        raise GraphError(f"labels go up to {new.max()}, but the graph has {graph.num_classes} classes")
    return np.concatenate([old, new.astype(old.dtype)])


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
