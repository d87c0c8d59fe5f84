"""The loss of each task."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from ..data.contract import Task


def compute_loss(logits: Tensor, labels: Tensor, task: Task, smoothing: float = 0.0) -> Tensor:
    """Mean loss of known labels: cross-entropy, binary cross-entropy of each label, or squared error."""
    if task == "classification":
        return F.cross_entropy(logits, labels, label_smoothing=smoothing)
    if task == "multilabel":
        wanted = (labels == 1).to(logits.dtype) * (1 - smoothing) + smoothing / 2
        known = (labels >= 0).to(logits.dtype)
        losses = F.binary_cross_entropy_with_logits(logits, wanted, known, reduction="sum")
        return losses / count_known(labels, task)
    known = ~labels.isnan()
    errors = torch.where(known, logits - labels.nan_to_num(), 0.0)
    return (errors**2).sum() / count_known(labels, task)


def count_known(labels: Tensor, task: Task) -> Tensor | int:
    """How many labels a loss is the mean of."""
    if task == "classification":
        return len(labels)
    known = labels >= 0 if task == "multilabel" else ~labels.isnan()
    return known.sum().clamp(min=1)
