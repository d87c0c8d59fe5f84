"""Recipes: settings that suit some graphs and not others, `recipes/NAME.toml`, fitted to any graph."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from importlib import resources
from typing import Any

from ..base.checks import AUTO
from ..data.datasets import DataConfig
from ..data.graph import Graph
from ..data.split import Split
from ..errors import ConfigError, VCRError, unknown_name
from .adapt import FEW_COLUMNS, Tables, adapt
from .config import Config, build_tables
from .launch import check_settings

SECTIONS = ("tokens", "model", "training")
# In the order in which they are tried: cheap ones first, so that a short search has something to show.
RECIPES = (
    *("features", "hops-no-layers", "hops", "full", "nearest", "links", "joint", "few-labels", "wide-dropout"),
    *("neighbours-no-layers", "links-no-hops", "adjacency"),
)
MOST_ADJACENCY_NODES = 50_000  # each node has a row of weights: 25 MB of them at width 128, three times with AdamW


@dataclass(frozen=True)
class Recipe:
    """A named set of settings: what it is in a sentence, and its TOML tables."""

    name: str
    about: str
    tables: Tables


def load_recipes(names: Sequence[str] | None = None) -> list[Recipe]:
    """Return recipes by name; default: all, in the order in which `tune` tries them.

    >>> load_recipes(["hops"])[0].about
    'The node and three hops through one encoder layer, without neighbours.'
    """
    recipes = []
    for name in dict.fromkeys(RECIPES if names is None else names):
        if name not in RECIPES:
            raise unknown_name("recipe", name, RECIPES)
        text = (resources.files(__package__) / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
        recipes.append(Recipe(name, text.partition("\n")[0].removeprefix("# "), build_tables(tomllib.loads(text))))
    return recipes


def changed(config: Config, tables: Tables) -> Config:
    """Return settings with some values replaced, by section and name."""
    sections: dict[str, Any] = {name: replace(getattr(config, name), **values) for name, values in tables.items()}
    return replace(config, **sections)


def differences(config: Config, base: Config) -> dict[str, dict[str, Any]]:
    """Return the settings of tokens, model and training that differ from others, by section and name.

    >>> differences(changed(Config(), {"tokens": {"hops": 1}}), Config())
    {'tokens': {'hops': 1}}
    """
    tables = {}
    for name in SECTIONS:
        ours, theirs = getattr(config, name), getattr(base, name)
        values = {item.name: getattr(ours, item.name) for item in fields(ours)}
        values = {key: value for key, value in values.items() if value != getattr(theirs, key)}
        if values:
            tables[name] = values
    return tables


def fit_recipe(recipe: Recipe, graph: Graph, split: Split, fixed: Tables) -> Config:
    """Return the settings of a recipe for one graph; raise an error that says why if it cannot be trained there.

    Parameters
    ----------
    fixed
        Settings that hold whatever the recipe says.
    """
    data = DataConfig(scale="none")  # the graph has its features as they are to be
    config = changed(replace(Config(), data=data), recipe.tables)
    if graph.num_features < FEW_COLUMNS:  # as in the default: of few columns none is hidden
        config = changed(config, {"model": {"feature_dropout": 0.0, "embedding_dropout": 0.0}})
    config = changed(config, fixed)
    if config.tokens.hops != AUTO:  # fewer hops than the recipe has are enough for fewer hops in tokens
        names = ("rich_tokens", "label_hops")
        clipped = {name: min(getattr(config.model, name), config.tokens.hops) for name in names}
        config = changed(config, {"model": {**clipped, **fixed.get("model", {})}})
    return check_fit(adapt(config, graph, split).config, graph, split)


def check_fit(config: Config, graph: Graph, split: Split) -> Config:
    """Return settings that can be trained on this graph; refuse others."""
    if config.model.adjacency_rows and graph.num_nodes > MOST_ADJACENCY_NODES:
        raise ConfigError(f"adjacency rows are for at most {MOST_ADJACENCY_NODES:,} nodes")
    check_settings(graph, split, config)
    return config


def can_fit(config: Config, graph: Graph, split: Split) -> bool:
    """Return whether these settings can be trained on this graph."""
    try:
        check_fit(config, graph, split)
    except VCRError:
        return False
    return True
