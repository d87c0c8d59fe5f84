"""The term of the loss for nodes without a label: copies of a node that see other dropout shall agree."""

from __future__ import annotations

from torch import Tensor

from ..data.tasks import Target

COPIES = 2  # of each unlabelled node in a step; the published GRAND takes 2 to 4
_TEMPERATURE = 0.5  # below 1 the mean of the copies is sharpened; as in GRAND on Cora
_RAMP = 0.3  # fraction of all steps in which the weight rises to its value: at first predictions are random


def disagreement(logits: Tensor, target: Target) -> Tensor:
    """Return the mean squared distance of each copy's probabilities from the sharpened mean of all copies.

    Parameters
    ----------
    logits : [nodes, copies, c]
        Outputs of the same nodes under different dropout. The mean is of logits, and gets no gradient.

    >>> import torch
    >>> from vcr_graphormer.data.tasks import CLASSIFICATION
    >>> round(float(disagreement(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), Target(CLASSIFICATION))), 4)
    0.0448
    """
    sharpened = target.output_tensor(logits.detach().mean(1, keepdim=True) / _TEMPERATURE)
    return (target.output_tensor(logits) - sharpened).square().sum(-1).mean()


def ramp(step: int, last: int) -> float:
    """Return the fraction of the term's weight at step 1, 2, …, where `last` is the last step of training.

    >>> [ramp(step, 100) for step in (3, 15, 30, 90)]
    [0.1, 0.5, 1.0, 1.0]
    """
    return min(1.0, step / (_RAMP * last))
