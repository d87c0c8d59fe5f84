"""Features that are nearly all zero as sparse rows: linear layers and dropout read them as they read a tensor.

A dense product with the features of CS multiplies a hundred times as many numbers as it has to.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

import vcr_graphormer as vcr
from benchmarks.baselines.links import DENSE_FROM


class Places:
    """Where the entries of a sparse matrix stand, by row and by column.

    Attributes
    ----------
    starts, columns : int32 [n + 1], [nnz]
        The entries row by row.
    column_starts, rows, order : int32 [d + 1], [nnz], int64 [nnz]
        The same entries column by column; `order` has the number of each among those by row.
    """

    def __init__(self, matrix: Any, device: torch.device) -> None:
        numbers = sp.csr_matrix((np.arange(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
        by_column = numbers.tocsc()
        arrays = (matrix.indptr, matrix.indices, by_column.indptr, by_column.indices)
        tensors = [torch.from_numpy(array.astype(np.int32)).to(device) for array in arrays]
        self.starts, self.columns, self.column_starts, self.rows = tensors
        self.order = torch.from_numpy(by_column.data.astype(np.int64)).to(device)
        self.matrix, self.shape, self.device = matrix, matrix.shape, device
        self.repeated = cache(self._repeated)

    def _repeated(self, times: int) -> Places:
        """Return the places of a matrix that has this one so many times on its diagonal."""
        return Places(sp.block_diag([self.matrix] * times, format="csr"), self.device)

    def of_values(self, values: Tensor) -> Tensor:
        """Return the matrix with these entries."""
        return torch.sparse_csr_tensor(self.starts, self.columns, values, size=self.shape)

    def transposed(self, values: Tensor) -> Tensor:
        """Return the transposed matrix with these entries."""
        ordered = values.index_select(0, self.order)
        return torch.sparse_csr_tensor(self.column_starts, self.rows, ordered, size=self.shape[::-1])


class _Product(torch.autograd.Function):
    """X Wᵀ for sparse X; only W has a gradient."""

    @staticmethod
    def forward(values: Tensor, weight: Tensor, places: Places) -> Tensor:
        """Return the product."""
        return places.of_values(values) @ weight.T.contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        """Keep X for the gradient."""
        ctx.save_for_backward(inputs[0])
        ctx.places = inputs[2]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return the gradient of W."""
        return None, (ctx.places.transposed(*ctx.saved_tensors) @ gradients[0].contiguous()).T, None

    @staticmethod
    def vmap(info: Any, dimensions: Any, values: Tensor, weight: Tensor, places: Places) -> tuple[Tensor, int]:
        """Return the products of several networks by a single one."""
        weight = weight.movedim(dimensions[1], 0)
        count, width, columns = weight.shape
        if dimensions[0] is None:  # all read the same: their columns side by side
            beside = _Product.apply(values, weight.reshape(-1, columns), places)  # type: ignore[no-untyped-call]
            return beside.view(-1, count, width), 1
        values, weight = values.movedim(dimensions[0], 0), weight.movedim(0, 1).reshape(width, -1)
        below = _Product.apply(values.flatten(), weight, places.repeated(count))  # type: ignore[no-untyped-call]
        return below.view(count, -1, width), 0


class Rows:
    """Sparse features, [n, d].

    Attributes
    ----------
    values : [nnz], or [B, nnz] for B networks
        The entries, row by row.
    """

    def __init__(self, places: Places, values: Tensor) -> None:
        self.places, self.values, self.device = places, values, values.device

    @classmethod
    def of(cls, matrix: Any, device: torch.device) -> Rows:
        """Return a SciPy matrix on a device."""
        matrix = sp.csr_matrix(matrix, dtype=np.float32)
        matrix.sort_indices()
        return cls(Places(matrix, device), torch.from_numpy(matrix.data).to(device))

    def __len__(self) -> int:
        return int(self.places.shape[0])

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        x, *others = arguments
        if function is F.dropout:
            return cls(x.places, F.dropout(x.values, *others, **(keywords or {})))
        if function is not F.linear:
            return NotImplemented
        weight, bias = others
        product = _Product.apply(x.values, weight, x.places)  # type: ignore[no-untyped-call]
        return product if bias is None else product + bias


def read_features(graph: vcr.Graph, device: torch.device) -> Tensor | Rows:
    """Return the features of a graph on a device, as sparse rows where nearly all entries are zero."""
    matrix: Any = graph.features
    if not sp.issparse(matrix):
        return torch.from_numpy(np.array(matrix, dtype=np.float32)).to(device)
    if matrix.nnz < DENSE_FROM * matrix.shape[0] * matrix.shape[1]:
        return Rows.of(matrix, device)
    return torch.from_numpy(matrix.toarray()).float().to(device)


def contents(x: Tensor | Rows) -> Tensor:
    """Return the entries that are stored."""
    return x.values if isinstance(x, Rows) else x


def with_contents(x: Tensor | Rows, entries: Tensor) -> Any:
    """Return features of the same form with these entries, as a network reads them."""
    return Rows(x.places, entries) if isinstance(x, Rows) else entries


def with_sum_one(x: Tensor | Rows) -> Tensor | Rows:
    """Return features, [1, n, d] or sparse, with rows whose absolute values sum to 1."""
    if isinstance(x, Tensor):
        return x / x.abs().sum(2, keepdim=True).clamp(min=1e-12)
    row = torch.repeat_interleave(x.places.starts.diff())
    sums = x.values.new_zeros(1, len(x)).index_add(1, row, x.values.abs())
    return Rows(x.places, x.values / sums.clamp(min=1e-12).index_select(1, row))


def chosen(x: Tensor | Rows, nodes: NDArray[np.int64]) -> Tensor | Rows:
    """Return the rows of some nodes, from [1, n, d] or sparse rows with entries [1, nnz]."""
    if isinstance(x, Tensor):
        return x[:, torch.from_numpy(nodes).to(x.device)]
    pattern = x.places.matrix
    matrix = sp.csr_matrix((x.values[0].cpu().numpy(), pattern.indices, pattern.indptr), shape=pattern.shape)
    rows = Rows.of(matrix[nodes], x.device)
    return Rows(rows.places, rows.values[None])
