"""Hop features (P^l X)(u): what a walk sees of a neighbourhood, hop after hop, row block by row block."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba as nb
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .arrays import Array, Features
from .errors import ConfigError, GraphError
from .graph import Graph

# A dense block of this many entries (64 MiB of float32) is the working memory of one step.
ENTRIES_AT_ONCE = 1 << 24


def normalized_adjacency(graph: Graph, self_loops: bool = False) -> sp.csr_matrix:
    """P = D^-1/2 A D^-1/2, or with self-loops (D+I)^-1/2 (A+I) (D+I)^-1/2; float32 CSR.

    Rows of isolated nodes are zero. A directed graph uses out-degrees on the left and in-degrees on the right.

    >>> from vcr_graphormer import Graph
    >>> normalized_adjacency(Graph.from_edges([[0, 0], [1, 2]])).toarray().round(3)[0].tolist()
    [0.0, 0.7070000171661377, 0.7070000171661377]
    """
    adjacency = graph.to_scipy()
    if self_loops:
        adjacency = (adjacency + sp.identity(graph.num_nodes, dtype=np.float32, format="csr")).tocsr()
    out_degree = np.asarray(adjacency.sum(axis=1), dtype=np.float64).ravel()
    in_degree = np.asarray(adjacency.sum(axis=0), dtype=np.float64).ravel() if graph.directed else out_degree
    left, right = (_inverse_root(degree) for degree in (out_degree, in_degree))
    data = np.array(adjacency.data, dtype=np.float32)
    # In place and by blocks of rows: the product of the two factors would be as large as the graph.
    for start in range(0, graph.num_nodes, 1 << 18):
        stop = min(start + (1 << 18), graph.num_nodes)
        arcs = slice(adjacency.indptr[start], adjacency.indptr[stop])
        rows = np.repeat(left[start:stop], np.diff(adjacency.indptr[start : stop + 1]))
        data[arcs] = data[arcs] * rows * right[adjacency.indices[arcs]]
    return sp.csr_matrix((data, adjacency.indices, adjacency.indptr), shape=adjacency.shape, copy=False)


def _inverse_root(degree: Any) -> Any:
    with np.errstate(divide="ignore"):
        return np.where(degree > 0, 1.0 / np.sqrt(degree), 0.0)


def hop_features(graph: Graph, hops: int, self_loops: bool = False) -> Iterator[Features]:
    """Yield P X, P² X, …, P^L X, each computed from the one before.

    Sparse features stay sparse while that is smaller than a dense float32 matrix. Only two hops are alive at a time;
    a caller that writes each to disk before asking for the next needs memory for those two only.
    """
    check_hops(graph, hops)
    step = normalized_adjacency(graph, self_loops)
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


def propagate(step: sp.csr_matrix, features: Features, threads: int = 1) -> Iterator[Any]:
    """Yield the row blocks of `step @ features`: sparse while CSR is expected to be smaller, dense otherwise.

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
    rows = max(1, ENTRIES_AT_ONCE // max(1, features.shape[1]))
    for start in range(0, step.shape[0], rows):
        if sp.issparse(source):
            yield (step[start : start + rows] @ source).astype(np.float32, copy=False)
        else:
            yield _dense_block(step, source, start, min(start + rows, step.shape[0]), threads)


def _dense_block(step: sp.csr_matrix, source: Array, start: int, stop: int, threads: int) -> NDArray[np.float32]:
    """Rows start … stop - 1 of `step @ source`, a run of rows with as many arcs as the others' for each thread."""
    # In the precision of the features; scipy's product adds in the same order, to the same bits, in one thread.
    out = np.zeros((stop - start, source.shape[1]), dtype=source.dtype)
    arcs = np.linspace(step.indptr[start], step.indptr[stop], threads + 1)
    cuts = np.clip(np.searchsorted(step.indptr, arcs[1:-1]), start, stop)
    bounds = [start, *cuts.tolist(), stop]

    def work(part: int) -> None:
        first, last = bounds[part], bounds[part + 1]
        add_rows(step.indptr, step.indices, step.data, source, first, out[first - start : last - start])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    return out.astype(np.float32, copy=False)


@nb.njit(nogil=True, cache=True)
def add_rows(indptr: Any, indices: Any, values: Any, source: Any, first: int, out: Any) -> None:
    """out[i] += Σ_e values[e] · source[indices[e]] over the arcs e of row first + i."""
    for i in range(len(out)):
        row = out[i]
        for e in range(indptr[first + i], indptr[first + i + 1]):
            value, other = values[e], source[indices[e]]
            for j in range(len(row)):
                row[j] += value * other[j]


def _stays_sparse(step: sp.csr_matrix, features: sp.csr_matrix) -> bool:
    """Whether 8 bytes per non-zero of the product are less than 4 per entry, by 512 rows spread over the graph."""
    sample = np.unique(np.linspace(0, step.shape[0] - 1, 512).astype(np.int64))
    product = step[sample] @ features
    return bool(8 * product.nnz < 4 * product.shape[0] * product.shape[1])


def join_blocks(blocks: list[Any]) -> Features:
    """Stack row blocks."""
    stacked: Features = sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.concatenate(blocks)
    return stacked
