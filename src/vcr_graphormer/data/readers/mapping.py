"""The mapping of a user's tables: which files hold nodes and edges, and what their columns mean."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.checks import setting
from ...base.problems import Problems
from ...errors import GraphError, VCRError, unknown_name
from ..columns.schema import MOST_PROPOSED, TEXT, distinct, meaning_of_texts
from .arrow import MAPPED, Source, open_source
from .text import Again

if TYPE_CHECKING:
    import pyarrow as pa

# Words in the names of columns that tell what a column is, the surest first.
_WORDS = {
    "source": ("source", "src", "from", "sender", "payer", "origin", "start", "head", "citing", "follower", "caller"),
    "target": ("target", "dst", "dest", "to", "receiver", "recipient", "payee", "end", "tail", "cited", "callee"),
    "weight": ("weight", "w", "amount", "strength", "count"),
    "id": ("id", "node", "key", "name"),
    "label": ("label", "class", "y", "status", "fraud", "churn", "outcome"),
}

_MOSTLY = 0.8  # of the entries of a column are ids of another table: it is an end of edges
MOST_ROWS = 5  # rows with the same kind of problem that are named one by one
_OUTPUT = {"node", "part"}  # columns of what `predict` and `embed` write, often beside the data


@dataclass(frozen=True)
class NodeTable:
    """A table with one row per node: section `[data.nodes]`, or several `[[data.nodes]]`.

    Attributes
    ----------
    file : str
        The table: .csv, .tsv, .txt, .parquet, .feather or .jsonl.
    id : str
        The column of node ids. Tables are joined by it. Default: `node`, `id`, `node_id` or `name`.
    label : str
        The column to be predicted. Default: `label`, `y` or `class`, if there is one.
    categories : list of str
        Columns whose values become one feature each; rare values become `other`.
    drop : list of str
        Columns that are not used.
    time : str
        The column for a split by time; it is no feature. See `data.train_until`.
    """

    file: str = setting("", "the table: .csv, .tsv, .txt, .parquet, .feather or .jsonl")
    id: str = setting("", "the column of node ids (default: node, id, node_id or name)")
    label: str = setting("", "the column to be predicted (default: label, y or class)")
    categories: tuple[str, ...] = setting((), "columns whose values become one feature each")
    drop: tuple[str, ...] = setting((), "columns that are not used")
    time: str = setting("", "the column for a split by time; it is no feature")


@dataclass(frozen=True)
class EdgeTable:
    """A table with one row per edge: section `[data.edges]`, or several `[[data.edges]]`.

    Attributes
    ----------
    file : str
        The table, as in `NodeTable`.
    source, target : str
        The columns of node ids. Default: `source`, `src` or `from`; `target`, `dst` or `to`.
    weight : str
        The column of weights, which must be above 0. Weights of repeated edges add up, also of both directions of an
        undirected edge. Default: `weight`, `w` or `edge_weight`, if there is one; otherwise all edges count alike.
    """

    file: str = setting("", "the table: .csv, .tsv, .txt, .parquet, .feather or .jsonl")
    source: str = setting("", "the column of ids an edge comes from (default: source, src or from)")
    target: str = setting("", "the column of ids an edge goes to (default: target, dst or to)")
    weight: str = setting("", "the column of weights, above 0 (default: weight, w or edge_weight)")


def likely_column(what: str, names: Sequence[str], taken: Sequence[str | None] = ()) -> str | None:
    """Return the column that is probably the source, target, weight, id or label; None if no name sounds like it.

    >>> likely_column("source", ["tx", "from_account", "toAccount"]), likely_column("target", ["toAccount"])
    ('from_account', 'toAccount')
    """
    free = [name for name in names if name not in taken]
    return next((name for word in _WORDS[what] for name in free if word in _words(name)), None)


def guarded(read: Callable[..., Any], source: Source, *arguments: Any) -> Any:
    """Read one table; what is wrong with it joins the problems, so that the other tables are read, too."""
    problems: Problems = arguments[-1]
    before = len(problems.texts)
    try:
        found = read(source, *arguments)
    except VCRError as error:
        problems.add(str(error))
        return None
    return found if len(problems.texts) == before else None


def find_column(source: Source, given: str, usual: Sequence[str], *, what: str, problems: Problems) -> str | None:
    """Return the column that is meant: the given one, or the first of the usual names, case ignored."""
    if given:
        if given not in source.names:
            problems.add(f"{what}: {unknown_name('column', given, source.names)}")
            return None
        return given
    lowered = {name.lower(): name for name in reversed(source.names)}
    return next((lowered[name] for name in usual if name in lowered), None)


def check_header(source: Source) -> None:
    """Refuse two columns of one name."""
    names = source.names
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            raise GraphError(f"{source.title}: {names.count(name)} columns are called '{name}'; rename all but one")


def can_be_ids(arrow: pa.DataType) -> bool:
    """Return whether values of this type, texts or numbers, can name nodes."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(arrow):
        return can_be_ids(arrow.value_type)
    is_text = types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow)
    is_number = types.is_integer(arrow) or types.is_floating(arrow) or types.is_decimal(arrow)
    return bool(is_text or is_number or types.is_null(arrow))


