"""The three tasks: class labels, several labels per node, and float targets. Each is one object.

A task knows the form of its labels, their form as inputs, its loss, the meaning of outputs, and its metrics. No other
module asks for the name of a task. To add one, write a class here and put it into `_KNOWN`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..base.checks import Array, to_numpy, to_whole_numbers
from ..errors import ConfigError, GraphError, unknown_name
from .metrics import (
    THRESHOLD,
    ClassScore,
    Threshold,
    choose_threshold,
    measure_classes,
    measure_columns,
    measure_values,
    rarer,
    score_classes,
    score_columns,
)

if TYPE_CHECKING:
    from torch import Tensor

Scale = tuple[Array, Array]
# `training.class_weights`: none, balanced, weights by name or number of a class, or one weight per class.
ClassWeights = str | Mapping[str, float] | Sequence[float]
# Class ids up to this may have gaps. Beyond it, an id above the number of nodes is taken for a mistake.
MOST_GAPPY_ID = 1000


class Task(Protocol):
    """What a model learns, and how its outputs are measured."""

    name: str
    words: str
    """What the outputs are called: classes, labels or targets."""
    metrics: tuple[str, ...]
    """The first one is the default."""
    unknown: float
    """The entry of a node without a label."""
    has_classes: bool
    """Whether each node has one class; content by labels and the confusion matrix need that."""
    gives_values: bool
    """Whether outputs are values; otherwise they are probabilities."""
    several_columns: bool
    """Whether a labels file has one column per label, beside the column of nodes."""

    def check_labels(self, labels: Array) -> Array:
        """Return the labels in the form that is stored; refuse labels that do not fit the task."""
        ...

    def count_outputs(self, labels: Array) -> int:
        """Return the number of classes, labels or targets."""
        ...

    def label_width(self, outputs: int) -> int:
        """Return the number of columns of `label_rows`."""
        ...

    def label_rows(self, labels: Array, train: NDArray[np.int64], outputs: int) -> NDArray[np.float32]:
        """Return labels as inputs [n, width]; rows of nodes that are not in `train` are zero."""
        ...

    def scale(self, labels: Array, train: NDArray[np.int64]) -> Scale | None:
        """Return mean and standard deviation of the training nodes' targets; None if labels are no targets."""
        ...

    def wanted(self, labels: Array, scale: Scale | None) -> Array:
        """Return the labels as the loss compares them with the model's outputs."""
        ...

    def weights(self, labels: Array, outputs: int, given: Sequence[float] | None) -> NDArray[np.float32] | None:
        """Return the weights that `loss` takes, with a mean of 1 over the labels; None if there are no classes.

        `given` has a weight per class; None weights all classes alike, however many nodes they have.
        """
        ...

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0, weights: Tensor | None = None) -> Tensor:
        """Return the mean loss over the known labels, each times its weight."""
        ...

    def count_known(self, labels: Tensor) -> Tensor | int:
        """Return the number of labels that the loss is a mean over."""
        ...

    def outputs(self, logits: NDArray[np.float32], scale: Scale | None) -> NDArray[np.float32]:
        """Return probabilities, or values in the units of the targets."""
        ...

    def output_tensor(self, logits: Tensor, scale: Scale | None) -> Tensor:
        """Return the same as `outputs`, from a tensor, as float32."""
        ...

    def explained(self, outputs: Tensor) -> Tensor:
        """Return the output column that is explained by default, one per node."""
        ...

    def decide(self, outputs: NDArray[np.float32]) -> Array:
        """Return the predictions: class ids, rows of 0 and 1, or values."""
        ...

    def measure(
        self, metric: str, outputs: NDArray[np.float32], labels: Array, threshold: Threshold | None = None
    ) -> float:
        """Return one metric of outputs and labels of the same nodes, without unknown labels.

        `threshold` decides between two classes; None takes the more probable one.
        """
        ...

    def class_scores(self, decided: Array, labels: Array, outputs: int) -> list[ClassScore]:
        """Return precision, recall and F1 of each class, from predictions and labels; empty if there are none."""
        ...

    def label_text(self, label: Any, names: Sequence[str]) -> str | None:
        """Return the label of one node in words, or None if it has none."""
        ...


