"""Read the JSON of requests: nodes, new nodes with features and edges. Whatever is wrong is a `GraphError`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...data.columns.schema import Schema
from ...data.contract import check_features
from ...data.graph import Graph
from ...errors import ConfigError, GraphError

MOST_TEXT = 80  # characters of a value that an error repeats
MOST_NAME = 1000  # characters of the name of a node
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Sizes:
    """The largest request that is answered.

    Attributes
    ----------
    body : int
        Bytes of a request.
    nodes, edges : int
        Nodes that are asked for or added, and edges that are added.
    """

    body: int = 8 << 20
    nodes: int = 1000
    edges: int = 10_000


@dataclass(frozen=True, eq=False)
class NewGraph:
    """New nodes and their edges, as a request gives them.

    Attributes
    ----------
    names : tuple of str
        Names of the new nodes.
    features : [count, d] dense or CSR, or None
        Their features, before the run prepares them; None if the data of the run has none.
    edges : list of (node, node)
        The ends of each edge, as names or ids.
    weights : list of float or None
        Weights of the edges; None if none is given.
    record : dict
        The same as JSON, for the journal.
    """

    names: tuple[str, ...]
    features: Any
    edges: list[tuple[Any, Any]]
    weights: list[float] | None
    record: dict[str, Any]


def shown(value: Any) -> str:
    """Return a value as an error shows it, shortened."""
    text = ascii(value)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"


def take(content: Any, allowed: Sequence[str], *, what: str = "the request") -> dict[str, Any]:
    """Return a JSON object; refuse other values and keys that are not allowed."""
    if not isinstance(content, dict):
        raise GraphError(f"{what} is {shown(content)}; it must be a JSON object")
    unknown = sorted(content.keys() - set(allowed))
    if unknown:
        raise GraphError(f"{what} has an unknown key {shown(unknown[0])}; the keys are {', '.join(allowed)}")
    return content


def read_list(content: Any, what: str, *, most: int) -> list[Any]:
    """Return a JSON list of at most `most` entries."""
    if not isinstance(content, list):
        raise GraphError(f"{what} is {shown(content)}; it must be a list")
    if len(content) > most:
        raise GraphError(f"{what} has {len(content):,} entries; at most {most:,} are allowed in one request")
    return content


def read_nodes(content: Any, what: str, *, most: int) -> list[Any]:
    """Return a list of names and ids."""
    nodes = read_list(content, what, most=most)
    if not nodes:
        raise GraphError(f"{what} is empty: name at least one node")
    return [read_node(node, f"{what}[{place}]") for place, node in enumerate(nodes)]


def read_node(node: Any, what: str) -> Any:
    """Return a name or an id."""
    if isinstance(node, bool) or not isinstance(node, str | int):
        raise GraphError(f"{what} is {shown(node)}; it must be the name or the id of a node")
    if isinstance(node, str) and not 0 < len(node) <= MOST_NAME:
        raise GraphError(f"{what} has {len(node)} characters; a name has 1 to {MOST_NAME:,}")
    if isinstance(node, str) and any("\ud800" <= letter <= "\udfff" for letter in node):
        raise GraphError(f"{what} is {shown(node)}, which is half a character: a name must be valid Unicode")
    if isinstance(node, str) and "\0" in node:  # numpy drops it from the end of a text: the answer were another node's
        raise GraphError(f"{what} is {shown(node)}, which holds the character NUL: leave it out of names")
    return node


def read_flag(content: Mapping[str, Any], name: str) -> bool:
    """Return true or false, which is the default."""
    value = content.get(name, False)
    if not isinstance(value, bool):
        raise GraphError(f"{name} is {shown(value)}; it must be true or false")
    return value


def read_graph(content: Any, graph: Graph, sizes: Sizes) -> NewGraph:
    """Read new nodes and edges for a graph, whose features say what new nodes must have.

    Parameters
    ----------
    graph
        The graph of the run as it was given, before its features were prepared.
    """
    content = take(content, ("nodes", "edges"), what="graph")
    names, rows = [], []
    for place, item in enumerate(read_list(content.get("nodes"), "graph.nodes", most=sizes.nodes)):
        what = f"graph.nodes[{place}]"
        node = take(item, ("id", "features"), what=what)
        names.append(str(read_node(node.get("id"), f"{what}.id")))
        if names[-1] in names[:-1]:
            raise GraphError(f"{what}.id is {shown(names[-1])}, which is there twice")
        rows.append(_read_features(node.get("features"), graph, what=f"{what}.features"))
    if not names:
        raise GraphError("graph.nodes is empty: give at least one new node")
    edges, weights = _read_edges(content.get("edges", []), sizes)
    features = None
    if graph.features is not None:
        stacked = sp.vstack(rows, format="csr") if sp.issparse(graph.features) else np.stack(rows)
        features = check_features(stacked, len(names), missing=graph.schema is not None)
    return NewGraph(
        tuple(names), features, edges, weights, {"nodes": content["nodes"], "edges": content.get("edges", [])}
    )


def _read_edges(content: Any, sizes: Sizes) -> tuple[list[tuple[Any, Any]], list[float] | None]:
    edges, weights = [], list[float]()
    for place, item in enumerate(read_list(content, "graph.edges", most=sizes.edges)):
        what = f"graph.edges[{place}]"
        edge = take(item, ("source", "target", "weight"), what=what)
        edges.append((read_node(edge.get("source"), f"{what}.source"), read_node(edge.get("target"), f"{what}.target")))
        weights.append(_read_number(edge.get("weight", 1), f"{what}.weight"))
        if not weights[-1] > 0:
            raise GraphError(f"{what}.weight is {weights[-1]}; weights must be positive")
    given = any("weight" in edge for edge in content)
    return edges, weights if given else None


def _read_number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise GraphError(f"{what} is {shown(value)}; it must be a number")
    if not -_LARGEST <= value <= _LARGEST:
        raise GraphError(f"{what} is {shown(value)}; it must be a finite number that float32 holds")
    return float(np.float32(value))


def _read_features(content: Any, graph: Graph, *, what: str) -> Any:
    """Return one row: from a list of all numbers, or from numbers by the name or number of their column."""
    if graph.features is None:
        if content not in (None, [], {}):
            raise GraphError(f"{what} is given, but the graph has no features: leave it out")
        return None
    width, names = graph.num_features, graph.feature_names
    if content is None:
        raise GraphError(f"{what} is missing: the graph has {width} features")
    if graph.schema is not None and isinstance(content, dict):
        return _read_columns(content, graph.schema, what=what)
    if isinstance(content, list):
        if len(content) != width:
            raise GraphError(f"{what} has {len(content)} numbers but the graph has {width} features")
        values = dict(enumerate(content))
    elif isinstance(content, dict):
        column_of = {str(name): column for column, name in enumerate(names if names is not None else range(width))}
        unknown = next((name for name in content if name not in column_of), None)
        if unknown is not None:
            raise GraphError(f"{what} names {shown(unknown)}, which is not one of the {width} features")
        values = {column_of[name]: value for name, value in content.items()}
        if not sp.issparse(graph.features) and len(values) < width:
            missing = next(name for name, column in column_of.items() if column not in values)
            raise GraphError(f"{what} lacks {shown(missing)}: the graph has {width} features")
    else:
        raise GraphError(f"{what} is {shown(content)}; it must be a list of numbers, or numbers by feature")
    numbers = {column: _read_number(value, f"{what}[{column}]") for column, value in values.items()}
    if sp.issparse(graph.features):
        pairs = {column: number for column, number in sorted(numbers.items()) if number}
        parts = (np.array(list(pairs.values()), dtype=np.float32), (np.zeros(len(pairs), int), list(pairs)))
        return sp.csr_matrix(parts, shape=(1, width), dtype=np.float32)
    return np.array([numbers[column] for column in range(width)], dtype=np.float32)


def _read_columns(content: dict[str, Any], schema: Schema, *, what: str) -> Any:
    """Return one row from the values of a table's columns, as `Schema` encodes them; null is a missing value."""
    known = [column.name for column in schema.columns]
    for name, value in content.items():
        if name not in known:
            raise GraphError(f"{what} names {shown(name)}, which is not one of the {len(known)} columns")
        if isinstance(value, int | float) and not isinstance(value, bool):
            _read_number(value, f"{what}[{shown(name)}]")
        elif isinstance(value, str):
            if len(value) > MOST_NAME or not value.isprintable():
                raise GraphError(f"{what}[{shown(name)}] is {shown(value)}; it must be a short text")
        elif value is not None and not isinstance(value, bool):
            raise GraphError(f"{what}[{shown(name)}] is {shown(value)}; it must be a number, text, true, false or null")
    try:
        return schema.encode_rows([content])[0]
    except GraphError as error:
        raise GraphError(f"{what}: {error}") from error


def check_sizes(sizes: Sizes) -> Sizes:
    """Refuse sizes below 1."""
    for name in ("body", "nodes", "edges"):
        if getattr(sizes, name) < 1:
            raise ConfigError(f"the largest number of {name} is {getattr(sizes, name)}; it must be 1 or more")
    return sizes
