"""Compute metrics of predictions: of classes, of label columns, of values; choose a threshold for two classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.checks import Array
from ..errors import GraphError

LOWER_IS_BETTER = ("mae", "rmse")
THRESHOLD = 0.5  # a label is predicted where its probability is at least this
_MOST_POINTS = 200  # of a curve that is written down


@dataclass(frozen=True)
class Threshold:
    """The probability from which on one of two classes is predicted.

    >>> Threshold(column=1, value=0.3).decide(np.array([[0.6, 0.4], [0.8, 0.2]], np.float32)).tolist()
    [1, 0]
    """

    column: int
    value: float

    def decide(self, outputs: NDArray[np.float32]) -> Array:
        """Return the class of each node from probabilities [m, 2]."""
        # In float64, as the threshold is: float32 could round it to the score below.
        above = outputs[:, self.column].astype(np.float64) >= self.value
        return np.where(above, self.column, 1 - self.column)


class PrecisionRecall(NamedTuple):
    """Precision and recall at every distinct probability, the largest first."""

    thresholds: NDArray[Any]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]

    @property
    def f1(self) -> NDArray[np.float64]:
        """Return the F1 at each threshold."""
        total = self.precision + self.recall
        return np.divide(2 * self.precision * self.recall, total, out=np.zeros_like(total), where=total > 0)

    def thinned(self) -> PrecisionRecall:
        """Return at most 200 points, the first and the last among them: half of them evenly by recall, half by rank."""
        by_recall = np.searchsorted(self.recall, np.linspace(0, 1, _MOST_POINTS // 2))
        by_rank = np.linspace(0, len(self.recall) - 1, _MOST_POINTS // 2).round().astype(np.int64)
        points = np.unique(np.concatenate([by_recall, by_rank]))
        return PrecisionRecall(*(values[points] for values in self))


@dataclass(frozen=True)
class ClassScore:
    """How well one class or label is found; None where nothing can be counted.

    Attributes
    ----------
    nodes : int
        Nodes that have the class.
    precision : float or None
        The fraction of its predictions that are right.
    recall : float or None
        The fraction of its nodes that are predicted.
    f1 : float or None
        The harmonic mean of both.
    """

    nodes: int
    precision: float | None
    recall: float | None
    f1: float | None


def measure_classes(metric: str, predicted: NDArray[np.float32], labels: Array, decided: Array) -> float:
    """Return a metric of class probabilities [m, c], known classes [m] and predicted classes [m]."""
    if labels.max() >= predicted.shape[1]:
        raise GraphError(f"class {labels.max()} is in the data but the model knows only {predicted.shape[1]} classes")
    if metric == "accuracy":
        return float((decided == labels).mean())
    if metric == "macro_f1":
        from sklearn.metrics import f1_score

        return float(f1_score(labels, decided, average="macro"))
    counts = np.bincount(labels, minlength=predicted.shape[1])
    if metric == "balanced_accuracy":
        right = np.bincount(labels[decided == labels], minlength=len(counts))
        return float((right[counts > 0] / counts[counts > 0]).mean())
    if metric == "average_precision":
        columns = [rarer(counts)] if len(counts) == 2 else range(len(counts))
        return _mean([_average_precision(labels == column, predicted[:, column]) for column in columns])
    scores = [_roc_auc(labels == column, predicted[:, column]) for column in range(predicted.shape[1])]
    return _mean(scores[1:] if len(scores) == 2 else scores)


def measure_columns(metric: str, predicted: NDArray[np.float32], labels: Array) -> float:
    """Return the mean of a metric over the label columns; each column counts the nodes whose label is known."""
    if labels.shape[1] != predicted.shape[1]:
        raise GraphError(f"the data has {labels.shape[1]} labels but the model knows {predicted.shape[1]}")
    scores: list[float | None] = []
    for column in range(labels.shape[1]):
        known = labels[:, column] >= 0
        truth, probability = labels[known, column] == 1, predicted[known, column]
        if not known.any():
            continue
        right = (probability >= THRESHOLD) == truth
        if metric == "roc_auc":
            scores.append(_roc_auc(truth, probability))
        elif metric == "average_precision":
            scores.append(_average_precision(truth, probability))
        elif metric == "accuracy":
            scores.append(float(right.mean()))
        elif metric == "balanced_accuracy":
            scores.append(float(np.mean([right[part].mean() for part in (truth, ~truth) if part.any()])))
        else:
            true_positives = float(((probability >= THRESHOLD) & truth).sum())
            total = float((probability >= THRESHOLD).sum() + truth.sum())
            scores.append(2 * true_positives / total if total else 0.0)
    return _mean(scores)


def measure_values(metric: str, predicted: NDArray[np.float32], targets: Array) -> float:
    """Return an error of values and targets of the same shape; NaN targets do not count."""
    known = ~np.isnan(targets)
    errors = (predicted - targets)[known].astype(np.float64)
    if not errors.size:
        raise GraphError("there is no known target to compare with")
    return float(np.abs(errors).mean() if metric == "mae" else np.sqrt((errors**2).mean()))


def rarer(counts: NDArray[np.int64]) -> int:
    """Return which of two classes has fewer nodes; the second if both have the same.

    >>> rarer(np.array([3, 97])), rarer(np.array([5, 5]))
    (0, 1)
    """
    return int(counts[0] >= counts[1])


def precision_recall(truth: NDArray[np.bool_], score: NDArray[Any]) -> PrecisionRecall:
    """Return precision and recall of predicting true where the score is at least a threshold, for each threshold.

    >>> curve = precision_recall(np.array([True, False, True]), np.array([0.9, 0.5, 0.5]))
    >>> curve.thresholds.tolist(), curve.recall.tolist(), curve.precision.round(2).tolist()
    ([0.9, 0.5], [0.5, 1.0], [1.0, 0.67])
    """
    if not truth.any():
        raise GraphError("there is no node of the class whose precision and recall are asked for")
    order = np.argsort(-score, kind="stable")
    ranked, hits = score[order], np.cumsum(truth[order])
    last = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)  # the last node of each distinct score
    return PrecisionRecall(ranked[last], hits[last] / (last + 1), hits[last] / hits[-1])


def choose_threshold(truth: NDArray[np.bool_], score: NDArray[Any], recall: float | None = None) -> float:
    """Return the threshold with the largest expected F1, or the highest one whose expected recall is reached.

    Expected by `fit_probabilities`: with few nodes of the class, the largest F1 they happen to have is mostly luck.
    The threshold lies halfway to the next lower score, so that rounding on another machine changes no prediction.

    >>> choose_threshold(np.array([True, False, True, False]), np.array([0.75, 0.25, 0.5, 0.25]))
    0.375
    """
    if not truth.any():
        raise GraphError("there is no node of the class whose precision and recall are asked for")
    order = np.argsort(-score, kind="stable")
    ranked, hits = score[order], np.cumsum(fit_probabilities(truth, score)[order])
    last = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)  # the last node of each distinct score
    if recall is None:
        best = int((2 * hits[last] / (last + 1 + hits[-1])).argmax())
    else:
        best = int((hits[last] >= recall * hits[-1]).argmax())
    lower = float(ranked[last[best + 1]]) if best + 1 < len(last) else 0.0
    return (float(ranked[last[best]]) + lower) / 2


def fit_probabilities(truth: NDArray[np.bool_], score: NDArray[Any]) -> NDArray[np.float64]:
    """Return the probability of true for each score, by logistic regression on log(score / (1 - score)).

    Two numbers are fitted, so chance matters little. The aims are not quite 0 and 1, after Platt: otherwise scores that
    tell both apart would have no best fit.

    >>> fit_probabilities(np.array([True, False, True, False]), np.array([0.8, 0.2, 0.8, 0.2])).round(2).tolist()
    [0.75, 0.25, 0.75, 0.25]
    """
    from scipy.optimize import minimize

    clipped = np.clip(score.astype(np.float64), 1e-12, 1 - 1e-12)
    logits = np.log(clipped / (1 - clipped))
    scaled = (logits - logits.mean()) / (logits.std() + 1e-12)
    count = int(truth.sum())
    aims = np.where(truth, (count + 1) / (count + 2), 1 / (len(truth) - count + 2))

    def loss(line: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        fitted = line[0] * scaled + line[1]
        errors = _sigmoid(fitted) - aims
        return float((np.logaddexp(0, fitted) - aims * fitted).mean()), np.array(
            [(errors * scaled).mean(), errors.mean()]
        )

    line = minimize(loss, np.zeros(2), jac=True, method="BFGS").x
    return _sigmoid(line[0] * scaled + line[1])


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return 0.5 * (1 + np.tanh(values / 2))


def score_classes(decided: Array, labels: Array, count: int) -> list[ClassScore]:
    """Return precision, recall and F1 of each class, from predicted and known classes [m]."""
    right = np.bincount(labels[decided == labels], minlength=count)
    return _class_scores(right, np.bincount(decided, minlength=count), np.bincount(labels, minlength=count))


def score_columns(decided: Array, labels: Array) -> list[ClassScore]:
    """Return precision, recall and F1 of each label [m, c]; unknown labels do not count."""
    predicted, true = (decided == 1) & (labels >= 0), labels == 1
    return _class_scores((predicted & true).sum(0), predicted.sum(0), true.sum(0))


def _class_scores(right: NDArray[np.int64], predicted: NDArray[np.int64], true: NDArray[np.int64]) -> list[ClassScore]:
    def fraction(part: int, whole: int) -> float | None:
        return part / whole if whole else None

    return [
        ClassScore(nodes, fraction(hits, guesses), fraction(hits, nodes), fraction(2 * hits, guesses + nodes))
        for hits, guesses, nodes in zip(right.tolist(), predicted.tolist(), true.tolist(), strict=True)
    ]


def is_better(metric: str, value: float, than: float) -> bool:
    """Return whether a value is better than another; any number is better than NaN."""
    if np.isnan(than):
        return not np.isnan(value)
    return value < than if metric in LOWER_IS_BETTER else value > than


def _roc_auc(truth: NDArray[np.bool_], score: NDArray[Any]) -> float | None:
    """Return the area under the ROC curve; None if only one of the two classes occurs."""
    if truth.all() or not truth.any():
        return None
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(truth, score))


def _average_precision(truth: NDArray[np.bool_], score: NDArray[Any]) -> float | None:
    """Return the mean precision, each weighted by the recall it adds; None if the class does not occur."""
    if not truth.any():
        return None
    _, precision, recall = precision_recall(truth, score)
    return float((np.diff(recall, prepend=0.0) * precision).sum())


def _mean(scores: list[float | None]) -> float:
    """Return the mean of the scores that could be computed, or NaN."""
    computed = [score for score in scores if score is not None]
    return float(np.mean(computed)) if computed else float("nan")