class _Labels:
    """The part that class labels and several labels per node have in common."""

    def label_width(self, outputs: int) -> int:
        return outputs

    def scale(self, labels: Array, train: NDArray[np.int64]) -> None:
        return None

    def wanted(self, labels: Array, scale: Scale | None) -> Array:
        return labels

    def explained(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(1)


class _Classification(_Labels):
    """One class per node: int64 [n], -1 for unknown."""

    name, words = "classification", "classes"
    metrics: tuple[str, ...] = ("accuracy", "macro_f1", "roc_auc", "average_precision", "balanced_accuracy")
    unknown, has_classes, gives_values, several_columns = -1.0, True, False, False

    def check_labels(self, labels: Array) -> NDArray[np.int64]:
        if labels.ndim != 1:
            raise GraphError(f"labels has shape {list(labels.shape)}; class ids must be [n] (use task='multilabel')")
        if labels.dtype.kind == "b":
            return labels.astype(np.int64)
        try:
            ids = to_whole_numbers(labels, "labels").astype(np.int64)
        except GraphError as error:
            raise GraphError(
                f"{error} as a class id (-1 = unknown); for float targets pass task='regression'"
            ) from None
        if ids.size and ids.min() < -1:
            node = int(np.flatnonzero(ids < -1)[0])
            raise GraphError(f"labels[{node}] is {ids[node]}; class ids are 0, 1, 2, … and -1 for unknown")
        if ids.size and ids.max() > max(MOST_GAPPY_ID, ids.size):
            raise GraphError(f"labels go up to {ids.max()}; number the classes 0, 1, 2, … without large gaps")
        return ids

    def count_outputs(self, labels: Array) -> int:
        return max(0, int(labels.max()) + 1)

    def label_rows(self, labels: Array, train: NDArray[np.int64], outputs: int) -> NDArray[np.float32]:
        used = train[known_labels(labels[train])]
        rows = np.zeros((len(labels), outputs), dtype=np.float32)
        rows[used, labels[used]] = 1.0
        return rows

    def weights(self, labels: Array, outputs: int, given: Sequence[float] | None) -> NDArray[np.float32]:
        """Return one weight per class."""
        counts = np.bincount(labels[labels >= 0], minlength=outputs)
        weights = 1 / np.maximum(counts, 1) if given is None else np.asarray(given, dtype=np.float64)
        return np.asarray(weights * (counts.sum() / (counts @ weights)), dtype=np.float32)

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0, weights: Tensor | None = None) -> Tensor:
        """Return the mean cross-entropy; a node with weight 3 counts like three nodes."""
        from torch.nn.functional import cross_entropy

        if weights is None:
            return cross_entropy(logits, labels, label_smoothing=smoothing)
        return (weights[labels] * cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")).mean()

    def count_known(self, labels: Tensor) -> int:
        return len(labels)

    def outputs(self, logits: NDArray[np.float32], scale: Scale | None) -> NDArray[np.float32]:
        powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True), dtype=np.float32)

    def output_tensor(self, logits: Tensor, scale: Scale | None) -> Tensor:
        return logits.float().softmax(-1)

    def decide(self, outputs: NDArray[np.float32]) -> Array:
        return np.asarray(outputs.argmax(axis=1))

    def measure(
        self, metric: str, outputs: NDArray[np.float32], labels: Array, threshold: Threshold | None = None
    ) -> float:
        known = labels >= 0
        if not known.any():
            raise GraphError("there is no known label to compare with")
        outputs, labels = outputs[known], labels[known]
        decided = self.decide(outputs) if threshold is None else threshold.decide(outputs)
        return measure_classes(metric, outputs, labels, decided)

    def class_scores(self, decided: Array, labels: Array, outputs: int) -> list[ClassScore]:
        known = labels >= 0
        return score_classes(decided[known], labels[known], outputs)

    def label_text(self, label: Any, names: Sequence[str]) -> str | None:
        return names[int(label)] if label >= 0 else None


