"""Read the raw files of collections that PyG offers too: Planetoid, Shchur's archives, Geom-GCN, heterophilous, Reddit.

Each function takes the folder of the raw files and returns the same arrays as PyG, without running or writing anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ...base.files import read_lines, read_npz, read_text
from ...errors import GraphError, StoreError
from ..contract import Features, check_edge_index, to_csr
from ..split import PARTS, Split
from .pickles import read_pickle

# Below this fraction of non-zeros CSR is smaller and faster to multiply than a dense matrix.
SPARSE_BELOW = 0.25
_PLANETOID_VALIDATION = 500  # nodes after the training nodes that are the validation part
_GEOM_SPLITS = 10
_MATRIX = ("data", "indices", "indptr", "shape")


class Raw(NamedTuple):
    """A graph as its files store it: distinct edges [2, m], features and class ids."""

    edges: NDArray[np.int64]
    features: Features
    labels: NDArray[np.int64]


def smaller_form(features: Any) -> Features:
    """Return features as CSR of float32 if few entries are non-zero, else as a dense matrix."""
    if sp.issparse(features):
        matrix = to_csr(features, "features")
        matrix.eliminate_zeros()
        sparse = matrix.nnz < SPARSE_BELOW * matrix.shape[0] * matrix.shape[1]
        return matrix if sparse else matrix.toarray()
    dense: NDArray[np.float32] = np.asarray(features, dtype=np.float32)
    if dense.ndim != 2:
        raise GraphError(f"features has shape {list(dense.shape)}; it must be [n, d]")
    return sp.csr_matrix(dense) if np.count_nonzero(dense) < SPARSE_BELOW * dense.size else dense


def distinct_edges(edges: Any, num_nodes: int, *, both_ways: bool = False, loops: bool = True) -> NDArray[np.int64]:
    """Return each edge once, sorted, [2, m].

    Parameters
    ----------
    both_ways
        Add the reverse of every edge.
    loops
        Keep self-loops.

    >>> distinct_edges([[0, 0, 1], [1, 1, 1]], 2, both_ways=True, loops=False).tolist()
    [[0, 1], [1, 0]]
    """
    checked, _ = check_edge_index(edges, num_nodes)
    source, target = checked.astype(np.int64)
    if both_ways:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
    code = np.unique((source * num_nodes + target)[(source != target) | loops])
    return np.stack([code // num_nodes, code % num_nodes])


def read_planetoid(folder: Path) -> Raw:
    """Read the eight files `ind.NAME.*`: rows of the test nodes come last and in another order than their ids."""
    parts = {part: _planetoid_part(folder, part) for part in ("allx", "tx", "ally", "ty", "graph")}
    test = _planetoid_test(folder)
    features, known = sp.csr_matrix(parts["allx"]), sp.csr_matrix(parts["tx"])
    one_hot, known_one_hot = np.asarray(parts["ally"]), np.asarray(parts["ty"])
    first, count = int(test.min()), int(test.max() - test.min()) + 1
    total = features.shape[0] + count
    if (first, len(np.unique(test))) != (features.shape[0], known.shape[0]) or len(test) != len(known_one_hot):
        raise StoreError(f"{folder} is damaged: test.index does not number the rows of tx and ty")
    # The rows of tx are in the order of the ids in test.index. Ids that are missing there, as some of CiteSeer, have
    # neither edges nor features; their label is the first class.
    place = sp.csr_matrix((np.ones(len(test), np.float32), (test - first, np.arange(len(test)))), (count, len(test)))
    features = sp.vstack([features, place @ known], format="csr")
    labels = np.zeros(total, dtype=np.int64)
    labels[:first], labels[test] = one_hot.argmax(axis=1), known_one_hot.argmax(axis=1)
    graph = parts["graph"]
    if not isinstance(graph, dict) or not all(isinstance(neighbours, list) for neighbours in graph.values()):
        raise StoreError(f"{folder} is damaged: graph is not a dictionary of lists")
    sources = np.repeat([*graph], [len(neighbours) for neighbours in graph.values()])
    targets = [node for neighbours in graph.values() for node in neighbours]
    return Raw(distinct_edges([sources, targets], total, loops=False), smaller_form(features), labels)


def _planetoid_file(folder: Path, part: str) -> Path:
    file = next((file for file in folder.glob(f"ind.*.{part}") if file.name.count(".") == 2 + part.count(".")), None)
    if file is None:
        raise StoreError(f"{folder}/ind.*.{part} does not exist: put the raw files of Planetoid there")
    return file


def _planetoid_part(folder: Path, part: str) -> Any:
    return read_pickle(_planetoid_file(folder, part))


def _planetoid_test(folder: Path) -> NDArray[np.int64]:
    file = _planetoid_file(folder, "test.index")
    return _whole_numbers(file, [[line] for line in read_lines(file) if line.strip()])[:, 0]


def planetoid_splits(folder: Path) -> list[Split]:
    """Return the public split: the nodes of `y`, the next 500, and those of `test.index`."""
    train = len(np.asarray(_planetoid_part(folder, "y")))
    val = np.arange(train, train + _PLANETOID_VALIDATION)
    return [Split(np.arange(train), val, _planetoid_test(folder))]


def read_archive(file: Path) -> Raw:
    """Read an archive of Shchur et al. or Bojchevski: two CSR matrices and labels. Features become 0 and 1."""
    arrays = _arrays(file, [f"{prefix}_{part}" for prefix in ("adj", "attr") for part in _MATRIX] + ["labels"])
    adjacency, features = (_matrix(file, arrays, prefix=prefix) for prefix in ("adj", "attr"))
    features.data[features.data > 0] = 1
    arcs = adjacency.tocoo()  # stored zeros are edges too
    edges = distinct_edges([arcs.row, arcs.col], features.shape[0], both_ways=True, loops=False)
    return Raw(edges, smaller_form(features), np.asarray(arrays["labels"], dtype=np.int64))


def _arrays(file: Path, names: list[str]) -> dict[str, NDArray[Any]]:
    """Return these arrays of an `.npz` file; others, which may be pickled texts, are not read."""
    arrays = read_npz(file, only=names)
    if missing := sorted({*names} - arrays.keys()):
        raise StoreError(f"{file} is another file than expected: it has no array {', '.join(missing)}")
    return arrays


def _matrix(file: Path, arrays: Mapping[str, NDArray[Any]], *, prefix: str) -> sp.csr_matrix:
    data, indices, indptr, shape = (arrays[f"{prefix}_{part}"] for part in _MATRIX)
    try:
        return to_csr(sp.csr_matrix((data, indices, indptr), shape=tuple(shape)), f"{file}: {prefix}")
    except (ValueError, TypeError) as error:
        raise StoreError(f"{file}: {prefix}_data, _indices, _indptr and _shape do not fit together: {error}") from error


def read_geom(folder: Path) -> Raw:
    """Read the tables of Geom-GCN: one line per node with its features, and one line per edge."""
    file = folder / "out1_node_feature_label.txt"
    nodes, features, labels = _columns(file, 3)
    ids = _whole_numbers(file, [[node] for node in nodes])[:, 0]
    order = np.argsort(ids, kind="stable")
    if not np.array_equal(ids[order], np.arange(len(ids))):
        raise StoreError(f"{file} is damaged: its nodes are not numbered 0 to {len(ids) - 1}")
    if "feature_amount" in read_text(file)[:100]:  # Actor lists the columns that are 1
        columns = [line.split(",") for line in features]
        rows = np.repeat(np.arange(len(ids)), [len(line) for line in columns])
        column = _whole_numbers(file, [[value] for line in columns for value in line])[:, 0]
        check_edge_index([column, column], None)  # not negative, not absurdly large
        matrix: Any = sp.csr_matrix((np.ones(len(rows), dtype=np.float32), (rows, column)))
        matrix.sum_duplicates()
        matrix.data[:] = 1
    else:
        matrix = _numbers(file, features)
    edges = _whole_numbers(folder / "out1_graph_edges.txt", _rows(folder / "out1_graph_edges.txt", 2)).T
    classes = _whole_numbers(file, [[label] for label in labels])[:, 0]
    return Raw(distinct_edges(edges, len(ids)), smaller_form(matrix[order]), classes[order])


def _rows(file: Path, count: int) -> list[list[str]]:
    """Return the cells of a table with tabs between its columns and one line of titles."""
    rows = [line.split("\t") for line in read_lines(file)[1:] if line]
    wrong = next((number for number, row in enumerate(rows, 2) if len(row) != count), None)
    if wrong is not None or not rows:
        raise StoreError(f"{file} line {wrong or 2}: {count} columns with tabs between them were expected")
    return rows


def _columns(file: Path, count: int) -> list[tuple[str, ...]]:
    return list(zip(*_rows(file, count), strict=True))


def _whole_numbers(file: Path, rows: list[list[str]]) -> NDArray[np.int64]:
    try:
        return np.array(rows, dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise StoreError(f"{file} is damaged: {error}") from error


def _numbers(file: Path, lines: tuple[str, ...]) -> NDArray[np.float32]:
    try:
        return np.loadtxt(lines, delimiter=",", dtype=np.float64, comments=None, ndmin=2).astype(np.float32)
    except ValueError as error:
        raise StoreError(f"{file} is damaged: {error}") from error


def geom_splits(folder: Path) -> list[Split]:
    """Return the ten splits of Geom-GCN, as masks in one file each."""
    splits = []
    for number in range(_GEOM_SPLITS):
        name = f"*_split_0.6_0.2_{number}.npz"
        file = next(iter(sorted(folder.glob(name))), None)
        if file is None:
            raise StoreError(f"{folder}/{name} does not exist: put the ten splits of Geom-GCN there")
        arrays = _arrays(file, [f"{part}_mask" for part in PARTS])
        train, val, test = (arrays[f"{part}_mask"] for part in PARTS)
        splits.append(Split.from_masks(train, val, test))
    return splits


def read_heterophilous(file: Path) -> Raw:
    """Read an archive of Platonov et al. (2023)."""
    arrays = _arrays(file, ["node_features", "node_labels", "edges"])
    edges = distinct_edges(arrays["edges"].T, len(arrays["node_features"]), both_ways=True)
    return Raw(edges, smaller_form(arrays["node_features"]), arrays["node_labels"])


def heterophilous_splits(file: Path) -> list[Split]:
    """Return the ten splits in an archive of Platonov et al., one row of the masks each."""
    arrays = _arrays(file, [f"{part}_masks" for part in PARTS])
    masks = [arrays[f"{part}_masks"] for part in PARTS]
    if any(mask.ndim != 2 for mask in masks) or len({mask.shape for mask in masks}) > 1:
        raise GraphError(f"{file}: the masks have shapes {', '.join(str(list(mask.shape)) for mask in masks)}")
    return [Split.from_masks(*parts) for parts in zip(*masks, strict=True)]


def read_reddit(folder: Path) -> Raw:
    """Read the two archives of Reddit by Hamilton et al. as DGL publishes them."""
    nodes, arcs = folder / "reddit_data.npz", folder / "reddit_graph.npz"
    arrays, links = _arrays(nodes, ["feature", "label"]), _arrays(arcs, ["row", "col"])
    edges = distinct_edges([links["row"], links["col"]], len(arrays["feature"]))
    return Raw(edges, smaller_form(arrays["feature"]), np.asarray(arrays["label"], dtype=np.int64))


def reddit_splits(folder: Path) -> list[Split]:
    """Return the split that Reddit's files carry: posts of the first days train."""
    kinds = _arrays(folder / "reddit_data.npz", ["node_types"])["node_types"]
    return [Split.from_masks(kinds == 1, kinds == 2, kinds == 3)]
