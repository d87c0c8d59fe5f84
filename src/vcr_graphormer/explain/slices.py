"""Where a classifier is right and wrong: by class, degree and local homophily; and whether its confidence is true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.graph import Graph


@dataclass(frozen=True)
class Slice:
    """Some of the nodes: how many, and the share that is right."""

    name: str
    count: int
    accuracy: float


def local_homophily(graph: Graph, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of a node's labelled neighbours that have its label; NaN without labelled neighbours or label.

    >>> graph = Graph.from_edges([[0, 0, 0], [1, 2, 3]], labels=[0, 0, 1, -1])
    >>> local_homophily(graph, np.array([0])).tolist()
    [0.5]
    """
    labels, indptr, indices = np.asarray(graph.labels), np.asarray(graph.indptr), np.asarray(graph.indices)
    lengths = np.diff(indptr)[nodes]
    owner = np.repeat(np.arange(len(nodes)), lengths)
    # The arcs of the chosen nodes one after another.
    starts = np.repeat(indptr[nodes] - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    others = labels[indices[starts + np.arange(len(owner))]]
    own = labels[nodes]
    known = (others >= 0) & (own[owner] >= 0)
    total = np.bincount(owner, known, len(nodes))
    same = np.bincount(owner, known & (others == own[owner]), len(nodes))
    shares: NDArray[np.float64] = np.divide(same, total, out=np.full(len(nodes), np.nan), where=total > 0)
    return shares


def by_class(labels: NDArray[np.int64], right: NDArray[np.bool_], names: list[str]) -> list[Slice]:
    """A slice per true class that occurs."""
    return [_slice(names[label], right[labels == label]) for label in np.unique(labels)]


def by_degree(degrees: NDArray[np.int64], right: NDArray[np.bool_]) -> list[Slice]:
    """Slices of doubling degree: 0, 1, 2 to 3, 4 to 7 and so on.

    >>> [(part.name, part.count) for part in by_degree(np.array([0, 1, 3, 9]), np.ones(4, bool))]
    [('0', 1), ('1', 1), ('2 to 3', 1), ('8 to 15', 1)]
    """
    return [_slice(name, right[chosen]) for name, chosen in degree_groups(degrees)]


def degree_groups(degrees: NDArray[np.int64]) -> list[tuple[str, NDArray[np.bool_]]]:
    """Ranges of doubling degree that have a node, by name, and which nodes are in them."""
    levels = np.unique(np.floor(np.log2(degrees[degrees > 0])).astype(int)).tolist()
    ranges = [(0, 0)] * bool((degrees == 0).any()) + [(2**level, 2 ** (level + 1) - 1) for level in levels]
    return [
        (str(low) if low == high else f"{low} to {high}", (degrees >= low) & (degrees <= high)) for low, high in ranges
    ]


def by_homophily(shares: NDArray[np.float64], right: NDArray[np.bool_]) -> list[Slice]:
    """Slices by local homophily, a fifth each; nodes without labelled neighbours are left out."""
    places = np.minimum((shares * 5).astype(np.float64), 4.999)
    places = np.where(np.isnan(shares), -1, np.floor(np.nan_to_num(places, nan=-1)))
    return [
        _slice(f"{place / 5:.1f} to {(place + 1) / 5:.1f}", right[places == place])
        for place in range(5)
        if (places == place).any()
    ]


def _slice(name: str, right: NDArray[np.bool_]) -> Slice:
    return Slice(name, len(right), float(right.mean()))


def confusion(labels: NDArray[np.int64], predicted: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """How often a true class (row) was called another (column) [c, c]."""
    return np.bincount(labels * count + predicted, minlength=count * count).reshape(count, count)


def calibration(probabilities: NDArray[np.float32], labels: NDArray[np.int64], bins: int = 10) -> dict[str, Any]:
    """Confidence against accuracy in bins of confidence, and the expected calibration error between the two."""
    confidence = probabilities.max(1).astype(np.float64)
    right = probabilities.argmax(1) == labels
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    rows, error = [], 0.0
    for number in np.unique(place):
        chosen = place == number
        row = {"low": int(number) / bins, "high": (int(number) + 1) / bins, "count": int(chosen.sum())}
        row |= {"confidence": float(confidence[chosen].mean()), "accuracy": float(right[chosen].mean())}
        error += abs(row["confidence"] - row["accuracy"]) * row["count"] / len(labels)
        rows.append(row)
    return {"error": error, "bins": rows}
