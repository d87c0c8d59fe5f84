"""Summarize a graph in a few numbers: degrees, components, homophily, memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from ..base.machine import format_bytes
from ..base.text import html_table, printable
from .tasks import TASKS, known_labels

if TYPE_CHECKING:
    from .graph import Graph

# Nodes whose arcs are compared at once, so that memory stays flat on large graphs.
_ROWS_AT_ONCE = 1 << 17
# Quantiles of the degrees that are shown.
QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.99, 1.0)


@dataclass(frozen=True)
class GraphSummary:
    """The numbers of `Graph.summary()`; `str()` formats them for people.

    Attributes
    ----------
    name, nodes, edges, directed, weighted
        As in the graph; `edges` counts an undirected edge once.
    features : str
        Number and storage of the features.
    classes : int
        Number of classes, label columns or targets, as `kind` says.
    labelled : int
        Nodes that have a label.
    degree_quantiles : dict
        Degree by name of the quantile.
    isolated : int
        Nodes without any edge.
    components, largest_component : int
        Number of connected components, direction ignored, and nodes of the largest.
    edge_homophily, node_homophily : float or None
        See `label_homophily`.
    memory_bytes : int
        Bytes of all arrays.
    """

    name: str
    nodes: int
    edges: int
    directed: bool
    weighted: bool
    features: str
    classes: int
    kind: str
    labelled: int
    degree_quantiles: dict[str, float]
    isolated: int
    components: int
    largest_component: int
    edge_homophily: float | None
    node_homophily: float | None
    memory_bytes: int

    def rows(self) -> list[tuple[str, str]]:
        """Return the summary as (label, text) pairs."""
        quantiles = ", ".join(f"{name} {value:g}" for name, value in self.degree_quantiles.items())
        homophily = "no class labels"
        if self.edge_homophily is not None and self.node_homophily is not None:
            homophily = f"{self.edge_homophily:.3f} of edges, {self.node_homophily:.3f} mean over nodes"
        return [
            ("nodes", f"{self.nodes:,}"),
            ("arcs" if self.directed else "edges", f"{self.edges:,}{' weighted' if self.weighted else ''}"),
            ("features", self.features),
            ("labels", f"{self.classes} {self.kind}, {self.labelled:,} nodes labelled" if self.classes else "none"),
            ("degree", quantiles),
            ("isolated nodes", f"{self.isolated:,}"),
            ("components", f"{self.components:,}, the largest with {self.largest_component:,} nodes"),
            ("same-label neighbours", homophily),
            ("memory", format_bytes(self.memory_bytes)),
        ]

    def _repr_html_(self) -> str:
        """Return the summary as notebooks show it."""
        return html_table(self.name, self.rows())

    def __str__(self) -> str:
        width = max(len(label) for label, _ in self.rows())
        return "\n".join([printable(self.name), *(f"  {label:<{width}}  {text}" for label, text in self.rows())])


def summarize(graph: Graph) -> GraphSummary:
    """Return the summary of a graph in O(arcs) time, with a few bytes of working memory per arc."""
    degrees = graph.degrees
    pattern = sp.csr_matrix(
        (np.ones(graph.num_arcs, dtype=np.int8), graph.indices, graph.indptr), shape=(len(degrees),) * 2
    )
    components, membership = connected_components(pattern, directed=graph.directed, connection="weak")
    edge_homophily, node_homophily = label_homophily(graph)
    both_ways = degrees + np.bincount(graph.indices, minlength=graph.num_nodes) if graph.directed else degrees
    return GraphSummary(
        name=graph.name,
        nodes=graph.num_nodes,
        edges=graph.num_edges,
        directed=graph.directed,
        weighted=graph.weights is not None,
        features=_describe_features(graph),
        classes=graph.num_classes,
        kind=TASKS[graph.task].words,
        labelled=int(known_labels(graph.labels).sum()) if graph.labels is not None else 0,
        degree_quantiles={_quantile_name(q): float(np.quantile(degrees, q)) for q in QUANTILES},
        isolated=int((both_ways == 0).sum()),
        components=int(components),
        largest_component=int(np.bincount(membership).max()),
        edge_homophily=edge_homophily,
        node_homophily=node_homophily,
        memory_bytes=memory_bytes(graph),
    )


@dataclass(frozen=True)
class FeatureSummary:
    """What one feature column holds.

    Attributes
    ----------
    name, type : str
        `type` is that of the column of a table: number, flag, date or category; number for arrays.
    low, high : float
        The smallest and largest value; NaN if there is none.
    missing : int
        Nodes without a value.
    """

    name: str
    type: str
    low: float
    high: float
    missing: int

    @property
    def constant(self) -> bool:
        """Return whether all values are the same."""
        return not self.low < self.high


def summarize_features(graph: Graph) -> list[FeatureSummary]:
    """Return one summary per feature column, in O(n d) time."""
    features, count = graph.features, graph.num_features
    if features is None or count == 0:
        return []
    names = graph.feature_names or tuple(str(column) for column in range(count))
    types = ["number"] * count
    if graph.schema is not None:
        types = [column.type for column in graph.schema.columns for _ in column.feature_names]
    if sp.issparse(features):
        low, high = (np.asarray(side.todense()).ravel() for side in (features.min(axis=0), features.max(axis=0)))
        missing = np.zeros(count, dtype=np.int64)
    else:
        low, high = np.full(count, np.inf), np.full(count, -np.inf)
        missing = np.zeros(count, dtype=np.int64)
        for start in range(0, graph.num_nodes, _ROWS_AT_ONCE):
            block = np.asarray(features[start : start + _ROWS_AT_ONCE], dtype=np.float32)
            unknown = np.isnan(block)
            missing += unknown.sum(axis=0)
            low = np.minimum(low, np.where(unknown, np.inf, block).min(axis=0))
            high = np.maximum(high, np.where(unknown, -np.inf, block).max(axis=0))
        low, high = np.where(missing == graph.num_nodes, np.nan, [low, high])
    return [
        FeatureSummary(name, type_, float(least), float(most), int(lacking))
        for name, type_, least, most, lacking in zip(names, types, low, high, missing, strict=True)
    ]


def count_classes(graph: Graph) -> dict[str, int]:
    """Return the number of nodes of each class (or with each label) by name; empty for targets and without labels."""
    if graph.labels is None or TASKS[graph.task].gives_values:
        return {}
    names = graph.class_names or tuple(str(number) for number in range(graph.num_classes))
    labels = np.asarray(graph.labels)
    if labels.ndim == 2:
        return dict(zip(names, (labels == 1).sum(axis=0).tolist(), strict=True))
    return dict(zip(names, np.bincount(labels[labels >= 0], minlength=len(names)).tolist(), strict=True))


def label_homophily(graph: Graph) -> tuple[float | None, float | None]:
    """Return the fraction of edges between equal labels, and the mean of that fraction over nodes.

    Only edges between two labelled nodes count; without any the result is (None, None).
    """
    if graph.labels is None or not TASKS[graph.task].has_classes:
        return None, None
    labels = np.asarray(graph.labels)
    same_per_node = np.zeros(graph.num_nodes)
    pairs_per_node = np.zeros(graph.num_nodes)
    for start in range(0, graph.num_nodes, _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, graph.num_nodes)
        rows = np.repeat(np.arange(stop - start), graph.degrees[start:stop])
        of_neighbour = labels[graph.indices[graph.indptr[start] : graph.indptr[stop]]]
        of_node = labels[start:stop][rows]
        labelled = (of_node >= 0) & (of_neighbour >= 0)
        same_per_node[start:stop] = np.bincount(rows[labelled & (of_node == of_neighbour)], minlength=stop - start)
        pairs_per_node[start:stop] = np.bincount(rows[labelled], minlength=stop - start)
    counted = pairs_per_node > 0
    if not counted.any():
        return None, None
    edge = float(same_per_node.sum() / pairs_per_node.sum())
    return edge, float((same_per_node[counted] / pairs_per_node[counted]).mean())


def memory_bytes(graph: Graph) -> int:
    """Return the bytes of all arrays of the graph; memory-mapped ones count as if they were in memory."""
    arrays: list[Any] = [graph.indptr, graph.indices, graph.weights, graph.labels, graph.names]
    features = graph.features
    arrays += [features.data, features.indices, features.indptr] if isinstance(features, sp.csr_matrix) else [features]
    return sum(int(array.nbytes) for array in arrays if array is not None)


def _describe_features(graph: Graph) -> str:
    features = graph.features
    if features is None:
        return "none"
    if isinstance(features, sp.csr_matrix):
        fraction = features.nnz / max(1, features.shape[0] * features.shape[1])
        return f"{graph.num_features:,} sparse ({fraction:.2%} non-zero)"
    storage = "memory-mapped" if isinstance(features, np.memmap) else "dense"
    return f"{graph.num_features:,} {storage} {features.dtype}"


def _quantile_name(quantile: float) -> str:
    return {0.0: "min", 0.5: "median", 1.0: "max"}.get(quantile, f"{quantile:.0%}")