def tables_in(folder: Path) -> list[Path]:
    """Return the files of a folder that could be tables of nodes or edges."""
    files = (file for file in folder.iterdir() if file.suffix.lower() in MAPPED and file.is_file())
    return sorted(file for file in files if file.stem not in ("train", "val", "test"))


def propose(folder: Path) -> tuple[list[NodeTable], list[EdgeTable]]:
    """Return a likely mapping of the tables in a folder; without a table that looks like edges, nothing."""
    others: list[tuple[Path, Source]] = []
    edges: list[EdgeTable] = []
    edge_ids: list[str] = []
    for file in tables_in(folder):
        try:
            table = open_source(file)
            edge = _as_edges(table, file)
            if edge is None and not set(table.names) >= _OUTPUT:
                others.append((file, table))
            elif edge is not None:
                edges.append(edge)
                edge_ids += _first_ids(table, edge)
        except VCRError:
            continue  # not a table: it is told when the file is named
    if not edges:
        edges = _edges_by_values(others)
        of_file = {edge.file: edge for edge in edges}
        edge_ids = [
            id for file, table in others if str(file) in of_file for id in _first_ids(table, of_file[str(file)])
        ]
        others = [(file, table) for file, table in others if str(file) not in of_file]
    if not edges:
        return [], []
    # What the ends of edges are, such as the account in from_account, is often the name of an id, too.
    ends = {word for edge in edges for name in (edge.source, edge.target) for word in _words(name)}
    ends -= {word for words in _WORDS.values() for word in words}
    nodes: list[NodeTable] = []
    widths: list[int] = []
    for file, table in others:
        named = likely_column("id", table.names) or next((n for n in table.names if ends & set(_words(n))), None)
        id = _column_of_ids(table, edge_ids, named)
        if id is not None:
            categories, drop = _texts(table, id)
            label = likely_column("label", table.names, [id]) or ""
            if len(table.names) == 2 and categories:  # an id and one text of few values
                label = categories[0]
            categories = tuple(name for name in categories if name != label)
            nodes.append(NodeTable(str(file), id, label, categories, drop))
            widths.append(len(table.names))
    labelled = [(width, number) for number, width in enumerate(widths) if nodes[number].label]
    if len(labelled) > 1:  # labels are in the table with the fewest columns
        nodes = [replace(table, label=table.label * (i == min(labelled)[1])) for i, table in enumerate(nodes)]
    return nodes, edges


def _first_ids(table: Source, edge: EdgeTable) -> list[str]:
    """Return some ids of the edges, those of the first batch: enough to recognize their column in other tables."""
    import pyarrow as pa

    try:
        batch = next(table.map(lambda part: part, {edge.source: pa.string()}, problems=Problems()), None)
    except Again:  # lines that cannot be read are told later
        return []
    return [] if batch is None else batch.column(0).cast(pa.string()).drop_null().unique().to_pylist()


