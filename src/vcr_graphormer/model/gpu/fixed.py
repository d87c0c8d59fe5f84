"""A batch whose tensors stay in one place with one shape, so that a step with them can be recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ..batches import Batch
from ..matrices import aligned
from .packed import Packed

_SPARE = 8  # one in so many rows and entries more than any example has; chosen by hand


class FixedBatch:
    """Tensors into which packed batches of one size are copied.

    The number of rows and of their entries differs from batch to batch, so there is room for more. No place names a
    spare row, which may hold what an earlier batch left there: its gradient is zero. Spare entries belong to no row.

    Parameters
    ----------
    examples
        Packed batches of this size. There is room for somewhat more than the largest of them has.
    device
        Where the tensors lie.
    """

    def __init__(self, examples: list[Batch], device: torch.device) -> None:
        first, hops = examples[0], len(examples[0].hops)
        room: list[Any] = []
        for number, same in enumerate(zip(*(packed_matrices(example) for example in examples), strict=True)):
            rows = len(first) if number < hops else _more(max(matrix.rows.shape[0] for matrix in same))
            entries = _more(max(len(matrix.tensors[-1]) for matrix in same))
            room.append(same[0].room(rows, entries, device))
        there = replace(first, hops=(), rows=()).to(device)
        self.packed = replace(there, hops=tuple(room[:hops]), rows=tuple(room[hops:]))

    @property
    def becomes_dense(self) -> bool:
        """Return whether all its rows become dense, so that no shape of a step depends on numbers."""
        return all(matrix.becomes_dense for matrix in packed_matrices(self.packed))

    def fill(self, batch: Batch) -> bool:
        """Copy a packed batch into the tensors; return False, and copy nothing, if it does not fit."""
        pairs = list(zip(self.packed.tensors, batch.tensors, strict=True))
        if len(batch) != len(self.packed) or any(len(given) > len(kept) for kept, given in pairs):
            return False
        for kept, given in pairs:
            kept[: len(given)].copy_(given)
        for room, matrix in zip(packed_matrices(self.packed), packed_matrices(batch), strict=True):
            starts, given = room.tensors[0], matrix.tensors[0]
            if len(room.tensors) > 1:
                starts[len(given) :].copy_(given[-1:])  # spare rows are empty
        return True


def packed_matrices(batch: Batch) -> tuple[Packed, ...]:
    """Return the matrices of a batch that are packed: all hops and rows, or none."""
    matrices: tuple[Any, ...] = (*batch.hops, *batch.rows)
    return tuple(matrix for matrix in matrices if isinstance(matrix, Packed))


def _more(count: int) -> int:
    return aligned(count + count // _SPARE)
