"""Measure where a classifier is right: by class, degree and local homophily; and how well it is calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.graph import Graph

_HOMOPHILY_BINS = 5  # equal parts of 0 to 1


@dataclass(frozen=True)
class Slice:
    """A group of nodes: its name, its size, and the fraction that is classified right."""

    name: str
    count: int
    accuracy: float


def local_homophily(graph: Graph, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the fraction of each node's labelled neighbours that have its label.

    It is NaN for a node without a label or without labelled neighbours.

    >>> graph = Graph.from_edges([[0, 0, 0], [1, 2, 3]], labels=[0, 0, 1, -1])
    >>> local_homophily(graph, np.array([0])).tolist()
    [0.5]
    """
    labels, indptr, indices = np.asarray(graph.labels), np.asarray(graph.indptr), np.asarray(graph.indices)
    lengths = np.diff(indptr)[nodes]
    owner = np.repeat(np.arange(len(nodes)), lengths)
    # Indices of the arcs of the chosen nodes, one node after another.
    starts = np.repeat(indptr[nodes] - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    of_neighbour = labels[indices[starts + np.arange(len(owner))]]
    of_node = labels[nodes][owner]
    labelled = (of_neighbour >= 0) & (of_node >= 0)
    total = np.bincount(owner, labelled, len(nodes))
    same = np.bincount(owner, labelled & (of_neighbour == of_node), len(nodes))
    fractions: NDArray[np.float64] = np.divide(same, total, out=np.full(len(nodes), np.nan), where=total > 0)
    return fractions


def by_class(labels: NDArray[np.int64], right: NDArray[np.bool_], names: list[str]) -> list[Slice]:
    """Return a slice for each true class that occurs."""
    return [_slice(names[label], right[labels == label]) for label in np.unique(labels)]


def by_degree(degrees: NDArray[np.int64], right: NDArray[np.bool_]) -> list[Slice]:
    """Return slices by degree: 0, 1, 2 to 3, 4 to 7 and so on.

    >>> [(group.name, group.count) for group in by_degree(np.array([0, 1, 3, 9]), np.ones(4, bool))]
    [('0', 1), ('1', 1), ('2 to 3', 1), ('8 to 15', 1)]
    """
    return [_slice(name, right[chosen]) for name, chosen in degree_groups(degrees)]


def degree_groups(degrees: NDArray[np.int64]) -> list[tuple[str, NDArray[np.bool_]]]:
    """Return the name and the mask of nodes of each range of degrees (0, 1, 2 to 3, 4 to 7, …) that is not empty."""
    levels = np.unique(np.floor(np.log2(degrees[degrees > 0])).astype(int)).tolist()
    ranges = [(0, 0)] * bool((degrees == 0).any()) + [(2**level, 2 ** (level + 1) - 1) for level in levels]
    return [
        (str(low) if low == high else f"{low} to {high}", (degrees >= low) & (degrees <= high)) for low, high in ranges
    ]


def by_homophily(fractions: NDArray[np.float64], right: NDArray[np.bool_]) -> list[Slice]:
    """Return slices by local homophily, a fifth each; nodes without labelled neighbours are left out."""
    bins = np.minimum(np.floor(np.nan_to_num(fractions, nan=-1) * _HOMOPHILY_BINS), _HOMOPHILY_BINS - 1)
    return [
        _slice(f"{number / _HOMOPHILY_BINS:.1f} to {(number + 1) / _HOMOPHILY_BINS:.1f}", right[bins == number])
        for number in range(_HOMOPHILY_BINS)
        if (bins == number).any()
    ]


def _slice(name: str, right: NDArray[np.bool_]) -> Slice:
    return Slice(name, len(right), float(right.mean()))


def confusion(labels: NDArray[np.int64], predicted: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return how many nodes of each true class (row) got each predicted class (column) [c, c]."""
    return np.bincount(labels * count + predicted, minlength=count * count).reshape(count, count)


def calibration(probabilities: NDArray[np.float32], labels: NDArray[np.int64], bins: int = 10) -> dict[str, Any]:
    """Return confidence and accuracy in bins of confidence, and the expected calibration error between them."""
    confidence = probabilities.max(1).astype(np.float64)
    right = probabilities.argmax(1) == labels
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    rows, error = [], 0.0
    for number in np.unique(bin_of):
        chosen = bin_of == number
        row = {"low": int(number) / bins, "high": (int(number) + 1) / bins, "count": int(chosen.sum())}
        row |= {"confidence": float(confidence[chosen].mean()), "accuracy": float(right[chosen].mean())}
        error += abs(row["confidence"] - row["accuracy"]) * row["count"] / len(labels)
        rows.append(row)
    return {"error": error, "bins": rows}
