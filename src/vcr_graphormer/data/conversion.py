"""Turn graphs of other libraries into the arguments of `Graph.from_edges`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

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
    """Return the arguments for a PyG `Data`; only its attributes are used, so neither torch nor PyG is imported."""
    if getattr(data, "edge_index", None) is None:
        raise GraphError("data has no edge_index; from_pyg takes a homogeneous Data with edge_index [2, m]")
    arguments = {"edge_index": data.edge_index, "num_nodes": data.num_nodes}
    for keyword, attribute in (("features", "x"), ("labels", "y"), ("edge_weight", "edge_weight")):
        arguments[keyword] = getattr(data, attribute, None)
    return {**arguments, **keywords}


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
