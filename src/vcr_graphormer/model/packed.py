"""Rows on their way to a GPU: in page-locked memory, in as few bytes as the GPU computes with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .matrices import Matrix, SparseRows, aligned

_SHORT = torch.iinfo(torch.int16).max  # columns that 16 bits can name
# Part of a GPU's memory that rows of a batch may take with all their zeros; chosen by hand. A dense product is several
# times faster there than one of sparse rows, whose gradient sorts them.
_DENSE_PART = 32


@dataclass(frozen=True, eq=False)
class Packed:
    """Rows that wait in main memory for `to`.

    Attributes
    ----------
    rows : Tensor or SparseRows
        Numbers of `dtype`, or float16 as they are stored. Sparse rows have columns of 16 bits where these are enough.
    dtype : torch.dtype
        What the GPU gets.
    """

    rows: Matrix
    dtype: torch.dtype

    def to(self, device: torch.device) -> Matrix:
        """Return the rows on a device: dense, with zero columns up to an aligned width, where memory allows it."""
        if isinstance(self.rows, Tensor):
            return self.rows.to(device, non_blocking=True).to(self.dtype)
        rows = self.rows.to(device)
        width = aligned(rows.width)
        if rows.shape[0] * width * self.dtype.itemsize <= _most_bytes(device):
            return replace(rows, width=width).to_dense()
        return replace(rows, indices=rows.indices.to(rows.indptr.dtype))

    def pin_memory(self) -> Packed:
        """Return itself: the rows were written to page-locked memory."""
        return self


def pack(matrix: Matrix, rows: Tensor, dtype: torch.dtype, *, pinned: bool) -> Packed:
    """Copy the given rows of a float32 or float16 matrix in main memory, rounded to `dtype`; float16 stays."""
    from . import kernels as loops  # here: predicting must not load compiled loops

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
