"""Turn graphs of other libraries into the arguments of `Graph.from_edges`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import to_numpy
from ..errors import GraphError
from .contract import to_csr


def scipy_arguments(adjacency: Any, **keywords: Any) -> dict[str, Any]:
    """Return the arguments for a square sparse matrix; entries are weights unless all are 1, zeros are no edges."""
    if not sp.issparse(adjacency):
        raise GraphError(f"adjacency is a {type(adjacency).__name__}; from_scipy takes a scipy sparse matrix")
    if len(adjacency.shape) != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise GraphError(f"adjacency has shape {list(adjacency.shape)}; it must be square")
    if "num_nodes" in keywords or "edge_weight" in keywords:
        raise GraphError("from_scipy takes the number of nodes and the weights from the matrix")
    matrix = sp.coo_matrix(to_csr(adjacency, "adjacency"))
    present = matrix.data != 0
    weight = None if (matrix.data[present] == 1).all() else matrix.data[present]
    edges = np.stack([matrix.row[present], matrix.col[present]])
    return {"edge_index": edges, "num_nodes": adjacency.shape[0], "edge_weight": weight, **keywords}


def pyg_arguments(data: Any, **keywords: Any) -> dict[str, Any]:
    """Return the arguments for a PyG `Data`; only its attributes are used, so neither torch nor PyG is imported.

    `edge_weight` may name an attribute or one of its columns, such as `edge_attr:0`. Otherwise a warning says that
    `edge_attr` is not used.
    """
    if getattr(data, "edge_index", None) is None:
        raise GraphError("data has no edge_index; from_pyg takes a homogeneous Data with edge_index [2, m]")
    named = keywords.get("edge_weight")
    if isinstance(named, str):
        keywords = {**keywords, "edge_weight": _edge_column(data, named)}
    elif "edge_weight" not in keywords and getattr(data, "edge_attr", None) is not None:
        warnings.warn(
            f"edge_attr {list(data.edge_attr.shape)} is not used; to take a column of it as weights pass "
            f"edge_weight='edge_attr:0', or edge_weight=None for none",
            UserWarning,
            stacklevel=3,
        )
    arguments = {"edge_index": data.edge_index, "num_nodes": data.num_nodes}
    for keyword, attribute in (("features", "x"), ("labels", "y"), ("edge_weight", "edge_weight")):
        arguments[keyword] = getattr(data, attribute, None)
    return {**arguments, **keywords}


def _edge_column(data: Any, named: str) -> Any:
    """Return an attribute of the edges, or a column of it: `edge_attr:0`."""
    attribute, _, column = named.partition(":")
    values = getattr(data, attribute, None)
    if values is None:
        raise GraphError(f"edge_weight is {named!r}, but data has no attribute '{attribute}'")
    array = to_numpy(values, attribute)
    if not column:
        return array
    if array.ndim not in (1, 2):
        raise GraphError(f"edge_weight is {named!r}, but {attribute} has shape {list(array.shape)}; it must be [m, d]")
    columns = array.shape[1] if array.ndim == 2 else 1
    if column not in map(str, range(columns)):
        raise GraphError(f"edge_weight is {named!r:.100}, but {attribute} has columns 0 to {columns - 1}")
    return array if array.ndim == 1 else array[:, int(column)]


def number_texts(edge_index: Any, names: Sequence[Any] | None) -> tuple[Any, Sequence[Any] | None]:
    """Return edges between texts as edges between rows, and the names of the rows; other edges as they are.

    Without `names`, nodes are the distinct texts in order of appearance, those of the first row before those of the
    second.

    >>> number_texts([["bob", "eve"], ["ann", "bob"]], None)
    (array([[0, 1],
           [2, 0]]), ['bob', 'eve', 'ann'])
    """
    if not _holds_texts(edge_index):
        return edge_index, names
    import pyarrow as pa

    array = np.asarray(edge_index)
    entries = array.ravel().tolist()
    if None in entries:
        place = [int(i) for i in np.unravel_index(entries.index(None), array.shape)]
        raise GraphError(f"edge_index{place} is missing; every edge needs two ids")
    flat = [str(entry) for entry in entries]
    if names is None:
        encoded = pa.array(flat, pa.string()).dictionary_encode()
        return encoded.indices.to_numpy().astype(np.int64).reshape(array.shape), encoded.dictionary.to_pylist()
    rows = rows_of(flat, names)
    if (rows < 0).any():
        raise GraphError(f"edge_index holds '{flat[int(np.argmin(rows))]}', which is not in names")
    return rows.reshape(array.shape), names


def class_ids(labels: Any, class_names: Sequence[Any] | None) -> tuple[Any, Sequence[Any] | None]:
    """Return texts as class ids, -1 where one is missing or empty, and the names of classes; other labels as they are.

    Without `class_names`, classes are the distinct texts in alphabetical order.

    >>> class_ids(["spy", "friend", None], None)
    (array([ 1,  0, -1]), ['friend', 'spy'])
    """
    if not _holds_texts(labels) or np.asarray(labels).ndim != 1:
        return labels, class_names
    texts = ["" if text is None else str(text) for text in np.asarray(labels).tolist()]
    names = sorted(set(texts) - {""}) if class_names is None else [str(name) for name in class_names]
    ids = rows_of(texts, names)
    unknown = next((text for text, id in zip(texts, ids.tolist(), strict=True) if id < 0 and text), None)
    if unknown is not None:
        raise GraphError(f"labels hold '{unknown}', which is not in class_names: {', '.join(names)}")
    return ids, names


def rows_of(texts: Sequence[str], names: Sequence[Any]) -> NDArray[np.int64]:
    """Return the place of each text among the names, -1 where it is not there."""
    import pyarrow as pa
    from pyarrow import compute

    known = pa.array([str(name) for name in names], pa.string())
    found = compute.index_in(pa.array(texts, pa.string()), value_set=known)
    return np.asarray(compute.fill_null(found, -1).to_numpy(), dtype=np.int64)


def _holds_texts(value: Any) -> bool:
    """Return whether a value is an array or nested lists of texts; None among them does not count."""
    if value is None or hasattr(value, "detach") or sp.issparse(value):
        return False
    if isinstance(value, np.ndarray) and value.dtype.kind not in "UTO":
        return False
    try:
        array = np.asarray(value)
    except ValueError:
        return False  # ragged: refused later
    if array.dtype.kind in "UT":
        return True
    entries = array.ravel().tolist() if array.dtype == object else []
    return any(isinstance(entry, str) for entry in entries) and all(
        entry is None or isinstance(entry, str) for entry in entries
    )


def networkx_arguments(graph: Any, features: Any, labels: Any, weight: str | None, **keywords: Any) -> dict[str, Any]:
    """Return the arguments for any networkx graph; features and labels are arrays or names of node attributes."""
    if not hasattr(graph, "nodes") or not hasattr(graph, "edges"):
        raise GraphError(f"graph is a {type(graph).__name__}; from_networkx takes a networkx graph")
    row_of = {node: row for row, node in enumerate(graph.nodes)}
    edges = list(graph.edges(data=True))
    if keywords.get("directed") and not graph.is_directed():
        edges += [(v, u, attributes) for u, v, attributes in edges]  # an undirected edge is two arcs
    weights = [attributes.get(weight) for *_, attributes in edges] if weight else []
    present = [value for value in weights if value is not None]
    if present and len(present) != len(weights):
        raise GraphError(f"{len(weights) - len(present)} of {len(weights)} edges have no attribute '{weight}'")
    unused = sorted(map(str, set().union(*(attributes for *_, attributes in edges))))
    if weight == "weight" and unused and not present:  # the default, and there is no such attribute
        warnings.warn(
            f"edge attributes are not used: {', '.join(unused)}; to take one as weights pass "
            f"weight='{unused[0]}', or weight=None for none",
            UserWarning,
            stacklevel=3,
        )
    pairs = [(row_of[u], row_of[v]) for u, v, _ in edges]
    return {
        "edge_index": np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T,
        "num_nodes": len(row_of),
        "edge_weight": present or None,
        "features": _node_attribute(graph, features),
        "labels": _node_attribute(graph, labels),
        "names": list(row_of),
        **keywords,
    }


def _node_attribute(graph: Any, key: Any) -> Any:
    """Return the values of a node attribute if `key` is a name, else `key` itself."""
    if not isinstance(key, str):
        return key
    values = [attributes.get(key) for _, attributes in graph.nodes(data=True)]
    missing = [node for node, value in zip(graph.nodes, values, strict=True) if value is None]
    if missing:
        raise GraphError(f"node {missing[0]!r} has no attribute '{key}' ({len(missing)} nodes lack it)")
    return to_numpy(values, f"node attribute '{key}'")
