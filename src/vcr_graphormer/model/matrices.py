"""Feature rows as tensors, dense or sparse, and their product with a weight, which does not make sparse rows dense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from ..base.threads import in_threads, ranges
from .dropout import dropout as apply_dropout
from .dropout import random_bits

_ALIGNED = 8  # columns: a GPU's fast matrix products want rows of a multiple of 16 bytes (docs/log.md)
_LEAST_SUM = 1e-12  # to divide by where a row is zero, and stays so


def aligned(width: int) -> int:
    """Return the number of columns of a dense matrix on a GPU: at least `width`, the last ones zero."""
    return width + -width % _ALIGNED


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows in CSR form: row i has `values` in the columns `indices`, from `indptr[i]` to `indptr[i + 1]`."""

    indptr: Tensor
    indices: Tensor
    values: Tensor
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of rows and of columns."""
        return len(self.indptr) - 1, self.width

    @property
    def nbytes(self) -> int:
        """Return the bytes of the three tensors."""
        return sum(tensor.nbytes for tensor in (self.indptr, self.indices, self.values))

    def select(self, rows: Tensor) -> SparseRows:
        """Return the given rows, in that order."""
        if self._compiled:
            return self._select_compiled(rows)
        starts, ends = self.indptr[rows].long(), self.indptr[rows + 1].long()
        counts = ends - starts
        indptr = torch.zeros(len(rows) + 1, dtype=torch.int64, device=rows.device)
        torch.cumsum(counts, 0, out=indptr[1:])
        total = int(indptr[-1])
        entries = torch.repeat_interleave(starts - indptr[:-1], counts, output_size=total)
        entries += torch.arange(total, device=rows.device)
        return SparseRows(indptr.to(self.indices.dtype), self.indices[entries], self.values[entries], self.width)

    @property
    def _compiled(self) -> bool:
        """Return whether compiled loops can read the entries: they lie in main memory, and NumPy knows their type."""
        return self.values.device.type == "cpu" and self.values.dtype in (torch.float32, torch.float64)

    def _parts(self, size: int, entries: int) -> list[tuple[int, int]]:
        return ranges(size, entries, torch.get_num_threads())

    def _select_compiled(self, rows: Tensor) -> SparseRows:
        from . import kernels as loops  # here: predicting from dense features must not load compiled loops

        starts = self.starts_of(rows)
        indices, values = (part.new_empty(int(starts[-1])) for part in (self.indices, self.values))
        arrays = _arrays(self.indptr, self.indices, self.values, rows, starts, indices, values)
        in_threads(lambda _, *part: loops.copy_rows(*arrays, *part), self._parts(len(rows), len(values)))
        return SparseRows(starts, indices, values, self.width)

    def starts_of(self, rows: Tensor) -> Tensor:
        """Return where each of the given rows would start in a copy, and the last one end."""
        return _starts(self.indptr[rows + 1] - self.indptr[rows], self.indptr.dtype)

    def drop(self, fraction: float, rows: Tensor | None = None) -> tuple[SparseRows, Tensor]:
        """Return the rows, or the given ones, and values of their entries, of which a random fraction is hidden.

        Random numbers are those of `dropout`. On a CPU hidden entries are left out: a product has less to add.
        """
        if not (fraction and self._compiled):
            chosen = self if rows is None else self.select(rows)
            return chosen, apply_dropout(chosen.values, fraction)
        from . import kernels as loops  # here: predicting from dense features must not load compiled loops

        rows, starts = (torch.arange(self.shape[0]), self.indptr) if rows is None else (rows, self.starts_of(rows))
        bits, least, scale = random_bits(int(starts[-1]), fraction)
        counts, parts = starts.new_empty(len(rows)), self._parts(len(rows), len(bits))
        counting = [*_arrays(starts, bits), least, *_arrays(counts)]
        in_threads(lambda _, *part: loops.count_shown(*counting, *part), parts)
        targets = _starts(counts, self.indptr.dtype)
        indices, values = (part.new_empty(int(targets[-1])) for part in (self.indices, self.values))
        given = _arrays(self.indptr, self.indices, self.values, rows, starts, bits)
        copying = [*given, least, given[2].dtype.type(scale), *_arrays(targets, indices, values)]
        in_threads(lambda _, *part: loops.copy_shown(*copying, *part), parts)
        return SparseRows(targets, indices, values, self.width), values

    def slice(self, start: int, stop: int) -> SparseRows:
        """Return the rows start … stop - 1, without copying them."""
        first, last = int(self.indptr[start]), int(self.indptr[min(stop, self.shape[0])])
        indptr = self.indptr[start : stop + 1] - first
        return SparseRows(indptr, self.indices[first:last], self.values[first:last], self.width)

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> SparseRows:
        """Return a copy on another device, with values of another type; itself if nothing changes."""
        values = self.values.to(device, dtype or self.values.dtype, non_blocking=True)
        if values is self.values:
            return self
        indptr, indices = (tensor.to(device, non_blocking=True) for tensor in (self.indptr, self.indices))
        return SparseRows(indptr, indices, values, self.width)

    def pin_memory(self) -> SparseRows:
        """Return a copy in page-locked memory."""
        indptr, indices, values = (tensor.pin_memory() for tensor in (self.indptr, self.indices, self.values))
        return SparseRows(indptr, indices, values, self.width)

    def to_dense(self) -> Tensor:
        """Return the same rows with all their zeros. Entries after the end of the last row do not count.

        No shape depends on the numbers, so that a GPU can record this.
        """
        count, device = self.shape[0], self.values.device
        entries = torch.arange(len(self.values), dtype=self.indptr.dtype, device=device)
        owners = torch.searchsorted(self.indptr, entries, right=True) - 1  # of what does not count: one row more
        full = torch.zeros(count + 1, self.width, dtype=self.values.dtype, device=device)
        full[owners, self.indices.long()] = self.values
        return full[:count]

    @cached_property
    def transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the order that sorts the entries by column, each column's start, and each sorted entry's row."""
        order = torch.sort(self.indices, stable=True).indices
        starts = torch.zeros(self.width + 1, dtype=torch.int64, device=order.device)
        torch.cumsum(torch.bincount(self.indices, minlength=self.width), 0, out=starts[1:])
        rows = torch.arange(self.shape[0], device=order.device)
        owners = torch.repeat_interleave(rows, self.indptr.diff().long(), output_size=len(order))
        return order, starts, owners[order]

    def turn(self, values: Tensor) -> SparseRows:
        """Return the transposed rows, with these values for the entries instead of their own."""
        if not self._compiled:
            order, starts, owners = self.transposed
            return SparseRows(starts, owners, values[order], self.shape[0])
        from . import kernels as loops  # here: predicting from dense features must not load compiled loops

        # Count the entries of each column, then put every entry into its place, row by row: no sorting.
        parts = self._parts(self.shape[0], len(values))
        indptr, indices, given = _arrays(self.indptr, self.indices, values)
        counts = torch.zeros(len(parts), self.width, dtype=torch.int64)
        counted = counts.numpy()
        in_threads(
            lambda number, first, last: loops.count_columns(indices, counted[number], indptr[first], indptr[last]),
            parts,
        )
        starts = _starts(counts.sum(0), self.indptr.dtype)
        # Entries of earlier rows come first, so that the order does not depend on the number of threads.
        places = (starts[:-1] + counts.cumsum(0) - counts).numpy()
        owners, turned = torch.empty_like(self.indices), torch.empty_like(values)
        made = _arrays(owners, turned)
        in_threads(
            lambda number, *part: loops.sort_columns(indptr, indices, given, places[number], *made, *part), parts
        )
        return SparseRows(starts, owners, turned, self.shape[0])


