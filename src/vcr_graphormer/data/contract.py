"""Check the parts of a graph: edges, weights, features and names. Labels are checked in `tasks`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import LARGEST_ID, Array, check_count, to_numpy, to_whole_numbers
from ..base.machine import default_threads
from ..errors import GraphError
from .tasks import TASKS

Features: TypeAlias = NDArray[np.floating[Any]] | sp.csr_matrix
_ROWS_AT_ONCE = 1 << 16  # bounds the memory of a check of mapped features
_TEXTS_AT_ONCE = 1 << 16
_ARCS_AT_ONCE = 1 << 20  # arcs of a saved graph checked at a time: what is made of them stays in the processor's cache

_MOST_CHECKS = 8  # threads that do so; chosen by hand


def check_edge_index(value: Any, num_nodes: int | None) -> tuple[NDArray[np.integer[Any]], int]:
    """Return [2, m] integers, each from 0 to n - 1, and n, which is the largest id + 1 if not given."""
    array = to_numpy(value, "edge_index")
    if array.size == 0 and array.ndim <= 2 and array.shape[0] in (0, 2):
        array = array.reshape(2, 0)
    if array.ndim != 2 or array.shape[0] != 2:
        hint = "; pass edge_index.T" if array.ndim == 2 and array.shape[1] == 2 else ""
        raise GraphError(f"edge_index has shape {list(array.shape)}; it must be [2, m]{hint}")
    edges = to_whole_numbers(array, "edge_index")
    largest = int(edges.max()) if edges.size else -1
    if largest > LARGEST_ID - 1:
        raise GraphError(
            f"edge_index holds {largest}; node ids must be below {LARGEST_ID}: number the nodes 0 to n - 1"
        )
    if edges.size and int(edges.min()) < 0:
        index = np.argwhere(edges < 0)[0]
        raise GraphError(
            f"edge_index{index.tolist()} is {edges[tuple(index)]}; node ids start at 0 (shift 1-based or drop padding)"
        )
    if num_nodes is None:
        num_nodes = largest + 1
    num_nodes = check_count(num_nodes, "num_nodes")
    if num_nodes == 0:
        raise GraphError("the graph is empty: it needs at least one node (pass num_nodes for nodes without edges)")
    if largest >= num_nodes:
        index = np.argwhere(edges >= num_nodes)[0]
        raise GraphError(
            f"edge_index{index.tolist()} is {edges[tuple(index)]} but the graph has {num_nodes} nodes: "
            f"ids must be below num_nodes"
        )
    return edges, num_nodes


def check_edge_weight(value: Any, num_edges: int) -> NDArray[np.float32] | None:
    """Return one finite, positive weight per edge as float32, or None."""
    if value is None:
        return None
    weights = to_numpy(value, "edge_weight")
    if weights.ndim == 2 and weights.shape[1] == 1:
        weights = weights[:, 0]
    if weights.shape != (num_edges,):
        raise GraphError(f"edge_weight has shape {list(weights.shape)} but there are {num_edges} edges")
    if weights.dtype.kind not in "iufb":
        raise GraphError(f"edge_weight has type {weights.dtype}; it must hold numbers")
    with np.errstate(over="ignore"):
        weights = weights.astype(np.float32)
    bad = ~(np.isfinite(weights) & (weights > 0))
    if bad.any():
        edge = int(np.flatnonzero(bad)[0])
        raise GraphError(f"edge_weight[{edge}] is {weights[edge]}; weights must be finite and above 0 (drop the edge)")
    return weights


def check_features(value: Any, num_nodes: int, *, missing: bool = False) -> Features | None:
    """Return finite features [n, d], as a dense array (a memory map stays one) or as scipy CSR.

    `missing`: dense features may hold NaN for missing values.
    """
    if value is None:
        return None
    if getattr(value, "is_sparse", False) or "sparse" in str(getattr(value, "layout", "")):
        value = _torch_sparse_to_scipy(value)
    if sp.issparse(value):
        matrix = to_csr(value, "features")
        _check_rows(matrix.shape, num_nodes)
        if matrix.nnz and not np.isfinite(matrix.data).all():
            entry = int(np.flatnonzero(~np.isfinite(matrix.data))[0])
            row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
            raise _not_finite(row, int(matrix.indices[entry]), matrix.data[entry])
        return matrix
    array = to_numpy(value, "features")
    if array.ndim == 1:
        array = array[:, None]
    if array.dtype.kind not in "iufb":
        raise GraphError(f"features has type {array.dtype}; it must hold numbers")
    _check_rows(array.shape, num_nodes)
    if array.dtype not in (np.float32, np.float16):
        with np.errstate(over="ignore"):  # what does not fit float32 becomes infinite, which is refused below
            array = array.astype(np.float32)
    for start in range(0, num_nodes, _ROWS_AT_ONCE):
        block = array[start : start + _ROWS_AT_ONCE]
        wrong = np.isinf(block) if missing else ~np.isfinite(block)
        if wrong.any():
            row, column = (int(i) for i in np.argwhere(wrong)[0])
            raise _not_finite(start + row, column, block[row, column])
    return array


def check_feature_names(names: Sequence[Any] | None, features: Features | None) -> tuple[str, ...] | None:
    """Return one distinct name per feature column, or None."""
    if names is None:
        return None
    if features is None:
        raise GraphError("feature_names were given without features")
    checked = check_names(names, features.shape[1], "feature_names")
    return None if checked is None else tuple(str(name) for name in checked)


def check_complete(features: Features | None, names: Sequence[str] | None) -> None:
    """Refuse features with missing values, which no model can read."""
    if features is None or sp.issparse(features):
        return
    counts = np.zeros(features.shape[1], dtype=np.int64)
    for start in range(0, features.shape[0], _ROWS_AT_ONCE):
        counts += np.isnan(features[start : start + _ROWS_AT_ONCE]).sum(axis=0)
    if counts.any():
        column = int(np.flatnonzero(counts)[0])
        name = f"'{names[column]}'" if names is not None else str(column)
        others = f" ({int((counts > 0).sum())} columns have some)" if (counts > 0).sum() > 1 else ""
        raise GraphError(
            f'the feature {name} has {counts[column]:,} missing values{others}: train with data.prepare = "auto", which'
            f" fills them, or fill them yourself"
        )


def to_csr(matrix: Any, name: str) -> sp.csr_matrix:
    """Return a copy of a scipy sparse matrix as CSR of float32, sorted and without duplicates.

    Its inner arrays are checked first: scipy trusts them, and a wrong index would crash the process.
    """
    if len(matrix.shape) != 2 or matrix.dtype.kind not in "iufb":
        raise GraphError(f"{name} is {matrix.dtype} of shape {list(matrix.shape)}; it must hold numbers, [n, d]")
    try:
        if matrix.format in _CHECKS_OF_FORMATS:
            _CHECKS_OF_FORMATS[matrix.format](matrix)
        with np.errstate(over="ignore"):
            csr = sp.csr_matrix(matrix, dtype=np.float32, copy=True)
        csr.check_format(full_check=True)
    except (ValueError, IndexError, TypeError, AttributeError, ArithmeticError) as error:
        raise GraphError(f"{name} is not a sound sparse matrix: {error}") from error
    csr.sum_duplicates()
    return csr


def _check_compressed(matrix: Any) -> None:
    """Refuse row pointers that do not ascend, and indices out of range.

    scipy's own check takes differences in the type of the array, where a fall of 255 is a rise of 1 in eight bits.
    """
    pointers, indices = np.asarray(matrix.indptr), np.asarray(matrix.indices)
    if pointers.ndim != 1 or indices.ndim != 1 or pointers.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
        raise ValueError("indptr and indices must be lists of whole numbers")
    if not pointers.size or pointers[0] != 0 or (pointers[1:] < pointers[:-1]).any():
        raise ValueError("indptr must begin with 0 and never fall")
    if pointers[-1] > len(indices) or len(indices) != len(matrix.data):
        raise ValueError("indptr must end with the number of entries")
    if len(indices) and (indices.min() < 0 or indices.max() >= max(matrix.shape)):
        raise ValueError(f"indices must be between 0 and {max(matrix.shape) - 1}")
    matrix.check_format(full_check=True)


def _check_coordinates(matrix: Any) -> None:
    """Refuse rows and columns that are not in the matrix: scipy counts the entries of a row without a look."""
    for name, ids, size in zip(("row", "col"), matrix.coords, matrix.shape, strict=True):
        if ids.dtype.kind not in "iu" or ids.ndim != 1 or ids.shape != matrix.data.shape:
            raise ValueError(f"{name} is {ids.dtype}{list(ids.shape)}; it must hold a whole number per entry")
        if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < size:
            wrong = ids.min() if ids.min() < 0 else ids.max()
            raise ValueError(f"{name} holds {wrong}; it must be between 0 and {size - 1}")


def _check_diagonals(matrix: Any) -> None:
    """Refuse diagonals outside of the matrix: scipy adds their offsets to rows, which overflows."""
    offsets, (rows, columns) = matrix.offsets, matrix.shape
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1 or np.unique(offsets).size != offsets.size:
        raise ValueError("offsets must be distinct whole numbers")
    if matrix.data.ndim != 2 or len(matrix.data) != len(offsets):
        raise ValueError(
            f"data has shape {list(matrix.data.shape)}; it must have a row for each of {len(offsets)} offsets"
        )
    if offsets.size and not -rows <= int(offsets.min()) <= int(offsets.max()) <= columns:
        wrong = offsets.min() if offsets.min() < -rows else offsets.max()
        raise ValueError(f"offsets holds {wrong}; it must be between {-rows} and {columns}")


def _check_lists(matrix: Any) -> None:
    """Refuse rows with more or fewer columns than numbers: scipy reserves memory for one and writes the other."""
    for name, lists in (("rows", matrix.rows), ("data", matrix.data)):
        if lists.shape != (matrix.shape[0],):
            raise ValueError(f"{name} has shape {list(lists.shape)}; it must have one list for each row")
    for row, (columns, numbers) in enumerate(zip(matrix.rows, matrix.data, strict=True)):
        if len(columns) != len(numbers):
            raise ValueError(f"rows[{row}] has {len(columns)} columns but data[{row}] has {len(numbers)} numbers")


# A dictionary of keys needs no check: its keys become coordinates, which scipy itself checks when it makes them.
_CHECKS_OF_FORMATS: Mapping[str, Callable[[Any], None]] = {
    **dict.fromkeys(("csr", "csc", "bsr"), _check_compressed),
    "coo": _check_coordinates,
    "dia": _check_diagonals,
    "lil": _check_lists,
}


def _not_finite(row: int, column: int, value: Any) -> GraphError:
    return GraphError(
        f"features[{row}, {column}] is {value}; features must be finite (impute or drop the column; a "
        f"table with missing values can be read by Graph.from_frames)"
    )


def _check_rows(shape: tuple[int, ...], num_nodes: int) -> None:
    if len(shape) != 2:
        raise GraphError(f"features has shape {list(shape)}; it must be [n, d]")
    if shape[0] != num_nodes:
        raise GraphError(f"features has {shape[0]} rows but the graph has {num_nodes} nodes")


def _torch_sparse_to_scipy(tensor: Any) -> Any:
    """Return a sparse tensor as a scipy matrix of its format, which `to_csr` checks: torch's own loops trust it."""
    tensor = tensor.detach().cpu()
    layout = str(tensor.layout).removeprefix("torch.sparse_")
    if tensor.ndim != 2 or tensor.dense_dim():
        raise GraphError(f"features is a sparse tensor of shape {list(tensor.shape)}; it must be [n, d]")
    try:
        if layout == "coo":  # a tensor that is not coalesced refuses `indices`
            parts = (to_numpy(tensor._values(), "features"), tuple(tensor._indices().numpy()))
            return sp.coo_matrix(parts, shape=tuple(tensor.shape))
        values, by_row = to_numpy(tensor.values(), "features"), layout in ("csr", "bsr")
        inner, outer = ("col_indices", "crow_indices") if by_row else ("row_indices", "ccol_indices")
        places = getattr(tensor, inner)().numpy(), getattr(tensor, outer)().numpy()
        if layout == "bsc":  # unknown to scipy: its transpose is a BSR matrix
            transposed = sp.bsr_matrix((values.transpose(0, 2, 1), *places), shape=tuple(tensor.shape[::-1]))
            _check_compressed(transposed)  # scipy's loops transpose it again
            return transposed.T
        return getattr(sp, f"{layout}_matrix")((values, *places), shape=tuple(tensor.shape))
    except (ValueError, IndexError, TypeError, ArithmeticError, RuntimeError) as error:
        raise GraphError(f"features is not a sound sparse tensor: {error}") from error


