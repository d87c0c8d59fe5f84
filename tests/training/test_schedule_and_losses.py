"""Schedules and losses by literal values."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support.plain import train_config
from vcr_graphormer.data.tasks import TASKS
from vcr_graphormer.training.config import learning_rate


def compute_loss(logits: torch.Tensor, labels: torch.Tensor, task: str, smoothing: float = 0.0) -> torch.Tensor:
    return TASKS[task].loss(logits, labels, smoothing)


def count_known(labels: torch.Tensor, task: str) -> torch.Tensor | int:
    return TASKS[task].count_known(labels)


def test_schedules() -> None:
    linear = train_config(learning_rate=1.0, final_learning_rate=0.2, warmup_steps=4, decay_steps=8)
    rates = [learning_rate(step, 100, linear) for step in range(1, 11)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2])
    cosine = replace(linear, schedule="cosine")
    assert learning_rate(6, 100, cosine) == pytest.approx(0.6)
    assert learning_rate(5, 100, cosine) == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2)
    assert learning_rate(8, 100, cosine) == pytest.approx(0.2)
    assert learning_rate(99, 100, replace(linear, final_learning_rate=1.0)) == 1.0
    # decay_steps 0: the floor is reached at the last step. Warm-up longer than training is no error.
    assert learning_rate(100, 100, replace(linear, decay_steps=0)) == pytest.approx(0.2)
    assert learning_rate(3, 10, replace(linear, warmup_steps=400)) == pytest.approx(3 / 400)


def test_losses() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    wanted = torch.tensor([0, 0])
    expected = (math.log(1 + math.exp(-2)) + math.log(1 + math.e)) / 2
    assert float(compute_loss(logits, wanted, "classification")) == pytest.approx(expected)
    several = torch.tensor([[1, -1], [0, 1]], dtype=torch.int8)  # one entry is unknown
    parts = [math.log(1 + math.exp(-2)), math.log(2), math.log(1 + math.exp(-1))]
    assert float(compute_loss(logits, several, "multilabel")) == pytest.approx(sum(parts) / 3)
    targets = torch.tensor([[1.0, math.nan], [2.0, 1.0]])
    assert float(compute_loss(logits, targets, "regression")) == pytest.approx((1 + 4 + 0) / 3)
    # With smoothing 0.2 of two classes, 0.9 of the label stays and 0.1 goes to the other class, whose logit is 2 lower
    # in the first row and 1 higher in the second.
    smooth = expected + 0.1 * (2 - 1) / 2
    assert float(compute_loss(logits, wanted, "classification", 0.2)) == pytest.approx(smooth)


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        ("classification", [0, 1, 1, 0, 1]),
        ("multilabel", [[1, -1], [0, 1], [-1, -1], [1, 1], [0, -1]]),
        ("regression", [[1.0, math.nan], [2.0, 1.0], [math.nan, math.nan], [0.5, 1.0], [1.0, 3.0]]),
    ],
)
def test_parts_weighted_by_known_labels_add_up_to_the_whole(task: str, labels: Any) -> None:
    logits = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    kind = {"classification": torch.int64, "multilabel": torch.int8, "regression": torch.float32}[task]
    wanted = torch.tensor(labels, dtype=kind)
    whole = compute_loss(logits, wanted, task)
    total = count_known(wanted, task)
    known = [wanted[part] for part in (slice(0, 2), slice(2, 3), slice(3, 5))]
    parts = sum(
        compute_loss(logits[part], wanted[part], task) * (count_known(wanted[part], task) / total)
        for part in (slice(0, 2), slice(3, 5))
    )
    if task == "classification":
        parts = parts + compute_loss(logits[2:3], known[1], task) / 5
    torch.testing.assert_close(parts, whole)
