"""A user's own data, a folder or a file, → `Graph` and its splits. String node ids are mapped and kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .arrays import Features
from .errors import GraphError, StoreError
from .graph import Graph
from .split import PARTS, Split, read_npz
from .storage import MANIFEST
from .tables import TABLE, Table, read_npy, read_table

Columns = NDArray[Any]
SOURCE = ("source", "src", "from", "u")
TARGET = ("target", "dst", "to", "v")
WEIGHT = ("weight", "w", "edge_weight")
NODE = ("node", "id", "node_id", "name")
LABEL = ("label", "y", "class")
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
        `auto`: names where a features or labels file has a node column, rows otherwise.
    """
    source = Path(path)
    name = name or source.stem
    if not source.exists():
        raise StoreError(f"{source} does not exist: give a folder with edges.csv, an edge list, an .npz or a .graphml")
    if ids not in ("auto", "rows", "names"):
        raise GraphError(f"ids is {ids!r}; it must be auto, rows or names")
    if source.is_dir():
        if (source / MANIFEST).is_file():
            return Graph.open(source)
        return _read_folder(source, directed, task, ids, name)
    if source.suffix == ".npz":
        return _from_arrays(source, read_npz(source), directed, task, name)
    if source.suffix == ".graphml":
        return _read_graphml(source, directed, task, name)
    if source.suffix in (".pt", ".pth", ".pkl", ".pickle"):
        raise StoreError(
            f"{source} is a pickle, which can run code when it is read: load it in Python yourself and pass the "
            f"arrays to Graph.from_edges or Graph.from_pyg"
        )
    if source.suffix not in TABLE:
        raise StoreError(f"{source} has the unknown ending '{source.suffix}'; {HINT}")
    return _assemble(Pieces(*_read_edges(source)), directed, task, ids, name)


def read_splits(path: str | Path) -> list[Split]:
    """Splits beside one's own data: `split.npz`, or `train.*`, `val.*` and `test.*`, or keys of the .npz itself."""
    source = Path(path)
    if source.suffix == ".npz" and source.is_file():
        has_parts = {"train", "train_mask"} & read_npz(source).keys()
        return [Split.from_files(source)] if has_parts else []
    if not source.is_dir():
        return []
    if (source / "split.npz").is_file():
        return [Split.from_files(source / "split.npz")]
    found = [_find(source, part, (".txt", ".csv", ".npy")) for part in PARTS]
    present = [file for file in found if file is not None]
    if present and len(present) < len(PARTS):
        missing = [part for part, file in zip(PARTS, found, strict=True) if file is None]
        raise StoreError(f"{source} has {present[0].name} but no {missing[0]}.txt: a split needs train, val and test")
    return [Split.from_files(*present)] if present else []


def _find(folder: Path, stem: str, endings: tuple[str, ...]) -> Path | None:
    files = [folder / f"{stem}{ending}" for ending in endings if (folder / f"{stem}{ending}").is_file()]
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
    pieces = Pieces(*_read_edges(edges))
    if (file := _find(folder, "features", (*TABLE, ".npz"))) is not None:
        feature_ids, features = _read_features(file)
        pieces = replace(pieces, feature_ids=feature_ids, features=features)
    if (file := _find(folder, "labels", (*TABLE, ".npz"))) is not None:
        label_ids, labels, classes = _read_labels(file, task)
        pieces = replace(pieces, label_ids=label_ids, labels=labels, classes=classes)
    return _assemble(pieces, directed, task, ids, name)


def _read_edges(file: Path) -> tuple[Columns, Columns, Columns | None]:
    """Source, target and weight columns of an edge list."""
    if file.suffix == ".npz":
        arrays = read_npz(file)
        if "edge_index" not in arrays:
            raise StoreError(f"{file} has no array 'edge_index' (it has: {', '.join(sorted(arrays))})")
        source, target = _two_rows(arrays["edge_index"], file)
        return source, target, arrays.get("edge_weight")
    if file.suffix == ".npy":
        array = read_npy(file)
        if array.ndim == 2 and array.shape[0] != 2 and array.shape[1] in (2, 3):
            array = array.T
        weight = array[2] if array.ndim == 2 and array.shape[0] == 3 else None
        return *_two_rows(array[:2], file), weight
    table = read_table(file, (*SOURCE, *TARGET, *WEIGHT))
    if table.header is None:
        if not 2 <= len(table.columns) <= 3:
            raise GraphError(
                f"{table.place(0)}: {len(table.columns)} columns; an edge has source, target and maybe a weight"
            )
        first, second, third = 0, 1, 2 if len(table.columns) == 3 else None
    else:
        found = [table.find(names) for names in (SOURCE, TARGET)]
        if None in found:
            missing = "source" if found[0] is None else "target"
            raise GraphError(f"{file} line 1: columns are {', '.join(table.header)}; the column '{missing}' is missing")
        first, second = (position or 0 for position in found)
        third = table.find(WEIGHT)
    weight = None if third is None else table.numbers(third, "weight")
    return table.ids(first, "source"), table.ids(second, "target"), weight


def _two_rows(array: Columns, file: Path) -> tuple[Columns, Columns]:
    if array.ndim != 2 or array.shape[0] != 2:
        raise GraphError(f"{file}: edges have shape {list(array.shape)}; they must be [2, m] or [m, 2]")
    return array[0], array[1]


