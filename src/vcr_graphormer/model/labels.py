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

# Labels around nodes are rounded to multiples of this. Taking the own part away in float64 leaves about 1e-16 of it
# behind. On this grid nothing is left: a node's row is the same to the bit, whatever its own label is. Degrees often
# give sums of powers of two. The offset keeps these away from the half steps, where 1e-16 would decide.
GRID, OFFSET = 2.0**-20, 0.1234567
_ROWS_AT_ONCE = 4096  # rows of a power of P in memory at a time; chosen by hand


def label_matrix(graph: Graph, train: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the training labels as rows [n, c]: one-hot for training nodes, zero for all others.

    With several labels per node, a row marks the positive ones. With float targets it holds a roughly standardized
    value, and a last column marks nodes with a target.
    """
    if graph.labels is None:
        raise GraphError(
            "the graph has no labels to put into tokens: leave out label_hops, label_embedding and rich_labels"
        )
    labels = np.asarray(graph.labels)
    return TASKS[graph.task].label_rows(labels, train, graph.num_classes)


def label_width(graph: Graph) -> int:
    """Return the number of columns of `label_matrix`."""
    return TASKS[graph.task].label_width(graph.num_classes)


def label_hops(
    graph: Graph, label_rows: NDArray[np.float32], hops: int, self_loops: bool = False
) -> list[NDArray[np.float32]]:
    """Return the labels around each node, [n, c] per hop: (P^l Y)(u) less u's own part P^l(u, u) Y(u).

    Parameters
    ----------
    label_rows
        The rows of `label_matrix` (Y).

    >>> pair = Graph.from_edges([[0], [1]], labels=[0, 1])
    >>> [hop.tolist() for hop in label_hops(pair, np.eye(2, dtype=np.float32), hops=2)]
    [[[0.0, 1.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]
    """
    step = normalized_adjacency(graph, self_loops).astype(np.float64)
    current = label_rows.astype(np.float64)
    result = []
    for hop in range(1, hops + 1):
        current = step @ current
        around = current - power_diagonal(step, hop)[:, None] * label_rows
        result.append((np.round(around / GRID + OFFSET) * GRID + 0.0).astype(np.float32))  # + 0.0: no negative zero
    return result


def labels_around(
    graph: Graph, label_rows: NDArray[np.float32], ids: NDArray[np.int32], self_loops: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Return the labels around each node, P Y [n, c], and how much of them comes from each target, P(i, u) [n, k].

    The first less the second times Y(u) are the labels around a neighbour i of u, without u's own.

    Parameters
    ----------
    label_rows
        The rows of `label_matrix` (Y).
    ids
        The neighbours of each node [n, k]; negative ids are padding.

    >>> path = Graph.from_edges([[0, 0], [1, 1]], labels=[0, 1])
    >>> [array.tolist() for array in labels_around(path, np.eye(2, dtype=np.float32), np.array([[1], [0]], np.int32))]
    [[[0.0, 1.0], [1.0, 0.0]], [[1.0], [1.0]]]
    """
    step = normalized_adjacency(graph, self_loops)
    targets = np.broadcast_to(np.arange(graph.num_nodes)[:, None], ids.shape)
    weights = np.zeros(ids.shape, np.float32)
    for start in range(0, graph.num_nodes, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        shown = ids[rows] >= 0
        weights[rows][shown] = np.asarray(step[ids[rows][shown], targets[rows][shown]]).ravel()
    return step.astype(np.float64) @ label_rows.astype(np.float64), weights


def power_diagonal(step: sp.csr_matrix, power: int) -> NDArray[np.float64]:
    """Return the diagonal of P^l: how much of itself a node sees after l steps.

    P^l(u, u) = Σ_v P^a(u, v) · P^b(v, u) with a + b = l. Blocks of rows, so that no power of P is in memory whole.
    """
    there, back = (power + 1) // 2, power // 2
    if not back:
        return np.asarray(step.diagonal())
    transposed = step.T.tocsr()
    diagonal = np.empty(step.shape[0])
    for start in range(0, step.shape[0], _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        first, second = _power_rows(step, rows, power=there), _power_rows(transposed, rows, power=back)
        diagonal[rows] = np.asarray(first.multiply(second).sum(axis=1)).ravel()
    return diagonal


def _power_rows(step: sp.csr_matrix, rows: slice, *, power: int) -> Any:
    block = step[rows]
    for _ in range(power - 1):
        block = block @ step
    return block
