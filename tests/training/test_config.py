"""Every setting of model and training has a rule, and what breaks it is named with its value."""

import re
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest

from tests.support.plain import model_config, train_config
from vcr_graphormer import ConfigError
from vcr_graphormer.model.config import READOUTS
from vcr_graphormer.training.config import SCHEDULES

WHOLE_1 = "it must be a whole number of 1 or more"
WHOLE_0 = "it must be a whole number of 0 or more"
SHARE = "it must be at least 0 and less than 1"
NUMBER = "it must be a number of 0 or more"
METRICS = "it must be auto or accuracy or average_precision or balanced_accuracy or macro_f1 or roc_auc or mae or rmse"
THRESHOLDS = "it must be auto or f1, or a number between 0 and 1, or recall=0.7 with such a number"


def test_plain_settings_pass_and_are_the_papers() -> None:
    model, training = model_config(), train_config()
    assert model.check(num_hops=0) is model
    assert training.check() is training
    assert (model.readout, model.kind_embedding, model.rich_tokens, model.label_hops) == ("attention", False, 0, 0)
    assert (model.label_embedding, model.feature_dropout, model.token_dropout) == (False, 0.0, 0.0)
    assert (model.embedding_dropout, model.rank_embedding) == (0.0, False)
    assert (training.label_smoothing, training.average, training.metric) == (0.0, 0.0, "auto")


@pytest.mark.parametrize("config", [model_config(), train_config()])
def test_every_setting_is_explained(config: Any) -> None:
    for item in fields(config):
        assert item.metadata["help"]


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        *((name, 0, WHOLE_1) for name in ("hidden_channels", "heads")),
        ("hidden_channels", 64.0, WHOLE_1),
        ("heads", True, WHOLE_1),
        ("heads", "2", WHOLE_1),
        *((name, -2, WHOLE_0) for name in ("layers", "rich_tokens", "label_hops")),
        ("layers", 1.5, WHOLE_0),
        ("label_hops", False, WHOLE_0),
        *(
            (name, 1.0, SHARE)
            for name in ("dropout", "attention_dropout", "feature_dropout", "embedding_dropout", "token_dropout")
        ),
        ("neighbour_dropout", 1.0, SHARE),
        ("own_dropout", -0.1, SHARE),
        ("own_dropout", float("nan"), SHARE),
        ("own_dropout", 0.3, "it needs model.combine = 'gated'"),
        ("neighbour_dropout", 0.3, "it needs model.combine = 'gated'"),
        ("combine", "gatd", "it must be joint or gated"),
        ("dropout", -0.1, SHARE),
        ("dropout", float("nan"), SHARE),
        ("dropout", False, SHARE),
        ("dropout", "0.1", SHARE),
        ("readout", "max", "it must be attention or mean or target or votes"),
    ],
)
def test_model_rules(name: str, value: Any, rule: str) -> None:
    changed: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=re.escape(f"model.{name} is {value!r}; {rule}")):
        model_config(**changed).check(num_hops=3)


def test_both_paths_cannot_be_hidden() -> None:
    model_config(combine="gated", neighbour_dropout=0.5, own_dropout=0.5).check(num_hops=3)
    with pytest.raises(ConfigError, match="neighbour_dropout and model.own_dropout are together more than 1"):
        model_config(combine="gated", neighbour_dropout=0.5, own_dropout=0.6).check(num_hops=3)


def test_heads_divide_the_width() -> None:
    message = r"model.hidden_channels is 100; it must be a multiple of model.heads \(8\)"
    with pytest.raises(ConfigError, match=message):
        model_config(hidden_channels=100).check(num_hops=3)
    model_config(hidden_channels=100, heads=10).check(num_hops=3)


@pytest.mark.parametrize("name", ["rich_tokens", "label_hops"])
def test_no_more_hops_than_the_token_lists_have(name: str) -> None:
    changed: dict[str, Any] = {name: 3}
    model_config(**changed).check(num_hops=3)
    with pytest.raises(ConfigError, match=f"model.{name} is 3 but the token lists have 2 hops: raise tokens.hops"):
        model_config(**changed).check(num_hops=2)


