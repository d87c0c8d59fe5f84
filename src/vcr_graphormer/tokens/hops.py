"""Hop features P^l X: the features averaged over walks of l steps, computed hop by hop and block of rows by block."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array, is_whole
from ..base.patched import Patched
from ..data.contract import Features
from ..data.graph import Graph
from ..errors import ConfigError, GraphError

ENTRIES_AT_ONCE = 1 << 24  # entries of a dense block: 64 MiB of float32 are the working memory of one step
SAMPLED_ROWS = 512  # rows that show whether a hop is sparse; chosen by hand, the gain on Physics is in docs/log.md
DENSE_BYTES, SPARSE_BYTES = 4, 8  # per entry: a float32; per non-zero: a float32 and its int32 column
_SCALED_ROWS = 1 << 18  # rows of P scaled at a time: with 16 arcs each, two float64 arrays of 32 MiB


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a walk, P = D^-1/2 A D^-1/2, or (D+I)^-1/2 (A+I) (D+I)^-1/2 with self-loops.

    It holds the two diagonal factors, so nothing that grows with the arcs. Rows of isolated nodes are zero. A directed
    graph has out-degrees in the `left` factor and in-degrees in the `right` one.
    """

    graph: Graph
    self_loops: bool
    left: NDArray[np.float64]
    right: NDArray[np.float64]

    @classmethod
    def of(cls, graph: Graph, self_loops: bool = False) -> Step:
        """Make the step of a graph. With weights or directions, degrees take one compiled pass over the arcs."""
        from ..ranking.kernels.scans import arc_weights, degrees_both_ways

        degrees = degrees_both_ways(graph, arc_weights(graph))
        return cls(graph, self_loops, *(_inverse_root(degree + self_loops) for degree in degrees))

    @cached_property
    def matrix(self) -> sp.csr_matrix:
        """Return P as float32 CSR, which a product with sparse features needs."""
        adjacency = self.graph.to_scipy()
        if self.self_loops:
            adjacency = (adjacency + sp.identity(self.graph.num_nodes, dtype=np.float32, format="csr")).tocsr()
        data = np.array(adjacency.data, dtype=np.float32)
        # In place and by blocks of rows: the product of the two factors would be as large as the graph.
        for start in range(0, self.graph.num_nodes, _SCALED_ROWS):
            stop = min(start + _SCALED_ROWS, self.graph.num_nodes)
            arcs = slice(adjacency.indptr[start], adjacency.indptr[stop])
            left = np.repeat(self.left[start:stop], np.diff(adjacency.indptr[start : stop + 1]))
            data[arcs] = data[arcs] * left * self.right[adjacency.indices[arcs]]
        return sp.csr_matrix((data, adjacency.indices, adjacency.indptr), shape=adjacency.shape, copy=False)

    def rows(self, nodes: NDArray[np.int64]) -> sp.csr_matrix:
        """Return some rows of P, with the bits they have in `matrix`."""
        adjacency = self.graph.to_scipy()[nodes]
        if self.self_loops:
            ones = np.ones(len(nodes), dtype=np.float32)
            own = sp.csr_matrix((ones, nodes, np.arange(len(nodes) + 1)), shape=adjacency.shape)
            adjacency = (adjacency + own).tocsr()
        adjacency.sort_indices()
        left = np.repeat(self.left[nodes], np.diff(adjacency.indptr))
        data = (adjacency.data * left * self.right[adjacency.indices]).astype(np.float32)
        return sp.csr_matrix((data, adjacency.indices, adjacency.indptr), shape=adjacency.shape, copy=False)

    def times_rows(self, features: Any, nodes: NDArray[np.int64]) -> Any:
        """Return some rows of P times features or a hop, of which only the rows that are needed are read."""
        matrix = self.rows(nodes)
        used = np.zeros(self.graph.num_nodes, dtype=np.bool_)
        used[matrix.indices] = True
        place = np.cumsum(used) - 1
        shape = (len(nodes), int(used.sum()))
        compact = sp.csr_matrix((matrix.data, place[matrix.indices], matrix.indptr), shape)
        return compact @ take_rows(features, np.flatnonzero(used))

    def times_dense(self, features: Array, rows: range, *, threads: int) -> NDArray[np.float32]:
        """Return consecutive rows of P times a dense matrix. Each thread takes rows with as many arcs as the others'.

        The bits are those of scipy's product with `matrix`, whatever the number of threads.
        """
        from ..ranking.kernels.hops import add_rows
        from ..ranking.kernels.scans import arc_weights

        weights = arc_weights(self.graph)
        is_half = features.dtype == np.float16
        product = np.zeros((len(rows), features.shape[1]), dtype=np.float32 if is_half else features.dtype)
        source = features.view(np.uint16) if is_half else features  # numba has no float16: the loop reads its bits
        indptr, indices = np.asarray(self.graph.indptr), np.asarray(self.graph.indices)
        arcs = np.linspace(indptr[rows.start], indptr[rows.stop], threads + 1)
        cuts = np.clip(np.searchsorted(indptr, arcs[1:-1]), rows.start, rows.stop)
        bounds = [rows.start, *cuts.tolist(), rows.stop]

        def compute(thread: int) -> None:
            first, last = bounds[thread], bounds[thread + 1]
            block = product[first - rows.start : last - rows.start]
            add_rows(indptr, indices, weights, self.left, self.right, self.self_loops, source, first, block)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(compute, range(threads)))
        return product.astype(np.float32, copy=False)


