"""The links of a graph on one device: as a list for attention, and as matrices for products, each made once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

T = TypeVar("T")
DENSE_FROM = 0.05  # the fraction of entries from which on a dense product is faster, while the matrix is small enough
MOST_DENSE_NODES = 20_000  # 1.6 GB of float32
ROWS_AT_ONCE = 1024  # of powers of the transition matrix


class _Product(torch.autograd.Function):
    """The product of a fixed matrix with a tensor. Its gradient uses the transpose, which was made before."""

    @staticmethod
    def forward(rows: Tensor, matrix: Matrix) -> Tensor:
        """Return the product."""
        return matrix.tensor @ rows

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        """Keep the matrix for the gradient."""
        ctx.matrix = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return the gradient of the rows; torch would convert the sparse matrix, which cannot be recorded."""
        return ctx.matrix.transposed @ gradients[0].contiguous(), None

    @staticmethod
    def vmap(info: Any, dimensions: Any, rows: Tensor, matrix: Matrix) -> tuple[Tensor, int]:
        """Return the products with the rows of several networks: one product, their columns side by side."""
        beside = rows.movedim(dimensions[0], 1)
        result = _Product.apply(beside.flatten(1), matrix)  # type: ignore[no-untyped-call]
        return result.view(-1, *beside.shape[1:]), 1


class Matrix:
    """A fixed matrix on a device. `matrix @ rows` has a gradient that a CUDA graph can record."""

    def __init__(self, matrix: Any, device: torch.device) -> None:
        matrix = sp.csr_matrix(matrix, dtype=np.float32)
        count = matrix.shape[0]
        if matrix.nnz > DENSE_FROM * count * count and count <= MOST_DENSE_NODES:
            self.tensor = torch.from_numpy(matrix.toarray()).to(device)
            self.transposed = self.tensor.T
        else:
            self.tensor, self.transposed = _to_csr(matrix, device), _to_csr(matrix.T.tocsr(), device)

    def __matmul__(self, rows: Tensor) -> Tensor:
        result: Tensor = _Product.apply(rows, self)  # type: ignore[no-untyped-call]
        return result


def _to_csr(matrix: Any, device: torch.device) -> Tensor:
    matrix.sort_indices()
    starts, columns, values = (torch.from_numpy(array) for array in (matrix.indptr, matrix.indices, matrix.data))
    return torch.sparse_csr_tensor(starts, columns, values, size=matrix.shape).to(device)


class Links:
    """The links of a graph, without self-loops; a row of the adjacency matrix A has the senders of one receiver.

    Attributes
    ----------
    edges : int64 [2, m]
        Sender and receiver of every link, as PyG has them.
    """

    def __init__(self, adjacency: Any, device: torch.device) -> None:
        adjacency = sp.csr_matrix(adjacency, dtype=np.float32)
        adjacency.setdiag(0)
        adjacency.eliminate_zeros()
        self.adjacency, self.device, self.count = adjacency, device, adjacency.shape[0]
        receivers, senders = adjacency.nonzero()
        self.edges = torch.from_numpy(np.stack([senders, receivers]).astype(np.int64)).to(device)
        loops = torch.arange(self.count, device=device).expand(2, -1)
        self.edges_with_loops = torch.cat([self.edges, loops], 1)
        self._kept: dict[Hashable, Any] = {}

    def keep(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` returned when this was first asked for."""
        if key not in self._kept:
            self._kept[key] = make()
        kept: T = self._kept[key]
        return kept

    def matrix(self, name: str) -> Matrix:
        """Return a matrix by name: `plain` A, `symmetric` D^-1/2 A D^-1/2, `mean` D^-1 A; `two-hops` see below.

        With `-loops` behind the name A has self-loops. `two-hops`: nodes at distance two, normalized as `symmetric`.
        """
        return self.keep(name, lambda: Matrix(self._make(name), self.device))

    def _make(self, name: str) -> Any:
        kind = name.removesuffix("-loops")
        matrix = self.adjacency + sp.eye(self.count, format="csr") if name.endswith("-loops") else self.adjacency
        if name == "two-hops":
            kind, matrix = "symmetric", two_hops(matrix)
        return normalize(matrix, kind)

    def mixed(self, weights: tuple[float, ...], k: int) -> Matrix:
        """Return the k largest entries of each row of Σ w_j P^j, with P = D^-1 (A + I)."""
        return self.keep(("mixed", weights, k), lambda: Matrix(self._mixed(weights, k), self.device))

    def _mixed(self, weights: tuple[float, ...], k: int) -> Any:
        walk, rows = self.matrix("mean-loops").transposed, []
        with torch.no_grad():
            for start in range(0, self.count, ROWS_AT_ONCE):
                nodes = torch.arange(start, min(start + ROWS_AT_ONCE, self.count), device=self.device)
                power = torch.zeros(self.count, len(nodes), device=self.device)
                power[nodes, nodes - start] = 1  # column i: the walk from node i after j steps
                total = weights[0] * power
                for weight in weights[1:]:
                    power = walk @ power
                    total += weight * power
                best = total.topk(min(k, self.count), dim=0)
                tensors = (best.values, nodes.expand_as(best.indices), best.indices)
                parts = [tensor.flatten().cpu().numpy() for tensor in tensors]
                rows.append([part[parts[0] > 0] for part in parts])
        values, row, column = (np.concatenate(arrays) for arrays in zip(*rows, strict=True))
        return sp.csr_matrix((values, (row, column)), shape=(self.count, self.count))


def normalize(matrix: Any, kind: str) -> Any:
    """Return A as it is (`plain`), D^-1 A (`mean`) or D^-1/2 A D^-1/2 (`symmetric`); D has the sums of rows.

    >>> normalize(sp.csr_matrix([[0, 1.0], [1, 1]]), "mean").toarray().tolist()
    [[0.0, 1.0], [0.5, 0.5]]
    """
    degrees = np.asarray(matrix.sum(1)).ravel()
    inverse = np.divide(1, degrees, out=np.zeros_like(degrees, dtype=np.float64), where=degrees > 0)
    if kind == "plain":
        return matrix
    if kind == "mean":
        return sp.diags(inverse) @ matrix
    return sp.diags(np.sqrt(inverse)) @ matrix @ sp.diags(np.sqrt(inverse))


def two_hops(adjacency: Any) -> Any:
    """Return who is at distance two: reached in two steps, and neither a neighbour nor the node itself.

    >>> path = sp.csr_matrix([[0, 1, 0], [1, 0, 1], [0, 1, 0.0]])
    >>> two_hops(path).toarray().tolist()
    [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    one = (adjacency > 0).astype(np.float32)
    two = ((one @ one) > 0).astype(np.float32)
    near = ((one + sp.eye(one.shape[0], format="csr")) > 0).astype(np.float32)
    result = (two - two.multiply(near)).tocsr()
    result.eliminate_zeros()
    return result
