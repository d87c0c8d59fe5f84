"""What a step aims at and how far it goes: losses by task, and the schedule of the learning rate."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from .arrays import Task
from .settings import TrainConfig


def learning_rate(step: int, last: int, config: TrainConfig) -> float:
    """The rate of step 1, 2, …: linear warm-up to the peak, then down to the floor at `decay_steps`, flat from there.

    >>> paper = TrainConfig(learning_rate=1e-3, final_learning_rate=1e-4, warmup_steps=400, decay_steps=1000)
    >>> [round(learning_rate(step, 9999, paper), 6) for step in (1, 400, 700, 1000, 5000)]
    [3e-06, 0.001, 0.00055, 0.0001, 0.0001]
    """
    peak, floor = config.learning_rate, config.final_learning_rate
    if step <= config.warmup_steps:
        return peak * step / config.warmup_steps
    if config.schedule == "constant":
        return peak
    end = max(config.decay_steps or last, config.warmup_steps + 1)
    done = min(1.0, (step - config.warmup_steps) / (end - config.warmup_steps))
    left = 1 - done if config.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return floor + (peak - floor) * left


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