def _read_features(file: Path) -> tuple[Columns | None, Features]:
    """Node ids (where the file has a node column) and the feature matrix."""
    if file.suffix == ".npy":
        return None, read_npy(file)
    if file.suffix == ".npz":
        arrays = read_npz(file)
        if {"data", "indices", "indptr", "shape"} <= arrays.keys():
            return None, _sparse(arrays, "")
        if "features" not in arrays and "x" not in arrays:
            raise StoreError(f"{file} has neither 'features' nor 'x' nor a scipy sparse matrix")
        return None, arrays["features"] if "features" in arrays else arrays["x"]
    table = read_table(file, NODE)
    position = table.find(NODE)
    chosen = [i for i in range(len(table.columns)) if i != position]
    if not chosen:
        raise GraphError(f"{file} has no feature column beside '{(table.header or [''])[0]}'")
    title = table.header or [str(i) for i in range(len(table.columns))]
    matrix = np.column_stack([table.numbers(i, f"feature '{title[i]}'").astype(np.float32) for i in chosen])
    return None if position is None else table.ids(position, "node"), matrix


def _read_labels(file: Path, task: str) -> tuple[Columns | None, Columns, list[str] | None]:
    """Node ids (where given), labels, and class names where labels are texts."""
    if file.suffix in (".npy", ".npz"):
        arrays = {"labels": read_npy(file)} if file.suffix == ".npy" else read_npz(file)
        key = next((key for key in ("labels", "y") if key in arrays), None)
        if key is None:
            raise StoreError(f"{file} has neither 'labels' nor 'y'")
        return None, arrays[key], None
    table = read_table(file, (*NODE, *LABEL))
    node, label = table.find(NODE), table.find(LABEL)
    if label is None:
        others = [i for i in range(len(table.columns)) if i != node]
        if len(others) > 1 and node is None and table.header is None:
            node, others = 0, others[1:]
        if len(others) != 1:
            raise GraphError(
                f"{table.place(0)}: the column 'label' is missing; columns are {table.header or 'unnamed'}"
            )
        label = others[0]
    values, names = _classes(table, label, task)
    return None if node is None else table.ids(node, "node"), values, names


def _classes(table: Table, position: int, task: str) -> tuple[Columns, list[str] | None]:
    column = table.columns[position]
    if column.dtype.kind == "U":
        names = sorted({str(text) for text in column if text})
        number = {name: i for i, name in enumerate(names)} | {"": -1}
        return np.array([number[str(text)] for text in column], dtype=np.int64), names
    if task != "regression" and column.dtype.kind == "f":
        column = np.where(np.isnan(column), -1, column)  # an empty cell is an unknown class
    return column, None


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
        unknown = np.nan if task == "regression" else -1  # for nodes without a row in the labels file
        labels = np.full(num_nodes, unknown, dtype=np.float64 if task == "regression" else labels.dtype)
        labels[rows] = pieces.labels
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
    return bool(unique[0] != 0 or unique[-1] != len(unique) - 1)


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


def _sparse(arrays: dict[str, Columns], prefix: str) -> sp.csr_matrix:
    parts = tuple(arrays[f"{prefix}{part}"] for part in ("data", "indices", "indptr"))
    return sp.csr_matrix(parts, shape=tuple(arrays[f"{prefix}shape"]))


def _from_arrays(file: Path, arrays: dict[str, Columns], directed: bool, task: str, name: str) -> Graph:
    """The three usual forms of an .npz: edge_index and friends, adj_* and attr_*, or one scipy sparse matrix."""
    labels = next((arrays[key] for key in ("labels", "y") if key in arrays), None)
    features: Any = next((arrays[key] for key in ("features", "x", "attr_matrix") if key in arrays), None)
    if features is None and "attr_data" in arrays:
        features = _sparse(arrays, "attr_")
    keywords = {"features": features, "labels": labels, "directed": directed, "task": task, "name": name}
    if "edge_index" in arrays:
        nodes = int(arrays["num_nodes"]) if "num_nodes" in arrays else None
        if nodes is None and features is None and labels is not None:
            nodes = len(labels)
        return Graph.from_edges(arrays["edge_index"], nodes, edge_weight=arrays.get("edge_weight"), **keywords)
    for prefix in ("adj_", ""):
        if {f"{prefix}{part}" for part in ("data", "indices", "indptr", "shape")} <= arrays.keys():
            return Graph.from_scipy(_sparse(arrays, prefix), **keywords)
    raise StoreError(
        f"{file} has neither edge_index nor adj_data nor a scipy sparse matrix: {', '.join(sorted(arrays))}"
    )


def _read_graphml(file: Path, directed: bool, task: str, name: str) -> Graph:
    """GraphML: the numeric node attributes are features, `label` (or `y`, `class`) is the label."""
    import networkx

    try:
        graph = networkx.read_graphml(file)
    except Exception as error:  # the parser and networkx each have their own kinds
        raise StoreError(f"{file} is not a readable GraphML file: {error}") from error
    attributes = [values for _, values in graph.nodes(data=True)]
    keys = sorted(set().union(*attributes)) if attributes else []
    label_key = next((key for key in keys if key.lower() in LABEL), None)
    numeric = [k for k in keys if k != label_key and all(isinstance(v.get(k), int | float) for v in attributes)]
    features = np.array([[float(v[k]) for k in numeric] for v in attributes]) if numeric else None
    labels, classes = None, None
    if label_key is not None:
        column = [values.get(label_key) for values in attributes]
        if any(isinstance(value, str) for value in column):
            texts = np.array(["" if value is None else str(value) for value in column])
            labels, classes = _classes(Table(file, [texts], None), 0, task)
        else:
            unknown = np.nan if task == "regression" else -1
            labels = np.array([unknown if value is None else value for value in column])
    return Graph.from_networkx(
        graph, features=features, labels=labels, class_names=classes, directed=directed, task=task, name=name
    )
