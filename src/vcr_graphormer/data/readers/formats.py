"""Read one file of a user's data: edges, features or labels from a table or an array, or a whole graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ...base.checks import to_whole_numbers
from ...base.files import check_unpacked, read_lines, read_npy, read_npz
from ...base.problems import Problems
from ...errors import GraphError, StoreError
from ..contract import Features, to_csr
from ..graph import Graph
from ..split import NODE_TITLES
from ..tasks import TASKS, unknown_label
from .tables import NeedsMappingError, Table, read_table

Column = NDArray[Any]
# Names under which a column is found, case ignored.
SOURCE = ("source", "src", "from")
TARGET = ("target", "dst", "to")
WEIGHT = ("weight", "w", "edge_weight")
NODE = NODE_TITLES
LABEL = ("label", "y", "class")
# Arrays of an .npz file of edges that are read, and those of splits in it.
_ARRAYS = {"edge_index", "edges", "edge_weight", "num_nodes", "features", "x", "attr_matrix", "node_features", "labels"}
_ARRAYS |= {"y", "node_labels", "class_names"}
_ARRAYS |= {f"{part}{ending}" for part in ("train", "val", "test") for ending in ("", "_mask", "_masks")}
GEOM_GCN = ("out1_graph_edges.txt", "out1_node_feature_label.txt")


def read_edges(file: Path, problems: Problems | None = None) -> tuple[Column, Column, Column | None]:
    """Return the source, target and weight columns of an edge list; None for the weights if it has none.

    Columns that are not used are notes of the `problems`.
    """
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
        if array.ndim != 2 or array.shape[0] not in (2, 3):
            raise GraphError(f"{file}: edges have shape {list(array.shape)}; they must be [2, m], [m, 2] or [m, 3]")
        return *_two_rows(array[:2], file), array[2] if array.shape[0] == 3 else None
    table = read_table(file, (*SOURCE, *TARGET, *WEIGHT), ids=(*SOURCE, *TARGET), leading_ids=2)
    if table.header is None:
        if not 2 <= len(table.columns) <= 3:
            raise GraphError(
                f"{table.location(0)}: {len(table.columns)} columns; an edge has source, target and maybe a weight"
            )
        first, second, third = 0, 1, 2 if len(table.columns) == 3 else None
    else:
        positions = [table.find(names) for names in (SOURCE, TARGET)]
        if None in positions:
            missing = "source" if positions[0] is None else "target"
            raise NeedsMappingError(
                f"{file} line 1: columns are {', '.join(table.header)}; the column '{missing}' is missing"
            )
        first, second = (position or 0 for position in positions)
        third = table.find(WEIGHT)
        _note_unused(table, (first, second, third), problems)
    weight = None if third is None else table.numbers(third, "weight")
    if weight is not None and (wrong := np.flatnonzero(~(np.isfinite(weight) & (weight > 0)))).size:
        rule = "every edge needs one that is finite and above 0; drop the edge or correct it"
        raise GraphError(f"{table.location(int(wrong[0]))}: the weight is {weight[wrong[0]]}; {rule}")
    return table.ids(first, "source"), table.ids(second, "target"), weight


def _two_rows(array: Column, file: Path) -> tuple[Column, Column]:
    if array.ndim != 2 or array.shape[0] != 2:
        raise GraphError(f"{file}: edges have shape {list(array.shape)}; they must be [2, m]")
    source, target = to_whole_numbers(array, f"{file}: edges").astype(np.int64)
    return source, target


def _note_unused(table: Table, used: tuple[int | None, ...], problems: Problems | None) -> None:
    """Tell which columns are not used."""
    names = [f"'{name}'" for i, name in enumerate(table.header or []) if i not in used]
    if names and problems is not None:
        text = f"columns {', '.join(names)} are" if len(names) > 1 else f"column {names[0]} is"
        problems.note(f"the {text} not used", file=table.file)


def read_features(
    file: Path, problems: Problems | None = None
) -> tuple[Column | None, Features, tuple[str, ...] | None]:
    """Return the node ids (None if the file has no node column), the feature matrix and the names of its columns.

    The index of a pandas table is left out, which is a note of the `problems`.
    """
    if file.suffix == ".npy":
        return None, read_npy(file), None
    if file.suffix == ".npz":
        arrays = read_npz(file)
        if "format" in arrays:
            return None, read_scipy(file), None
        if "features" not in arrays and "x" not in arrays:
            raise StoreError(f"{file} has neither 'features' nor 'x' nor a scipy sparse matrix")
        return None, arrays["features"] if "features" in arrays else arrays["x"], None
    table = read_table(file, NODE, ids=NODE, free_header=True)
    node, index = table.find(NODE), table.index_columns()
    others = [i for i in range(len(table.columns)) if i != node and i not in index]
    if not others:
        raise GraphError(f"{file} has no feature column beside '{(table.header or [''])[0]}'")
    names = table.header or [str(i) for i in range(len(table.columns))]
    for i in index:
        if problems is not None:
            problems.note("is the index of a pandas table and is ignored", file=file, column=names[i])
    matrix = np.column_stack([table.numbers(i, f"feature '{names[i]}'").astype(np.float32) for i in others])
    ids = None if node is None else table.ids(node, "node")
    return ids, matrix, None if table.header is None else tuple(names[i] for i in others)


def read_labels(
    file: Path, task: str, problems: Problems | None = None
) -> tuple[Column | None, Column, list[str] | None]:
    """Return the node ids (None if the file has none), the labels, and class names if the file gives them."""
    if file.suffix in (".npy", ".npz"):
        arrays = {"labels": read_npy(file)} if file.suffix == ".npy" else read_npz(file)
        key = next((key for key in ("labels", "y") if key in arrays), None)
        if key is None:
            raise StoreError(f"{file} has neither 'labels' nor 'y'")
        return None, arrays[key], [str(name) for name in arrays["class_names"]] if "class_names" in arrays else None
    several = task in TASKS and TASKS[task].several_columns
    table = read_table(file, (*NODE, *LABEL), ids=NODE, leading_ids=1, free_header=several)
    node, label = table.find(NODE), table.find(LABEL)
    if node is None and table.header is None and len(table.columns) == 2 and not several:
        node = 0  # two columns without a header: node and label
    others = [i for i in range(len(table.columns)) if i != node and i not in table.index_columns()]
    ids = None if node is None else table.ids(node, "node")
    if several and others:
        matrix = np.column_stack([table.numbers(i, "label") for i in others])
        return ids, matrix, None if table.header is None else [table.header[i] for i in others]
    if label is None and len(others) == 1:
        label = others[0]
    if label is None or (node is None and len(others) > 1):
        missing = "label" if label is None else "node"
        raise NeedsMappingError(
            f"{table.location(0)}: the column '{missing}' is missing; columns are {table.header or 'unnamed'}"
        )
    _note_unused(table, (node, label), problems)
    values, names = _label_column(table, label, task=task)
    return ids, values, names


def _label_column(table: Table, position: int, *, task: str) -> tuple[Column, list[str] | None]:
    """Return one column as labels, and class names: texts, or numbers other than 0, 1, 2 and so on, in their order."""
    column = table.columns[position]
    if task in TASKS and TASKS[task].gives_values:
        return table.numbers(position, "label").astype(np.float64), None
    if column.dtype.kind == "U":
        names = sorted({str(text) for text in column if text})
        class_of = {name: i for i, name in enumerate(names)} | {"": -1}
        return np.array([class_of[str(text)] for text in column], dtype=np.int64), names
    if column.dtype.kind == "f":
        column = np.where(np.isnan(column), -1, column)  # an empty cell is an unknown class
    elif column.dtype.kind == "i" and len(values := np.unique(column)) == 2 and values[0] == -1:
        return (column != -1).astype(np.int64), [str(value) for value in values]  # one class alone would be no task
    numbers = np.unique(column[column != -1])
    if np.array_equal(numbers, np.arange(len(numbers))) or (numbers % 1 != 0).any():
        return column, None
    places = np.where(column == -1, -1, np.searchsorted(numbers, column))
    return places.astype(np.int64), [str(int(number)) for number in numbers]


def read_scipy(file: Path) -> sp.csr_matrix:
    """Read and check a matrix that `scipy.sparse.save_npz` wrote in any of its formats."""
    if not file.is_file():
        raise StoreError(f"{file} does not exist")
    check_unpacked(file)
    try:
        matrix = sp.load_npz(file)
    except Exception as error:  # zipfile, zlib, numpy and scipy raise different errors for a damaged file
        raise StoreError(f"{file} is not a readable scipy sparse matrix: {error}") from error
    return to_csr(matrix, str(file))


def read_npz_graph(file: Path, directed: bool, *, task: str, name: str, problems: Problems) -> Graph:
    """Read a graph from an .npz file: `edge_index` or `edges` and more, `adj_*` and `attr_*`, or a scipy matrix.

    Arrays beside the edges that are not read are noted in `problems`.
    """
    arrays = read_npz(file)
    labels = next((arrays[key] for key in ("labels", "y", "node_labels") if key in arrays), None)
    feature_keys = ("features", "x", "attr_matrix", "node_features")
    features: Any = next((arrays[key] for key in feature_keys if key in arrays), None)
    if features is None and "attr_data" in arrays:
        features = _prefixed_csr(file, arrays, prefix="attr_")
    keywords = {"features": features, "labels": labels, "directed": directed, "task": task, "name": name}
    if "class_names" in arrays:
        keywords["class_names"] = [str(name) for name in np.atleast_1d(arrays["class_names"])]
    if "edge_index" not in arrays and "edges" in arrays:
        edges = arrays["edges"]  # one edge per row, as the heterophilous graphs have them
        arrays["edge_index"] = edges.T if edges.ndim == 2 and edges.shape[1] == 2 else edges
    if "edge_index" in arrays:
        count = to_whole_numbers(arrays["num_nodes"], "num_nodes") if "num_nodes" in arrays else None
        if count is not None and count.ndim:
            raise GraphError(f"{file}: num_nodes has shape {list(count.shape)}; it must be one number")
        num_nodes = None if count is None else int(count)
        unused = sorted(key for key in arrays.keys() - _ARRAYS if not key.startswith("attr_"))
        if unused:
            problems.note(f"{_listed('array', unused)} not used", file=file)
        return Graph.from_edges(arrays["edge_index"], num_nodes, edge_weight=arrays.get("edge_weight"), **keywords)
    if "adj_data" in arrays:
        return Graph.from_scipy(_prefixed_csr(file, arrays, prefix="adj_"), **keywords)
    if "format" in arrays:
        return Graph.from_scipy(read_scipy(file), **keywords)
    raise StoreError(
        f"{file} has neither edge_index nor adj_data nor a scipy sparse matrix: {', '.join(sorted(arrays))}"
    )


def _listed(what: str, names: Sequence[str]) -> str:
    """Return names with their noun and verb, as in: the arrays 'a', 'b' are."""
    several = len(names) > 1
    return f"the {what}{'s' * several} {', '.join(map(repr, names))} {'are' if several else 'is'}"


def _prefixed_csr(file: Path, arrays: dict[str, Column], *, prefix: str) -> sp.csr_matrix:
    """Return the CSR matrix whose arrays are named `prefix` + data, indices, indptr and shape."""
    try:
        fields = tuple(arrays[f"{prefix}{field}"] for field in ("data", "indices", "indptr"))
        matrix = sp.csr_matrix(fields, shape=tuple(arrays[f"{prefix}shape"]))
    except (KeyError, ValueError, TypeError) as error:
        raise StoreError(f"{file}: {prefix}data, _indices, _indptr and _shape do not fit together: {error}") from error
    return to_csr(matrix, f"{file}: {prefix}*")


def read_graphml(file: Path, directed: bool, *, task: str, name: str, problems: Problems) -> Graph:
    """Read a GraphML file: numeric node attributes are features, `label` (or `y`, `class`) is the label.

    Other attributes of nodes, and of edges all but `weight`, are noted in `problems`.
    """
    import networkx

    try:
        graph = networkx.read_graphml(file)
    except Exception as error:  # the XML parser and networkx raise different errors for a damaged file
        raise StoreError(f"{file} is not a readable GraphML file: {error}") from error
    attributes = [values for _, values in graph.nodes(data=True)]
    keys = sorted(set().union(*attributes)) if attributes else []
    label_key = next((key for key in keys if key.lower() in LABEL), None)
    feature_keys = [k for k in keys if k != label_key and any(isinstance(v.get(k), int | float) for v in attributes)]
    if unused := [key for key in keys if key != label_key and key not in feature_keys]:
        problems.note(f"{_listed('node attribute', unused)} no number and not used", file=file)
    edge_keys = set().union(*(values for *_, values in graph.edges(data=True))) - {"id"}  # networkx adds the id
    if unused := sorted(edge_keys - {"weight"}):
        problems.note(f"{_listed('edge attribute', unused)} not used; edges may have a weight", file=file)
    for key in feature_keys:
        lacking = next((node for node, v in graph.nodes(data=True) if not isinstance(v.get(key), int | float)), None)
        if lacking is not None:
            raise GraphError(f"{file}: node '{lacking}' has no number in the attribute '{key}', which others have")
    features = np.array([[float(v[k]) for k in feature_keys] for v in attributes]) if feature_keys else None
    labels, classes = None, None
    if label_key is not None:
        column = [values.get(label_key) for values in attributes]
        if any(isinstance(value, str) for value in column):
            texts = np.array(["" if value is None else str(value) for value in column])
            labels, classes = _label_column(Table(file, [texts], None), 0, task=task)
        else:
            unknown = unknown_label(task)
            labels = np.array([unknown if value is None else value for value in column])
    weight = "weight" if "weight" in edge_keys else None
    arrays = {"features": features, "labels": labels, "class_names": classes}
    return Graph.from_networkx(graph, weight=weight, directed=directed, task=task, name=name, **arrays)


def read_geom_gcn(folder: Path, directed: bool, task: str, name: str) -> Graph:
    """Read the two text files of the Geom-GCN datasets: edges, and one line of features and a label per node.

    Features are 0 and 1 in all columns, or the columns that are 1, as in Actor.
    """
    rows: list[tuple[int, str, int]] = []
    for number, line in enumerate(read_lines(folder / GEOM_GCN[1]), 1):
        cells = line.split("\t")
        if number == 1 or not line.strip():
            continue
        try:
            node, features, label = cells
            rows.append((int(node), features, int(label)))
        except ValueError:
            raise GraphError(
                f"{folder / GEOM_GCN[1]} line {number}: a line has a node, its features and its label, and tabs"
            ) from None
    if not rows:
        raise GraphError(f"{folder / GEOM_GCN[1]} has no node")
    nodes = np.array([node for node, _, _ in rows])
    if not np.array_equal(np.sort(nodes), np.arange(len(rows))):
        raise GraphError(f"{folder / GEOM_GCN[1]}: the nodes must be 0 to {len(rows) - 1}, each once")
    order = np.argsort(nodes)
    try:
        lists = [np.array(rows[i][1].split(","), dtype=np.int64) for i in order]
    except (ValueError, OverflowError) as error:
        raise GraphError(f"{folder / GEOM_GCN[1]}: features must be whole numbers with commas: {error}") from None
    lengths = {len(entries) for entries in lists}
    flat = np.concatenate(lists) if lists else np.empty(0, dtype=np.int64)
    matrix: Features
    if len(lengths) == 1 and np.isin(flat, (0, 1)).all():
        matrix = np.stack(lists).astype(np.float32)
    else:
        indptr = np.cumsum([0, *(len(entries) for entries in lists)])
        matrix = sp.csr_matrix((np.ones(len(flat), dtype=np.float32), flat, indptr))
        matrix.sum_duplicates()
        matrix.data[:] = 1.0
    lines = read_lines(folder / GEOM_GCN[0])[1:]
    labels = np.array([rows[i][2] for i in order])
    if labels.dtype.kind != "i":
        raise GraphError(f"{folder / GEOM_GCN[1]}: labels must be whole numbers below 2 ** 63")
    try:
        edges = np.array([line.split() for line in lines if line.strip()], dtype=np.int64).reshape(-1, 2)
    except (ValueError, OverflowError) as error:
        raise GraphError(f"{folder / GEOM_GCN[0]}: every line must hold two nodes: {error}") from None
    return Graph.from_edges(
        edges.T,
        len(rows),
        features=matrix,
        labels=labels,
        directed=directed,
        task=task,
        name=name,
    )
