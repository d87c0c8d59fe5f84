"""Make a graph of tables of nodes and edges: join them by id, learn a schema, and tell all problems at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...base.checks import LARGEST_ID
from ...base.jobs import Progress
from ...base.problems import Problems
from ...errors import GraphError, VCRError, unknown_name
from ..columns.schema import CATEGORY, Schema, texts_of
from ..contract import add_up_edges, check_class_names, finish_adjacency
from ..graph import Graph
from ..tasks import TASKS, check_labels, unknown_label
from .arrow import Again, Source, WrongTypeError
from .formats import LABEL, NODE, SOURCE, TARGET, WEIGHT
from .mapping import EdgeTable, NodeTable, likely_column

if TYPE_CHECKING:
    import pyarrow as pa

    from .hashing import TextIndex

_MOST_ROWS = 5  # rows with the same kind of problem that are named one by one
_NO_NODE, _MISSING = -1, -2  # the row of an id that no table of nodes has, and of an entry without an id
_LOOK_UP_ROWS = 1 << 18  # edges whose ids are looked up at once; more would hold more texts in memory
_COMPILED_FROM = 100_000  # nodes from which a compiled index is worth the second that its import takes


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


@dataclass(frozen=True)
class _Edges:
    """Edges of all tables: rows of the nodes at both ends, -1 for ids of no node, and weights."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    weight: NDArray[np.float32] | None


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
        if (part := _guarded(_read_nodes, source, table, usual, wanted, problems)) is not None:
            nodes.append(part)
    _check_together(nodes, problems)
    pa.default_memory_pool().release_unused()
    complete = complete and len(nodes) == len(tables.nodes)
    names, rows = _number_nodes(nodes, problems) if complete else (None, [])
    names, edges = _read_edges(
        tables.edges, names, has_nodes=bool(tables.nodes) or not complete, problems=problems, progress=progress
    )
    if not tables.edges and complete:
        problems.add("there is no table of edges: name one in [data.edges]")
    if problems.texts or names is None or edges is None:
        problems.raise_any()
        raise GraphError("the tables hold no nodes and edges")
    edges = _tell_edges(edges, names, nodes=nodes, problems=problems)
    features, schema = _features(nodes, rows, num_nodes=len(names), known=wanted.schema, problems=problems)
    labels, classes = _labels(nodes, rows, num_nodes=len(names), wanted=wanted, problems=problems)
    problems.raise_any()
    times = _times(nodes, rows, num_nodes=len(names))
    del nodes  # the tables: what follows needs the memory
    pa.default_memory_pool().release_unused()
    ends: Any = (edges.source, edges.target)
    weighted = edges.weight is not None
    matrix = add_up_edges(ends, edges.weight, len(names), wanted.directed)
    del edges, ends
    indptr, indices, weights = finish_adjacency(matrix, weighted=weighted, directed=wanted.directed)
    del matrix
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


def _guarded(read: Callable[..., Any], source: Source, *arguments: Any) -> Any:
    """Read one table; what is wrong with it joins the problems, so that the other tables are read, too."""
    problems: Problems = arguments[-1]
    before = len(problems.texts)
    try:
        found = read(source, *arguments)
    except VCRError as error:
        problems.add(str(error))
        return None
    return found if len(problems.texts) == before else None


def _find(source: Source, given: str, usual: Sequence[str], *, what: str, problems: Problems) -> str | None:
    """Return the column that is meant: the given one, or the first of the usual names, case ignored."""
    if given:
        if given not in source.names:
            problems.add(f"{what}: {unknown_name('column', given, source.names)}")
            return None
        return given
    lowered = {name.lower(): name for name in reversed(source.names)}
    return next((lowered[name] for name in usual if name in lowered), None)


def _check_header(source: Source, problems: Problems) -> None:
    names = source.names
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            raise GraphError(f"{source.title}: {names.count(name)} columns are called '{name}'; rename all but one")