def check_names(value: Any, num_nodes: int, what: str = "names") -> NDArray[np.str_] | None:
    """Return one distinct text per node, or None."""
    if value is None:
        return None
    if isinstance(value, str) or not hasattr(value, "__len__"):
        raise GraphError(f"{what} is {value!r}; it must be a list with one name each")
    names = np.asarray([str(name) for name in value], dtype=np.str_)
    if names.shape != (num_nodes,):
        raise GraphError(f"{what} has {names.shape[0]} entries but there are {num_nodes}")
    unique, counts = np.unique(names, return_counts=True)
    if unique.size != names.size:
        raise GraphError(f"{what} must be distinct; '{unique[counts > 1][0]}' occurs {counts.max()} times")
    return names


def check_class_names(names: Sequence[Any] | None, labels: Array | None, task: str) -> tuple[str, ...] | None:
    """Return distinct class names, at least as many as the labels use, or None."""
    if names is None:
        return None
    if labels is None or TASKS[task].gives_values:
        raise GraphError("class_names were given without class labels")
    count = labels.shape[1] if labels.ndim == 2 else int(labels.max(initial=-1)) + 1
    if len(names) < count:
        raise GraphError(f"class_names has {len(names)} entries but labels go up to {count - 1}")
    checked = check_names(names, len(names), "class_names")
    return None if checked is None else tuple(str(name) for name in checked)


