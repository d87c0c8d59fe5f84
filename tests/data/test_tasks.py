"""Metrics by literal values and against scikit-learn; what is unknown does not count."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error, roc_auc_score, root_mean_squared_error

from vcr_graphormer import ConfigError, GraphError
from vcr_graphormer.data import tasks
from vcr_graphormer.data.metrics import is_better
from vcr_graphormer.data.tasks import TASKS
from vcr_graphormer.training.config import METRICS

NAN = float("nan")


def measure(metric: str, predicted: np.ndarray, labels: np.ndarray, task: str) -> float:
    return tasks.measure(metric, predicted, labels, TASKS[task])


def choose_metric(name: str, task: str) -> str:
    return tasks.choose_metric(name, TASKS[task])


def decide(predicted: np.ndarray, task: str) -> np.ndarray:
    return TASKS[task].decide(predicted)


def probabilities(logits: np.ndarray, task: str, scale: Any = None) -> np.ndarray:
    return TASKS[task].outputs(logits, scale)


def floats(rows: Any) -> np.ndarray:
    return np.array(rows, dtype=np.float32)


# Decided: classes 0, 0, 1, 2. The last node has no label.
CLASS_SCORES = floats([[0.8, 0.1, 0.1], [0.5, 0.3, 0.2], [0.1, 0.7, 0.2], [0.2, 0.2, 0.6], [0.0, 0.0, 1.0]])
CLASS_LABELS = np.array([0, 1, 1, 2, -1])
# Decided: (1, 1), (0, 1), (1, 0), (0, 0).
COLUMN_SCORES = floats([[0.9, 0.8], [0.2, 0.7], [0.6, 0.1], [0.4, 0.3]])
COLUMN_LABELS = np.array([[1, 1], [0, 0], [0, 1], [-1, 0]])


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("accuracy", 3 / 4),
        ("macro_f1", (2 / 3 + 2 / 3 + 1) / 3),
        ("roc_auc", 1.0),  # class 0: 0.8 above all; class 1: 0.3 and 0.7 above 0.1 and 0.2; class 2: 0.6 above all
    ],
)
def test_classes(metric: str, expected: float) -> None:
    assert measure(metric, CLASS_SCORES, CLASS_LABELS, "classification") == pytest.approx(expected)
    assert measure(metric, CLASS_SCORES[:4], CLASS_LABELS[:4], "classification") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("accuracy", (2 / 3 + 2 / 4) / 2),
        ("macro_f1", (2 / 3 + 2 / 4) / 2),
        # Column 0: 0.9 above 0.2 and 0.6. Column 1: 0.8 above 0.7 and 0.3, 0.1 above neither.
        ("roc_auc", (1 + 2 / 4) / 2),
    ],
)
def test_columns(metric: str, expected: float) -> None:
    assert measure(metric, COLUMN_SCORES, COLUMN_LABELS, "multilabel") == pytest.approx(expected)


@pytest.mark.parametrize(("metric", "expected"), [("mae", 2.0), ("rmse", math.sqrt(14 / 3))])
def test_targets(metric: str, expected: float) -> None:
    predicted, labels = floats([[1], [2], [3], [4]]), floats([2, 0, NAN, 7])
    assert measure(metric, predicted, labels, "regression") == pytest.approx(expected)
    both = np.column_stack([labels, [NAN] * 4]).astype(np.float32)
    assert measure(metric, np.repeat(predicted, 2, axis=1), both, "regression") == pytest.approx(expected)


def test_two_classes_are_ranked_by_the_second() -> None:
    scores = floats([[0.9, 0.1], [0.6, 0.4], [0.65, 0.35], [0.2, 0.8]])
    assert measure("roc_auc", scores, np.array([0, 0, 1, 1]), "classification") == pytest.approx(3 / 4)


def test_what_cannot_be_ranked_is_left_out() -> None:
    # Class 2 does not occur: the mean of the other two.
    scores = floats([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.5, 0.4, 0.1]])
    assert measure("roc_auc", scores, np.array([0, 1, 1]), "classification") == pytest.approx((1 + 1) / 2)
    assert math.isnan(measure("roc_auc", scores, np.array([1, 1, 1]), "classification"))
    assert math.isnan(measure("roc_auc", COLUMN_SCORES, np.full((4, 2), -1), "multilabel"))
    one = np.array([[1, -1], [0, -1], [1, -1], [0, -1]])
    assert measure("accuracy", COLUMN_SCORES, one, "multilabel") == 1.0
    assert measure("macro_f1", floats([[0.1], [0.2]]), np.array([[0], [0]]), "multilabel") == 0.0


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of 2 to 4 classes with ties, and labels, some unknown but not all."""
    count, classes = draw(st.integers(1, 30)), draw(st.integers(2, 4))
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    scores = generator.integers(1, 6, (count, classes)).astype(np.float32)
    labels = generator.integers(-1, classes, count)
    assume((labels >= 0).any())
    return scores / scores.sum(axis=1, keepdims=True), labels