def _read_nodes(
    source: Source, table: NodeTable, usual_labels: Sequence[str], wanted: Wanted, problems: Problems
) -> _Nodes | None:
    """Read a table of nodes and learn, or check, what its columns become."""
    found = problems.of(source.title, source.line_of)
    _check_header(source, found)
    id = _find(source, table.id, NODE, what="id", problems=found)
    if id is None and not table.id:
        found.add(f'which column holds the ids? Say id = "…" (columns: {", ".join(source.names)})')
    label = _find(source, table.label, usual_labels, what="label", problems=found)
    if label is not None and not table.label and label not in table.drop:
        found.note("is taken for the label", column=label)
    label = None if label in table.drop and not table.label else label
    for what, names in (("time", [table.time] if table.time else []), ("drop", table.drop)):
        for name in names:
            _find(source, name, (), what=what, problems=found)
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

    if not _can_be_ids(table.column(name).type):
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
    for row in rows[:_MOST_ROWS].tolist():
        problems.add(text(row), row=row, column=column)
    if len(rows) > _MOST_ROWS:
        problems.add(f"{len(rows) - _MOST_ROWS:,} more rows have this problem", column=column)


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


def _read_edges(
    tables: Sequence[tuple[Source, EdgeTable]],
    names: pa.Array | None,
    *,
    has_nodes: bool,
    problems: Problems,
    progress: Progress | None,
) -> tuple[pa.Array | None, _Edges | None]:
    """Return the ids of the nodes and the edges of all tables. Ids are those given, or those of the edges."""
    look_up = _LookUp(names)
    parts: list[_Edges] = []
    for source, table in tables:
        part = _guarded(_read_edge_table, source, table, look_up, progress, problems)
        if part is not None:
            parts.append(part)
    if len(parts) < len(tables) or not parts or (has_nodes and names is None):
        return None, None
    weighted = {part.weight is not None for part in parts}
    if len(weighted) > 1:
        problems.add("some tables of edges have weights and some have none: name a weight in all of them, or in none")
        return None, None
    weights = [part.weight for part in parts if part.weight is not None]
    sources, targets = [part.source for part in parts], [part.target for part in parts]
    edges = _Edges(_joined(sources), _joined(targets), _joined(weights) if weights else None)
    return look_up.finish(edges) if names is None else (names, edges)


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Return all parts in one array; the list is emptied, so that their memory is free again."""
    joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
    parts.clear()
    return joined


class _LookUp:
    """Find the nodes of ids. Without given names, every id is a new node, numbered in order of appearance."""

    def __init__(self, names: pa.Array | None) -> None:
        self.names = names
        self.index: TextIndex | None = None
        if names is not None and len(names) >= _COMPILED_FROM:
            from .hashing import TextIndex

            self.index = TextIndex(names)
        self.ids: list[tuple[pa.ChunkedArray, pa.ChunkedArray]] = []

    def rows(self, source: pa.ChunkedArray, target: pa.ChunkedArray) -> tuple[NDArray[np.int32], ...]:
        """Return the node of each id; both columns at the same time, one thread each."""
        if self.names is None:
            self.ids.append((texts_of(source), texts_of(target)))
            return tuple(_where_missing(ids) for ids in self.ids[-1])
        with ThreadPoolExecutor(2) as pool:
            return tuple(pool.map(self._rows, (source, target)))

    def _rows(self, ids: pa.ChunkedArray) -> NDArray[np.int32]:
        import pyarrow as pa
        from pyarrow import compute

        if not pa.types.is_string(ids.type):
            ids = texts_of(ids)
        if self.index is not None:
            rows = self.index.rows(ids, _NO_NODE)
        else:
            rows = compute.fill_null(compute.index_in(ids, value_set=self.names), _NO_NODE).to_numpy().copy()
        lost = np.flatnonzero(rows == _NO_NODE)
        if lost.size:  # missing, or with spaces around them
            trimmed = texts_of(ids.take(pa.array(lost)))
            again = compute.index_in(trimmed, value_set=self.names)
            rows[lost] = compute.fill_null(again, _NO_NODE).to_numpy()
            rows[lost[_where_missing(trimmed) == _MISSING]] = _MISSING
        return rows

    def finish(self, edges: _Edges) -> tuple[pa.Array | None, _Edges | None]:
        """Return the distinct ids, sources first, and the edges between them."""
        import pyarrow as pa

        chunks = [chunk for side in (0, 1) for pair in self.ids for chunk in pair[side].chunks]
        encoded = pa.chunked_array(chunks, pa.string()).combine_chunks().dictionary_encode()
        rows = encoded.indices.to_numpy().astype(np.int32, copy=False)
        if not len(rows):
            return None, None
        return encoded.dictionary, replace(edges, source=rows[: len(edges.source)], target=rows[len(edges.source) :])


def _where_missing(ids: pa.ChunkedArray) -> NDArray[np.int32]:
    """Return 0 for each id, and another number where one is missing."""
    if not ids.null_count:
        return np.zeros(len(ids), dtype=np.int32)
    return np.where(ids.is_valid().to_numpy(), 0, _MISSING).astype(np.int32)


def _read_edge_table(
    source: Source, table: EdgeTable, look_up: _LookUp, progress: Progress | None, problems: Problems
) -> _Edges | None:
    import pyarrow as pa

    found = problems.of(source.title, source.line_of)
    _check_header(source, found)
    ends = {}
    for what, given, usual in (("source", table.source, SOURCE), ("target", table.target, TARGET)):
        name = _find(source, given, usual, what=what, problems=found)
        if name is None and not given:
            likely = likely_column(what, source.names)
            hint = f'did you mean {what} = "{likely}"?' if likely else f'say {what} = "…"'
            found.add(f"the column '{what}' is missing; {hint} (columns: {', '.join(source.names)})")
        ends[what] = name
    weight = _find(source, table.weight, WEIGHT, what="weight", problems=found)
    first, second = ends["source"], ends["target"]
    if first is None or second is None or (table.weight and weight is None):
        return None
    if first == second:
        found.add(f"source and target are both the column '{first}'")
        return None
    unused = [name for name in source.names if name not in (first, second, weight)]
    if unused:
        found.note(f"{_columns(unused)} not used; edges have a source, a target and maybe a weight")
    number, known = pa.float64(), len(look_up.ids)
    for _ in range(3):
        del look_up.ids[known:]
        types = {first: pa.string(), second: pa.string()} | ({} if weight is None else {weight: number})
        try:
            return _collect(source, types, look_up=look_up, problems=found, progress=progress)
        except WrongTypeError as error:
            number, wrong = pa.string(), error  # an entry is no number: read texts, and find it
        except Again:
            continue  # lines of another length are known now and left out
    raise wrong


def _columns(names: Sequence[str]) -> str:
    listed = ", ".join(f"'{name}'" for name in names)
    return f"the columns {listed} are" if len(names) > 1 else f"the column {listed} is"


def _collect(
    source: Source,
    types: dict[str, pa.DataType],
    *,
    look_up: _LookUp,
    problems: Problems,
    progress: Progress | None,
) -> _Edges:
    """Read the edges of a table, many rows at a time, so that few texts are in memory."""
    columns = list(types)
    sources, targets, weights, start = [], [], [], 0
    lost: list[tuple[str, int]] = []
    bad: list[tuple[int, str]] = []
    count_bad = 0
    for table in _large_tables(source.batches(types, problems=problems, progress=progress)):
        for name in columns[:2]:
            if not _can_be_ids(table.column(name).type):
                problems.add(f"holds {table.column(name).type}, which are no ids", column=name)
                return _Edges(np.empty(0, np.int32), np.empty(0, np.int32), None)
        one, other = look_up.rows(table.column(columns[0]), table.column(columns[1]))
        for name, rows in zip(columns, (one, other), strict=False):
            lost += [(name, start + int(row)) for row in np.flatnonzero(rows == _MISSING)]
        sources.append(one)
        targets.append(other)
        if len(columns) == 3:
            if not _can_be_ids(table.column(columns[2]).type):  # the same types: numbers, also as texts
                problems.add(f"holds {table.column(columns[2]).type}; weights are numbers", column=columns[2])
                return _Edges(np.empty(0, np.int32), np.empty(0, np.int32), None)
            values, wrong = _weights(table.column(columns[2]))
            weights.append(values)
            count_bad += len(wrong)
            room = max(0, _MOST_ROWS - len(bad))
            bad += [(start + row, _weight_text(table.column(columns[2])[row].as_py())) for row in wrong[:room].tolist()]
        start += len(table)
    for name, row in lost[:_MOST_ROWS]:
        problems.add("the id is missing; every edge needs two", row=row, column=name)
    if len(lost) > _MOST_ROWS:
        problems.add(f"{len(lost) - _MOST_ROWS:,} more ids are missing")
    for row, text in bad:
        problems.add(text, row=row, column=columns[2])
    if count_bad > len(bad):
        problems.add(f"{count_bad - len(bad):,} more rows have this problem", column=columns[2])
    if start == 0:
        problems.add("the table has no rows")
        return _Edges(np.empty(0, np.int32), np.empty(0, np.int32), None)
    return _Edges(_joined(sources), _joined(targets), _joined(weights) if weights else None)


def _large_tables(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the batches again, many rows at a time: a look-up prepares all names each time."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _LOOK_UP_ROWS:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if rows:
        yield pa.Table.from_batches(held)


def _can_be_ids(arrow: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(arrow):
        return _can_be_ids(arrow.value_type)
    is_text = types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow)
    is_number = types.is_integer(arrow) or types.is_floating(arrow) or types.is_decimal(arrow)
    return bool(is_text or is_number or types.is_null(arrow))


def _weights(values: pa.ChunkedArray) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return weights as float32, and the rows whose weight is missing, no number, not above 0 or infinite."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        texts = compute.utf8_trim_whitespace(values.cast(pa.string()))
        # What Arrow takes for a number. NumPy would take more, such as 1_000.
        is_number = compute.match_substring_regex(texts, r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")
        values = compute.if_else(is_number, texts, None).cast(pa.float64())
    numbers = values.cast(pa.float64(), safe=False).to_numpy()
    with np.errstate(over="ignore"):
        weights = numbers.astype(np.float32)
    return weights, np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))


def _weight_text(value: Any) -> str:
    if value is None or value == "":
        return "the weight is missing; every edge needs one above 0"
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return f"the weight is {value!r}; it must be a number"
    return f"the weight is {value}; it must be finite and above 0"


def _tell_edges(edges: _Edges, names: pa.Array, *, nodes: Sequence[_Nodes], problems: Problems) -> _Edges:
    """Return the edges between known nodes; tell how many others there are, and how many loops."""
    if nodes:
        whole = (edges.source >= 0) & (edges.target >= 0)
        lacking = len(whole) - int(whole.sum())
        if lacking == len(whole):
            problems.add(
                f"none of the {lacking:,} edges joins two ids of the tables of nodes, such as '{names[0].as_py()}': "
                f"are the columns id, source and target the right ones?"
            )
            return edges
        if lacking:
            problems.note(f"{lacking:,} of {len(whole):,} edges are left out: an id of theirs is in no table of nodes")
            weight = None if edges.weight is None else edges.weight[whole]
            edges = _Edges(edges.source[whole], edges.target[whole], weight)
    loops = int((edges.source == edges.target).sum())
    if loops:
        problems.note(f"{loops:,} edges from a node to itself are left out")
    if len(names) > LARGEST_ID:
        problems.add(f"there are {len(names):,} nodes; at most {LARGEST_ID:,} are possible")
    return edges


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
