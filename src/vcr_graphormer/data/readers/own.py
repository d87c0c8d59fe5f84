"""A user's own data, a folder or a file, → `Graph` and its splits. String node ids are mapped and kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...base.files import read_lines, read_npy, read_npz
from ...base.folders import MANIFEST
from ...errors import ConfigError, GraphError, StoreError
from ..contract import Features
from ..graph import Graph
from ..split import PARTS, Split, read_parts
from ..tasks import unknown_label
from .formats import NODE, Columns, read_edges, read_features, read_graphml, read_labels, read_npz_graph
from .tables import TABLE

HINT = "see 'own data' in the README for the forms that are read"


@dataclass(frozen=True)
class Pieces:
    """What the files held, before edges, features and labels agree on one numbering of the nodes."""

    source: Columns
    target: Columns
    weight: Columns | None = None
    feature_ids: Columns | None = None
    features: Features | None = None
    label_ids: Columns | None = None
    labels: Columns | None = None
    classes: list[str] | None = None


def read_graph(
    path: str | Path, directed: bool = False, task: str = "auto", ids: str = "auto", name: str | None = None
) -> Graph:
    """Read a saved graph, a folder with `edges.*` (and `features.*`, `labels.*`), or one file.

    Parameters
    ----------
    path
        A folder; an edge list (.csv, .tsv, .txt, .parquet, .npy); an .npz; or a .graphml file.
    ids : "auto", "rows" or "names"
        What whole-number node ids mean: row numbers of features and labels (`rows`), or names to be mapped (`names`).
        `auto`: names where they are texts, or where the features and labels files both name their nodes and the ids
        are not just 0 to n - 1.
    """
    source = Path(path)
    name = name or source.stem
    if not source.exists():
        raise StoreError(f"{source} does not exist: give a folder with edges.csv, an edge list, an .npz or a .graphml")
    if ids not in ("auto", "rows", "names"):
        raise GraphError(f"ids is {ids!r}; it must be auto, rows or names")
    if source.is_dir():
        if (source / MANIFEST).is_file():
            return _open_saved(source, directed, task, ids)
        return _read_folder(source, directed, task, ids, name)
    ending = source.suffix.lower()
    if ending == ".npz":
        return read_npz_graph(source, directed, task, name)
    if ending == ".graphml":
        return read_graphml(source, directed, task, name)
    if ending in (".pt", ".pth", ".pkl", ".pickle"):
        raise StoreError(
            f"{source} is a pickle, which can run code when it is read: load it in Python yourself and pass the "
            f"arrays to Graph.from_edges or Graph.from_pyg"
        )
    if ending not in TABLE:
        raise StoreError(f"{source} has the unknown ending '{source.suffix}'; {HINT}")
    return _assemble(Pieces(*read_edges(source)), directed, task, ids, name)


def read_splits(path: str | Path, graph: Graph | None = None) -> list[Split]:
    """Read the splits beside one's own data: `split.npz`, or `train.*`, `val.*` and `test.*`, or keys of the .npz.

    Text files list node names where the graph has names, and row numbers otherwise.

    Parameters
    ----------
    graph
        The graph the split belongs to, as the caller has read it; read from `path` if it is needed and not given.
    """
    source = Path(path)
    if source.suffix.lower() == ".npz" and source.is_file():
        has_parts = {"train", "train_mask"} & read_npz(source).keys()
        return [Split.from_files(source)] if has_parts else []
    if not source.is_dir():
        return []
    found = [_find(source, part, (".txt", ".csv", ".tsv", ".npy")) for part in PARTS]
    files = [file for file in found if file is not None]
    if (source / "split.npz").is_file():
        files = [source / "split.npz"]
    elif files and len(files) < len(PARTS):
        missing = [part for part, file in zip(PARTS, found, strict=True) if file is None]
        raise StoreError(f"{source} has {files[0].name} but no {missing[0]}.txt: a split needs train, val and test")
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
        return [Split(*_rows_of_arrays([train, val, test], files[0], row_of))]
    if all(file.suffix.lower() == ".npy" for file in files):
        return [Split(*_rows_of_arrays([read_npy(file).ravel() for file in files], source, row_of))]
    return [Split(*(_rows_of_lines(file, row_of) for file in files))]


def _rows_of_lines(file: Path, row_of: dict[str, int]) -> Columns:
    """Row numbers of a file that names one node per line; the column title `node` may stand above them."""
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


def _rows_of_arrays(parts: list[Columns], source: Path, row_of: dict[str, int]) -> list[Columns]:
    """Row numbers of arrays of names, or of whole numbers where they can only be names or only be row numbers."""
    entries = np.concatenate(parts)
    texts = [str(entry) for entry in entries.tolist()]
    unknown = next((text for text in texts if text not in row_of), None)
    if unknown is not None:
        if entries.dtype.kind not in "iu":
            raise GraphError(f"{source}: there is no node named '{unknown}'")
        return parts
    rows = np.array([row_of[text] for text in texts], dtype=np.int64)
    if entries.dtype.kind in "iu" and (entries < len(row_of)).all() and (rows != entries).any():
        raise GraphError(
            f"{source}: the whole numbers of the split are both names and row numbers of nodes: give masks, or text "
            f"files of names"
        )
    return np.split(rows, np.cumsum([len(part) for part in parts])[:-1])


def _open_saved(folder: Path, directed: bool, task: str, ids: str) -> Graph:
    graph = Graph.open(folder)
    if (directed and not graph.directed) or task not in ("auto", graph.task) or ids != "auto":
        raise ConfigError(f"{folder} is a saved graph: directed, task and ids were decided when it was built")
    return graph


def _find(folder: Path, stem: str, endings: tuple[str, ...]) -> Path | None:
    """The one file of that stem; others of the stem that we cannot read are not silently passed over."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name.split(".")[0] == stem)
    for file in files:
        if file.name[len(stem) :].lower() not in endings:
            raise StoreError(f"{file} cannot be read as {stem}: its ending must be one of {', '.join(endings)}")
    if len(files) > 1:
        raise StoreError(f"{folder} has both {files[0].name} and {files[1].name}: keep one")
    return files[0] if files else None


