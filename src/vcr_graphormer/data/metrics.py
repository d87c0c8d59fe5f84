"""Compute metrics of predictions: of classes, of label columns, of values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.checks import Array
from ..errors import GraphError

LOWER_IS_BETTER = ("mae", "rmse")
THRESHOLD = 0.5  # a label is predicted where its probability is at least this


def measure_classes(metric: str, predicted: NDArray[np.float32], labels: Array) -> float:
    """Return a metric of class probabilities [m, c] and known classes [m]."""
    if labels.max() >= predicted.shape[1]:
        raise GraphError(f"class {labels.max()} is in the data but the model knows only {predicted.shape[1]} classes")
    if metric == "accuracy":
        return float((predicted.argmax(axis=1) == labels).mean())
    if metric == "macro_f1":
        from sklearn.metrics import f1_score

        return float(f1_score(labels, predicted.argmax(axis=1), average="macro"))
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
        if metric == "roc_auc":
            scores.append(_roc_auc(truth, probability))
        elif metric == "accuracy":
            scores.append(float(((probability >= THRESHOLD) == truth).mean()))
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


def _mean(scores: list[float | None]) -> float:
    """Return the mean of the scores that could be computed, or NaN."""
    computed = [score for score in scores if score is not None]
    return float(np.mean(computed)) if computed else float("nan")
