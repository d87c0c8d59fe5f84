"""`TrainConfig`: the section `[training]`, readable without importing torch; and the schedule of the learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..base.checks import check_choice, check_fraction, check_seed, check_whole, setting
from ..data.tasks import TASKS
from ..errors import ConfigError

SCHEDULES = ("linear", "cosine", "constant")
PRECISIONS = ("auto", "float32", "bfloat16")
METRICS = tuple(dict.fromkeys(metric for task in TASKS.values() for metric in sorted(task.metrics)))


@dataclass(frozen=True)
class TrainConfig:
    """How the model is trained: section `[training]`."""

    epochs: int = setting(200, "passes over the training nodes at most")
    batch_size: int = setting(500, "nodes per step")
    micro_batch: int = setting(0, "nodes of a step computed at a time, for memory; 0 suits the machine")
    learning_rate: float = setting(1e-3, "peak of the schedule")
    final_learning_rate: float = setting(1e-4, "floor of the schedule")
    schedule: str = setting("linear", "how the rate falls after warm-up: linear, cosine or constant")
    warmup_steps: int = setting(100, "steps from 0 to the peak")
    decay_steps: int = setting(0, "step at which the floor is reached; 0 is the last step of the last epoch")
    weight_decay: float = setting(1e-5, "of AdamW")
    label_smoothing: float = setting(0.0, "share of a class label spread over all classes")
    gradient_clip: float = setting(1.0, "largest norm of a step's gradient; 0 is no limit")
    patience: int = setting(50, "epochs without a better validation metric after which training stops")
    metric: str = setting("auto", "what validation is judged by: accuracy, macro_f1, roc_auc, mae, rmse")
    average: float = setting(0.0, "decay of the moving average of weights that is evaluated and kept; 0 is off")
    precision: str = setting("auto", "float32, bfloat16, or auto: bfloat16 on a GPU that has it")
    compile: bool = setting(False, "compile the step on a GPU: 10 to 20 s once, then a sixth faster")
    checkpoint_every: int = setting(10, "epochs between checkpoints; 0 writes none")
    seed: int = setting(0, "seed of weights, order and dropout")

    def check(self, task: str = "classification") -> TrainConfig:
        """Refuse values out of range, and those that mean nothing for the task."""
        for name, least in (("epochs", 1), ("batch_size", 1), ("patience", 1)):
            check_whole(self, "training", name, least)
        for name in ("micro_batch", "warmup_steps", "decay_steps", "checkpoint_every"):
            check_whole(self, "training", name, 0)
        for name in ("learning_rate", "final_learning_rate", "weight_decay", "gradient_clip"):
            value = getattr(self, name)
            if isinstance(value, bool) or not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
                raise ConfigError(f"training.{name} is {value!r}; it must be a number of 0 or more")
        if not self.learning_rate:
            raise ConfigError("training.learning_rate is 0; it must be more, or nothing is learned")
        for name in ("label_smoothing", "average"):
            check_fraction(self, "training", name)
        check_choice(self, "training", "schedule", SCHEDULES)
        check_choice(self, "training", "metric", ("auto", *METRICS))
        check_choice(self, "training", "precision", PRECISIONS)
        check_seed(self.seed)
        if self.label_smoothing and TASKS[task].gives_values:
            raise ConfigError("training.label_smoothing is for class labels: set it to 0 for regression")
        return self


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
