"""Metrics by literal values and against scikit-learn; what is unknown does not count."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    mean_absolute_error,
    precision_recall_curve,
    precision_recall_fscore_support,
    roc_auc_score,
    root_mean_squared_error,
)

from vcr_graphormer import ConfigError, GraphError
from vcr_graphormer.data import tasks
from vcr_graphormer.data.metrics import (
    ClassScore,
    Threshold,
    choose_threshold,
    fit_probabilities,
    is_better,
    precision_recall,
    score_classes,
    score_columns,
)
from vcr_graphormer.data.tasks import TASKS, Target, weights_by_class
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
        ("average_precision", 1.0),
        ("balanced_accuracy", (1 + 1 / 2 + 1) / 3),
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
        # Column 1: 0.8 is right, then 0.7 and 0.3 are wrong, 0.1 is right.
        ("average_precision", (1 + (1 / 1 + 2 / 4) / 2) / 2),
        # Column 0: the 1 is found, one of two 0. Column 1: one of two each.
        ("balanced_accuracy", ((1 + 1 / 2) / 2 + (1 / 2 + 1 / 2) / 2) / 2),
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


def test_average_precision_is_that_of_the_rarer_class() -> None:
    scores = floats([[0.9, 0.1], [0.4, 0.6], [0.6, 0.4], [0.2, 0.8]])
    # Class 0 has one node: 0.6, below a node of the other class.
    assert measure("average_precision", scores, np.array([1, 1, 0, 1]), "classification") == pytest.approx(1 / 2)
    assert measure("average_precision", 1 - scores, np.array([0, 0, 1, 0]), "classification") == pytest.approx(1 / 2)
    assert math.isnan(measure("average_precision", scores, np.array([1, 1, 1, 1]), "classification"))
    both = measure("average_precision", scores, np.array([0, 1, 0, 1]), "classification")  # as many: the second
    assert both == 1.0


def test_a_threshold_decides() -> None:
    scores, labels = floats([[0.3, 0.7], [0.2, 0.8], [0.1, 0.9]]), np.array([0, 1, 1])
    low = Target(TASKS["classification"], threshold=Threshold(0, 0.3))
    assert low.decide(scores).tolist() == [0, 1, 1]
    assert low.explained(torch.from_numpy(scores)).tolist() == [0, 1, 1]
    assert (low.measure("accuracy", scores, labels), low.measure("balanced_accuracy", scores, labels)) == (1.0, 1.0)
    assert measure("accuracy", scores, labels, "classification") == 2 / 3
    second = Target(TASKS["classification"], threshold=Threshold(1, 0.85))
    assert second.decide(scores).tolist() == second.explained(torch.from_numpy(scores)).tolist() == [0, 0, 1]
    assert second.measure("roc_auc", scores, labels) == measure("roc_auc", scores, labels, "classification") == 1.0


def test_a_threshold_between_neighbouring_numbers_keeps_them_apart() -> None:
    low = np.float32(0.5)
    high = np.nextafter(low, np.float32(1))
    value = (float(low) + float(high)) / 2
    assert np.float32(value) == low  # in float32 there is nothing between them
    outputs = np.array([[low, 1 - low], [high, 1 - high]], np.float32)
    assert Threshold(0, value).decide(outputs).tolist() == [1, 0]


def test_the_choice_of_a_threshold() -> None:
    target, train = Target(TASKS["classification"]), np.array([0, 1, 1, 1, -1])
    outputs = np.stack([np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.6, 0.7, 0.8, 0.9])], axis=1).astype(np.float32)
    outputs, labels = np.repeat(outputs, 10, axis=0), np.repeat([0, -1, 0, 1], 10)
    for plain in ("auto", 0.5):
        assert target.with_threshold(plain, train, outputs=outputs, labels=labels) is target
    given = target.with_threshold(0.25, train, outputs=outputs, labels=labels).threshold
    assert given == Threshold(0, 0.25)
    # 0.2 finds both nodes of class 0 and no other; the next lower probability is 0.1.
    chosen = target.with_threshold("f1", train, outputs=outputs, labels=labels).threshold
    assert chosen is not None
    assert chosen.column == 0
    assert chosen.value == pytest.approx(0.15)
    assert choose_threshold(np.array([True, True]), np.array([0.5, 0.25])) == 0.125  # nothing below: halfway to 0
    with pytest.raises(GraphError, match="there is no node of the class whose precision and recall are asked for"):
        choose_threshold(np.array([False]), np.array([0.5]))


def naive_threshold(likely: list[float], score: list[float], recall: float | None) -> float:
    """Return the highest score with the largest expected F1, or with the recall, by trying every score."""
    best = (0.0, 0.0)
    for threshold in sorted(set(score), reverse=True):
        guess = [value >= threshold for value in score]
        hits = sum(a for a, b in zip(likely, guess, strict=True) if b)
        if recall is not None and hits >= recall * sum(likely) - 1e-12:
            return threshold
        best = max(best, (round(2 * hits / (sum(guess) + sum(likely)), 12), threshold))
    return best[1]


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(2, 12), st.integers(0, 10**6))
def test_curve_and_choice_equal_their_slow_versions(count: int, values: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    truth = generator.random(count) < 0.3
    truth[0] = True
    score = (generator.integers(1, values, count) / values).astype(np.float32)  # with ties
    curve = precision_recall(truth, score)
    precision, recall, thresholds = precision_recall_curve(truth, score, drop_intermediate=False)
    np.testing.assert_allclose(curve.thresholds, thresholds[::-1])
    np.testing.assert_allclose(curve.precision, precision[-2::-1])
    np.testing.assert_allclose(curve.recall, recall[-2::-1])
    assert curve.f1.max() == pytest.approx(max(f1_score(truth, score >= value) for value in set(score.tolist())))
    likely = fit_probabilities(truth, score)
    assert likely.sum() == pytest.approx(truth.sum(), abs=2)
    for recall in (None, 0.6):
        guess = score >= choose_threshold(truth, score, recall)
        assert guess.tolist() == (score >= naive_threshold(likely.tolist(), score.tolist(), recall)).tolist()


def test_the_choice_of_a_threshold_rests_on_all_nodes() -> None:
    generator = np.random.default_rng(0)
    score = generator.beta(0.3, 3, 100_000)
    truth = generator.random(100_000) < score  # the score is the probability
    chosen = choose_threshold(truth, score)
    f1 = precision_recall(truth, score).f1.max()
    assert chosen == pytest.approx(f1 / 2, abs=0.01)  # the best threshold is half the best F1, if scores are right
    assert f1_score(truth, score >= chosen) == pytest.approx(f1, abs=0.002)
    parts = np.split(np.arange(20_000), 50)
    few = [choose_threshold(truth[part], score[part]) for part in parts]
    curves = [precision_recall(truth[part], score[part]) for part in parts]
    by_chance = [float(curve.thresholds[curve.f1.argmax()]) for curve in curves]
    assert np.std(few) < 0.6 * np.std(by_chance)
    assert truth[score >= choose_threshold(truth, score, 0.8)].sum() == pytest.approx(0.8 * truth.sum(), rel=0.02)


def test_a_long_curve_is_thinned() -> None:
    generator = np.random.default_rng(0)
    truth = generator.random(5000) < 0.02
    score = generator.random(5000) + truth
    curve = precision_recall(truth, score)
    thin = curve.thinned()
    assert len(curve.recall) == 5000
    assert 100 <= len(thin.recall) <= 200
    assert (thin.thresholds[0], thin.thresholds[-1]) == (score.max(), score.min())
    assert np.diff(thin.recall).max() < 0.02  # the steep part is kept: 100 steps of recall
    short = precision_recall(np.array([True, False]), np.array([0.5, 0.25]))
    assert short.thinned().thresholds.tolist() == [0.5, 0.25]


def test_scores_of_each_class() -> None:
    labels, decided = np.array([0, 0, 0, 1, 2]), np.array([0, 0, 1, 1, 1])
    assert score_classes(decided, labels, 4) == [
        ClassScore(3, 1.0, 2 / 3, 4 / 5),
        ClassScore(1, 1 / 3, 1.0, 2 / 4),
        ClassScore(1, None, 0.0, 0.0),
        ClassScore(0, None, None, None),
    ]
    rows, guesses = np.array([[1, -1], [0, 1], [1, 0]]), np.array([[1, 1], [1, 0], [0, 0]])
    assert score_columns(guesses, rows) == [ClassScore(2, 1 / 2, 1 / 2, 1 / 2), ClassScore(1, None, 0.0, 0.0)]
    assert TASKS["classification"].class_scores(np.array([0, 1]), np.array([0, -1]), 2)[1].nodes == 0
    assert TASKS["multilabel"].class_scores(guesses, rows, 2) == score_columns(guesses, rows)
    assert TASKS["regression"].class_scores(floats([1]), floats([2]), 1) == []


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(2, 5), st.integers(0, 10**6))
def test_scores_of_each_class_equal_scikit_learn(count: int, classes: int, seed: int) -> None:
    labels, decided = np.random.default_rng(seed).integers(0, classes, (2, count))
    expected = precision_recall_fscore_support(labels, decided, labels=range(classes), zero_division=NAN)
    rows = score_classes(decided, labels, classes)
    for place, name in enumerate(("precision", "recall", "f1")):
        found = [NAN if getattr(row, name) is None else getattr(row, name) for row in rows]
        np.testing.assert_allclose(found, expected[place])
    assert [row.nodes for row in rows] == expected[3].tolist()


def weights(task: str, labels: np.ndarray, outputs: int, given: Any) -> np.ndarray:
    made = TASKS[task].weights(labels, outputs, given)
    assert made is not None
    return made


def test_weights_of_classes() -> None:
    labels = np.array([0] * 6 + [1] * 3 + [2] + [-1] * 4)
    assert (
        weights("classification", labels, 3, None).tolist() == floats([10 / 18, 10 / 9, 10 / 3]).tolist()
    )  # n / (c n_class)
    # Weights 1, 1 and 10 of 10 nodes have the mean 19 / 10.
    assert weights("classification", labels, 3, [1, 1, 10]).tolist() == floats([10 / 19, 10 / 19, 100 / 19]).tolist()
    absent = weights("classification", labels, 4, None)
    assert absent[:3].tolist() == floats([10 / 18, 10 / 9, 10 / 3]).tolist()
    rows = np.array([[1, 0], [0, -1], [0, 1], [0, -1]])
    found = weights("multilabel", rows, 2, None)
    np.testing.assert_allclose(found, [[4 / 6, 1], [4 / 2, 1]], rtol=1e-6)
    found = weights("multilabel", rows, 2, [3.0, 1.0])  # of 1 in each column; that of 0 is 1
    np.testing.assert_allclose(found, [[4 / 6, 1], [12 / 6, 1]], rtol=1e-6)
    unknown = weights("multilabel", np.full((2, 1), -1), 1, None)
    assert unknown.tolist() == [[1], [1]]
    assert TASKS["regression"].weights(floats([1]), 1, None) is None


def test_weights_by_name() -> None:
    names = ["fraud", "1", "ok"]
    assert weights_by_class({"fraud": 10, "2": 3.0}, names) == [10.0, 1.0, 3.0]
    assert weights_by_class({1: 5.0}, names) == [1.0, 5.0, 1.0]  # type: ignore[dict-item]
    assert weights_by_class((1, 2, 3), names) == [1.0, 2.0, 3.0]
    with pytest.raises(ConfigError, match="unknown class 'frauds'; did you mean 'fraud'"):
        weights_by_class({"frauds": 2.0}, names)
    with pytest.raises(ConfigError, match="class_weights has 2 weights but there are 3 classes: give one for each"):
        weights_by_class([1.0, 2.0], names)
    plain = Target(TASKS["classification"])
    assert plain.weighted(np.array([0, 1]), "none", ["a", "b"]) is plain


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
    if len(set(truth.tolist())) > 1 and set(guess.tolist()) <= set(truth.tolist()):  # scikit-learn warns otherwise
        expected = balanced_accuracy_score(truth, guess)
        assert measure("balanced_accuracy", scores, labels, "classification") == pytest.approx(expected)
    if len(set(truth.tolist())) == scores.shape[1]:
        rows = np.eye(scores.shape[1])[truth]
        each = average_precision_score(rows, scores[known], average=None)
        rarer = int(np.bincount(truth)[0] >= np.bincount(truth)[1])
        expected = each[rarer] if len(each) == 2 else each.mean()
        assert measure("average_precision", scores, labels, "classification") == pytest.approx(expected, abs=1e-6)
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
        expected = average_precision_score(labels, scores, average="macro")
        assert measure("average_precision", scores, labels, "multilabel") == pytest.approx(expected)
        expected = np.mean([balanced_accuracy_score(labels[:, i], guess[:, i]) for i in range(columns)])
        assert measure("balanced_accuracy", scores, labels, "multilabel") == pytest.approx(expected)


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
