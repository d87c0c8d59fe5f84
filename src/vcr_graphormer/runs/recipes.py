"""Recipes: settings that suit some graphs and not others, `recipes/NAME.toml`, fitted to any graph."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import resources
from typing import Any

from ..data.graph import Graph
from ..data.split import Split
from ..data.tasks import TASKS
from ..errors import ConfigError, VCRError, unknown_name
from .config import Config
from .launch import check_settings

Tables = Mapping[str, Mapping[str, Any]]
SECTIONS = ("tokens", "model", "training")
# In the order in which they are tried: cheap ones first, so that a short search has something to show.
RECIPES = (
    *("features", "hops-no-layers", "hops", "full", "nearest", "links", "joint", "few-labels", "wide-dropout"),
    *("neighbours-no-layers", "links-no-hops", "adjacency"),
)
MOST_ADJACENCY_NODES = 50_000  # each node has a row of weights: 25 MB of them at width 128, three times with AdamW
_NODES_PER_CLUSTER = 10  # at least
_BATCHES, _SMALLEST_BATCH, _LARGEST_BATCH = 25, 32, 1000  # as in the study of neighbours (docs/log.md)
_SMALLEST_WITH_UNLABELLED = 150  # of 20 labels a class in small batches nothing general is learned (docs/log.md)
_FEW, _EPOCHS_OF_FEW, _EPOCHS = 1000, 100, 60  # up to so many training nodes: more epochs
_WARMUP = 0.05  # fraction of all steps


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
        recipes.append(Recipe(name, text.partition("\n")[0].removeprefix("# "), tomllib.loads(text)))
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
    config = changed(Config(), recipe.tables)
    smallest = _SMALLEST_WITH_UNLABELLED if config.training.consistency else _SMALLEST_BATCH
    most_clusters, train = max(1, graph.num_nodes // _NODES_PER_CLUSTER), len(split.train)
    adapted: dict[str, dict[str, Any]] = {
        "tokens": {name: min(getattr(config.tokens, name), most_clusters) for name in ("clusters", "content_clusters")},
        "training": {
            "batch_size": min(_LARGEST_BATCH, max(smallest, train // _BATCHES)),
            "epochs": _EPOCHS_OF_FEW if train <= _FEW else _EPOCHS,
        },
    }
    if TASKS[graph.task].gives_values:
        adapted["training"] |= {"label_smoothing": 0.0, "consistency": 0.0}
    config = changed(changed(config, adapted), fixed)
    # Fewer hops than the recipe has are enough for fewer hops in tokens.
    clipped = {name: min(getattr(config.model, name), config.tokens.hops) for name in ("rich_tokens", "label_hops")}
    config = changed(config, {"model": {**clipped, **fixed.get("model", {})}})
    return check_fit(with_epochs(config, config.training.epochs, train, fixed=fixed), graph, split)


def check_fit(config: Config, graph: Graph, split: Split) -> Config:
    """Return settings that can be trained on this graph; refuse others."""
    if config.model.adjacency_rows and graph.num_nodes > MOST_ADJACENCY_NODES:
        raise ConfigError(f"adjacency rows are for at most {MOST_ADJACENCY_NODES:,} nodes")
    check_settings(graph, split.train, config)
    return config


def can_fit(config: Config, graph: Graph, split: Split) -> bool:
    """Return whether these settings can be trained on this graph."""
    try:
        check_fit(config, graph, split)
    except VCRError:
        return False
    return True


def with_epochs(config: Config, epochs: int, train: int, *, fixed: Tables) -> Config:
    """Return settings whose whole schedule takes this many epochs, for this number of training nodes."""
    steps = epochs * math.ceil(train / config.training.batch_size)
    schedule = {"epochs": epochs, "warmup_steps": round(_WARMUP * steps), "patience": epochs}
    kept = fixed.get("training", {}).keys() - {"epochs"}
    return changed(config, {"training": {name: value for name, value in schedule.items() if name not in kept}})
