"""The paper's model with plain training and without AUTO: the defaults before there was an adaptive one.

Tests with literal values and frozen digests were written for them. `presets.json` also holds what every preset meant
then, as differences from the row `plain`.
"""

import json
from pathlib import Path
from typing import Any

import vcr_graphormer as vcr
from vcr_graphormer.model.members import Model

PRESETS: dict[str, dict[str, dict[str, Any]]] = json.loads((Path(__file__).parent / "presets.json").read_text())
_PLAIN = PRESETS["plain"]


def token_config(**settings: Any) -> vcr.TokenConfig:
    """Three hops, 8 + 8 neighbours, 10 clusters."""
    return vcr.TokenConfig(**{**_PLAIN["tokens"], **settings})


def model_config(**settings: Any) -> vcr.ModelConfig:
    """The paper's model: width 128, one layer, one path."""
    return vcr.ModelConfig(**{**_PLAIN["model"], **settings})


def alone(model: Model) -> vcr.VCRGraphormer:
    """The model, which has no members."""
    assert isinstance(model, vcr.VCRGraphormer)
    return model


def train_config(**settings: Any) -> vcr.TrainConfig:
    """200 epochs, batches of 500, warm-up of 100 steps."""
    return vcr.TrainConfig(**{**_PLAIN["training"], **settings})


def plain_config(**sections: Any) -> vcr.Config:
    """All of them; features are as given."""
    plain = {"tokens": token_config(), "model": model_config(), "training": train_config()}
    return vcr.Config(**{"data": vcr.DataConfig(features="given", scale="none"), **plain, **sections})
