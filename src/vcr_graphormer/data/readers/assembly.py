"""Make a graph of tables of nodes and edges: join them by id, learn a schema, and tell all problems at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...base.jobs import Progress
from ...base.problems import Problems
from ...errors import GraphError
from ..columns.schema import CATEGORY, Schema, texts_of
from ..contract import check_class_names
from ..graph import Graph
from ..tasks import TASKS, check_labels, unknown_label
from .arrow import Source
from .edges import read_edges, tell_edges, to_adjacency
from .formats import LABEL, NODE
from .mapping import MOST_ROWS, EdgeTable, NodeTable, can_be_ids, check_header, find_column, guarded

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Tables:
    """The tables of a graph, opened, each with the meaning of its columns."""

    nodes: Sequence[tuple[Source, NodeTable]]
    edges: Sequence[tuple[Source, EdgeTable]]


@dataclass(frozen=True)
class Wanted:
    """What the graph shall be; see the arguments of `read_graph`. A known schema is applied instead of a new one."""

    directed: bool = False
    task: str = "auto"
    name: str = "graph"
    schema: Schema | None = None


@dataclass(frozen=True)
class _Nodes:
    """One table of nodes: its columns, its ids as texts, and what its columns become."""

    title: str
    table: pa.Table
    ids: pa.ChunkedArray
    schema: Schema
    time: pa.ChunkedArray | None
    problems: Problems


def assemble(
    tables: Tables,
    wanted: Wanted,
    *,
    problems: Problems,
    complete: bool = True,
    progress: Progress | None = None,
) -> tuple[Graph, pa.ChunkedArray | None]:
    """Return the graph, and the times of its nodes if a table has a column of times.

    Nodes are those of the node tables, in order of appearance. Without node tables they are the ids of the edges,
    sources first. Edges with an id of no node are left out, which a note tells. All problems are raised as one error.

    Parameters
    ----------
    complete
        Whether all tables could be opened; otherwise the others are read only to find their problems.
    """
    import pyarrow as pa

    usual = () if any(table.label for _, table in tables.nodes) else LABEL
    nodes = []
    for source, table in tables.nodes:
        if (part := guarded(_read_nodes, source, table, usual, wanted, problems)) is not None:
            nodes.append(part)
    _check_together(nodes, problems)
    pa.default_memory_pool().release_unused()
    complete = complete and len(nodes) == len(tables.nodes)
    names, rows = _number_nodes(nodes, problems) if complete else (None, [])
    names, edges = read_edges(
        tables.edges, names, has_nodes=bool(tables.nodes) or not complete, problems=problems, progress=progress
    )
    if not tables.edges and complete:
        problems.add("there is no table of edges: name one in [data.edges]")
    if problems.texts or names is None or edges is None:
        problems.raise_any()
        raise GraphError("the tables hold no nodes and edges")
    edges = tell_edges(edges, names, has_nodes=bool(nodes), problems=problems)
    features, schema = _features(nodes, rows, num_nodes=len(names), known=wanted.schema, problems=problems)
    labels, classes = _labels(nodes, rows, num_nodes=len(names), wanted=wanted, problems=problems)
    problems.raise_any()
    times = _times(nodes, rows, num_nodes=len(names))
    del nodes  # the tables: what follows needs the memory
    pa.default_memory_pool().release_unused()
    indptr, indices, weights = to_adjacency(edges, len(names), directed=wanted.directed)
    del edges
    checked_labels, task = check_labels(labels, len(names), wanted.task)
    graph = Graph(
        indptr,
        indices,
        weights=weights,
        features=features,
        labels=checked_labels,
        names=np.asarray(names.to_numpy(zero_copy_only=False), dtype=np.str_),
        class_names=check_class_names(classes, checked_labels, task),
        directed=wanted.directed,
        task=task,
        name=wanted.name,
        feature_names=None if schema is None or features is None else schema.feature_names,
        schema=schema,
    )
    _tell_isolated(graph, problems)
    return graph, times


def _read_nodes(
    source: Source, table: NodeTable, usual_labels: Sequence[str], wanted: Wanted, problems: Problems
) -> _Nodes | None:
    """Read a table of nodes and learn, or check, what its columns become."""
    found = problems.of(source.title, source.line_of)
    check_header(source)
    id = find_column(source, table.id, NODE, what="id", problems=found)
    if id is None and not table.id:
        found.add(f'which column holds the ids? Say id = "…" (columns: {", ".join(source.names)})')
    label = find_column(source, table.label, usual_labels, what="label", problems=found)
    if label is not None and not table.label and label not in table.drop:
        found.note("is taken for the label", column=label)
    label = None if label in table.drop and not table.label else label
    for what, names in (("time", [table.time] if table.time else []), ("drop", table.drop)):
        for name in names:
            find_column(source, name, (), what=what, problems=found)
    roles: dict[str, Sequence[str | None]] = {"id": [id], "label": [label], "time": [table.time]}
    roles |= {"categories": table.categories, "drop": table.drop}
    if not _check_roles(roles, found):
        return None
    dropped = [name for name in table.drop if name in source.names]
    # Categories as written, so that the post code 01234 does not become the number 1234.
    known = wanted.schema.columns if wanted.schema is not None else ()
    texts = {id, *table.categories, *(column.name for column in known if column.type == CATEGORY)} - {label, table.time}
    content = source.read(text=[name for name in source.names if name in texts], problems=found, leave_out=dropped)
    # A column may have an empty name, such as the index of a pandas table, and time = "" names none.
    time = content.column(table.time) if table.time and table.time in content.column_names else None
    ids = None if id is None else _ids(content, id, found)
    columns = content.drop_columns([table.time]) if time is not None else content
    if wanted.schema is None:
        targets = wanted.task in TASKS and TASKS[wanted.task].gives_values
        schema = Schema.learn(columns, id=id, label=label, categories=table.categories, targets=targets, problems=found)
        if dropped:
            schema = replace(schema, ignored=(*schema.ignored, *dropped))
    else:
        schema = _part_of(wanted.schema, columns, id=id, label=label)
    if len(content) == 0:
        found.add("the table has no rows")
    return None if ids is None else _Nodes(source.title, columns, ids, schema, time, found)


def _check_roles(roles: Mapping[str, Sequence[str | None]], problems: Problems) -> bool:
    """Return whether every column is one thing only; a label that is also a category would be ignored as one."""
    owner: dict[str, str] = {}
    distinct = True
    for role, names in roles.items():
        for name in filter(None, dict.fromkeys(names)):
            if name in owner:
                problems.add(f"is named as {owner[name]} and as {role}: leave out one of them", column=name)
                distinct = False
            owner.setdefault(name, role)
    return distinct


def _part_of(schema: Schema, table: pa.Table, *, id: str | None, label: str | None) -> Schema:
    """Return the part of a known schema that is about the columns of one table."""
    columns = tuple(column for column in schema.columns if column.name in table.column_names)
    return replace(schema, columns=columns, id=id, label=label)


def _ids(table: pa.Table, name: str, problems: Problems) -> pa.ChunkedArray | None:
    """Return the ids of nodes as texts; a missing or repeated one is a problem."""
    from pyarrow import compute

    if not can_be_ids(table.column(name).type):
        problems.add(f"holds {table.column(name).type}, which are no ids", column=name)
        return None
    ids = texts_of(table.column(name))
    if ids.null_count:
        rows = np.flatnonzero(compute.is_null(ids).to_numpy())
        _add_rows(problems, rows, lambda row: "the id is missing; every row needs one", column=name)
        return None
    encoded = ids.combine_chunks().dictionary_encode()
    if len(encoded.dictionary) < len(ids):
        codes = encoded.indices.to_numpy()
        first = np.unique(codes, return_index=True)[1]
        rows = np.setdiff1d(np.arange(len(codes)), first)
        _add_rows(problems, rows, lambda row: f"the id '{ids[row].as_py()}' was there before; ids are distinct", name)
        return None
    return ids


def _add_rows(problems: Problems, rows: NDArray[Any], text: Callable[[int], str], column: str) -> None:
    """Add a problem for the first rows, and one for the number of others."""
    for row in rows[:MOST_ROWS].tolist():
        problems.add(text(row), row=row, column=column)
    if len(rows) > MOST_ROWS:
        problems.add(f"{len(rows) - MOST_ROWS:,} more rows have this problem", column=column)


def _check_together(nodes: Sequence[_Nodes], problems: Problems) -> None:
    """Refuse columns that two tables have, and labels in two tables."""
    owner: dict[str, str] = {}
    for part in nodes:
        for column in part.schema.columns:
            if column.name in owner:
                problems.add(
                    f"the column '{column.name}' is in {owner[column.name]} and in {part.title}: drop it in one of them"
                )
            owner.setdefault(column.name, part.title)
    labelled = [part for part in nodes if part.schema.label is not None]
    for part in labelled[1:]:
        problems.add(
            f"labels are in {labelled[0].title} (column '{labelled[0].schema.label}') and in {part.title} "
            f"(column '{part.schema.label}'): drop one of the columns"
        )


def _number_nodes(
    nodes: Sequence[_Nodes], problems: Problems
) -> tuple[pa.Array | None, list[NDArray[np.int64] | None]]:
    """Return the distinct ids of all tables, and the node of each row of each table; None for one row per node."""
    import pyarrow as pa

    if not nodes:
        return None, []
    if len(nodes) == 1:
        return nodes[0].ids.combine_chunks(), [None]
    encoded = pa.chunked_array([chunk for part in nodes for chunk in part.ids.chunks]).combine_chunks()
    encoded = encoded.dictionary_encode()
    ends = np.cumsum([len(part.ids) for part in nodes])[:-1]
    rows = np.split(encoded.indices.to_numpy().astype(np.int64), ends)
    tables = np.bincount(encoded.indices.to_numpy())  # in how many tables each node is
    for part, own in zip(nodes, rows, strict=True):
        if not part.schema.columns and (tables[own] == 1).all():  # labels only; other nodes may have other columns
            problems.add(
                f"none of its ids, such as '{part.ids[0].as_py()}', is in another table of nodes: is this the right "
                f"column?",
                file=part.title,
                column=part.schema.id,
            )
        lacking = len(encoded.dictionary) - len(own)
        if lacking and part.schema.columns:
            problems.note(
                f"{lacking:,} nodes of other tables have no row here; their values are missing", file=part.title
            )
    return encoded.dictionary, list(rows)


def _tell_isolated(graph: Graph, problems: Problems) -> None:
    reached = graph.degrees > 0
    if graph.directed:
        reached = reached.copy()
        reached[graph.indices] = True
    isolated = graph.num_nodes - int(reached.sum())
    if isolated:
        problems.note(f"{isolated:,} of {graph.num_nodes:,} nodes have no edge")


def _features(
    nodes: Sequence[_Nodes],
    rows: Sequence[NDArray[np.int64] | None],
    *,
    num_nodes: int,
    known: Schema | None,
    problems: Problems,
) -> tuple[NDArray[np.float32] | None, Schema | None]:
    """Return the features of all nodes and the schema of all tables together."""
    if not nodes:
        return None, known
    with_label = next((part.schema for part in nodes if part.schema.label is not None), nodes[0].schema)
    schema = known or Schema(
        tuple(column for part in nodes for column in part.schema.columns),
        nodes[0].schema.id,
        with_label.label,
        with_label.classes,
        tuple(name for part in nodes for name in part.schema.ignored),
    )
    found = {column.name for part in nodes for column in part.schema.columns}
    for column in schema.columns:
        if column.name not in found:
            there = [name for part in nodes for name in part.table.column_names]
            problems.add(f"the column '{column.name}' is missing; there are: {', '.join(there)}")
    matrices = [part.schema.encode(part.table, part.problems) for part in nodes]
    if len(nodes) == 1 and rows[0] is None and known is None:
        return matrices[0] if matrices[0].shape[1] else None, schema
    if not schema.columns:
        return None, schema
    features = np.full((num_nodes, len(schema.feature_names)), np.nan, dtype=np.float32)
    place = 0
    for column in schema.columns:
        width = len(column.feature_names)
        if column.type == CATEGORY:
            features[:, place : place + width] = 0.0
        for part, own, matrix in zip(nodes, rows, matrices, strict=True):
            start = 0
            for other in part.schema.columns:
                if other.name == column.name:
                    block = matrix[:, start : start + width]
                    features[slice(None) if own is None else own, place : place + width] = block
                start += len(other.feature_names)
        place += width
    return features, schema


def _labels(
    nodes: Sequence[_Nodes],
    rows: Sequence[NDArray[np.int64] | None],
    *,
    num_nodes: int,
    wanted: Wanted,
    problems: Problems,
) -> tuple[NDArray[Any] | None, tuple[str, ...] | None]:
    """Return the labels of all nodes, and the names of classes if there are any."""
    for part, own in zip(nodes, rows, strict=True):
        if part.schema.label is None:
            continue
        gives_values = wanted.task in TASKS and TASKS[wanted.task].gives_values
        if wanted.task in TASKS and TASKS[wanted.task].several_columns:
            part.problems.add(
                f"is one column of labels, but {wanted.task} needs a table of labels with one column each: "
                f"name it labels.csv, see docs/own-data.md",
                column=part.schema.label,
            )
            return None, None
        if gives_values and part.schema.classes is not None:
            part.problems.add(f"holds text; {wanted.task} needs numbers", column=part.schema.label)
            return None, None
        found = part.schema.encode_labels(part.table, part.problems)
        if found is None:
            return None, None
        if found.dtype.kind == "f" and not gives_values:  # true and false, or no value at all
            found = np.where(np.isnan(found), -1, found).astype(np.int64)
        if own is None:
            return found, part.schema.classes
        unknown = -1 if found.dtype.kind in "iu" else unknown_label(wanted.task)
        dtype = found.dtype if found.dtype.kind in "iu" else np.float64
        labels = np.full((num_nodes, *found.shape[1:]), unknown, dtype=dtype)
        labels[own] = found
        return labels, part.schema.classes
    return None, None


def _times(nodes: Sequence[_Nodes], rows: Sequence[NDArray[np.int64] | None], *, num_nodes: int) -> Any:
    """Return the time of each node, null where there is none; None if no table has times."""
    import pyarrow as pa

    for part, own in zip(nodes, rows, strict=True):
        if part.time is None or own is None:
            if part.time is not None:
                return part.time
            continue
        places = np.full(num_nodes, -1, dtype=np.int64)
        places[own] = np.arange(len(own))
        return part.time.take(pa.array(places, mask=places < 0))
    return None