def _read_folder(folder: Path, directed: bool, task: str, ids: str, name: str) -> Graph:
    edges = _find(folder, "edges", (*TABLE, ".npz"))
    if edges is None:
        graphs = [*folder.glob("*.graphml"), *folder.glob("*.npz")]
        if len(graphs) == 1:
            return read_graph(graphs[0], directed, task, ids, name)
        raise StoreError(f"{folder} has no edges.csv (or .tsv, .txt, .parquet, .npy, .npz); {HINT}")
    pieces = Pieces(*read_edges(edges))
    if (file := _find(folder, "features", (*TABLE, ".npz"))) is not None:
        feature_ids, features = read_features(file)
        pieces = replace(pieces, feature_ids=feature_ids, features=features)
    if (file := _find(folder, "labels", (*TABLE, ".npz"))) is not None:
        label_ids, labels, classes = read_labels(file, task)
        pieces = replace(pieces, label_ids=label_ids, labels=labels, classes=classes)
    return _assemble(pieces, directed, task, ids, name)


def _assemble(pieces: Pieces, directed: bool, task: str, ids: str, name: str) -> Graph:
    """Bring edges, features and labels to one numbering of the nodes."""
    names = None
    if _ids_are_names(pieces, ids):
        pieces, names = _number_names(pieces)
    num_nodes = len(names) if names is not None else _count_rows(pieces)
    features, labels = pieces.features, pieces.labels
    if features is not None and pieces.feature_ids is not None:
        features = _order_features(
            features, _check_ids(pieces.feature_ids, num_nodes, names, "features"), num_nodes, names
        )
    if labels is not None and pieces.label_ids is not None:
        rows = _check_ids(pieces.label_ids, num_nodes, names, "labels")
        # Nodes without a row in the labels file are unknown; float64 holds every label and the mark for unknown.
        full = np.full((num_nodes, *labels.shape[1:]), unknown_label(task), dtype=np.float64)
        full[rows] = labels
        labels = full
    return Graph.from_edges(
        np.stack([pieces.source, pieces.target]),
        num_nodes,
        edge_weight=pieces.weight,
        features=features,
        labels=labels,
        names=names,
        class_names=pieces.classes,
        directed=directed,
        task=task,
        name=name,
    )