def build_adjacency(
    edges: NDArray[np.integer[Any]],
    weights: NDArray[np.float32] | None,
    num_nodes: int,
    directed: bool,
    *,
    both_add_up: bool = False,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32] | None]:
    """Return indptr, indices and weights of the adjacency matrix, without self-loops and duplicates.

    Weights of repeated edges add up. Of an undirected edge that is given in both directions the larger sum counts, or
    with `both_add_up` the sum of both.
    """
    no_loop: Any = edges[0] != edges[1]
    if no_loop.all():
        no_loop = slice(None)  # no copies
    rows, columns = (side[no_loop].astype(np.int32, copy=False) for side in edges)
    # Without weights one byte per arc is enough: only the pattern counts, and a sum that wraps to 0 stays stored.
    values: NDArray[Any] = np.ones(len(rows), dtype=np.int8) if weights is None else weights[no_loop]
    if not directed and weights is None:
        rows, columns = np.concatenate([rows, columns]), np.concatenate([columns, rows])
        values = np.concatenate([values, values])
    elif not directed and both_add_up:
        rows, columns = np.minimum(rows, columns), np.maximum(rows, columns)
    if both_add_up and weights is not None:
        values = values.astype(np.float64)  # rounded once, so that the order of the edges does not matter
    matrix = sp.csr_matrix((values, (rows, columns)), shape=(num_nodes, num_nodes))
    if not directed and weights is not None:
        matrix = matrix + matrix.T.tocsr() if both_add_up else matrix.maximum(matrix.T.tocsr())
    matrix.sort_indices()
    with np.errstate(over="ignore"):
        merged = None if weights is None else matrix.data.astype(np.float32, copy=False)
    check_sums(merged)
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32, copy=False), merged