def take_rows(matrix: Any, rows: NDArray[np.int64]) -> Any:
    """Return some rows of features or of a hop, as float32."""
    taken = matrix.take(rows) if isinstance(matrix, Patched) else matrix[rows]
    return taken if sp.issparse(taken) else np.asarray(taken, dtype=np.float32)


def normalized_adjacency(graph: Graph, self_loops: bool = False) -> sp.csr_matrix:
    """Return P as a float32 CSR matrix.

    >>> from vcr_graphormer import Graph
    >>> normalized_adjacency(Graph.from_edges([[0, 0], [1, 2]])).toarray().round(3)[0].tolist()
    [0.0, 0.7070000171661377, 0.7070000171661377]
    """
    # Degrees by NumPy, to the same bits as `Step.of`: predicting needs this matrix and must not load compiled code.
    rows = np.repeat(np.arange(graph.num_nodes), graph.degrees)
    degrees = (np.bincount(ends, graph.weights, graph.num_nodes) for ends in (rows, np.asarray(graph.indices)))
    return Step(graph, self_loops, *(_inverse_root(degree + self_loops) for degree in degrees)).matrix


def _inverse_root(degree: Any) -> Any:
    with np.errstate(divide="ignore"):
        return np.where(degree > 0, 1.0 / np.sqrt(degree), 0.0)


def hop_features(graph: Graph, hops: int, self_loops: bool = False) -> Iterator[Features]:
    """Yield P X, P² X, …, P^L X, each computed from the one before.

    Sparse features stay sparse while that is smaller than a dense float32 matrix. Only two hops are in memory at a time
    if the caller keeps none.
    """
    check_hops(graph, hops)
    step = Step.of(graph, self_loops)
    current: Any = graph.features
    for _ in range(hops):
        current = next_hop(step, current)
        yield current


def check_hops(graph: Graph, hops: int) -> None:
    """Refuse a number of hops that is none, and hops of a graph without features."""
    if not is_whole(hops) or hops < 0:
        raise ConfigError(f"hops is {hops!r}; it must be a whole number of 0 or more")
    if hops and graph.features is None:
        raise GraphError("the graph has no features: use graph.with_features('degree') or 'identity', or hops=0")


def next_hop(step: Step, features: Features, dtype: str = "float32") -> Features:
    """Return P times the features, in memory; if it is dense, as numbers of this type."""
    blocks = [to_type(block, dtype) for block in propagate(step, features)]
    product: Features = sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.concatenate(blocks)
    return product


def propagate(step: Step, features: Features, threads: int = 1) -> Iterator[Any]:
    """Yield P times the features in blocks of rows: sparse while CSR is expected to be smaller, dense otherwise.

    The result does not depend on the number of `threads`.
    """
    dense = dense_source(step, features)
    source: Any = features if dense is None else dense
    rows, num_nodes = max(1, ENTRIES_AT_ONCE // max(1, features.shape[1])), step.graph.num_nodes
    for start in range(0, num_nodes, rows):
        stop = min(start + rows, num_nodes)
        if sp.issparse(source):
            yield (step.matrix[start:stop] @ source).astype(np.float32, copy=False)
        else:
            yield step.times_dense(source, range(start, stop), threads=threads)


def dense_source(step: Step, features: Any) -> Array | None:
    """Return features or a hop as a dense matrix of floating-point numbers; None if its product stays sparse."""
    if sp.issparse(features):
        # Sums of sparse rows that come out dense are three times slower than dense sums (docs/log.md).
        return None if _stays_sparse(step, features) else features.toarray()
    source = np.asarray(features)
    return source if source.dtype in (np.float16, np.float32, np.float64) else source.astype(np.float32)


def to_type(hop: Any, dtype: str) -> Any:
    """Return a block of a dense hop as numbers of this type; sparse rows stay as they are.

    >>> to_type(np.array([[0.1]], np.float32), "float16").dtype.name
    'float16'
    """
    if sp.issparse(hop) or hop.dtype == dtype:
        return hop
    with np.errstate(over="ignore"):
        numbers = hop.astype(dtype)
    if not np.isfinite(numbers).all():
        largest, limit = float(np.abs(hop).max()), float(np.finfo(dtype).max)
        raise GraphError(
            f"a hop holds the number {largest:.3g}, but {dtype} ends at {limit:,.0f}: "
            f"use tokens.hop_type=float32, or scale the features"
        )
    return numbers


def sample_rows(graph: Graph) -> NDArray[np.int64]:
    """Return up to 512 nodes spread over the graph."""
    return np.unique(np.linspace(0, graph.num_nodes - 1, SAMPLED_ROWS).astype(np.int64))


def _stays_sparse(step: Step, features: sp.csr_matrix) -> bool:
    """Return whether the product takes less memory sparse than dense, by a sample of its rows."""
    product = step.matrix[sample_rows(step.graph)] @ features
    return bool(SPARSE_BYTES * product.nnz < DENSE_BYTES * product.shape[0] * product.shape[1])