def _edges_by_values(tables: Sequence[tuple[Path, Source]]) -> list[EdgeTable]:
    """Return tables with two columns that mostly hold ids of another table, whatever the columns are called.

    The ids of that other table are a column in which no value comes twice.
    """
    import pyarrow as pa
    from pyarrow import compute

    texts: list[tuple[Path, dict[str, Any]]] = []
    for file, table in tables:
        columns = table.read(text=table.names, problems=Problems())
        found = {name: columns.column(name).cast(pa.string()).combine_chunks() for name in _texts_or_whole(columns)}
        texts.append((file, found))
    edges = []
    for file, columns in texts:
        for other, keys in texts:
            ids = next((key for key in keys.values() if len(key) > 1 and len(key.unique()) == len(key)), None)
            if other == file or ids is None:
                continue
            found = {name: compute.is_in(values, value_set=ids) for name, values in columns.items()}
            shared = {name: compute.mean(compute.cast(inside, pa.int8())).as_py() for name, inside in found.items()}
            weight = likely_column("weight", list(columns)) or ""
            ends = [name for name, fraction in shared.items() if (fraction or 0) > _MOSTLY and name != weight]
            if len(ends) == 2:
                edges.append(EdgeTable(str(file), ends[0], ends[1], weight))
                break
    return edges


def _texts_or_whole(columns: Any) -> list[str]:
    import pyarrow as pa

    types = {name: columns.column(name).type for name in columns.column_names}
    return [name for name, kind in types.items() if pa.types.is_string(kind) or pa.types.is_integer(kind)]


def _column_of_ids(table: Source, edge_ids: Sequence[str], named: str | None) -> str | None:
    """Return the column that holds most ids of the edges; `named` if it holds as many, or none holds half of them."""
    import pyarrow as pa
    from pyarrow import compute

    columns = table.read(text=table.names, problems=Problems())
    wanted = pa.array(edge_ids, pa.string())
    best, most = named, len(edge_ids) / 2
    for name in sorted(columns.column_names, key=lambda name: name != named):
        column = columns.column(name)
        if pa.types.is_string(column.type) or pa.types.is_integer(column.type):
            ids = column.cast(pa.string()).combine_chunks()
            shared = compute.sum(compute.is_in(wanted, value_set=ids)).as_py() or 0
            best, most = (name, shared) if shared > most else (best, most)
    return best


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def _texts(table: Source, id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of text that are likely categories, and those of too many values.

    Numbers or dates with a wrong entry among them are neither: they are used once the entry is corrected.
    """
    import pyarrow as pa

    columns = table.read(text=[id], problems=Problems())
    few: list[str] = []
    many: list[str] = []
    for name in columns.column_names:
        if name != id and pa.types.is_string(columns.column(name).type):
            counts = distinct(columns.column(name))
            meant, others = meaning_of_texts(counts)
            if meant == TEXT or (len(counts) <= MOST_PROPOSED and not others):
                (few if len(counts) <= MOST_PROPOSED else many).append(name)
    return tuple(few), tuple(many)


def _as_edges(table: Source, file: Path) -> EdgeTable | None:
    names = table.names
    source = likely_column("source", names)
    target = likely_column("target", names, [source])
    if source is None or target is None:
        if file.stem != "edges" or len(names) < 2:
            return None
        source, target = names[:2]
    return EdgeTable(str(file), source, target, likely_column("weight", names, [source, target]) or "")


def to_blocks(nodes: Sequence[NodeTable], edges: Sequence[EdgeTable], *, folder: Path | None = None) -> str:
    """Return a mapping as TOML; paths are relative to `folder` if it is given."""
    lines = []
    for section, tables in (("data.nodes", nodes), ("data.edges", edges)):
        for table in tables:
            lines.append(f"[[{section}]]" if len(tables) > 1 else f"[{section}]")
            for item in fields(table):
                value = getattr(table, item.name)
                if item.name == "file" and folder is not None:
                    value = Path(value).relative_to(folder).as_posix()
                if value != item.default:
                    lines.append(f"{item.name} = {json.dumps(value, ensure_ascii=False)}")
            lines.append("")
    return "\n".join(lines)