@settings(deadline=None)
@given(cases())
def test_classes_equal_scikit_learn(case: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = case
    known = labels >= 0
    truth, guess = labels[known], scores[known].argmax(axis=1)
    assert measure("accuracy", scores, labels, "classification") == pytest.approx(accuracy_score(truth, guess))
    expected = f1_score(truth, guess, average="macro")
    assert measure("macro_f1", scores, labels, "classification") == pytest.approx(expected)
    if len(set(truth.tolist())) == scores.shape[1]:
        if scores.shape[1] == 2:
            expected = roc_auc_score(truth, scores[known, 1])
        else:
            expected = roc_auc_score(truth, scores[known].astype(np.float64), multi_class="ovr", average="macro")
        assert measure("roc_auc", scores, labels, "classification") == pytest.approx(expected, abs=1e-6)


@settings(deadline=None)
@given(st.integers(2, 30), st.integers(1, 4), st.integers(0, 10**6))
def test_columns_equal_scikit_learn(count: int, columns: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    scores = (generator.integers(0, 11, (count, columns)) / 10).astype(np.float32)
    labels = generator.integers(0, 2, (count, columns))
    guess = (scores >= 0.5).astype(np.int64)
    expected = f1_score(labels, guess, average="macro", zero_division=0) if columns > 1 else None
    if expected is not None:
        assert measure("macro_f1", scores, labels, "multilabel") == pytest.approx(expected)
    assert measure("accuracy", scores, labels, "multilabel") == pytest.approx((guess == labels).mean())
    if (labels.sum(axis=0) > 0).all() and (labels.sum(axis=0) < count).all():
        expected = roc_auc_score(labels, scores, average="macro")
        assert measure("roc_auc", scores, labels, "multilabel") == pytest.approx(expected)


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(1, 3), st.integers(0, 10**6))
def test_targets_equal_scikit_learn(count: int, targets: int, seed: int) -> None:
    predicted, labels = np.random.default_rng(seed).normal(size=(2, count, targets)).astype(np.float32)
    flat = labels.ravel(), predicted.ravel()
    assert measure("mae", predicted, labels, "regression") == pytest.approx(mean_absolute_error(*flat), rel=1e-5)
    assert measure("rmse", predicted, labels, "regression") == pytest.approx(root_mean_squared_error(*flat), rel=1e-5)


def test_refused() -> None:
    with pytest.raises(GraphError, match="class 3 is in the data but the model knows only 3 classes"):
        measure("accuracy", CLASS_SCORES, np.array([0, 1, 3, 2, -1]), "classification")
    with pytest.raises(GraphError, match="the data has 3 labels but the model knows 2"):
        measure("accuracy", COLUMN_SCORES, np.zeros((4, 3), dtype=np.int8), "multilabel")
    with pytest.raises(GraphError, match="there is no known label to compare with"):
        measure("accuracy", CLASS_SCORES, np.full(5, -1), "classification")
    with pytest.raises(GraphError, match="there is no known target to compare with"):
        measure("mae", floats([[1]]), floats([NAN]), "regression")
    with pytest.raises(ConfigError, match="metric is 'mae'; for multilabel it must be roc_auc or macro_f1 or accuracy"):
        measure("mae", COLUMN_SCORES, COLUMN_LABELS, "multilabel")


@pytest.mark.parametrize(
    ("task", "first"), [("classification", "accuracy"), ("multilabel", "roc_auc"), ("regression", "rmse")]
)
def test_choice(task: str, first: str) -> None:
    assert choose_metric("auto", task) == first
    for metric in METRICS:
        if metric in TASKS[task].metrics:
            assert choose_metric(metric, task) == metric
        else:
            with pytest.raises(ConfigError, match=f"training.metric is '{metric}'; for {task} it must be {first} or"):
                choose_metric(metric, task)


def test_probabilities() -> None:
    thirds = probabilities(floats([[0, math.log(2), 0], [1000, 0, -1000]]), "classification")
    np.testing.assert_allclose(thirds, [[0.25, 0.5, 0.25], [1.0, 0.0, 0.0]], atol=1e-6)
    assert thirds.dtype == np.float32
    halves = probabilities(floats([[0, math.log(3)]]), "multilabel")
    np.testing.assert_allclose(halves, [[0.5, 0.75]], atol=1e-6)
    values = floats([[1, -2]])
    assert probabilities(values, "regression") is values
    scaled = probabilities(values, "regression", (np.array([10.0, 20.0]), np.array([2.0, 3.0])))
    assert scaled.tolist() == [[12, 14]]
    assert scaled.dtype == np.float32


def test_probabilities_of_labels_far_from_zero() -> None:
    assert probabilities(floats([[-1000, 1000]]), "multilabel").tolist() == [[0, 1]]


def test_decisions() -> None:
    assert decide(CLASS_SCORES, "classification").tolist() == [0, 0, 1, 2, 2]
    rows = decide(floats([[0.5, 0.49], [0, 1]]), "multilabel")
    assert rows.tolist() == [[1, 0], [0, 1]]
    assert rows.dtype == np.int8
    values = floats([[1.5]])
    assert decide(values, "regression") is values


@pytest.mark.parametrize("metric", METRICS)
def test_better(metric: str) -> None:
    lower = metric in ("mae", "rmse")
    assert is_better(metric, 1.0, 2.0) is lower
    assert is_better(metric, 2.0, 1.0) is not lower
    assert not is_better(metric, 1.0, 1.0)
    assert is_better(metric, 0.0, NAN)
    assert not is_better(metric, NAN, 0.0)
    assert not is_better(metric, NAN, NAN)