class _MultiLabel(_Labels):
    """Any number of labels per node: int8 [n, c] of 0 and 1, -1 for unknown."""

    name, words = "multilabel", "labels"
    metrics: tuple[str, ...] = ("roc_auc", "macro_f1", "accuracy", "average_precision", "balanced_accuracy")
    unknown, has_classes, gives_values, several_columns = -1.0, False, False, True

    def check_labels(self, labels: Array) -> NDArray[np.int8]:
        if labels.ndim != 2:
            raise GraphError(f"labels has shape {list(labels.shape)}; a multi-label matrix must be [n, classes]")
        wrong = ~np.isin(labels, (-1, 0, 1))
        if wrong.any():
            row, column = (int(i) for i in np.argwhere(wrong)[0])
            raise GraphError(
                f"labels[{row}, {column}] is {labels[row, column]}; a multi-label matrix holds 0, 1 and -1 for unknown "
                f"(for float targets pass task='regression')"
            )
        return labels.astype(np.int8)

    def count_outputs(self, labels: Array) -> int:
        return int(labels.shape[1])

    def label_rows(self, labels: Array, train: NDArray[np.int64], outputs: int) -> NDArray[np.float32]:
        """Return 1 for each label that a training node is known to have."""
        used = train[known_labels(labels[train])]
        rows = np.zeros(labels.shape, dtype=np.float32)
        rows[used] = labels[used] == 1
        return rows

    def weights(self, labels: Array, outputs: int, given: Sequence[float] | None) -> NDArray[np.float32]:
        """Return the weights of 0 and of 1 in each column [2, c]; `given` has those of 1, and 0 has weight 1."""
        counts = np.stack([(labels == 0).sum(0), (labels == 1).sum(0)])
        weights = 1 / np.maximum(counts, 1) if given is None else np.stack([np.ones(outputs), np.asarray(given)])
        total = (counts * weights).sum(0)
        mean_one = np.divide(counts.sum(0), total, out=np.ones(outputs), where=total > 0)
        return np.asarray(weights * mean_one, dtype=np.float32)

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0, weights: Tensor | None = None) -> Tensor:
        """Return the mean binary cross-entropy over the known labels, each times its weight."""
        from torch.nn.functional import binary_cross_entropy_with_logits

        targets = (labels == 1).to(logits.dtype) * (1 - smoothing) + smoothing / 2
        known = (labels >= 0).to(logits.dtype)
        if weights is not None:
            known = known * weights[1].where(labels == 1, weights[0])
        return binary_cross_entropy_with_logits(logits, targets, known, reduction="sum") / self.count_known(labels)

    def count_known(self, labels: Tensor) -> Tensor:
        return (labels >= 0).sum().clamp(min=1)

    def outputs(self, logits: NDArray[np.float32], scale: Scale | None) -> NDArray[np.float32]:
        return np.asarray(expit(logits.astype(np.float64)), dtype=np.float32)

    def output_tensor(self, logits: Tensor, scale: Scale | None) -> Tensor:
        return logits.float().sigmoid()

    def decide(self, outputs: NDArray[np.float32]) -> Array:
        return (outputs >= THRESHOLD).astype(np.int8)

    def measure(
        self, metric: str, outputs: NDArray[np.float32], labels: Array, threshold: Threshold | None = None
    ) -> float:
        return measure_columns(metric, outputs, labels)

    def class_scores(self, decided: Array, labels: Array, outputs: int) -> list[ClassScore]:
        return score_columns(decided, labels)

    def label_text(self, label: Any, names: Sequence[str]) -> str | None:
        return ", ".join(names[int(column)] for column in np.flatnonzero(label == 1)) or "none"


