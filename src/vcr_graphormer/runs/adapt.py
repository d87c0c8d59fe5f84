"""`adapt`: choose the settings that are AUTO from the graph and its training nodes, and say so in plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.checks import AUTO, unresolved
from ..data.agreement import MOST_NODES_COMPARED, Agreement, label_agreement
from ..data.columns.preparation import Preparation
from ..data.columns.schema import CATEGORY, DATE, OTHER, Schema
from ..data.graph import Graph
from ..data.inductive import Seen
from ..data.metrics import THRESHOLD
from ..data.split import Split
from ..data.tasks import TASKS, Target, choose_metric, known_labels, name_classes
from ..errors import ConfigError
from ..tokens.adapt import HOPS, MOST_CLUSTERS, adapt_tokens, has_few_labels, labels_per_class
from ..tokens.config import TokenConfig
from .config import Config

# Measured by leaving one graph out (docs/accuracy.md, `python -m benchmarks default`). For tokens: `tokens/adapt.py`.
STEPS_PER_EPOCH, SMALLEST_BATCH, LARGEST_BATCH = 25, 32, 1000  # as in the study of neighbours (docs/log.md)
SMALLEST_WITH_UNLABELLED = 150  # of 20 labels a class in small batches nothing general is learned (docs/log.md)
MORE_EPOCHS_UP_TO, MORE_EPOCHS, EPOCHS = 1000, 100, 60  # up to so many training nodes: more epochs
WARMUP = 0.05  # fraction of all steps
SMOOTHING = 0.1  # of class labels, as in the recipe of most presets
SMALL_BELOW = 300  # with fewer training nodes, or few labels: a narrow model and strong dropout
WIDTH, SMALL_WIDTH = 128, 64
DROPOUT, STRONG_DROPOUT = 0.3, 0.5
# Up to so many training nodes: so many models whose predictions are averaged. With few nodes one training is partly
# luck, and another costs seconds: on eight graphs the mean of three was better by 0.15 to 0.9 points (docs/log.md).
MEMBERS = ((1000, 5), (5000, 3))
# Agreement of linked classes from which on the first path reads hops. Graphs here have at most 0.1, or at least 0.67.
ALIKE = 0.3
RICH_TOKENS, LABEL_HOPS = 1, 2  # as far as there are hops
HIDDEN_PATH = 1 / 3  # where paths are gated, each is hidden from a third of the nodes of a step
# Of many columns, such as words, others say the same as a hidden one. Of few, each says something of its own. With
# MANY_LABELS, this took Minesweeper (7 columns) from 93.3 to 97.0 and Tolokers (10) from 83.7 to 84.4 (docs/log.md).
FEW_COLUMNS, FEATURE_DROPOUT, EMBEDDING_DROPOUT = 100, 0.5, 0.3
# Where nearest features nearly always tell the class, and better than edges do, as words on CS and Physics, the words
# of training nodes are learned by heart within ten epochs. Few epochs, and nothing around neighbours, are better there.
# That takes a third of the time, which is given to three models (docs/log.md). CS and Physics lead by 0.06 to 0.13, and
# have 0.89 to 0.93. All other graphs have no lead.
FEATURES_LEAD, FEATURES_TELL, FEW_EPOCHS, SPARE_MEMBERS = 0.03, 0.8, 20, 3
# Where nearest links tell the class far better than edges and features, as on Squirrel (0.65 ahead, the next graph has
# 0.14), hiding more of the features is worth five points, and none from around neighbours another (docs/log.md). With
# few training nodes a lead is often chance.
LINKS_LEAD, MISLEADING_DROPOUT, LINKED_EMBEDDING_DROPOUT = 0.3, 0.8, 0.1
# The settings that depend on what tells the classes.
_BY_AGREEMENT = {"own_hops", "members", "rich_tokens", "label_hops", "feature_dropout", "embedding_dropout", "epochs"}
MANY_LABELS = 3000  # training nodes from which on neighbours carry labels, if columns are few: otherwise they overfit
MOST_LISTED = 8  # names of columns in one note
# Two classes, the rarer one with a smaller fraction of the training labels: ROC-AUC judges, and F1 chooses a threshold.
UNBALANCED = 0.3

Tables = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Adapted:
    """Settings with all numbers, and what they were adapted to.

    Attributes
    ----------
    config : Config
        The settings without AUTO; adapting them again changes nothing.
    notes : tuple of str
        What was chosen and why, one sentence each.
    preparation : Preparation
        What is done to the features.
    graph : Graph
        The graph with prepared features, which tokens, training and explanation see.
    """

    config: Config
    notes: tuple[str, ...]
    preparation: Preparation
    graph: Graph


def adapt(config: Config, graph: Graph, split: Split) -> Adapted:
    """Return settings for one graph: every AUTO becomes a number. Values that the user gave stay as they are.

    Only rows and labels of training nodes are read; of validation nodes, whether both of two classes are there.
    """
    config.tokens.check()
    config.model.check(config.tokens.hops)
    config.training.check(graph.task)
    _check_classes(config, graph, split)
    preparation = Preparation.learn(graph, split.train, config.data)
    prepared = preparation.apply(graph)
    notes, learned, train = _notes_on_data(graph, preparation), prepared, split.train
    if config.data.inductive:
        _check_inductive(config, preparation)
        seen = Seen.of(prepared, split)
        learned, train = seen.graph, seen.train
        hidden = graph.num_nodes - learned.num_nodes
        notes.append(f"inductive: {hidden:,} validation and test nodes, and their edges, are hidden from the training")
    config = replace(config, data=_resolved_data(config, preparation, directed=graph.directed))
    tokens = adapt_tokens(config.tokens, learned, train)
    notes += _notes_on_tokens(config, tokens, graph=learned, train=train)
    config = replace(config, tokens=tokens)
    told = _what_tells_classes(config, learned, train)
    config, of_model = _adapt_model(config, learned, train, told=told)
    config, of_training = _adapt_training(config, graph, split, told=told)
    return Adapted(config, (*notes, *of_model, *of_training), preparation, prepared)


def _check_inductive(config: Config, preparation: Preparation) -> None:
    """Refuse what would know hidden nodes while training, or know nodes by number."""
    made = preparation.made or config.data.features
    if made in ("identity", "degree"):
        reason = "know nodes by number" if made == "identity" else "count edges to nodes that are hidden"
        raise ConfigError(f"data.inductive is true, but features made by {made} {reason}: give features of your own")
    if config.model.adjacency_rows:
        raise ConfigError(
            "data.inductive is true, but model.adjacency_rows knows nodes by number, and those that come later have "
            "none: set it to false"
        )


def with_epochs(config: Config, epochs: int, train: int, *, fixed: Tables) -> Config:
    """Return settings whose whole schedule takes this many epochs, for this number of training nodes.

    Parameters
    ----------
    fixed
        Settings that stay as they are, but for the epochs.
    """
    training = replace(config.training, epochs=epochs)
    schedule: dict[str, Any] = {"warmup_steps": warmup_steps(training.batch_size, epochs, train), "patience": epochs}
    free = {name: value for name, value in schedule.items() if name not in fixed.get("training", {})}
    return replace(config, training=replace(training, **free))


def warmup_steps(batch_size: int, epochs: int, train: int) -> int:
    """Return the steps of the warm-up, a fraction of all steps.

    >>> warmup_steps(100, 60, 2500)
    75
    """
    return round(WARMUP * epochs * math.ceil(train / batch_size))


def _resolved_data(config: Config, preparation: Preparation, *, directed: bool) -> Any:
    """Return the data section without `auto` in directions, features and scale."""
    data = replace(config.data, scale="standard" if preparation.standardizes else "none", directed=directed)
    return replace(data, features=preparation.made or "given") if data.features == "auto" else data


def _notes_on_data(graph: Graph, preparation: Preparation) -> list[str]:
    notes = []
    if preparation.made is not None:
        notes.append(f"no features: made from the {preparation.made} of each node")
    if graph.schema is not None:
        notes += _notes_on_table(graph, graph.schema, preparation)
    if preparation.standardizes:
        which = "features" if graph.schema is None else "numbers and dates"
        notes.append(f"{which} standardized by mean and deviation of the training nodes: columns differ strongly")
    if graph.directed:
        notes.append("directed edges: hops and PageRank follow their direction")
    return notes


def _notes_on_table(graph: Graph, schema: Schema, preparation: Preparation) -> list[str]:
    """Return what became of the columns of a table, one line for each kind of change."""
    notes, names = [], graph.feature_names or schema.feature_names
    if dates := [column.name for column in schema.columns if column.type == DATE]:
        notes.append(f"dates as days: {_listed(dates)}")
    if categories := [column for column in schema.columns if column.type == CATEGORY]:
        counts = [f"{column.name} ({len(column.values)} and {OTHER})" for column in categories]
        notes.append(f"categories as one column per value: {_listed(counts)}")
    if len(preparation.indicators):
        filled = [names[column] for column in preparation.indicators]
        notes.append(f"missing values filled by the median, with a column that says where: {_listed(filled)}")
    # A category has a column for values that are not there yet.
    if constant := [names[column] for column in preparation.constant if not names[column].endswith(f"={OTHER}")]:
        notes.append(f"constant columns set to 0: {_listed(constant)}")
    return notes


def _listed(names: Sequence[str]) -> str:
    """Return names in one line; of many, the first and how many more there are."""
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


def _notes_on_tokens(config: Config, tokens: TokenConfig, *, graph: Graph, train: NDArray[np.int64]) -> list[str]:
    notes, given = [], config.tokens
    if given.hops == AUTO and tokens.hops != HOPS:
        notes.append(f"{tokens.hops} hops: about {labels_per_class(graph, train):.0f} labels a class are few")
    if given.clusters == AUTO and tokens.clusters < MOST_CLUSTERS:
        notes.append(f"{tokens.clusters} clusters: the graph has only {graph.num_nodes:,} nodes")
    if AUTO in (given.link_tokens, given.nearest_tokens) and graph.num_nodes > MOST_NODES_COMPARED:
        notes.append(f"no neighbours by links or features: {graph.num_nodes:,} nodes are many to compare")
    return notes


@dataclass(frozen=True)
class _Told:
    """What tells the classes of training nodes: how well, and what follows from that."""

    agreement: Agreement = field(default_factory=Agreement)
    features_lead: bool = False
    links_lead: bool = False


def _what_tells_classes(config: Config, graph: Graph, train: NDArray[np.int64]) -> _Told:
    """Compare edges, features and links, as far as settings depend on it."""
    if not _BY_AGREEMENT & {*unresolved(config.model), *unresolved(config.training)}:
        return _Told()
    if graph.num_features < FEW_COLUMNS or len(train) < SMALL_BELOW:  # no rule asks for more
        return _Told(Agreement(edges=label_agreement(graph, train)))
    agreement = Agreement.of(graph, train)
    tell = agreement.features > max(FEATURES_TELL, agreement.edges + FEATURES_LEAD)
    return _Told(
        agreement,
        features_lead=len(train) > MORE_EPOCHS_UP_TO and agreement.edges > ALIKE and tell,
        links_lead=agreement.links > max(agreement.edges, agreement.features) + LINKS_LEAD,
    )


def _adapt_model(config: Config, graph: Graph, train: NDArray[np.int64], *, told: _Told) -> tuple[Config, list[str]]:
    model, tokens, task = config.model, config.tokens, TASKS[graph.task]
    hops, few_columns = tokens.hops, graph.num_features < FEW_COLUMNS
    has_neighbours = any((tokens.structure_tokens, tokens.content_tokens, tokens.link_tokens, tokens.nearest_tokens))
    small = len(train) < SMALL_BELOW or has_few_labels(graph, train)
    width, gated = SMALL_WIDTH if small else WIDTH, model.combine == "gated"
    members = max(choose_members(len(train)), SPARE_MEMBERS if told.features_lead else 1)
    feature_dropout = 0.0 if few_columns else MISLEADING_DROPOUT if told.links_lead else FEATURE_DROPOUT
    embedding_dropout = 0.0 if few_columns else LINKED_EMBEDDING_DROPOUT if told.links_lead else EMBEDDING_DROPOUT
    chosen: dict[str, Any] = {
        "hidden_channels": -(-width // model.heads) * model.heads,
        "members": members,
        "dropout": STRONG_DROPOUT if small else DROPOUT,
        "rich_tokens": 0 if told.features_lead or told.links_lead else min(RICH_TOKENS, hops),
        "label_hops": 0 if told.features_lead else min(LABEL_HOPS, hops),
        "own_hops": gated and hops > 0 and told.agreement.edges > ALIKE,
        "rich_labels": has_neighbours and task.has_classes and few_columns and len(train) >= MANY_LABELS,
        "feature_dropout": feature_dropout,
        "embedding_dropout": embedding_dropout,
        "neighbour_dropout": min(HIDDEN_PATH, 1 - max(0.0, model.own_dropout)) if gated else 0.0,
        "own_dropout": min(HIDDEN_PATH, 1 - max(0.0, model.neighbour_dropout)) if gated else 0.0,
    }
    names = unresolved(model)
    config = replace(config, model=replace(model, **{name: chosen[name] for name in names}))
    words = {"hidden_channels": f"width {chosen['hidden_channels']}", "dropout": f"dropout {chosen['dropout']}"}
    said = [text for name, text in words.items() if name in names]
    notes = [f"{', '.join(said)}: {len(train):,} training nodes"] if said else []
    if "members" in names and chosen["members"] > 1:
        notes.append(f"{chosen['members']} models that predict together: {len(train):,} training nodes")
    if "own_hops" in names and chosen["own_hops"]:
        notes.append(
            f"hops are read directly: linked nodes tend to have the same class (Cohen's kappa "
            f"{told.agreement.edges:.2f})"
        )
    if {"rich_tokens", "label_hops"} & {*names} and told.features_lead:
        notes.append(
            f"nothing around neighbours: similar features tell the class better than edges do (Cohen's kappa "
            f"{told.agreement.features:.2f} and {told.agreement.edges:.2f})"
        )
    if "feature_dropout" in names and told.links_lead:
        notes.append(
            f"{feature_dropout:.0%} of the features are hidden while training: similar links tell the class (Cohen's "
            f"kappa {told.agreement.links:.2f}), features do not ({told.agreement.features:.2f})"
        )
    if "feature_dropout" in names and few_columns:
        notes.append(f"no dropout of features: {graph.num_features} columns are few, and each may matter")
    if "rich_labels" in names and chosen["rich_labels"]:
        notes.append(
            f"neighbours carry the training labels around them: {len(train):,} training nodes are many, and "
            f"{graph.num_features} columns are few"
        )
    return config, notes


def choose_members(train: int) -> int:
    """Return how many models predict together, by the number of training nodes.

    >>> [choose_members(train) for train in (110, 1600, 12000)]
    [5, 3, 1]
    """
    return next((members for most, members in MEMBERS if train <= most), 1)


def _adapt_training(config: Config, graph: Graph, split: Split, *, told: _Told) -> tuple[Config, list[str]]:
    training, train, names = config.training, len(split.train), unresolved(config.training)
    task, notes = TASKS[graph.task], []
    if "batch_size" in names:
        smallest = SMALLEST_WITH_UNLABELLED if training.consistency else SMALLEST_BATCH
        size = min(LARGEST_BATCH, max(smallest, train // STEPS_PER_EPOCH))
        training = replace(training, batch_size=size)
        steps = math.ceil(train / size)
        notes.append(f"batch of {size:,} nodes: {train:,} training nodes, {steps:,} steps an epoch")
    if "epochs" in names:
        epochs = FEW_EPOCHS if told.features_lead else MORE_EPOCHS if train <= MORE_EPOCHS_UP_TO else EPOCHS
        training = replace(training, epochs=epochs)
        more = ", and features that are soon learned by heart" if told.features_lead else ""
        notes.append(f"{epochs} epochs: {train:,} training nodes{more}")
    if "warmup_steps" in names:
        steps = warmup_steps(training.batch_size, training.epochs, train)
        training = replace(training, warmup_steps=steps)
        notes.append(f"warm-up of {steps:,} steps: {WARMUP:.0%} of all")
    if "patience" in names:
        training = replace(training, patience=training.epochs)
    if "label_smoothing" in names:
        training = replace(training, label_smoothing=0.0 if task.gives_values else SMOOTHING)
    rarer = rarer_class(graph, split)
    unbalanced = rarer is not None and rarer < UNBALANCED
    if training.metric == "auto":
        training = replace(training, metric="roc_auc" if unbalanced else choose_metric("auto", task))
        if unbalanced:
            notes.append(f"judged by ROC-AUC: the rarer of two classes has {rarer:.0%} of the training labels")
    if training.threshold == "auto":
        training = replace(training, threshold="f1" if unbalanced else THRESHOLD)
        if unbalanced:
            notes.append("threshold: where the expected F1 of the rarer class is largest, instead of 0.5")
    return replace(config, training=training), notes


def _check_classes(config: Config, graph: Graph, split: Split) -> None:
    """Refuse weights of classes that the graph does not have, and a threshold without two classes to decide between."""
    labels, names = np.asarray(graph.labels), name_classes(graph.class_names, graph.num_classes)
    Target(TASKS[graph.task]).weighted(labels[split.train], config.training.class_weights, names)
    wanted = config.training.threshold
    if wanted in ("auto", THRESHOLD):
        return
    if graph.num_classes != 2:
        raise ConfigError(
            f"training.threshold is {wanted!r} but there are {graph.num_classes} classes: it decides between two; set "
            f"it to auto"
        )
    if isinstance(wanted, str) and rarer_class(graph, split) is None:
        raise ConfigError(
            f"training.threshold {wanted} needs both classes among the training and the validation nodes: give a "
            f"number or another split"
        )


def rarer_class(graph: Graph, split: Split) -> float | None:
    """Return the fraction of training labels that the rarer of two classes has.

    None if there are not two classes, or if the training or validation nodes have only one of them.
    """
    if not TASKS[graph.task].has_classes or graph.num_classes != 2:
        return None
    labels = np.asarray(graph.labels)
    counts = [np.bincount(part[known_labels(part)], minlength=2) for part in (labels[split.train], labels[split.val])]
    return None if min(count.min() for count in counts) == 0 else float(counts[0].min() / counts[0].sum())
