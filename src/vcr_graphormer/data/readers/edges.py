"""Read the tables of edges: find the nodes of their ids, check their weights, and make the adjacency matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...base.checks import LARGEST_ID
from ...base.jobs import Progress
from ...base.machine import default_threads
from ...base.problems import Problems
from ..columns.schema import texts_of
from ..contract import build_adjacency, check_sums
from .arrow import Source
from .formats import SOURCE, TARGET, WEIGHT
from .mapping import MOST_ROWS, EdgeTable, can_be_ids, check_header, find_column, guarded, likely_column
from .text import Again, WrongTypeError

if TYPE_CHECKING:
    import pyarrow as pa

    from .hashing import TextIndex

_NO_NODE, _MISSING = -1, -2  # the row of an id that no table of nodes has, and of an entry without an id
_COMPILED_FROM = 100_000  # nodes or edges from which compiled loops are worth the second that their import takes


@dataclass(frozen=True)
class Edges:
    """Edges of one or all tables: rows of the nodes at both ends, -1 for ids of no node, and weights."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    weight: NDArray[np.float32] | None


@dataclass(frozen=True)
class _Part:
    """Some rows of a table of edges: missing ids by column and row, wrong weights by row and what is wrong."""

    edges: Edges
    ids: tuple[pa.ChunkedArray, pa.ChunkedArray] | None
    lost: list[tuple[str, int]]
    bad: list[tuple[int, str]]
    count_bad: int


def read_edges(
    tables: Sequence[tuple[Source, EdgeTable]],
    names: pa.Array | None,
    *,
    has_nodes: bool,
    problems: Problems,
    progress: Progress | None,
) -> tuple[pa.Array | None, Edges | None]:
    """Return the ids of the nodes and the edges of all tables. Ids are those given, or those of the edges."""
    look_up = _LookUp(names)
    parts: list[Edges] = []
    for source, table in tables:
        part = guarded(_read_edge_table, source, table, look_up, progress, problems)
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
    edges = Edges(_joined(sources), _joined(targets), _joined(weights) if weights else None)
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
        self.ids: list[tuple[pa.ChunkedArray, pa.ChunkedArray]] = []  # without names: all ids so far

    def rows(self, ids: pa.ChunkedArray) -> NDArray[np.int32]:
        """Return the node of each id. Several threads may ask."""
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

    def finish(self, edges: Edges) -> tuple[pa.Array | None, Edges | None]:
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
) -> Edges | None:
    import pyarrow as pa

    found = problems.of(source.title, source.line_of)
    check_header(source)
    ends = {}
    for what, given, usual in (("source", table.source, SOURCE), ("target", table.target, TARGET)):
        name = find_column(source, given, usual, what=what, problems=found)
        if name is None and not given:
            likely = likely_column(what, source.names)
            hint = f'did you mean {what} = "{likely}"?' if likely else f'say {what} = "…"'
            found.add(f"the column '{what}' is missing; {hint} (columns: {', '.join(source.names)})")
        ends[what] = name
    weight = find_column(source, table.weight, WEIGHT, what="weight", problems=found)
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
) -> Edges:
    """Read the edges of a table, many rows at a time, so that few texts are in memory."""
    columns = list(types)
    sources, targets, weights, start = [], [], [], 0
    lost: list[tuple[str, int]] = []
    bad: list[tuple[int, str]] = []
    count_bad = 0
    for part in source.map(partial(_look_up, look_up, columns), types, problems=problems, progress=progress):
        if isinstance(part, tuple):
            problems.add(part[1], column=part[0])
            return Edges(np.empty(0, np.int32), np.empty(0, np.int32), None)
        lost += [(name, start + row) for name, row in part.lost]
        sources.append(part.edges.source)
        targets.append(part.edges.target)
        if part.ids is not None:
            look_up.ids.append(part.ids)
        if part.edges.weight is not None:
            weights.append(part.edges.weight)
        bad += [(start + row, text) for row, text in part.bad[: MOST_ROWS - len(bad)]]
        count_bad += part.count_bad
        start += len(part.edges.source)
    for name, row in lost[:MOST_ROWS]:
        problems.add("the id is missing; every edge needs two", row=row, column=name)
    if len(lost) > MOST_ROWS:
        problems.add(f"{len(lost) - MOST_ROWS:,} more ids are missing")
    for row, text in bad:
        problems.add(text, row=row, column=columns[2])
    if count_bad > len(bad):
        problems.add(f"{count_bad - len(bad):,} more rows have this problem", column=columns[2])
    if start == 0:
        problems.add("the table has no rows")
        return Edges(np.empty(0, np.int32), np.empty(0, np.int32), None)
    return Edges(_joined(sources), _joined(targets), _joined(weights) if weights else None)


def _look_up(look_up: _LookUp, columns: Sequence[str], table: pa.Table) -> _Part | tuple[str, str]:
    """Return the edges in some rows of a table, or the column that holds something else and what."""
    for name, rule in zip(columns, (", which are no ids", ", which are no ids", "; weights are numbers"), strict=False):
        if not can_be_ids(table.column(name).type):  # weights have the same types: numbers, also as texts
            return name, f"holds {table.column(name).type}{rule}"
    ids = None
    if look_up.names is None:
        ids = texts_of(table.column(columns[0])), texts_of(table.column(columns[1]))
        source, target = (_where_missing(side) for side in ids)
    else:
        source, target = (look_up.rows(table.column(name)) for name in columns[:2])
    sides = zip(columns, (source, target), strict=False)
    lost = [(name, row) for name, rows in sides for row in np.flatnonzero(rows == _MISSING).tolist()]
    if len(columns) == 2:
        return _Part(Edges(source, target, None), ids, lost, [], 0)
    values, wrong = _weights(table.column(columns[2]))
    bad = [(row, _weight_text(table.column(columns[2])[row].as_py())) for row in wrong[:MOST_ROWS].tolist()]
    return _Part(Edges(source, target, values), ids, lost, bad, len(wrong))


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


def tell_edges(edges: Edges, names: pa.Array, *, has_nodes: bool, problems: Problems) -> Edges:
    """Return the edges between known nodes; tell how many others there are, and how many loops."""
    if has_nodes:
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
            edges = Edges(edges.source[whole], edges.target[whole], weight)
    loops = int((edges.source == edges.target).sum())
    if loops:
        problems.note(f"{loops:,} edges from a node to itself are left out")
    if len(names) > LARGEST_ID:
        problems.add(f"there are {len(names):,} nodes; at most {LARGEST_ID:,} are possible")
    return edges


def to_adjacency(
    edges: Edges, num_nodes: int, *, directed: bool
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32] | None]:
    """Return indptr, indices and weights. Repeated edges add up; without directions, so do both directions of one."""
    ends = edges.source, edges.target
    if len(edges.source) < _COMPILED_FROM:
        return build_adjacency(np.stack(ends), edges.weight, num_nodes, directed, both_add_up=True)
    from ..sorting import sort_edges

    adjacency = sort_edges(ends, edges.weight, num_nodes, directed=directed, threads=default_threads(None))
    check_sums(adjacency[2])
    return adjacency
