"""`TrainConfig`, the section `[training]`, and the learning-rate schedule; neither imports torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.checks import (
    AUTO,
    check_choice,
    check_fraction,
    check_resolved,
    check_seed,
    check_whole,
    is_number,
    setting,
)
from ..data.tasks import TASKS, wanted_recall
from ..errors import ConfigError

SCHEDULES = ("linear", "cosine")
OPTIMIZERS = ("adamw", "adam")
PRECISIONS = ("auto", "float32", "bfloat16")
WEIGHTS = ("none", "balanced")
THRESHOLDS = ("auto", "f1")
METRICS = tuple(dict.fromkeys(metric for task in TASKS.values() for metric in sorted(task.metrics)))


@dataclass(frozen=True)
class TrainConfig:
    """How the model is trained: section `[training]`. Numbers that are AUTO are chosen for the graph by `adapt`.

    Attributes
    ----------
    epochs : int
        Largest number of passes over the training nodes.
    batch_size : int
        Nodes per step.
    micro_batch : int
        Nodes of a step computed at a time, to save memory. 0 chooses a number that suits the machine.
    learning_rate, final_learning_rate : float
        Highest learning rate, after warm-up, and lowest, at the end.
    schedule : str
        How the rate falls after warm-up: `linear` or `cosine`.
    warmup_steps : int
        Steps in which the rate rises from 0 to the highest.
    decay_steps : int
        Step at which the rate is lowest; 0 is the last step of the last epoch.
    optimizer : str
        `adamw` shrinks all weights alike. With `adam` weight decay is part of the gradient, so weights that the labels
        say little about shrink most, such as those of words that few training nodes have.
    weight_decay : float
        Weight decay of the optimizer.
    consistency : float
        Weight of a term for nodes outside the training part, whose labels are not read: copies of a node that see
        different dropout shall be predicted alike, and with confidence. For few labels; 0 leaves it out.
    label_smoothing : float
        Fraction of each class label that is spread over all classes.
    class_weights : str, mapping or sequence
        How much each class counts in the loss: `none`, `balanced` (rare classes count as much as others), weights by
        name or number of a class (the others are 1), or one weight per class. Only their ratios matter.
    gradient_clip : float
        Largest norm of the gradient of a step; 0 sets no limit.
    patience : int
        Epochs without a better validation metric after which training stops.
    metric : str
        Validation metric that chooses the best epoch; `auto` is the first metric of the task, or ROC-AUC for two
        unbalanced classes.
    threshold : str or float
        Probability from which on the rarer of two classes is predicted. `f1` is where its expected F1 is largest, and
        `recall=0.7` where 70 % of it are expected to be found; both by the validation nodes. `auto` is `f1` for two
        unbalanced classes, else 0.5: the most probable class.
    average : float
        Decay of the moving average of the weights, which is then evaluated and kept; 0 keeps the weights themselves.
    precision : str
        Type of matrix products: `float32`, `bfloat16`, or `auto`, which is bfloat16 on a GPU that has it.
    compile : bool
        Whether to compile the step on a GPU.
    checkpoint_every : int
        Epochs between checkpoints; 0 writes none, except after Ctrl-C.
    seed : int
        Seed of the first weights, the order of nodes and dropout.
    """

    epochs: int = setting(AUTO, "largest number of passes over the training nodes; auto: by their number")
    batch_size: int = setting(AUTO, "nodes per step; auto: by training nodes")
    micro_batch: int = setting(0, "nodes of a step computed at a time, to save memory; 0: chosen for the machine")
    learning_rate: float = setting(1e-3, "highest learning rate, after warm-up")
    final_learning_rate: float = setting(0.0, "lowest learning rate, at the end")
    schedule: str = setting("cosine", "how the rate falls after warm-up: linear or cosine")
    warmup_steps: int = setting(AUTO, "steps in which the rate rises from 0 to the highest; auto: a fraction of all")
    decay_steps: int = setting(0, "step at which the rate is lowest; 0: the last step of the last epoch")
    optimizer: str = setting("adamw", "adamw; or adam, whose weight decay is part of the gradient (for few labels)")
    weight_decay: float = setting(0.01, "weight decay of the optimizer")
    consistency: float = setting(0.0, "weight of agreement between copies of unlabelled nodes under dropout; 0: off")
    label_smoothing: float = setting(AUTO, "fraction of each class label spread over all classes; auto: by task")
    class_weights: str | Mapping[str, float] | Sequence[float] = setting(
        "none", "weights in the loss: none, balanced, a table by class name or number ({fraud = 10.0}), or a list"
    )
    gradient_clip: float = setting(1.0, "largest norm of the gradient of a step; 0: no limit")
    patience: int = setting(AUTO, "epochs without a better validation metric before training stops; auto: all epochs")
    metric: str = setting("auto", f"metric that chooses the best epoch: {', '.join(METRICS)}; auto: by labels")
    threshold: str | float = setting(
        "auto", "probability from which on the rarer of two classes is predicted, f1 or recall=0.7; auto: f1 or 0.5"
    )
    average: float = setting(0.99, "decay of the moving average of weights, which is evaluated and kept; 0: off")
    precision: str = setting("auto", "type of products: float32, bfloat16; auto: bfloat16 on a GPU that has it")
    compile: bool = setting(False, "compile the step on a GPU: 10 to 20 s once, then a sixth faster")
    checkpoint_every: int = setting(10, "epochs between checkpoints; 0: none")
    seed: int = setting(0, "seed of the first weights, the order of nodes and dropout")

    def check(self, task: str = "classification") -> TrainConfig:
        """Refuse values that are out of range or do not apply to the task."""
        for name, least in (("epochs", 1), ("batch_size", 1), ("patience", 1)):
            check_whole(self, "training", name, least)
        for name in ("micro_batch", "warmup_steps", "decay_steps", "checkpoint_every"):
            check_whole(self, "training", name, 0)
        for name in ("learning_rate", "final_learning_rate", "weight_decay", "consistency", "gradient_clip"):
            value = getattr(self, name)
            if not (is_number(value, plain=True) and math.isfinite(value) and value >= 0):
                raise ConfigError(f"training.{name} is {value!r}; it must be a number of 0 or more")
        if not self.learning_rate:
            raise ConfigError("training.learning_rate is 0; it must be more, or nothing is learned")
        for name in ("label_smoothing", "average"):
            check_fraction(self, "training", name)
        check_choice(self, "training", "schedule", SCHEDULES)
        check_choice(self, "training", "optimizer", OPTIMIZERS)
        check_choice(self, "training", "metric", ("auto", *METRICS))
        check_choice(self, "training", "precision", PRECISIONS)
        _check_weights(self.class_weights)
        if isinstance(self.threshold, str):
            right = self.threshold in THRESHOLDS or wanted_recall(self.threshold) is not None
        else:
            right = is_number(self.threshold, plain=True) and 0 < float(self.threshold) < 1
        if not right:
            raise ConfigError(
                f"training.threshold is {self.threshold!r}; it must be {' or '.join(THRESHOLDS)}, or a number between "
                f"0 and 1, or recall=0.7 with such a number"
            )
        check_seed(self.seed)
        for name in ("label_smoothing", "consistency"):
            if getattr(self, name) not in (0, AUTO) and TASKS[task].gives_values:
                raise ConfigError(f"training.{name} is for class labels: set it to 0 for regression")
        if self.class_weights != "none" and TASKS[task].gives_values:
            raise ConfigError("training.class_weights is for class labels: set it to none for regression")
        if self.threshold not in ("auto", 0.5) and not TASKS[task].has_classes:
            raise ConfigError(f"training.threshold decides between two classes: set it to auto for {task}")
        return self

    def check_resolved(self) -> TrainConfig:
        """Refuse numbers that are still AUTO."""
        check_resolved(self, "training")
        return self


def _check_weights(given: Any) -> None:
    """Refuse weights of classes that are no numbers above 0."""
    if isinstance(given, str) or not isinstance(given, Mapping | list | tuple):
        if given not in WEIGHTS:
            raise ConfigError(
                f"training.class_weights is {given!r}; it must be {' or '.join(WEIGHTS)}, or a table such as "
                f"{{fraud = 10.0}}, or a list with a weight per class"
            )
        return
    rows = given.items() if isinstance(given, Mapping) else enumerate(given)
    for name, weight in rows:
        if not (is_number(weight, plain=True) and math.isfinite(weight) and weight > 0):
            raise ConfigError(f"training.class_weights[{name!r}] is {weight!r}; it must be a number above 0")


def learning_rate(step: int, last: int, config: TrainConfig) -> float:
    """Return the learning rate of step 1, 2, …, where `last` is the last step of the last epoch.

    The rate rises linearly to its peak, falls by the schedule until `decay_steps`, then stays.

    >>> rates = {"learning_rate": 1e-3, "final_learning_rate": 1e-4, "schedule": "linear"}
    >>> paper = TrainConfig(warmup_steps=400, decay_steps=1000, **rates)
    >>> [round(learning_rate(step, 9999, paper), 6) for step in (1, 400, 700, 1000, 5000)]
    [3e-06, 0.001, 0.00055, 0.0001, 0.0001]
    """
    peak, floor = config.learning_rate, config.final_learning_rate
    if step <= config.warmup_steps:
        return peak * step / config.warmup_steps
    end = max(config.decay_steps or last, config.warmup_steps + 1)
    done = min(1.0, (step - config.warmup_steps) / (end - config.warmup_steps))
    left = 1 - done if config.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return floor + (peak - floor) * left
