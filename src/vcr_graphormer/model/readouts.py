"""Readouts: the weight of each encoded token in the one vector that a list becomes.

To add one, write a function here, put it into `READOUTS`, and name it in `model.config.READOUTS`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .config import VOTES

# Arguments: tokens [B, S, h]; 1 for shown and 0 for hidden tokens [B, S]; maybe a learned score of a token.
# Result: weights [B, S].
Readout = Callable[[Tensor, Tensor, nn.Module | None], Tensor]


def attention(tokens: Tensor, shown: Tensor, score: nn.Module | None) -> Tensor:
    """Give the target the weight 1, and the others weights that add up to 1: the softmax of a learned score.

    A score of target and other token together, a · [z_u ‖ z_i], gives the same weights. The target's half is
    the same for every i and cancels.
    """
    assert score is not None
    others = score(tokens)[:, 1:, 0].float()
    others = others.masked_fill(shown[:, 1:] == 0, torch.finfo(others.dtype).min)
    weights = others.softmax(-1) * shown[:, 1:]  # zero, not uniform, where there are no others
    whole = torch.cat([torch.ones_like(weights[:, :1]), weights], 1) if weights.numel() else shown
    return whole.to(tokens.dtype)


def mean(tokens: Tensor, shown: Tensor, score: nn.Module | None) -> Tensor:
    """Give every shown token the same weight; the weights add up to 1."""
    return shown / shown.sum(1, keepdim=True).clamp(min=1)


def target(tokens: Tensor, shown: Tensor, score: nn.Module | None) -> Tensor:
    """Give the target the weight 1 and all others 0."""
    weights = torch.zeros_like(shown)
    weights[:, 0] = 1
    return weights


# Where neighbours vote, the first path, which reads the node and its hops, has the weights of `attention`.
READOUTS: dict[str, Readout] = {"attention": attention, "mean": mean, "target": target, VOTES: attention}
SCORED = (attention,)  # readouts that have a learned score
