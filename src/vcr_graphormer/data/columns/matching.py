"""Match features and classes of another graph with those of a schema, by name and never by place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...base.problems import Problems
from ..contract import Features
from ..graph import Graph
from .schema import CATEGORY, OTHER, UNKNOWN, WORDS, Column, Schema

_ROWS_AT_ONCE = 1 << 16  # bounds the working memory
# The features of a graph whose sum is one feature of the schema, by place, and a number that is added.
_Source = tuple[list[int], float]


def schema_of(graph: Graph) -> Schema:
    """Return what is known of the features and classes of a graph by name; columns of arrays are numbers."""
    schema = graph.schema or Schema(tuple(Column(name) for name in graph.feature_names or ()))
    return replace(schema, classes=graph.class_names)


def match(graph: Graph, schema: Schema, problems: Problems) -> Graph:
    """Return a graph with the features and classes of a schema, in its order, found by name.

    Where the graph or the schema has no names, features or class ids stay as they are.

    Parameters
    ----------
    problems
        Collects missing columns, columns of another type and unknown classes; notes columns that are ignored.
    """
    if schema.columns and graph.feature_names is not None:
        graph = _match_features(graph, schema, problems)
    if schema.classes is None:
        return _with_numbers(graph)
    if graph.class_names != schema.classes:
        graph = _match_classes(graph, schema.classes, problems)
    return graph


def _with_numbers(graph: Graph) -> Graph:
    """Return the graph with class ids as its file has them, if names of classes are numbers.

    A table with the classes 0 and 2 gives them names, one with 0, 1 and 2 does not.
    """
    names = graph.class_names
    if names is None or graph.labels is None or graph.labels.ndim > 1 or not all(map(str.isdecimal, names)):
        return graph
    labels, numbers = np.asarray(graph.labels), np.array([int(name) for name in names])
    return replace(graph, labels=np.where(labels < 0, -1, numbers[labels]), class_names=None)


def _match_features(graph: Graph, schema: Schema, problems: Problems) -> Graph:
    given = schema_of(graph)
    same_names = given.feature_names == schema.feature_names
    if graph.features is None or given.columns == schema.columns or (graph.schema is None and same_names):
        return graph
    sources = [source for column in schema.columns for source in _find(column, graph, problems)]
    # Of a table, columns are known by their own names; of arrays, by the names of features.
    wanted = {column.name for column in schema.columns} if graph.schema is not None else set(schema.feature_names)
    for column in given.columns:
        if column.name not in wanted:
            problems.note("was not there in training and is ignored", column=column.name)
    if problems.texts:
        return graph
    # What follows no longer depends on how the table of the graph was encoded, but it may still have missing values.
    table = None if graph.schema is None else replace(schema, classes=graph.class_names)
    return replace(graph, features=_take(graph.features, sources), feature_names=schema.feature_names, schema=table)


def _find(column: Column, graph: Graph, problems: Problems) -> list[_Source]:
    """Return the source of each feature of a column; none, with a problem, if the graph has no such column."""
    places = {name: place for place, name in enumerate(graph.feature_names or ())}
    if graph.schema is None:
        missing = [name for name in column.feature_names if name not in places]
        for name in missing:
            problems.add(f"the feature '{name}' is missing; there are: {', '.join(places)}")
        return [] if missing else [([places[name]], 0.0) for name in column.feature_names]
    own = {column.name: column for column in graph.schema.columns}.get(column.name)
    if own is None and column.name in graph.schema.ignored:
        problems.add(f"must hold {WORDS[column.type]}, but holds other values or none", column=column.name)
        return []
    if own is None:
        names = ", ".join(column.name for column in graph.schema.columns)
        problems.add(f"the column '{column.name}' is missing; there are: {names}")
        return []
    if own.type != column.type:
        problems.add(f"must hold {WORDS[column.type]}, but holds {WORDS[own.type]}", column=column.name)
        return []
    if column.type != CATEGORY:
        return [([places[column.name]], own.origin - column.origin)]
    others = [places[f"{column.name}={value}"] for value in (*own.values, OTHER) if value not in column.values]
    unknown = [value for value in column.values if value not in own.values]
    if unknown and np.asarray(graph.features)[:, others[-1]].any():
        problems.add(
            f"'{unknown[0]}' cannot be told from other rare values, which this graph has together as '{OTHER}': make "
            f"it by Graph.from_frames(…, schema=run.schema)",
            column=column.name,
        )
    own_places = [[places[f"{column.name}={value}"]] if value in own.values else [] for value in column.values]
    return [(source, 0.0) for source in (*own_places, others)]


def _take(features: Features, sources: Sequence[_Source]) -> Any:
    """Return features made from others; see `_Source`. Sparse ones are put in another order only."""
    if sp.issparse(features):
        return sp.csr_matrix(features)[:, [place for places, _ in sources for place in places]]
    taken = np.zeros((features.shape[0], len(sources)), dtype=features.dtype)
    firsts = {column: places[0] for column, (places, _) in enumerate(sources) if places}
    for start in range(0, len(taken), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        block = np.asarray(features[rows])
        taken[rows, list(firsts)] = block[:, list(firsts.values())]
        for column, (places, shift) in enumerate(sources):
            for place in places[1:]:
                taken[rows, column] += block[:, place]
            if shift:
                taken[rows, column] += np.float32(shift)
    return taken


def _match_classes(graph: Graph, classes: tuple[str, ...], problems: Problems) -> Graph:
    """Return the graph with class ids, or columns of labels, in the order of `classes`."""
    names = graph.class_names
    if graph.labels is None:
        return replace(graph, class_names=classes)
    labels = np.asarray(graph.labels)
    if names is None:
        count = labels.shape[1] if labels.ndim == 2 else int(labels.max(initial=-1)) + 1
        if count > len(classes):
            problems.add(f"class {count - 1} is in the data but the model knows only {len(classes)} classes")
        return replace(graph, class_names=classes)
    used = np.flatnonzero((labels != -1).any(axis=0)) if labels.ndim == 2 else np.unique(labels[labels >= 0])
    for name in (names[place] for place in used if names[place] not in (*classes, UNKNOWN)):
        problems.add(f"unknown class '{name}'; the classes are {', '.join(classes)}")
    place_of = {name: place for place, name in enumerate(classes)}
    places = np.array([place_of.get(name, -1) for name in names])
    if labels.ndim == 1:
        return replace(graph, labels=np.where(labels < 0, -1, places[labels]), class_names=classes)
    matched = np.full((len(labels), len(classes)), -1, dtype=labels.dtype)
    matched[:, places[places >= 0]] = labels[:, places >= 0]
    return replace(graph, labels=matched, class_names=classes)
