"""Rows on their way to a GPU: in page-locked memory, in as few bytes as the GPU computes with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..matrices import Matrix, SparseRows, aligned

_SHORT = torch.iinfo(torch.int16).max  # columns that 16 bits can name
# Part of a GPU's memory that rows of a batch may take with all their zeros; chosen by hand. A dense product is several
# times faster there than one of sparse rows, whose gradient sorts them.
_DENSE_PART = 32


@dataclass(frozen=True, eq=False)
class Packed:
    """Rows on their way: written to main memory by `pack`, copied to a device by `to`, made usable by `unpack`.

    Attributes
    ----------
    rows : Tensor or SparseRows
        Numbers of `dtype`, or float16 as they are stored. Sparse rows have columns of 16 bits where these are enough.
    dtype : torch.dtype
        What the GPU gets.
    """

    rows: Matrix
    dtype: torch.dtype

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors that hold the rows, the first with a number for each row or each start of one."""
        rows = self.rows
        return (rows,) if isinstance(rows, Tensor) else (rows.indptr, rows.indices, rows.values)

    def to(self, device: torch.device) -> Packed:
        """Return the rows on a device, packed as they are."""
        rows = self.rows
        there = rows.to(device, non_blocking=True) if isinstance(rows, Tensor) else rows.to(device)
        return replace(self, rows=there)

    @property
    def becomes_dense(self) -> bool:
        """Return whether `unpack` makes the rows dense: where memory allows it."""
        if isinstance(self.rows, Tensor):
            return True
        needed = self.rows.shape[0] * aligned(self.rows.width) * self.dtype.itemsize
        return needed <= _most_bytes(self.rows.values.device)

    def unpack(self) -> Matrix:
        """Return the rows for a product: dense, with zero columns up to an aligned width, or else sparse."""
        if isinstance(self.rows, Tensor):
            return self.rows.to(self.dtype)
        if self.becomes_dense:
            return replace(self.rows, width=aligned(self.rows.width)).to_dense()
        return replace(self.rows, indices=self.rows.indices.to(self.rows.indptr.dtype))

    def room(self, rows: int, entries: int, device: torch.device) -> Packed:
        """Return as many empty rows of this form on a device, with room for so many entries if they are sparse."""
        if isinstance(self.rows, Tensor):
            empty: Matrix = self.rows.new_zeros((rows, self.rows.shape[1]), device=device)
        else:
            starts, columns, values = (tensor.new_zeros(entries, device=device) for tensor in self.tensors)
            empty = SparseRows(starts.new_zeros(rows + 1), columns, values, self.rows.width)
        return replace(self, rows=empty)

    def pin_memory(self) -> Packed:
        """Return itself: the rows were written to page-locked memory."""
        return self


def pack(matrix: Matrix, rows: Tensor, dtype: torch.dtype, *, pinned: bool) -> Packed:
    """Copy the given rows of a float32 or float16 matrix in main memory, rounded to `dtype`; float16 stays."""
    from .. import kernels as loops  # here: predicting must not load compiled loops

    def empty(shape: Any, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, pin_memory=pinned)

    wanted = rows.numpy()
    if isinstance(matrix, Tensor):
        copies = empty((len(rows), matrix.shape[1]), torch.float16 if matrix.dtype == torch.float16 else dtype)
        loops.gather_rows(*_numbers(matrix, copies), wanted)
        return Packed(copies, dtype)
    starts = matrix.starts_of(rows)
    indptr = empty(len(starts), starts.dtype).copy_(starts)
    short = matrix.width <= _SHORT
    columns = empty(int(starts[-1]), torch.int16 if short else matrix.indices.dtype)
    values = empty(int(starts[-1]), dtype)
    for source, copies in ((matrix.indices, columns), (matrix.values, values)):
        loops.gather_entries(matrix.indptr.numpy(), *_numbers(source, copies), wanted, indptr.numpy())
    return Packed(SparseRows(indptr, columns, values, matrix.width), dtype)


def _numbers(source: Tensor, copies: Tensor) -> tuple[Any, Any]:
    """Return both as arrays that compiled loops take: bits where NumPy or numba does not know the type of the copy."""
    if copies.dtype == torch.bfloat16:
        return source.numpy().view("uint32"), copies.view(torch.int16).numpy().view("uint16")
    if copies.dtype == torch.float16:
        return source.numpy().view("uint16"), copies.numpy().view("uint16")
    return source.numpy(), copies.numpy()


def _most_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return 1 << 30
    return int(torch.cuda.get_device_properties(device).total_memory) // _DENSE_PART