class _Regression:
    """One or several float targets per node: float32 [n] or [n, t], NaN for unknown. The model learns them scaled."""

    name, words = "regression", "targets"
    metrics: tuple[str, ...] = ("rmse", "mae")
    unknown, has_classes, gives_values, several_columns = float("nan"), False, True, False

    def check_labels(self, labels: Array) -> NDArray[np.float32]:
        targets = labels.astype(np.float32)
        if np.isinf(targets).any():
            index = [int(i) for i in np.argwhere(np.isinf(targets))[0]]
            raise GraphError(f"labels{index} is {targets[tuple(index)]}; targets must be finite, or NaN for unknown")
        return targets

    def count_outputs(self, labels: Array) -> int:
        return int(labels.shape[1]) if labels.ndim == 2 else 1

    def label_width(self, outputs: int) -> int:
        return outputs + 1

    def label_rows(self, labels: Array, train: NDArray[np.int64], outputs: int) -> NDArray[np.float32]:
        """Return the targets, roughly standardized, and a last column of 1 where a target is known.

        The deviation is rounded to a power of two and the mean to half a deviation: a node's own target hardly ever
        changes them.
        """
        used = train[known_labels(labels[train])]
        mean, deviation = self.scale(labels, train)
        deviation = 2.0 ** np.round(np.log2(deviation))
        mean = np.round(2 * mean / deviation) * deviation / 2
        values = (labels.reshape(len(labels), -1) - mean) / deviation
        rows = np.zeros((len(labels), values.shape[1] + 1), dtype=np.float32)
        rows[used, :-1] = np.nan_to_num(values[used])
        rows[used, -1] = 1.0
        return rows

    def scale(self, labels: Array, train: NDArray[np.int64]) -> Scale:
        values = np.asarray(labels, dtype=np.float64).reshape(len(labels), -1)[train]
        known = ~np.isnan(values)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, values, 0).sum(axis=0) / count
        deviation = np.sqrt((np.where(known, values - mean, 0) ** 2).sum(axis=0) / count)
        return mean, np.where(deviation > 0, deviation, 1.0)

    def wanted(self, labels: Array, scale: Scale | None) -> Array:
        if scale is None:
            return labels
        return ((labels.reshape(len(labels), -1) - scale[0]) / scale[1]).astype(np.float32)

    def weights(self, labels: Array, outputs: int, given: Sequence[float] | None) -> None:
        return None

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0, weights: Tensor | None = None) -> Tensor:
        """Return the mean squared error of the known targets."""
        import torch

        errors = torch.where(~labels.isnan(), logits - labels.nan_to_num(), 0.0)
        return (errors**2).sum() / self.count_known(labels)

    def count_known(self, labels: Tensor) -> Tensor:
        return (~labels.isnan()).sum().clamp(min=1)

    def outputs(self, logits: NDArray[np.float32], scale: Scale | None) -> NDArray[np.float32]:
        return logits if scale is None else (logits * scale[1] + scale[0]).astype(np.float32)

    def output_tensor(self, logits: Tensor, scale: Scale | None) -> Tensor:
        import torch

        if scale is None:
            return logits.float()
        mean, deviation = (torch.as_tensor(part, dtype=torch.float32, device=logits.device) for part in scale)
        return logits.float() * deviation + mean

    def explained(self, outputs: Tensor) -> Tensor:
        """Return the first target."""
        import torch

        return torch.zeros_like(outputs[:, 0], dtype=torch.int64)

    def decide(self, outputs: NDArray[np.float32]) -> Array:
        return outputs

    def measure(
        self, metric: str, outputs: NDArray[np.float32], labels: Array, threshold: Threshold | None = None
    ) -> float:
        return measure_values(metric, outputs, labels.reshape(outputs.shape))

    def class_scores(self, decided: Array, labels: Array, outputs: int) -> list[ClassScore]:
        return []

    def label_text(self, label: Any, names: Sequence[str]) -> str | None:
        known = np.atleast_1d(label)[~np.isnan(np.atleast_1d(label))]
        return ", ".join(f"{value:.4g}" for value in known) or None


