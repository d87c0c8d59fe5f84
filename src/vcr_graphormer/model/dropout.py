"""Dropout that costs little on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from ..base.threads import in_threads, ranges

# Torch draws a double per entry: 63 ms for 9 million on two cores. With 16 random bits it takes 15 ms (docs/log.md).
_LEVELS = 1 << 16


def random_bits(count: int, fraction: float) -> tuple[Tensor, np.int16, float]:
    """Return 16 random bits per entry, the least of those that are kept, and what the kept entries are scaled by.

    The fraction is rounded to a multiple of 2^-16.
    """
    threshold = min(round(fraction * _LEVELS), _LEVELS - 1)
    # Random words of 64 bits hold four numbers of 16 bits each.
    words = torch.empty(-(-count // 4), dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
    # Of 16 bits, too, so that compiled loops compare many at once.
    return words.view(torch.int16)[:count], np.int16(threshold - _LEVELS // 2), _LEVELS / (_LEVELS - threshold)


class _CheapDropout(torch.autograd.Function):
    """Dropout from 16 random bits per entry, which it remembers."""

    @staticmethod
    def forward(context: Any, values: Tensor, fraction: float) -> Tensor:
        context.bits = random_bits(values.numel(), fraction)
        return hide(values, *context.bits)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return hide(gradients[0], *context.bits), None


def hide(values: Tensor, bits: Tensor, least: np.int16, scale: float) -> Tensor:
    """Return the values times `scale` where bits are at least `least`, and 0 elsewhere."""
    if values.dtype not in (torch.float32, torch.float64):  # a type that NumPy does not know
        return values * (bits >= int(least)).view_as(values).to(values.dtype).mul_(scale)
    from .kernels import scale_shown  # here: predicting must not load compiled loops

    values = values.contiguous()
    out = torch.empty_like(values)
    given, drawn, made = (tensor.detach().flatten().numpy() for tensor in (values, bits, out))
    factor = given.dtype.type(scale)
    in_threads(
        lambda _, *part: scale_shown(given, drawn, least, factor, made, *part),
        ranges(len(given), len(given), torch.get_num_threads()),
    )
    return out


def dropout(values: Tensor, fraction: float) -> Tensor:
    """Set a fraction of the entries to zero and scale the others up, so that the expectation stays.

    On a CPU the fraction is rounded to a multiple of 2^-16.
    """
    if not fraction:
        return values
    if values.device.type != "cpu":
        return F.dropout(values, fraction)
    dropped: Tensor = _CheapDropout.apply(values, fraction)  # type: ignore[no-untyped-call]
    return dropped


class Dropout(nn.Module):
    """`dropout` while training, nothing otherwise."""

    def __init__(self, fraction: float) -> None:
        super().__init__()
        self.fraction = fraction

    def forward(self, values: Tensor) -> Tensor:
        """Return the values, with dropout while training."""
        return dropout(values, self.fraction) if self.training else values

    def extra_repr(self) -> str:
        """Return the fraction, for printing."""
        return f"fraction={self.fraction}"