def _ids_are_names(pieces: Pieces, ids: str) -> bool:
    """Texts are names. Whole numbers are names if every file carries them and they are not just 0 to n - 1."""
    keyed = [column for column in (pieces.feature_ids, pieces.label_ids) if column is not None]
    columns = [pieces.source, pieces.target, *keyed]
    textual = any(column.dtype.kind == "U" for column in columns)
    if ids == "rows" and textual:
        raise GraphError("ids='rows' was asked for, but the node ids are names: use ids='names'")
    if ids != "auto" or textual:
        return ids != "rows"
    if len(keyed) < sum(values is not None for values in (pieces.features, pieces.labels)) or not keyed:
        return False
    unique = np.unique(np.concatenate(columns))
    return bool(unique.size and (unique[0] != 0 or unique[-1] != len(unique) - 1))


def _count_rows(pieces: Pieces) -> int:
    """Number of nodes where ids are row numbers: rows of features or labels, else the largest id + 1."""
    for values, keys in ((pieces.features, pieces.feature_ids), (pieces.labels, pieces.label_ids)):
        if values is not None and keys is None:
            return int(values.shape[0])
    columns = (pieces.source, pieces.target, pieces.feature_ids, pieces.label_ids)
    largest = max(int(column.max(initial=-1)) for column in columns if column is not None)
    if largest > 1000 + 100 * len(pieces.source):
        raise GraphError(f"{len(pieces.source)} edges use ids up to {largest}: pass ids='names' to map sparse ids")
    return largest + 1


def _number_names(pieces: Pieces) -> tuple[Pieces, list[str]]:
    """Number the nodes in order of first appearance: features file, labels file, then edges."""
    for what, values, keys in (
        ("features", pieces.features, pieces.feature_ids),
        ("labels", pieces.labels, pieces.label_ids),
    ):
        if values is not None and keys is None:
            raise GraphError(f"edges use node names, but the {what} file has no column 'node' to match them by")
    columns = {
        key: column.astype(np.str_)
        for key in ("feature_ids", "label_ids", "source", "target")
        if (column := getattr(pieces, key)) is not None
    }
    unique, first, position = np.unique(np.concatenate([*columns.values()]), return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    ends = np.cumsum([len(column) for column in columns.values()])[:-1]
    numbered: dict[str, Any] = dict(zip(columns, np.split(number[position], ends), strict=True))
    return replace(pieces, **numbered), [str(name) for name in unique[order]]


def _check_ids(ids: Columns, num_nodes: int, names: list[str] | None, what: str) -> Columns:
    """Each node at most once, none beyond the graph."""
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < num_nodes:
        wrong = ids.min() if ids.min() < 0 else ids.max()
        raise GraphError(f"{what} has a row for node {wrong} but the graph has nodes 0 to {num_nodes - 1}")
    counts = np.bincount(ids, minlength=num_nodes)
    if (counts > 1).any():
        node = int(np.argmax(counts))
        raise GraphError(f"node {names[node] if names else node} has {counts.max()} rows in {what}; it may have one")
    return ids


def _order_features(values: Features, rows: Columns, num_nodes: int, names: list[str] | None) -> Features:
    missing = np.setdiff1d(np.arange(num_nodes), rows)
    if missing.size:
        node = names[missing[0]] if names else missing[0]
        raise GraphError(f"node {node} has no row in features ({missing.size} nodes lack one)")
    return values[np.argsort(rows)]
