"""`ModelConfig` and `TrainConfig`: the sections `[model]` and `[training]`, readable without importing torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from .arrays import check_seed
from .errors import ConfigError

READOUTS = ("attention", "mean", "sum", "target")
SCHEDULES = ("linear", "cosine", "constant")
PRECISIONS = ("auto", "float32", "bfloat16")
METRICS = ("accuracy", "macro_f1", "roc_auc", "mae", "rmse")
MOST_LABEL_HOPS = 4  # beyond, the own part of a label hop needs the third power of P


def _field(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class ModelConfig:
    """The transformer that reads a token list. The defaults of the switches are the paper's model."""

    hidden_channels: int = _field(128, "width of the model")
    heads: int = _field(8, "attention heads; they divide hidden_channels")
    layers: int = _field(1, "encoder layers")
    feedforward: int = _field(2, "width of the feed-forward part, in multiples of hidden_channels")
    dropout: float = _field(0.1, "dropout on the outputs of attention and feed-forward parts")
    attention_dropout: float = _field(0.1, "dropout on attention weights")
    readout: str = _field("attention", "attention (target token plus weighted others), mean, sum or target")
    kind_embedding: bool = _field(False, "learn a vector per kind of token: self, hop l, structure, content")
    rank_embedding: bool = _field(False, "learn a vector per rank in either list of neighbours")
    rich_tokens: int = _field(0, "hops of its own each node token carries: X(i), (PX)(i) … (P^r X)(i)")
    label_hops: int = _field(0, "hop tokens 1 … l carry the training labels around, the target's own left out")
    label_embedding: bool = _field(False, "tokens that are training nodes carry their label, never the target")
    adjacency_rows: bool = _field(False, "each node token carries A(i, :), which nodes it is linked to")
    feature_dropout: float = _field(0.0, "dropout on input features")
    embedding_dropout: float = _field(0.0, "dropout on tokens after their projection")
    token_dropout: float = _field(0.0, "share of tokens hidden at random while training, never the target")

    def check(self, num_hops: int) -> ModelConfig:
        """Refuse what cannot be built for token lists with that many hops."""
        for name in ("hidden_channels", "heads", "feedforward"):
            _whole(self, "model", name, 1)
        for name in ("layers", "rich_tokens", "label_hops"):
            _whole(self, "model", name, 0)
        for name in ("dropout", "attention_dropout", "feature_dropout", "embedding_dropout", "token_dropout"):
            _share(self, "model", name)
        _one_of(self, "model", "readout", READOUTS)
        if self.hidden_channels % self.heads:
            raise ConfigError(
                f"model.hidden_channels is {self.hidden_channels}; it must be a multiple of model.heads ({self.heads})"
            )
        for name in ("rich_tokens", "label_hops"):
            if getattr(self, name) > num_hops:
                raise ConfigError(
                    f"model.{name} is {getattr(self, name)} but the token lists have {num_hops} hops: raise tokens.hops"
                )
        if self.label_hops > MOST_LABEL_HOPS:
            raise ConfigError(f"model.label_hops is {self.label_hops}; it must be at most {MOST_LABEL_HOPS}")
        return self


@dataclass(frozen=True)
class TrainConfig:
    """How the model is trained: section `[training]`."""

    epochs: int = _field(200, "passes over the training nodes at most")
    batch_size: int = _field(500, "nodes per step")
    micro_batch: int = _field(0, "nodes of a step computed at a time, for memory; 0 suits the machine")
    learning_rate: float = _field(1e-3, "peak of the schedule")
    final_learning_rate: float = _field(1e-4, "floor of the schedule")
    schedule: str = _field("linear", "how the rate falls after warm-up: linear, cosine or constant")
    warmup_steps: int = _field(100, "steps from 0 to the peak")
    decay_steps: int = _field(0, "step at which the floor is reached; 0 is the last step of the last epoch")
    weight_decay: float = _field(1e-5, "of AdamW")
    label_smoothing: float = _field(0.0, "share of a class label spread over all classes")
    gradient_clip: float = _field(1.0, "largest norm of a step's gradient; 0 is no limit")
    patience: int = _field(50, "epochs without a better validation metric after which training stops")
    metric: str = _field("auto", "what validation is judged by: accuracy, macro_f1, roc_auc, mae, rmse")
    average: float = _field(0.0, "decay of the moving average of weights that is evaluated and kept; 0 is off")
    precision: str = _field("auto", "float32, bfloat16, or auto: bfloat16 on a GPU that has it")
    compile: bool = _field(False, "compile the step on a GPU: 10 to 20 s once, then a sixth faster")
    checkpoint_every: int = _field(10, "epochs between checkpoints; 0 writes none")
    seed: int = _field(0, "seed of weights, order and dropout")

    def check(self, task: str = "classification") -> TrainConfig:
        """Refuse values out of range, and those that mean nothing for the task."""
        for name, least in (("epochs", 1), ("batch_size", 1), ("patience", 1)):
            _whole(self, "training", name, least)
        for name in ("micro_batch", "warmup_steps", "decay_steps", "checkpoint_every"):
            _whole(self, "training", name, 0)
        for name in ("learning_rate", "final_learning_rate", "weight_decay", "gradient_clip"):
            value = getattr(self, name)
            if isinstance(value, bool) or not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
                raise ConfigError(f"training.{name} is {value!r}; it must be a number of 0 or more")
        if not self.learning_rate:
            raise ConfigError("training.learning_rate is 0; it must be more, or nothing is learned")
        for name in ("label_smoothing", "average"):
            _share(self, "training", name)
        _one_of(self, "training", "schedule", SCHEDULES)
        _one_of(self, "training", "metric", ("auto", *METRICS))
        _one_of(self, "training", "precision", PRECISIONS)
        check_seed(self.seed)
        if self.label_smoothing and task == "regression":
            raise ConfigError("training.label_smoothing is for class labels: set it to 0 for regression")
        return self


def _whole(config: Any, section: str, name: str, least: int) -> None:
    value = getattr(config, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{section}.{name} is {value!r}; it must be a whole number of {least} or more")


def _share(config: Any, section: str, name: str) -> None:
    value = getattr(config, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ConfigError(f"{section}.{name} is {value!r}; it must be at least 0 and less than 1")


def _one_of(config: Any, section: str, name: str, allowed: tuple[str, ...]) -> None:
    if getattr(config, name) not in allowed:
        raise ConfigError(f"{section}.{name} is {getattr(config, name)!r}; it must be {' or '.join(allowed)}")