def check_sums(weights: NDArray[np.float32] | None) -> None:
    """Refuse weights of repeated edges that add up to more than float32 holds."""
    if weights is not None and not all_finite(weights):
        raise GraphError("edge_weight: the weights of a repeated edge add up to more than float32 holds: scale them")


def check_adjacency(
    indptr: Array, indices: Array, weights: Array | None, *, num_nodes: int, symmetric: bool = False
) -> None:
    """Refuse arrays from a file that are not an adjacency matrix: compiled loops trust them and would crash.

    Rows must be ascending, without repeats and self-loops; with `symmetric`, every arc must go both ways, or METIS
    ends the process. This costs one pass over the arcs.
    """
    expected = (("indptr", indptr, np.int64), ("indices", indices, np.int32), ("weights", weights, np.float32))
    for name, array, dtype in expected:
        if array is not None and (array.dtype != dtype or array.ndim != 1):
            raise GraphError(f"{name} is {array.dtype.str}{list(array.shape)}; it must be {np.dtype(dtype)} [m]")
    check_offsets(indptr, len(indices), rows=num_nodes, name="indptr")
    if weights is not None and len(weights) != len(indices):
        raise GraphError(f"the length of weights is {len(weights)}, not {len(indices)}")
    # Freivalds' test: for random x and y the sums x A y and y A x differ if A is not symmetric, but for a chance of
    # some 2^-30. The random numbers of a node are hashes of its id, which is faster than to look them up.
    keys = np.random.default_rng().integers(0, 1 << 31, (2, 3), dtype=np.uint32) * 2 + 1
    cuts = np.searchsorted(indptr, np.arange(0, len(indices), _ARCS_AT_ONCE), side="right") - 1

    def check(ends: tuple[int, int]) -> int:
        """Check the rows from one to before the other, and return the difference of their sums."""
        first, last = ends
        starts = indptr[first : last + 1] - indptr[first]
        nodes = np.arange(first, last, dtype=np.int32)
        neighbours = np.asarray(indices[indptr[first] : indptr[last]])
        check_range(neighbours, 0, num_nodes - 1, name="indices")
        row = np.repeat(nodes, np.diff(starts))
        if not ((neighbours[1:] > neighbours[:-1]) | (row[1:] != row[:-1])).all():
            raise GraphError("indices is not ascending within each row")
        if (neighbours == row).any():
            raise GraphError("indices holds a self-loop")
        if not (symmetric and neighbours.size):
            return 0
        used = np.flatnonzero(np.diff(starts))
        (x, y), (x_sums, y_sums) = (
            (_hash(nodes[used], key) for key in keys),
            (np.add.reduceat(_hash(neighbours, key), starts[used]) for key in keys),
        )
        return int((x * y_sums).sum(dtype=np.uint32)) - int((y * x_sums).sum(dtype=np.uint32))

    with ThreadPoolExecutor(min(default_threads(None), _MOST_CHECKS)) as pool:
        difference = sum(pool.map(check, pairwise(np.unique([*cuts, num_nodes]).tolist())))
    if difference % (1 << 32):
        raise GraphError("an edge of the undirected graph goes one way only")
    if weights is not None and not (all_finite(weights) and (not weights.size or weights.min() > 0)):
        raise GraphError("weights must be finite and above 0")


