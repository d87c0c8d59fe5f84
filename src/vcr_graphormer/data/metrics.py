"""Metrics of predictions against labels, by task. Unknown labels do not count."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..base.checks import Array
from ..errors import ConfigError, GraphError
from .contract import Task

METRICS_OF_TASK: dict[str, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1", "roc_auc"),
    "multilabel": ("roc_auc", "macro_f1", "accuracy"),
    "regression": ("rmse", "mae"),
}


LOWER_IS_BETTER = ("mae", "rmse")


def choose_metric(name: str, task: Task) -> str:
    """The metric by name; `auto` is the task's first."""
    allowed = METRICS_OF_TASK[task]
    if name == "auto":
        return allowed[0]
    if name not in allowed:
        raise ConfigError(f"training.metric is {name!r}; for {task} it must be {' or '.join(allowed)}")
    return name


def probabilities(
    logits: NDArray[np.float32], task: Task, scale: tuple[Array, Array] | None = None
) -> NDArray[np.float32]:
    """Logits → class probabilities (rows sum to 1), label probabilities, or values on the targets' own scale."""
    if task == "regression":
        return logits if scale is None else (logits * scale[1] + scale[0]).astype(np.float32)
    if task == "multilabel":
        return np.asarray(expit(logits.astype(np.float64)), dtype=np.float32)
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True), dtype=np.float32)


def decide(predicted: NDArray[np.float32], task: Task) -> Array:
    """Probabilities → class ids, label rows of 0 and 1, or the values themselves."""
    if task == "classification":
        return np.asarray(predicted.argmax(axis=1))
    return (predicted >= 0.5).astype(np.int8) if task == "multilabel" else predicted


def measure(metric: str, predicted: NDArray[np.float32], labels: Array, task: Task) -> float:
    """One metric of predictions [m, c] against the labels of the same nodes.

    >>> measure("accuracy", np.array([[0.9, 0.1], [0.2, 0.8]], np.float32), np.array([0, 0]), "classification")
    0.5
    """
    if metric not in METRICS_OF_TASK[task]:
        raise ConfigError(f"metric is {metric!r}; for {task} it must be {' or '.join(METRICS_OF_TASK[task])}")
    if task == "regression":
        known = ~np.isnan(labels.reshape(predicted.shape))
        errors = (predicted - labels.reshape(predicted.shape))[known].astype(np.float64)
        if not errors.size:
            raise GraphError("there is no known target to compare with")
        return float(np.abs(errors).mean() if metric == "mae" else np.sqrt((errors**2).mean()))
    if task == "multilabel":
        return _measure_columns(metric, predicted, labels)
    known = labels >= 0
    if not known.any():
        raise GraphError("there is no known label to compare with")
    return _measure_classes(metric, predicted[known], labels[known])


def _measure_classes(metric: str, predicted: NDArray[np.float32], labels: Array) -> float:
    if labels.max() >= predicted.shape[1]:
        raise GraphError(f"class {labels.max()} is in the data but the model knows only {predicted.shape[1]} classes")
    if metric == "accuracy":
        return float((predicted.argmax(axis=1) == labels).mean())
    if metric == "macro_f1":
        from sklearn.metrics import f1_score

        return float(f1_score(labels, predicted.argmax(axis=1), average="macro"))
    scores = [_roc_auc(labels == column, predicted[:, column]) for column in range(predicted.shape[1])]
    return _mean(scores[1:] if len(scores) == 2 else scores)


def _measure_columns(metric: str, predicted: NDArray[np.float32], labels: Array) -> float:
    """The mean over label columns, each over the nodes whose entry is known."""
    if labels.shape[1] != predicted.shape[1]:
        raise GraphError(f"the data has {labels.shape[1]} labels but the model knows {predicted.shape[1]}")
    scores: list[float | None] = []
    for column in range(labels.shape[1]):
        known = labels[:, column] >= 0
        truth, guess = labels[known, column] == 1, predicted[known, column]
        if not known.any():
            continue
        if metric == "roc_auc":
            scores.append(_roc_auc(truth, guess))
        elif metric == "accuracy":
            scores.append(float(((guess >= 0.5) == truth).mean()))
        else:
            hits = float(((guess >= 0.5) & truth).sum())
            total = float((guess >= 0.5).sum() + truth.sum())
            scores.append(2 * hits / total if total else 0.0)
    return _mean(scores)


def _roc_auc(truth: NDArray[np.bool_], score: NDArray[Any]) -> float | None:
    """None where only one of the two kinds occurs: there is nothing to rank."""
    if truth.all() or not truth.any():
        return None
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(truth, score))


def _mean(scores: list[float | None]) -> float:
    """The mean of those that could be computed; NaN where none could."""
    found = [score for score in scores if score is not None]
    return float(np.mean(found)) if found else float("nan")


def is_better(metric: str, value: float, than: float) -> bool:
    """Whether a value beats another; anything beats NaN."""
    if np.isnan(than):
        return not np.isnan(value)
    return value < than if metric in LOWER_IS_BETTER else value > than