def _arrays(*tensors: Tensor) -> list[Any]:
    return [tensor.numpy() for tensor in tensors]


def _starts(counts: Tensor, dtype: torch.dtype) -> Tensor:
    """Return where each row starts and the last one ends, by the number of entries of each row."""
    starts = torch.zeros(len(counts) + 1, dtype=dtype)
    torch.cumsum(counts, 0, out=starts[1:])
    return starts


@dataclass(frozen=True, eq=False)
class Selection:
    """Some rows of a sparse matrix. A product copies them, without the entries that dropout hides."""

    source: SparseRows
    rows: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of rows and of columns."""
        return len(self.rows), self.source.width

    def copied(self) -> SparseRows:
        """Return the rows."""
        return self.source.select(self.rows)

    def drop(self, fraction: float) -> tuple[SparseRows, Tensor]:
        """Return the rows, and values for their entries with dropout."""
        return self.source.drop(fraction, self.rows)

    def to(self, device: torch.device) -> SparseRows:
        """Return a copy on another device."""
        return self.copied().to(device)


Matrix: TypeAlias = Tensor | SparseRows
Rows: TypeAlias = Matrix | Selection


def _copied(rows: Rows) -> Matrix:
    return rows.copied() if isinstance(rows, Selection) else rows


class _SparseProduct(torch.autograd.Function):
    """Rows times weight, by sums over the weight's rows. The gradient is the same sum over the transposed rows.

    Without dropout both take 35 ms on CS. `embedding_bag`'s own gradient takes 110 ms, a dense product with its
    gradient 1,330 ms (docs/log.md).
    """

    @staticmethod
    def forward(context: Any, weight: Tensor, rows: SparseRows, values: Tensor) -> Tensor:
        context.rows, context.values = rows, values
        return _sum_rows(weight, replace(rows, values=values))

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _sum_rows(gradients[0].contiguous(), context.rows.turn(context.values)), None, None


def _sum_rows(table: Tensor, rows: SparseRows) -> Tensor:
    """Return the product of the rows with a table that has a row for each of their columns."""
    weights = rows.values.to(table.dtype)
    return F.embedding_bag(
        rows.indices, table, rows.indptr, mode="sum", per_sample_weights=weights, include_last_offset=True
    )


def project(matrix: Rows, weight: Tensor, dropout: float = 0.0) -> Tensor:
    """Return the product of rows and weight, with `dropout` of that fraction of the input's entries."""
    if not isinstance(matrix, Tensor):
        rows, values = matrix.drop(dropout)
        product: Tensor = _SparseProduct.apply(weight, rows, values)  # type: ignore[no-untyped-call]
        return product
    if matrix.dtype == torch.float16 and matrix.device.type == "cpu":
        matrix = matrix.float()
    if matrix.shape[1] > len(weight):  # `to_matrix` has padded it
        weight = F.pad(weight, (0, 0, 0, matrix.shape[1] - len(weight)))
    return apply_dropout(matrix, dropout).to(weight.dtype) @ weight


