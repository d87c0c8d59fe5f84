"""Dropout that costs little on a CPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

_LEVELS = 1 << 16


class _CheapDropout(torch.autograd.Function):
    """Dropout from 16 random bits per entry; a keep mask of one byte per entry is all that is remembered."""

    @staticmethod
    def forward(context: Any, values: Tensor, threshold: int) -> Tensor:
        words = torch.empty(-(-values.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        kept = (words.view(torch.int16)[: values.numel()] >= threshold - _LEVELS // 2).view_as(values)
        context.kept, context.scale = kept, _LEVELS / (_LEVELS - threshold)
        return values * kept.to(values.dtype).mul_(context.scale)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * context.kept.to(gradients[0].dtype).mul_(context.scale), None


def dropout(values: Tensor, share: float) -> Tensor:
    """Set that share of entries to zero and scale the others up, so that the expectation stays.

    On a CPU torch draws a double per entry (63 ms for 9 million on two cores); 16 bits are enough (15 ms). The share
    is then a multiple of 2^-16.
    """
    if not share:
        return values
    if values.device.type != "cpu":
        return F.dropout(values, share)
    dropped: Tensor = _CheapDropout.apply(values, min(round(share * _LEVELS), _LEVELS - 1))  # type: ignore[no-untyped-call]
    return dropped


class Dropout(nn.Module):
    """`dropout` while training, nothing otherwise."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, values: Tensor) -> Tensor:
        """Values with dropout."""
        return dropout(values, self.share) if self.training else values

    def extra_repr(self) -> str:
        """The share, for printing."""
        return f"share={self.share}"
