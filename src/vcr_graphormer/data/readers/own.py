"""Read a user's own data, a folder or a file, as a `Graph` and its splits.

Node ids that are texts become row numbers; the graph keeps the texts as names of its nodes.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...base.files import read_lines, read_npy, read_npz
from ...base.folders import MANIFEST
from ...base.jobs import Progress
from ...base.problems import Problems, first_texts
from ...errors import ConfigError, GraphError, StoreError, VCRError
from ..columns.schema import Column as SchemaColumn
from ..columns.schema import Schema
from ..contract import Features
from ..graph import Columns, Graph
from ..split import PARTS, Split, read_parts
from ..tasks import unknown_label
from .arrow import Frame, Source, open_source, to_arrow
from .assembly import Tables, Wanted, assemble
from .formats import (
    GEOM_GCN,
    NODE,
    Column,
    read_edges,
    read_features,
    read_geom_gcn,
    read_graphml,
    read_labels,
    read_npz_graph,
)
from .mapping import EdgeTable, NodeTable, propose, tables_in, to_blocks
from .tables import TABLE, NeedsMappingError

HINT = "see docs/own-data.md for the forms that are read"
# Ids far above the number of edges cannot be row numbers: almost all rows would be empty. The slack keeps small or
# sparse graphs readable. Both numbers are rules of thumb.
_IDS_PER_EDGE = 100
_SPARE_IDS = 1000
_EDGES = (*TABLE, ".npz")
# What may lie beside data and carry such a name, but is none: train.toml, train.log, train.py.
_NO_DATA = (".toml", ".log", ".py", ".ipynb", ".sh", ".md")


@dataclass(frozen=True)
class Pieces:
    """Contents of the files, before edges, features and labels share one numbering of the nodes."""

    source: Column
    target: Column
    weight: Column | None = None
    feature_ids: Column | None = None
    features: Features | None = None
    feature_names: tuple[str, ...] | None = None
    label_ids: Column | None = None
    labels: Column | None = None
    classes: list[str] | None = None


def read_graph(
    path: str | Path,
    directed: bool = False,
    task: str = "auto",
    ids: str = "auto",
    name: str | None = None,
    *,
    problems: Problems | None = None,
    progress: Progress | None = None,
) -> Graph:
    """Read a saved graph, a folder with `edges.*` (and `nodes.*`, or `features.*` and `labels.*`), or one file.

    Parameters
    ----------
    path
        A folder; an edge list (.csv, .tsv, .txt, .parquet, .npy); an .npz; or a .graphml file.
    ids : "auto", "rows" or "names"
        What whole-number node ids mean: row numbers of features and labels (`rows`), or names of nodes (`names`).
        `auto` takes texts for names. It takes whole numbers for names if every features and labels file has a node
        column and the ids are not 0 to n - 1.
    problems
        Collects notes, such as columns that are not used; by default they are warnings.
    """
    if problems is None:
        found = Problems()
        graph = read_graph(path, directed, task, ids, name, problems=found, progress=progress)
        warn(found)
        return graph
    source = Path(path)
    name = name or source.stem
    if not source.exists():
        raise StoreError(f"{source} does not exist: give a folder with edges.csv, an edge list, an .npz or a .graphml")
    if ids not in ("auto", "rows", "names"):
        raise GraphError(f"ids is {ids!r}; it must be auto, rows or names")
    if source.is_dir():
        if (source / MANIFEST).is_file():
            return _open_saved(source, directed, task=task, ids=ids)
        wanted = Wanted(directed, task, name)
        return _read_folder(source, wanted, ids=ids, problems=problems, progress=progress)
    ending = source.suffix.lower()
    if ending == ".npz":
        return read_npz_graph(source, directed, task=task, name=name, problems=problems)
    if ending == ".graphml":
        return read_graphml(source, directed, task=task, name=name, problems=problems)
    if ending in (".pt", ".pth", ".pkl", ".pickle"):
        raise StoreError(
            f"{source} is a pickle, which can run code when it is read: load it in Python yourself and pass the "
            f"arrays to Graph.from_edges or Graph.from_pyg"
        )
    if ending == ".toml":
        raise StoreError(f"{source} holds settings, not data: give it by --config {source}")
    if ending not in TABLE:
        raise StoreError(f"{source} has the unknown ending '{source.suffix}'; {HINT}")
    return _assemble(Pieces(*read_edges(source, problems)), directed, task=task, ids=ids, name=name)


def warn(problems: Problems) -> None:
    """Give all notes as one warning."""
    if problems.notes:
        warnings.warn("\n  ".join(["while reading the data:", *first_texts(problems.notes)]), UserWarning, stacklevel=3)


def read_mapped(
    nodes: Sequence[NodeTable],
    edges: Sequence[EdgeTable],
    wanted: Wanted,
    *,
    problems: Problems,
    progress: Progress | None = None,
) -> tuple[Graph, Any]:
    """Read the tables of a mapping; return the graph and the times of its nodes, or None if there are none."""
    opened: dict[str, list[tuple[Source, Any]]] = {"nodes": [], "edges": []}
    for section, tables in (("nodes", nodes), ("edges", edges)):
        for table in tables:
            try:
                if not table.file:
                    raise ConfigError(f'[data.{section}] names no file: write file = "…"')
                opened[section].append((open_source(Path(table.file)), table))
            except VCRError as error:
                problems.add(str(error))
    complete = len(opened["nodes"]) == len(nodes) and len(opened["edges"]) == len(edges)
    found = Tables(opened["nodes"], opened["edges"])
    return assemble(found, wanted, complete=complete, problems=problems, progress=progress)


def frame_graph(nodes: Any, edges: Any, *, directed: bool, task: str, name: str, columns: Columns) -> Graph:
    """Make the graph of `Graph.from_frames`."""
    if unknown := columns.keys() - Columns.__annotations__.keys():
        raise TypeError(f"from_frames() got an unexpected keyword argument '{min(unknown)}'")
    given: dict[str, Any] = dict(columns)
    for what in ("categories", "drop"):
        if isinstance(given.get(what), str):
            raise GraphError(f"{what} is {given[what]!r}; it must be a list of columns")
        try:
            given[what] = () if given.get(what) is None else tuple(given[what])
        except TypeError as error:
            raise GraphError(f"{what} is {given[what]!r}; it must be a list of columns") from error
    for what, value in given.items():
        names = value if what in ("categories", "drop") else () if value is None or what == "schema" else (value,)
        if wrong := [name for name in names if not isinstance(name, str)]:
            raise GraphError(f"{what} names the column {wrong[0]!r}; columns are named by texts")
    lists: dict[str, Any] = {what: given[what] for what in ("categories", "drop")}
    node_table = NodeTable("nodes", given.get("id") or "", given.get("label") or "", **lists)
    ends = {what: given.get(what) or "" for what in ("source", "target", "weight")}
    tables = Tables(
        [] if nodes is None else [(Frame("nodes", to_arrow(nodes, "nodes")), node_table)],
        [(Frame("edges", to_arrow(edges, "edges")), EdgeTable("edges", **ends))],
    )
    problems = Problems()
    graph, _ = assemble(tables, Wanted(directed, task, name, given.get("schema")), problems=problems)
    warn(problems)
    return graph


def read_splits(path: str | Path, graph: Graph | None = None) -> list[Split]:
    """Read the split in a folder (`split.npz`, or `train.*`, `val.*` and `test.*`) or in the .npz file of a graph.

    Text files list node names if the graph has names, and row numbers otherwise. Without a split the list is empty.

    Parameters
    ----------
    graph
        The graph that the split belongs to, as the caller read it; by default it is read from `path` if needed.
    """
    source = Path(path)
    if source.suffix.lower() == ".npz" and source.is_file():
        return _splits_of_archive(source)
    if not source.is_dir():
        return []
    if _is_geom_gcn(source):
        files = [*source.glob("*split*.npz"), *(source.parent / "splits").glob(f"{source.name}_split*.npz")]
        # By number: split 10 comes after split 9.
        return [Split.from_files(file) for file in sorted(files, key=lambda file: (len(file.name), file.name))]
    archives = list(source.glob("*.npz"))
    if len(archives) == 1 and archives[0].name != "split.npz" and _find(source, "edges", endings=_EDGES) is None:
        return _splits_of_archive(archives[0])
    candidates = [_find(source, part, endings=(".txt", ".csv", ".tsv", ".npy")) for part in PARTS]
    files = [file for file in candidates if file is not None]
    if (source / "split.npz").is_file():
        files = [source / "split.npz"]
    elif files and len(files) < len(PARTS):
        missing = [part for part, file in zip(PARTS, candidates, strict=True) if file is None]
        name = f"{missing[0]}{files[0].suffix}"
        raise StoreError(f"{source} has {files[0].name} but no {name}: a split needs train, val and test")
    if not files:
        return []
    names = (read_graph(source) if graph is None else graph).names
    if names is None:
        return [Split.from_files(*files)]
    row_of = {str(name): row for row, name in enumerate(names)}
    if len(files) == 1:
        train, val, test = read_parts(files[0]).values()
        if train.dtype.kind == "b":
            return [Split.from_masks(train, val, test)]
        return [Split(*_rows_of_arrays([train, val, test], files[0], row_of=row_of))]
    if all(file.suffix.lower() == ".npy" for file in files):
        return [Split(*_rows_of_arrays([read_npy(file).ravel() for file in files], source, row_of=row_of))]
    return [Split(*(_rows_of_lines(file, row_of) for file in files))]


def _splits_of_archive(file: Path) -> list[Split]:
    """Return the splits inside the .npz file of a graph: one, or several masks as rows, as `train_masks`."""
    arrays = read_npz(file)
    if "train_masks" in arrays:
        masks = [arrays.get(f"{part}_masks") for part in PARTS]
        shapes = {None if mask is None else mask.shape for mask in masks}
        if len(shapes) > 1 or masks[0] is None or masks[0].ndim != 2:
            raise StoreError(f"{file}: train_masks, val_masks and test_masks must have one shape, [splits, n]")
        train, val, test = (arrays[f"{part}_masks"] for part in PARTS)
        return [Split.from_masks(train[i], val[i], test[i]) for i in range(len(train))]
    has_parts = {"train", "train_mask"} & arrays.keys()
    return [Split.from_files(file)] if has_parts else []


def _is_geom_gcn(folder: Path) -> bool:
    return all((folder / file).is_file() for file in GEOM_GCN)


def _rows_of_lines(file: Path, row_of: dict[str, int]) -> Column:
    """Return the row numbers of the nodes that a file names, one per line; its first line may be a column title."""
    if file.suffix.lower() == ".npy":
        raise StoreError(f"{file}: train, val and test must all be .npy files, or all be text files")
    lines = [line.strip() for line in read_lines(file)]
    entries = [(number, line) for number, line in enumerate(lines, 1) if line]
    if entries and entries[0][1].lower() in NODE and entries[0][1] not in row_of:
        del entries[0]
    unknown = next(((number, entry) for number, entry in entries if entry not in row_of), None)
    if unknown is not None:
        raise GraphError(f"{file} line {unknown[0]}: there is no node named '{unknown[1]}'")
    return np.array([row_of[entry] for _, entry in entries], dtype=np.int64)


def _rows_of_arrays(parts: list[Column], source: Path, *, row_of: dict[str, int]) -> list[Column]:
    """Return the row numbers of nodes given by name or by row number; raise if whole numbers could be either."""
    entries = np.concatenate(parts)
    texts = [str(entry) for entry in entries.tolist()]
    unknown = [text for text in texts if text not in row_of]
    if len(unknown) == len(texts) and entries.dtype.kind in "iu":
        return parts
    if unknown:
        raise GraphError(f"{source}: there is no node named '{unknown[0]}'; for row numbers give masks")
    rows = np.array([row_of[text] for text in texts], dtype=np.int64)
    if entries.dtype.kind in "iu" and (entries < len(row_of)).all() and (rows != entries).any():
        raise GraphError(
            f"{source}: the whole numbers of the split are both names and row numbers of nodes: give masks, or text "
            f"files of names"
        )
    return np.split(rows, np.cumsum([len(part) for part in parts])[:-1])


def _open_saved(folder: Path, directed: bool, *, task: str, ids: str) -> Graph:
    graph = Graph.open(folder)
    if (directed and not graph.directed) or task not in ("auto", graph.task) or ids != "auto":
        raise ConfigError(f"{folder} is a saved graph: directed, task and ids were decided when it was built")
    return graph


def _find(folder: Path, stem: str, *, endings: tuple[str, ...]) -> Path | None:
    """Return the file of this stem, None if there is none; raise if there are two, or one with another ending."""
    named = (file for file in folder.iterdir() if file.is_file() and file.name.split(".")[0] == stem)
    files = sorted(file for file in named if file.suffix.lower() not in _NO_DATA)
    for file in files:
        if file.name[len(stem) :].lower() not in endings:
            raise StoreError(f"{file} cannot be read as {stem}: its ending must be one of {', '.join(endings)}")
    if len(files) > 1:
        raise StoreError(f"{folder} has both {files[0].name} and {files[1].name}: keep one")
    return files[0] if files else None


def _read_folder(folder: Path, wanted: Wanted, *, ids: str, problems: Problems, progress: Progress | None) -> Graph:
    edge_file = _find(folder, "edges", endings=_EDGES)
    if edge_file is None:
        if _is_geom_gcn(folder):
            return read_geom_gcn(folder, wanted.directed, wanted.task, wanted.name)
        graph_files = [*folder.glob("*.graphml"), *folder.glob("*.npz")]
        if len(graph_files) == 1:
            return read_graph(graph_files[0], wanted.directed, wanted.task, ids, wanted.name, problems=problems)
        error = f"{folder} has no edges.csv (or .tsv, .txt, .parquet, .feather, .jsonl, .npy, .npz); {HINT}"
        raise StoreError(error + _proposal(folder, wanted))
    try:
        if (node_file := _find(folder, "nodes", endings=TABLE)) is not None:
            files = [
                node_file,
                *(file for stem in ("features", "labels") if (file := _find(folder, stem, endings=TABLE))),
            ]
            tables = [NodeTable(str(file)) for file in files]
            return read_mapped(tables, [EdgeTable(str(edge_file))], wanted, problems=problems, progress=progress)[0]
        pieces = Pieces(*read_edges(edge_file, problems))
        if (file := _find(folder, "features", endings=(*TABLE, ".npz"))) is not None:
            feature_ids, features, names = read_features(file, problems)
            pieces = replace(pieces, feature_ids=feature_ids, features=features, feature_names=names)
        if (file := _find(folder, "labels", endings=(*TABLE, ".npz"))) is not None:
            label_ids, labels, classes = read_labels(file, wanted.task, problems)
            pieces = replace(pieces, label_ids=label_ids, labels=labels, classes=classes)
    except NeedsMappingError as error:
        raise GraphError(f"{error}{_proposal(folder, wanted)}") from error
    return _assemble(pieces, wanted.directed, task=wanted.task, ids=ids, name=wanted.name)


def _proposal(folder: Path, wanted: Wanted) -> str:
    """Return a text with a likely mapping of the tables in a folder and what else is wrong with them, or nothing."""
    nodes, edges = propose(folder)
    if not edges:
        return ""
    means = " and ".join(f"{what} = {getattr(edges[0], what)}" for what in ("source", "target"))
    found = Problems()
    try:
        read_mapped(nodes, edges, wanted, problems=found)
    except VCRError as error:
        if not found.texts:
            found.add(str(error))
    mapped = {node.file for node in nodes} | {edge.file for edge in edges}
    for file in tables_in(folder):
        if str(file) not in mapped:
            found.note(f"{file} is not in this mapping: it has no ids of the edges, or is what predict or embed wrote")
    more = ""
    if found.texts:
        more = "\nWith this mapping, there is more to correct:\n  " + "\n  ".join(first_texts(found.texts))
    if found.notes:
        more += "\nAnd note:\n  " + "\n  ".join(first_texts(found.notes))
    return (
        f"\ndid you mean {means} in {Path(edges[0].file).name}? Write this to {folder / 'data.toml'}, correct it, and "
        f"give it by --config:\n\n{to_blocks(nodes, edges, folder=folder)}{more}"
    )


def _assemble(pieces: Pieces, directed: bool, *, task: str, ids: str, name: str) -> Graph:
    """Make a graph of edges, features and labels after giving their nodes one numbering."""
    names = None
    if _ids_are_names(pieces, ids):
        pieces, names = _number_names(pieces)
    num_nodes = len(names) if names is not None else _count_rows(pieces)
    features, labels = pieces.features, pieces.labels
    if features is not None and pieces.feature_ids is not None:
        rows = _check_ids(pieces.feature_ids, num_nodes, names=names, what="features")
        features = _order_features(features, rows, num_nodes=num_nodes, names=names)
    if labels is not None and pieces.label_ids is not None:
        rows = _check_ids(pieces.label_ids, num_nodes, names=names, what="labels")
        # Nodes without a row in the labels file have no label. float64 holds every label, and NaN.
        all_labels = np.full((num_nodes, *labels.shape[1:]), unknown_label(task), dtype=np.float64)
        all_labels[rows] = labels
        labels = all_labels
    # A schema of numbers: an empty cell is a missing value, and later data is matched by the names of columns.
    columns = pieces.feature_names
    schema = None if columns is None else Schema(tuple(SchemaColumn(column) for column in columns))
    ends = np.stack([pieces.source, pieces.target])
    if pieces.weight is not None and not directed:
        ends.sort(axis=0)  # so that both directions of an edge add up, as in every table
    return Graph.from_edges(
        ends,
        num_nodes,
        edge_weight=pieces.weight,
        schema=schema,
        features=features,
        labels=labels,
        names=names,
        class_names=pieces.classes,
        directed=directed,
        task=task,
        name=name,
    )


def _ids_are_names(pieces: Pieces, ids: str) -> bool:
    """Return whether node ids are names rather than row numbers; see `ids` of `read_graph`."""
    id_columns = [column for column in (pieces.feature_ids, pieces.label_ids) if column is not None]
    columns = [pieces.source, pieces.target, *id_columns]
    has_texts = any(column.dtype.kind == "U" for column in columns)
    if ids == "rows" and has_texts:
        raise GraphError("ids='rows' was asked for, but the node ids are names: use ids='names'")
    if ids != "auto" or has_texts:
        return ids != "rows"
    if len(id_columns) < sum(values is not None for values in (pieces.features, pieces.labels)) or not id_columns:
        return False
    unique = np.unique(np.concatenate(columns))
    return bool(unique.size and (unique[0] != 0 or unique[-1] != len(unique) - 1))


def _count_rows(pieces: Pieces) -> int:
    """Return the number of nodes if ids are row numbers: rows of features or labels, else the largest id + 1."""
    for values, ids in ((pieces.features, pieces.feature_ids), (pieces.labels, pieces.label_ids)):
        if values is not None and ids is None:
            return int(values.shape[0])
    columns = (pieces.source, pieces.target, pieces.feature_ids, pieces.label_ids)
    largest = max(int(column.max(initial=-1)) for column in columns if column is not None)
    if largest > _SPARE_IDS + _IDS_PER_EDGE * len(pieces.source):
        raise GraphError(f"{len(pieces.source)} edges use ids up to {largest}: pass ids='names' to map sparse ids")
    return largest + 1


def _number_names(pieces: Pieces) -> tuple[Pieces, list[str]]:
    """Replace names by numbers, in order of first appearance in features, labels and edges; return both."""
    for what, values, ids in (
        ("features", pieces.features, pieces.feature_ids),
        ("labels", pieces.labels, pieces.label_ids),
    ):
        if values is not None and ids is None:
            raise GraphError(f"edges use node names, but the {what} file has no column 'node' to match them by")
    columns = {
        key: column.astype(np.str_)
        for key in ("feature_ids", "label_ids", "source", "target")
        if (column := getattr(pieces, key)) is not None
    }
    names, first, inverse = np.unique(np.concatenate([*columns.values()]), return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    row_of = np.empty(len(order), dtype=np.int64)
    row_of[order] = np.arange(len(order))
    ends = np.cumsum([len(column) for column in columns.values()])[:-1]
    numbered: dict[str, Any] = dict(zip(columns, np.split(row_of[inverse], ends), strict=True))
    return replace(pieces, **numbered), [str(name) for name in names[order]]


def _check_ids(ids: Column, num_nodes: int, *, names: list[str] | None, what: str) -> Column:
    """Check that every id is a node of the graph and occurs once; return the ids."""
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < num_nodes:
        wrong = ids.min() if ids.min() < 0 else ids.max()
        raise GraphError(f"{what} has a row for node {wrong} but the graph has nodes 0 to {num_nodes - 1}")
    counts = np.bincount(ids, minlength=num_nodes)
    if (counts > 1).any():
        node = int(np.argmax(counts))
        raise GraphError(f"node {names[node] if names else node} has {counts.max()} rows in {what}; it may have one")
    return ids


def _order_features(values: Features, rows: Column, *, num_nodes: int, names: list[str] | None) -> Features:
    """Sort the rows of a feature matrix by node; raise if a node has none."""
    missing = np.setdiff1d(np.arange(num_nodes), rows)
    if missing.size:
        node = names[missing[0]] if names else missing[0]
        raise GraphError(f"node {node} has no row in features ({missing.size} nodes lack one)")
    return values[np.argsort(rows)]