_KNOWN: tuple[Task, ...] = (_Classification(), _MultiLabel(), _Regression())
TASKS = {task.name: task for task in _KNOWN}
CLASSIFICATION = TASKS["classification"]


@dataclass(frozen=True, eq=False)
class Target:
    """A task, together with what training nodes say about it.

    Attributes
    ----------
    task : Task
        The task.
    scale : pair of arrays or None
        Mean and deviation of the targets, if there are any.
    weights : float32 array or None
        The weights of the classes in the loss; None weights all nodes alike.
    threshold : Threshold or None
        What decides between two classes; None takes the most probable class.
    """

    task: Task
    scale: Scale | None = None
    weights: NDArray[np.float32] | None = None
    threshold: Threshold | None = None

    @classmethod
    def of(cls, task: str, labels: Array, train: NDArray[np.int64]) -> Target:
        """Return the task of that name, with the scale of the training nodes' labels."""
        return cls(TASKS[task], TASKS[task].scale(labels, train))

    def weighted(self, labels: Array, class_weights: ClassWeights, names: Sequence[str]) -> Target:
        """Return the target with weights for classes of these names, learned from the labels of training nodes."""
        if class_weights == "none":
            return self
        given = None if class_weights == "balanced" else weights_by_class(class_weights, names)
        return replace(self, weights=self.task.weights(labels, len(names), given))

    def with_threshold(
        self, wanted: str | float, train: Array, *, outputs: NDArray[np.float32], labels: Array
    ) -> Target:
        """Return the target with the threshold of the rarer of two classes; which one is rarer, training labels say.

        Parameters
        ----------
        wanted
            The setting `training.threshold`.
        outputs, labels
            Probabilities and labels of the validation nodes, on which `f1` and `recall=…` choose.
        """
        if wanted in ("auto", THRESHOLD):
            return self
        column = rarer(np.bincount(train[train >= 0], minlength=2))
        if isinstance(wanted, str):
            known = labels >= 0
            recall = wanted_recall(wanted)
            wanted = choose_threshold(labels[known] == column, outputs[known, column], recall)
        return replace(self, threshold=Threshold(column, wanted))

    def decide(self, outputs: NDArray[np.float32]) -> Array:
        """Return the predictions: class ids, rows of 0 and 1, or values."""
        return self.task.decide(outputs) if self.threshold is None else self.threshold.decide(outputs)

    def explained(self, outputs: Tensor) -> Tensor:
        """Return the output column that is explained by default, one per node: the predicted class."""
        if self.threshold is None:
            return self.task.explained(outputs)
        column = self.threshold.column
        above = (outputs[:, column].double() >= self.threshold.value).long()
        return above if column == 1 else 1 - above

    def measure(self, metric: str, outputs: NDArray[np.float32], labels: Array) -> float:
        """Return one metric of outputs and labels of the same nodes."""
        return measure(metric, outputs, labels, self.task, threshold=self.threshold)

    def wanted(self, labels: Array) -> Array:
        """Return the labels as the loss compares them with the model's outputs."""
        return self.task.wanted(labels, self.scale)

    def outputs(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return probabilities, or values in the units of the targets."""
        return self.task.outputs(logits, self.scale)

    def output_tensor(self, logits: Tensor) -> Tensor:
        """Return the same as `outputs`, from a tensor, as float32."""
        return self.task.output_tensor(logits, self.scale)


def check_labels(value: Any, num_nodes: int, task: str = "auto") -> tuple[Array | None, str]:
    """Return labels in the form of their task, and the name of the task; `auto` chooses it by their shape.

    `auto` never chooses regression.

    >>> check_labels([0, 1, -1], 3)
    (array([ 0,  1, -1]), 'classification')
    """
    if task not in ("auto", *TASKS):
        raise ConfigError(f"task is {task!r}; it must be auto, {', '.join(TASKS)}")
    if value is None:
        return None, "classification" if task == "auto" else task
    array = to_numpy(value, "labels")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]  # OGB stores class ids as one column
    if array.ndim not in (1, 2) or array.shape[0] != num_nodes:
        raise GraphError(f"labels has shape {list(array.shape)} but the graph has {num_nodes} nodes")
    if array.dtype.kind not in "iufb":
        raise GraphError(f"labels has type {array.dtype}; map class names to ids 0, 1, 2, … first")
    if task == "auto":
        task = "multilabel" if array.ndim == 2 else "classification"
    return TASKS[task].check_labels(array), task


def unknown_label(task: str) -> float:
    """Return the entry of a node without a label; the task may still be `auto`."""
    return TASKS[task].unknown if task in TASKS else CLASSIFICATION.unknown


def known_labels(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether each node has a label: not -1, not NaN; a matrix row needs one known entry."""
    known: NDArray[np.bool_] = ~np.isnan(labels) if labels.dtype.kind == "f" else labels != -1
    return known if known.ndim == 1 else np.asarray(known.any(axis=1))


def name_classes(names: Sequence[str] | None, count: int) -> list[str]:
    """Return the names of classes, labels or targets; numbers where they have none.

    >>> name_classes(None, 2)
    ['0', '1']
    """
    return list(names[:count]) if names is not None else [str(number) for number in range(count)]


def find_class(name: Any, names: Sequence[str]) -> int:
    """Return the number of a class, label or target, given its name or its number.

    >>> find_class("fraud", ["fraud", "ok"]), find_class(1, ["fraud", "ok"])
    (0, 1)
    """
    if str(name) in names:
        return list(names).index(str(name))
    if str(name).isdecimal() and int(str(name)) < len(names):
        return int(str(name))
    raise unknown_name("class", str(name), names)


def weights_by_class(given: ClassWeights, names: Sequence[str]) -> list[float]:
    """Return one weight per class from a list, or from some weights by name or number; the others are 1.

    >>> weights_by_class({"fraud": 10.0}, ["fraud", "ok"])
    [10.0, 1.0]
    """
    if isinstance(given, Mapping):
        weights = [1.0] * len(names)
        for name, weight in given.items():
            weights[find_class(name, names)] = float(weight)
        return weights
    if len(given) != len(names):
        raise ConfigError(
            f"training.class_weights has {len(given)} weights but there are {len(names)} classes: give one for each, "
            f"or a table by name"
        )
    return [float(weight) for weight in given]


def choose_metric(name: str, task: Task) -> str:
    """Return the name of a metric, the task's first for `auto`; refuse a metric of another task."""
    if name == "auto":
        return task.metrics[0]
    if name not in task.metrics:
        raise ConfigError(f"training.metric is {name!r}; for {task.name} it must be {' or '.join(task.metrics)}")
    return name


def wanted_recall(threshold: str) -> float | None:
    """Return the recall that a setting such as `recall=0.7` asks for; None if it asks for none.

    >>> wanted_recall("recall=0.7"), wanted_recall("f1")
    (0.7, None)
    """
    word, _, text = threshold.partition("=")
    try:
        recall = float(text) if word.strip() == "recall" else 0.0
    except ValueError:
        return None
    return recall if 0 < recall < 1 else None


def measure(
    metric: str, outputs: NDArray[np.float32], labels: Array, task: Task, *, threshold: Threshold | None = None
) -> float:
    """Return one metric of outputs [m, c] and the labels of the same nodes.

    >>> outputs = np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)
    >>> measure("accuracy", outputs, np.array([0, 0]), TASKS["classification"])
    0.5
    """
    if metric not in task.metrics:
        raise ConfigError(f"metric is {metric!r}; for {task.name} it must be {' or '.join(task.metrics)}")
    return task.measure(metric, outputs, labels, threshold)