def test_most_label_hops() -> None:
    model_config(label_hops=4, rich_tokens=9).check(num_hops=9)
    with pytest.raises(ConfigError, match="model.label_hops is 5; it must be at most 4"):
        model_config(label_hops=5).check(num_hops=9)


@pytest.mark.parametrize("readout", READOUTS)
def test_what_is_allowed_of_a_model(readout: str) -> None:
    combine = "gated" if readout == "votes" else "joint"
    model_config(readout=readout, combine=combine, layers=0, dropout=0, token_dropout=0.999).check(num_hops=0)


def test_votes_need_the_gate() -> None:
    with pytest.raises(ConfigError, match="model.readout is votes; it needs model.combine = 'gated'"):
        model_config(readout="votes").check(num_hops=3)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        *((name, 0, WHOLE_1) for name in ("epochs", "batch_size", "patience")),
        ("epochs", True, WHOLE_1),
        ("batch_size", 1.0, WHOLE_1),
        *((name, -2, WHOLE_0) for name in ("micro_batch", "warmup_steps", "decay_steps", "checkpoint_every")),
        *((name, -1e-3, NUMBER) for name in ("learning_rate", "final_learning_rate", "weight_decay", "gradient_clip")),
        ("learning_rate", float("inf"), NUMBER),
        ("weight_decay", float("nan"), NUMBER),
        ("gradient_clip", "1", NUMBER),
        ("learning_rate", 0.0, "it must be more, or nothing is learned"),
        ("label_smoothing", 1.0, SHARE),
        ("average", 1, SHARE),
        ("average", -0.5, SHARE),
        ("schedule", "step", "it must be linear or cosine"),
        ("metric", "f1", METRICS),
        ("precision", "float16", "it must be auto or float32 or bfloat16"),
        *(("class_weights", value, "it must be none or balanced, or a table") for value in ("equal", 3.0, None)),
        *(
            ("threshold", value, THRESHOLDS)
            for value in ("f2", "recall", "recall=1", "recall=x", 0, 1.0, -0.5, float("nan"), True, None)
        ),
    ],
)
def test_training_rules(name: str, value: Any, rule: str) -> None:
    changed: dict[str, Any] = {name: value}
    shown = "0" if name == "learning_rate" and not value else repr(value)
    with pytest.raises(ConfigError, match=re.escape(f"training.{name} is {shown}; {rule}")):
        train_config(**changed).check()


@pytest.mark.parametrize(
    ("weights", "shown"),
    [
        ({"fraud": 0.0}, "['fraud'] is 0.0"),
        ({"fraud": "10"}, "['fraud'] is '10'"),
        ([1.0, float("inf")], "[1] is inf"),
        ([1.0, True], "[1] is True"),
    ],
)
def test_weights_are_numbers_above_0(weights: Any, shown: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"training.class_weights{shown}; it must be a number above 0")):
        train_config(class_weights=weights).check()
    train_config(class_weights={"fraud": 2, 1: 0.5}, threshold=0.25).check()
    train_config(class_weights=(1.0, 2.0)).check("multilabel")


def test_what_needs_classes() -> None:
    with pytest.raises(ConfigError, match="training.class_weights is for class labels: set it to none for regression"):
        train_config(class_weights="balanced").check("regression")
    for task in ("regression", "multilabel"):
        with pytest.raises(ConfigError, match=f"training.threshold decides between two classes: .* auto for {task}"):
            train_config(threshold="f1").check(task)
        train_config(threshold=0.5).check(task)  # what `auto` becomes there


@pytest.mark.parametrize("seed", [-1, 1.5, True, None])
def test_seed_of_training(seed: Any) -> None:
    with pytest.raises(ConfigError, match=f"seed is {seed!r}; it must be a whole number of 0 or more"):
        train_config(seed=seed).check()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_is_allowed_of_training(schedule: str) -> None:
    train_config(schedule=schedule, learning_rate=1, gradient_clip=0, warmup_steps=0, average=0.999).check()


def test_a_yes_is_no_number() -> None:
    with pytest.raises(ConfigError, match="training.learning_rate is True; it must be a number of 0 or more"):
        train_config(learning_rate=True).check()


def test_readable_without_torch() -> None:
    code = "import sys, vcr_graphormer.training.config, vcr_graphormer.model.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