def stack(matrices: Sequence[Tensor]) -> Tensor:
    """Return dense matrices one below the other; narrower ones get zero columns, as those have that `to_matrix` pads.

    >>> stack([torch.ones(1, 2), torch.ones(1, 3)]).tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    """
    widest = max(matrix.shape[1] for matrix in matrices)
    return torch.cat([F.pad(one, (0, widest - one.shape[1])) if one.shape[1] < widest else one for one in matrices])


def row_sums(matrix: Rows) -> Tensor:
    """Return the sum of the absolute values of each row [rows, 1] in float32, at least a little more than 0."""
    matrix = _copied(matrix)
    if isinstance(matrix, SparseRows):
        sums = torch.segment_reduce(matrix.values.float().abs(), "sum", offsets=matrix.indptr.long(), initial=0.0)
    else:
        sums = matrix.float().abs().sum(1)
    return sums.clamp(min=_LEAST_SUM)[:, None]


def select(matrix: Rows, rows: Tensor) -> Matrix:
    """Return the given rows of a dense or sparse matrix; in main memory those of float16 as float32."""
    if isinstance(matrix, Selection):
        return matrix.source.select(matrix.rows[rows])
    if isinstance(matrix, SparseRows):
        return matrix.select(rows)
    chosen = torch.index_select(matrix, 0, rows)
    return chosen.float() if chosen.dtype == torch.float16 and chosen.device.type == "cpu" else chosen


def choose(matrix: Matrix, rows: Tensor) -> Rows:
    """Return the given rows of a dense or sparse matrix; on a CPU sparse ones are copied when a product needs them."""
    if isinstance(matrix, SparseRows) and matrix.values.device.type == "cpu":
        return Selection(matrix, rows)
    return select(matrix, rows)


def slice_rows(matrix: Matrix, start: int, stop: int) -> Matrix:
    """Return the rows start … stop - 1 of a dense or sparse matrix."""
    return matrix.slice(start, stop) if isinstance(matrix, SparseRows) else matrix[start:stop]
