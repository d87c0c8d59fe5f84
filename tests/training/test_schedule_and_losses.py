"""Schedules and losses by literal values."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support.plain import train_config
from vcr_graphormer.data.tasks import TASKS
from vcr_graphormer.training.config import learning_rate


def compute_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    task: str,
    smoothing: float = 0.0,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    return TASKS[task].loss(logits, labels, smoothing, weights)


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


def naive_weighted_loss(logits: torch.Tensor, labels: torch.Tensor, smoothing: float, weights: torch.Tensor) -> float:
    """Return the weighted mean of the loss of each known label, one after the other."""
    total, count = 0.0, 0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        if isinstance(label, int):
            whole = math.log(sum(math.exp(value) for value in row))
            own = (1 - smoothing) * (whole - row[label])
            total += float(weights[label]) * (own + smoothing * sum(whole - value for value in row) / len(row))
            count += 1
            continue
        for column, (value, known) in enumerate(zip(row, label, strict=True)):
            if known >= 0:
                wanted = known * (1 - smoothing) + smoothing / 2
                chance = 1 / (1 + math.exp(-value))
                loss = -wanted * math.log(chance) - (1 - wanted) * math.log(1 - chance)
                total += float(weights[known][column]) * loss
                count += 1
    return total / count


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_weighted_losses_equal_their_slow_version(smoothing: float) -> None:
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    classes, weights = torch.tensor([0, 2, 1, 1, 0, 2]), torch.tensor([0.5, 4.0, 1.5])
    expected = naive_weighted_loss(logits, classes, smoothing, weights)
    assert float(compute_loss(logits, classes, "classification", smoothing, weights)) == pytest.approx(expected)
    several = torch.tensor([[1, 0, -1], [0, 0, 1], [-1, -1, 1], [1, 1, 0], [0, -1, 0], [0, 1, 1]], dtype=torch.int8)
    both = torch.tensor([[0.5, 1.0, 2.0], [3.0, 1.0, 0.25]])
    expected = naive_weighted_loss(logits, several, smoothing, both)
    assert float(compute_loss(logits, several, "multilabel", smoothing, both)) == pytest.approx(expected)


def test_a_node_of_weight_3_counts_like_three() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0]])
    wanted = torch.tensor([0, 1, 0])
    repeated = compute_loss(logits[[0, 1, 1, 1, 2]], wanted[[0, 1, 1, 1, 2]], "classification", 0.1)
    # Five nodes instead of three: weights with a mean of 1 are 3/5 and 9/5.
    weights = TASKS["classification"].weights(wanted.numpy(), 2, [1.0, 3.0])
    assert weights is not None
    weighted = compute_loss(logits, wanted, "classification", 0.1, torch.from_numpy(weights))
    assert float(weighted) == pytest.approx(float(repeated))
    assert weights.tolist() == pytest.approx([3 / 5, 9 / 5])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("task", "labels"),
    [
        ("classification", [0, 1, 1, 0, 1]),
        ("multilabel", [[1, -1], [0, 1], [-1, -1], [1, 1], [0, -1]]),
        ("regression", [[1.0, math.nan], [2.0, 1.0], [math.nan, math.nan], [0.5, 1.0], [1.0, 3.0]]),
    ],
)
def test_parts_weighted_by_known_labels_add_up_to_the_whole(task: str, labels: Any, weighted: bool) -> None:
    logits = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    kind = {"classification": torch.int64, "multilabel": torch.int8, "regression": torch.float32}[task]
    wanted = torch.tensor(labels, dtype=kind)
    made = TASKS[task].weights(wanted.numpy(), 2, [1.0, 7.0]) if weighted else None
    weights = None if made is None else torch.from_numpy(made)
    whole = compute_loss(logits, wanted, task, 0.0, weights)
    total = count_known(wanted, task)
    known = [wanted[part] for part in (slice(0, 2), slice(2, 3), slice(3, 5))]
    parts = sum(
        compute_loss(logits[part], wanted[part], task, 0.0, weights) * (count_known(wanted[part], task) / total)
        for part in (slice(0, 2), slice(3, 5))
    )
    if task == "classification":
        parts = parts + compute_loss(logits[2:3], known[1], task, 0.0, weights) / 5
    torch.testing.assert_close(parts, whole)