def _hash(ids: Array, keys: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return a number per node id that looks random to those who do not know the three odd keys."""
    mixed: NDArray[np.uint32] = ids.view(np.uint32) + keys[0]  # or the hash of node 0 would be 0
    for key in keys[1:]:
        mixed *= key
        mixed ^= mixed >> np.uint32(15)
    return mixed


def check_offsets(indptr: Array, entries: int, *, rows: int, name: str) -> None:
    """Refuse offsets that do not lead from 0 to the number of entries without a step back."""
    if indptr.dtype.kind not in "iu" or not indptr.dtype.isnative or indptr.shape != (rows + 1,):
        raise GraphError(f"{name} is {indptr.dtype.str}{list(indptr.shape)}; it must be whole numbers [{rows + 1}]")
    if indptr[0] != 0 or indptr[-1] != entries:
        wrong, what, right = (indptr[0], "first", 0) if indptr[0] != 0 else (indptr[-1], "last", entries)
        raise GraphError(f"the {what} entry of {name} is {wrong}, not {right}")
    if (indptr[1:] < indptr[:-1]).any():
        raise GraphError(f"{name} goes down")


def check_sparse(data: Array, indices: Array, indptr: Array, *, shape: tuple[int, int], name: str) -> None:
    """Refuse arrays from a file that are not a CSR matrix of this shape; scipy's loops trust them."""
    for part, array, kinds in (("data", data, "f"), ("indices", indices, "iu")):
        if array.ndim != 1 or array.dtype.kind not in kinds or not array.dtype.isnative:
            raise GraphError(f"{name}: {part} is {array.dtype.str}{list(array.shape)}")
    if len(data) != len(indices):
        raise GraphError(f"{name}: there are {len(data)} entries but {len(indices)} columns")
    check_offsets(indptr, len(indices), rows=shape[0], name=f"{name}: indptr")
    check_range(indices, 0, shape[1] - 1, name=f"{name}: indices")
    if not all_finite(data):
        raise GraphError(f"{name} must be finite")


def check_form(array: Array, dtype: str, shape: tuple[int, ...], *, name: str) -> None:
    """Refuse an array of another dtype or shape."""
    if array.dtype != np.dtype(dtype) or array.shape != shape:
        found, wanted = (f"{kind}{list(sizes)}" for kind, sizes in ((array.dtype.str, array.shape), (dtype, shape)))
        raise GraphError(f"{name} is {found}; it must be {wanted}")


def check_range(array: Array, least: int, most: int, *, name: str) -> None:
    """Refuse whole numbers from a file that are below `least` or above `most`."""
    if array.size and not (least <= array.min() and array.max() <= most):
        wrong = array.min() if array.min() < least else array.max()
        raise GraphError(f"{name} holds {wrong}; it must be {least} to {most}")


def check_letters(texts: Array, *, name: str) -> None:
    """Refuse texts from a file with a number that is no letter of Unicode: Python could not read them as texts."""
    if not texts.dtype.itemsize:
        return  # all of them are empty
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        part = np.ascontiguousarray(texts[start : start + _TEXTS_AT_ONCE])
        most = part.view(f"{texts.dtype.byteorder}u4").max(initial=0)
        if most > sys.maxunicode:
            raise GraphError(f"{name} holds the letter number {most:#x}; the largest of Unicode is {sys.maxunicode:#x}")


def all_finite(array: Array) -> bool:
    """Return whether all numbers are finite, at the speed of memory.

    >>> all_finite(np.array([1e308, 1e308])), all_finite(np.array([1.0, np.nan]))
    (True, False)
    """
    for start in range(0, len(array), _ROWS_AT_ONCE):
        block = np.asarray(array[start : start + _ROWS_AT_ONCE])
        with np.errstate(over="ignore", invalid="ignore"):
            total = block.sum()  # finite if all are; finite numbers may still add up to infinity
        if not np.isfinite(total) and not np.isfinite(block).all():
            return False
    return True
