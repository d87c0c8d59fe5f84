"""How well links and features tell the class of a node, measured on training nodes: what rules for a graph rest on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .graph import Graph
from .tasks import TASKS

# Comparing the links of more nodes takes minutes: 150 s for the neighbours of 10^6 nodes with 10^7 edges on two cores.
MOST_NODES_COMPARED = 200_000
# Nodes that more nodes link to are ignored: they tell little about similarity, and cost the square of that number.
MOST_LINKS = 4096
MOST_COMPARED = 100_000  # training nodes that are read; of more, evenly drawn ones
# Training nodes whose nearest one is looked for. With 2,000 of them a fraction has a standard error of 0.011 at most.
MOST_QUERIES = 2000
PRODUCTS_AT_ONCE = 1 << 24  # similarities, of 4 bytes each
# Directions of links are kept where they find the class of so many more training nodes, and by so many standard errors.
DIRECTIONS_GAIN, STANDARD_ERRORS = 0.03, 3.0


@dataclass(frozen=True)
class Agreement:
    """How well edges, features and links tell the class of training nodes: Cohen's kappa, 0 by chance, 1 always.

    Attributes
    ----------
    edges : float
        Between training nodes that are linked.
    features, links : float
        Between a training node and the one with the most similar features, or links. 0 where there are none to
        compare; links also in large graphs.
    """

    edges: float = 0.0
    features: float = 0.0
    links: float = 0.0

    @classmethod
    def of(cls, graph: Graph, train: NDArray[np.int64]) -> Agreement:
        """Measure all three; labels of other nodes are not read.

        >>> pairs = Graph.from_edges([[0, 2], [1, 3]], features=[[1.0], [1], [-1], [-1]], labels=[0, 0, 1, 1])
        >>> Agreement.of(pairs, np.arange(4))
        Agreement(edges=1.0, features=1.0, links=0.0)
        """
        if not TASKS[graph.task].has_classes or graph.labels is None:
            return cls()
        labels = np.asarray(graph.labels)
        return cls(
            label_agreement(graph, train),
            0.0 if graph.features is None else nearest_agreement(graph.features, labels, train),
            nearest_agreement(links_of(graph), labels, train) if can_compare_links(graph) else 0.0,
        )


def can_compare_links(graph: Graph) -> bool:
    """Return whether a graph has classes, and few enough nodes to compare their links."""
    has_classes = TASKS[graph.task].has_classes and graph.labels is not None
    return has_classes and graph.num_nodes <= MOST_NODES_COMPARED


def label_agreement(graph: Graph, train: NDArray[np.int64]) -> float:
    """Return Cohen's kappa of the classes at both ends of an edge between training nodes: 1 if they are always equal.

    It is 0 if they are equal as often as by chance, and where no two training nodes are linked.

    >>> line = Graph.from_edges([[0, 1, 2], [1, 2, 3]], num_nodes=4, labels=[0, 0, 1, 1])
    >>> round(label_agreement(line, np.arange(4)), 3)  # two of three edges, one and a half by chance
    0.333
    """
    if not TASKS[graph.task].has_classes or graph.labels is None:
        return 0.0
    known = np.full(graph.num_nodes, -1)
    known[train] = np.asarray(graph.labels)[train]
    nodes = train[:: max(1, -(-len(train) // MOST_COMPARED))]
    starts = np.asarray(graph.indptr[nodes], dtype=np.int64)
    counts = np.asarray(graph.indptr[nodes + 1], dtype=np.int64) - starts
    arcs = np.repeat(starts + counts - np.cumsum(counts), counts) + np.arange(counts.sum())
    sources, targets = np.repeat(nodes, counts), np.asarray(graph.indices[arcs])
    ours, theirs = known[sources], known[targets]
    compared = (ours >= 0) & (theirs >= 0) & (sources != targets)
    return _kappa(ours[compared], theirs[compared])


def nearest_agreement(rows: Any, labels: NDArray[np.int64], train: NDArray[np.int64]) -> float:
    """Return Cohen's kappa of the classes of training nodes and of the training nodes with the most similar rows.

    Parameters
    ----------
    rows : [n, d]
        A matrix of which rows are compared by their cosine, such as features or the adjacency matrix.

    >>> rows = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    >>> nearest_agreement(rows, np.array([0, 0, 1, 1]), np.arange(4))
    1.0
    """
    truth, guessed = _guess(rows, labels, train)
    return _kappa(truth, guessed)


def keeps_directions(directed: Graph, undirected: Graph, train: NDArray[np.int64]) -> bool:
    """Return whether links with their direction tell the class of training nodes better than links without it.

    The nearest training node is the one with the most similar links: outgoing ones, or all of them. All classes count
    alike, however frequent: pages with the same links would otherwise guess the most frequent class together. False in
    large graphs, and where all edges go both ways or each leads to a larger node id: a writer has sorted their ends.

    >>> labels = [0, 0, 1, 1, 0, 1]
    >>> ways = [Graph.from_edges([[4, 1, 5, 3], [0, 4, 2, 5]], labels=labels, directed=way) for way in (True, False)]
    >>> keeps_directions(*ways, np.arange(4))  # four nodes prove nothing
    False
    """
    if not can_compare_links(undirected):
        return False
    if directed.num_arcs == undirected.num_arcs or _sorted_ends(directed):
        return False
    labels = np.asarray(undirected.labels)
    truth, without = _guess(links_of(undirected), labels, train)
    _, with_them = _guess(links_of(directed), labels, train)
    _, classes, counts = np.unique(truth, return_inverse=True, return_counts=True)
    weights = 1 / (len(counts) * counts[classes])  # they add up to 1
    gains = (with_them == truth).astype(float) - (without == truth)
    gain = float(weights @ gains)
    error = float(np.sqrt(np.square(weights * (gains - gain)).sum()))
    return gain > max(DIRECTIONS_GAIN, STANDARD_ERRORS * error)


def _sorted_ends(graph: Graph) -> bool:
    """Return whether all arcs lead to larger node ids, or all to smaller ones."""
    sources = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    larger = np.asarray(graph.indices) > sources
    return bool(larger.all() or not larger.any())


def links_of(graph: Graph) -> Any:
    """Return the adjacency matrix without the columns that too many nodes link to."""
    return graph.to_scipy()[:, np.bincount(graph.indices, minlength=graph.num_nodes) <= MOST_LINKS]


def _guess(rows: Any, labels: NDArray[np.int64], train: NDArray[np.int64]) -> tuple[Any, Any]:
    """Return the classes of evenly drawn training nodes, and those of their nearest ones; -1 without similar ones."""
    from sklearn.preprocessing import normalize

    train = train[:: max(1, -(-len(train) // MOST_COMPARED))]
    if not len(train) or not rows.shape[1]:  # nothing to compare
        return labels[train], np.full(len(train), -1)
    unit = normalize(rows[train].astype(np.float32))
    queries = np.arange(len(train))[:: max(1, -(-len(train) // MOST_QUERIES))]
    columns, classes, at_once = unit.T, labels[train], max(1, PRODUCTS_AT_ONCE // max(1, len(train)))
    guessed = np.full(len(queries), -1)
    for start in range(0, len(queries), at_once):
        block = queries[start : start + at_once]
        products = unit[block] @ columns
        similarity = products.toarray() if sp.issparse(products) else products
        similarity[np.arange(len(block)), block] = -1
        best = similarity.argmax(1)
        similar = similarity[np.arange(len(block)), best] > 0
        guessed[start : start + len(block)] = np.where(similar, classes[best], -1)
    return classes[queries], guessed


def _kappa(ours: Any, theirs: Any) -> float:
    """Return Cohen's kappa; 0 where fewer than two classes are compared, for it has no value then."""
    from sklearn.metrics import cohen_kappa_score

    return float(cohen_kappa_score(ours, theirs)) if len(np.unique(ours)) > 1 else 0.0
