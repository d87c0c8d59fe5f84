"""Training labels as inputs, leave-one-out: no node's own label may reach its own prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..data.graph import Graph
from ..data.tasks import TASKS
from ..errors import GraphError
from ..tokens.hops import normalized_adjacency

# Label hops are kept as multiples of this. The own part is taken away in float64, which leaves about 1e-16 of it
# behind; on this grid nothing is left, so that a node's row is the same to the bit whatever its own label is. The
# offset keeps sums of powers of two, which degrees like to give, away from the half steps where 1e-16 would decide.
_GRID, _OFFSET = 2.0**-20, 0.1234567
_ROWS_AT_ONCE = 4096


def label_matrix(graph: Graph, train: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return what is known of each node [n, c]: a one-hot row per training node, zero rows for all others.

    Of several labels per node: the known positives. Of float targets: roughly standardized values, and a last column
    that marks nodes with a target.
    """
    if graph.labels is None:
        raise GraphError("the graph has no labels to put into tokens: leave out label_hops and label_embedding")
    labels = np.asarray(graph.labels)
    return TASKS[graph.task].label_rows(labels, train, graph.num_classes)


def label_width(graph: Graph) -> int:
    """Columns of `label_matrix`."""
    return TASKS[graph.task].label_width(graph.num_classes)


def label_hops(
    graph: Graph, known: NDArray[np.float32], hops: int, self_loops: bool = False
) -> list[NDArray[np.float32]]:
    """(P^l Y)(u) less u's own part P^l(u, u) Y(u), for l = 1 … hops: the labels around each node, [n, c] each.

    Parameters
    ----------
    known
        Y, the rows of `label_matrix`.

    >>> pair = Graph.from_edges([[0], [1]], labels=[0, 1])
    >>> [hop.tolist() for hop in label_hops(pair, np.eye(2, dtype=np.float32), hops=2)]
    [[[0.0, 1.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]
    """
    step = normalized_adjacency(graph, self_loops).astype(np.float64)
    current = known.astype(np.float64)
    result = []
    for hop in range(1, hops + 1):
        current = step @ current
        around = current - own_share(step, hop)[:, None] * known
        result.append((np.round(around / _GRID + _OFFSET) * _GRID + 0.0).astype(np.float32))  # + 0.0: no negative zero
    return result


def own_share(step: sp.csr_matrix, power: int) -> NDArray[np.float64]:
    """The diagonal of P^l: how much of itself a node sees after l steps.

    Σ_v P^a(u, v) · P^b(v, u) with a + b = l, block of rows by block of rows, so that no power of P is ever whole.
    """
    there, back = (power + 1) // 2, power // 2
    transposed = step.T.tocsr()
    shares = np.empty(step.shape[0])
    for start in range(0, step.shape[0], _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        if not back:
            shares[rows] = step.diagonal()[rows]
            continue
        first, second = _power_rows(step, rows, there), _power_rows(transposed, rows, back)
        shares[rows] = np.asarray(first.multiply(second).sum(axis=1)).ravel()
    return shares


def _power_rows(step: sp.csr_matrix, rows: slice, power: int) -> Any:
    block = step[rows]
    for _ in range(power - 1):
        block = block @ step
    return block
