"""Small steps around good settings: three of them are drawn anew, by optuna from what was good before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from ..data.graph import Graph
from ..data.tasks import TASKS
from .adapt import HIDDEN_PATH, Tables
from .config import Config
from .recipes import MOST_ADJACENCY_NODES, changed

Space = Mapping[tuple[str, str], Sequence[Any]]
_REDRAWN = 3  # settings per step: in so many dimensions small steps find more than wide ones (docs/log.md)
_FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
# The settings that a step may change, and their values. Those of the recipes are among them.
_VALUES: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "tokens": {
        "hops": (0, 1, 2, 3, 5, 7, 10),
        "self_loops": (False, True),
        "structure_tokens": (0, 4, 8, 16),
        "content_tokens": (0, 4, 8, 16),
        "link_tokens": (0, 8),
        "nearest_tokens": (0, 8),
        "restart": (0.05, 0.15, 0.5),
    },
    "model": {
        "hidden_channels": (64, 128, 256, 512),
        "layers": (0, 1, 2),
        "combine": ("joint", "gated"),
        "dropout": _FRACTIONS,
        "attention_dropout": _FRACTIONS[:6],
        "readout": ("attention", "mean", "target"),
        "own_hops": (False, True),
        "kind_embedding": (False, True),
        "rank_embedding": (False, True),
        "rich_tokens": (0, 1, 2),
        "label_hops": (0, 1, 2),
        "label_embedding": (False, True),
        "rich_labels": (False, True),
        "adjacency_rows": (False, True),
        "feature_dropout": _FRACTIONS,
        "embedding_dropout": _FRACTIONS,
        "token_dropout": _FRACTIONS[:6],
        "neighbour_dropout": (0.0, 0.25, HIDDEN_PATH, 0.5),
        "own_dropout": (0.0, 0.25, HIDDEN_PATH, 0.5),
    },
    "training": {
        "learning_rate": (0.0003, 0.0006, 0.001, 0.002, 0.005, 0.01),
        "weight_decay": (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0),
        "label_smoothing": (0.0, 0.1, 0.2),
        "average": (0.0, 0.9, 0.99),
    },
}


def has_optuna() -> bool:
    """Return whether optuna is installed."""
    return find_spec("optuna") is not None


def make_space(graph: Graph, start: Config, fixed: Tables) -> Space:
    """Return the values of every setting that a step may change, for one graph.

    Parameters
    ----------
    start
        The settings whose batch size and epochs are the middle of their values.
    fixed
        Settings that no step changes.
    """
    training = start.training
    middle = {name: (max(1, value // 2), value, 2 * value) for name, value in _sizes(training).items()}
    values = {**_VALUES, "training": {**_VALUES["training"], **middle}}
    space = {(section, name): choices for section, names in values.items() for name, choices in names.items()}
    for section, names in fixed.items():
        for name in names:
            space.pop((section, name), None)
    if TASKS[graph.task].gives_values:
        space.pop(("training", "label_smoothing"), None)
    if graph.num_nodes > MOST_ADJACENCY_NODES:
        space.pop(("model", "adjacency_rows"), None)
    return space


def _sizes(training: Any) -> dict[str, int]:
    return {"batch_size": training.batch_size, "epochs": training.epochs}


def steps(
    space: Space, best: Config, history: Sequence[tuple[Config, float]], *, seed: Sequence[int], lower: bool
) -> Iterator[Config]:
    """Yield settings near the best ones, one after another, for the caller to take the first that is new and valid.

    Parameters
    ----------
    history
        Settings that were judged before, with their scores.
    seed
        Whole numbers that decide what is drawn, together with the other arguments.
    lower
        Whether a lower score is better.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    names = sorted(space)
    ranges = {name: optuna.distributions.IntDistribution(0, len(space[name]) - 1) for name in names}
    past = []
    for config, score in history:
        places = {name: _place(space[name], getattr(getattr(config, name[0]), name[1])) for name in names}
        params = {".".join(name): place for name, place in places.items() if place is not None}
        known: dict[str, Any] = {".".join(name): ranges[name] for name, place in places.items() if place is not None}
        past.append(optuna.trial.create_trial(params=params, distributions=known, value=score))
    random = np.random.default_rng(list(seed))
    while True:
        sampler = optuna.samplers.TPESampler(seed=int(random.integers(2**31)))
        study = optuna.create_study(direction="minimize" if lower else "maximize", sampler=sampler)
        study.add_trials(past)
        chosen = [names[place] for place in random.choice(len(names), min(_REDRAWN, len(names)), replace=False)]
        drawn = study.ask({".".join(name): ranges[name] for name in chosen}).params
        tables: dict[str, dict[str, Any]] = {}
        for section, name in chosen:
            tables.setdefault(section, {})[name] = space[section, name][drawn[f"{section}.{name}"]]
        yield settle(changed(best, tables), space)


def _place(choices: Sequence[Any], value: Any) -> int | None:
    return choices.index(value) if value in choices else None


def settle(config: Config, space: Space) -> Config:
    """Return the settings without what cannot work or changes nothing, such as a gate where there are no neighbours."""
    tokens, model = config.tokens, config.model
    neighbours = tokens.structure_tokens + tokens.content_tokens + tokens.link_tokens + tokens.nearest_tokens
    plain: dict[str, Any] = {name: min(getattr(model, name), tokens.hops) for name in ("rich_tokens", "label_hops")}
    if not neighbours:
        plain |= {"combine": "joint", "rank_embedding": False, "label_embedding": False, "rich_labels": False}
    if plain.get("combine", model.combine) == "joint":
        plain |= {"neighbour_dropout": 0.0, "own_dropout": 0.0, "own_hops": False}
    if not model.layers:
        plain |= {"dropout": 0.0, "attention_dropout": 0.0}
        if model.readout == "target" and (tokens.hops or neighbours):  # nothing but the node would be read
            plain |= {"readout": "attention"}
    tables: dict[str, dict[str, Any]] = {"model": plain}
    if not tokens.structure_tokens + tokens.content_tokens:
        tables["tokens"] = {"restart": Config().tokens.restart}
    free = {
        section: {name: value for name, value in values.items() if (section, name) in space}
        for section, values in tables.items()
    }
    return changed(config, free)
