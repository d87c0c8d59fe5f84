"""Hop features (P^l X)(u): what a walk sees of a neighbourhood, hop after hop, row block by row block."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array
from ..data.contract import Features
from ..data.graph import Graph
from ..errors import ConfigError, GraphError

# A dense block of this many entries (64 MiB of float32) is the working memory of one step.
ENTRIES_AT_ONCE = 1 << 24


@dataclass(frozen=True, eq=False)
class Step:
    """P = D^-1/2 A D^-1/2, or with self-loops (D+I)^-1/2 (A+I) (D+I)^-1/2, by its factors: no number per arc is kept.

    Rows of isolated nodes are zero. A directed graph uses out-degrees on the left and in-degrees on the right.
    """

    graph: Graph
    self_loops: bool
    left: NDArray[np.float64]
    right: NDArray[np.float64]

    @classmethod
    def of(cls, graph: Graph, self_loops: bool = False) -> Step:
        """Count the degrees by a compiled pass over the arcs, which keeps no number per arc."""
        from ..ranking.kernels.scans import arc_weights, weighted_degrees

        degrees = weighted_degrees(np.asarray(graph.indptr), np.asarray(graph.indices), arc_weights(graph))
        return cls(graph, self_loops, *(_inverse_root(degree + self_loops) for degree in degrees))

    @cached_property
    def matrix(self) -> sp.csr_matrix:
        """P as float32 CSR: what a product with sparse features needs."""
        adjacency = self.graph.to_scipy()
        if self.self_loops:
            adjacency = (adjacency + sp.identity(self.graph.num_nodes, dtype=np.float32, format="csr")).tocsr()
        data = np.array(adjacency.data, dtype=np.float32)
        # In place and by blocks of rows: the product of the two factors would be as large as the graph.
        for start in range(0, self.graph.num_nodes, 1 << 18):
            stop = min(start + (1 << 18), self.graph.num_nodes)
            arcs = slice(adjacency.indptr[start], adjacency.indptr[stop])
            rows = np.repeat(self.left[start:stop], np.diff(adjacency.indptr[start : stop + 1]))
            data[arcs] = data[arcs] * rows * self.right[adjacency.indices[arcs]]
        return sp.csr_matrix((data, adjacency.indices, adjacency.indptr), shape=adjacency.shape, copy=False)

    def rows(self, source: Array, start: int, stop: int, threads: int) -> NDArray[np.float32]:
        """Rows start … stop - 1 of P times a dense matrix; each thread takes rows with as many arcs as the others'.

        The bits are those of scipy's product with `matrix`, whatever the number of threads.
        """
        from ..ranking.kernels.hops import add_rows
        from ..ranking.kernels.scans import arc_weights

        graph = self.graph
        weights = arc_weights(graph)
        out = np.zeros((stop - start, source.shape[1]), dtype=source.dtype)
        indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
        arcs = np.linspace(indptr[start], indptr[stop], threads + 1)
        cuts = np.clip(np.searchsorted(indptr, arcs[1:-1]), start, stop)
        bounds = [start, *cuts.tolist(), stop]

        def work(part: int) -> None:
            first, last = bounds[part], bounds[part + 1]
            block = out[first - start : last - start]
            add_rows(indptr, indices, weights, self.left, self.right, self.self_loops, source, first, block)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
        return out.astype(np.float32, copy=False)


def normalized_adjacency(graph: Graph, self_loops: bool = False) -> sp.csr_matrix:
    """P as a float32 CSR matrix.

    >>> from vcr_graphormer import Graph
    >>> normalized_adjacency(Graph.from_edges([[0, 0], [1, 2]])).toarray().round(3)[0].tolist()
    [0.0, 0.7070000171661377, 0.7070000171661377]
    """
    # Degrees by NumPy, to the same bits: whoever needs the matrix whole may well do without compiled code.
    rows = np.repeat(np.arange(graph.num_nodes), graph.degrees)
    degrees = (np.bincount(ends, graph.weights, graph.num_nodes) for ends in (rows, np.asarray(graph.indices)))
    return Step(graph, self_loops, *(_inverse_root(degree + self_loops) for degree in degrees)).matrix


def _inverse_root(degree: Any) -> Any:
    with np.errstate(divide="ignore"):
        return np.where(degree > 0, 1.0 / np.sqrt(degree), 0.0)


def hop_features(graph: Graph, hops: int, self_loops: bool = False) -> Iterator[Features]:
    """Yield P X, P² X, …, P^L X, each computed from the one before.

    Sparse features stay sparse while that is smaller than a dense float32 matrix. Only two hops are alive at a time;
    a caller that writes each to disk before asking for the next needs memory for those two only.
    """
    check_hops(graph, hops)
    step = Step.of(graph, self_loops)
    current: Any = graph.features
    for _ in range(hops):
        current = join_blocks(list(propagate(step, current)))
        yield current


def check_hops(graph: Graph, hops: int) -> None:
    """Refuse what cannot be computed."""
    if isinstance(hops, bool) or not isinstance(hops, int | np.integer) or hops < 0:
        raise ConfigError(f"hops is {hops!r}; it must be a whole number of 0 or more")
    if hops and graph.features is None:
        raise GraphError("the graph has no features: use graph.with_features('degree') or 'identity', or hops=0")


def propagate(step: Step, features: Features, threads: int = 1) -> Iterator[Any]:
    """Yield the row blocks of P times the features: sparse while CSR is expected to be smaller, dense otherwise.

    The result does not depend on the number of `threads`.
    """
    source: Any = features
    if not sp.issparse(source):
        source = np.asarray(source)
        if source.dtype not in (np.float32, np.float64):
            source = source.astype(np.float32)
    elif not _stays_sparse(step, source):
        # Sums of sparse rows that come out dense are three times slower than dense sums (Physics, fourth hop).
        source = source.toarray()
    rows, num_nodes = max(1, ENTRIES_AT_ONCE // max(1, features.shape[1])), step.graph.num_nodes
    for start in range(0, num_nodes, rows):
        stop = min(start + rows, num_nodes)
        if sp.issparse(source):
            yield (step.matrix[start:stop] @ source).astype(np.float32, copy=False)
        else:
            yield step.rows(source, start, stop, threads)


def _stays_sparse(step: Step, features: sp.csr_matrix) -> bool:
    """Whether 8 bytes per non-zero of the product are less than 4 per entry, by 512 rows spread over the graph."""
    sample = np.unique(np.linspace(0, step.graph.num_nodes - 1, 512).astype(np.int64))
    product = step.matrix[sample] @ features
    return bool(8 * product.nnz < 4 * product.shape[0] * product.shape[1])


def join_blocks(blocks: list[Any]) -> Features:
    """Stack row blocks."""
    stacked: Features = sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.concatenate(blocks)
    return stacked
