"""Check the arrays of saved rankers, in one pass, before compiled loops read them: those test no index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base.checks import LARGEST_ID, Array, is_whole
from ..data.contract import all_finite, check_form, check_offsets, check_range, check_sparse
from ..data.graph import Graph
from ..errors import GraphError
from .kernels.topk import Vectors

_ROUNDING = 1e-5  # relative; weights are float32 and were added in another order


def check_meta(meta: Mapping[str, Any], *, counts: tuple[str, ...], flags: tuple[str, ...] = ()) -> None:
    """Refuse a manifest whose counts are not whole numbers of 0 or more, or whose flags are not true or false."""
    for name in counts:
        if not is_whole(meta[name], plain=True) or meta[name] < 0:
            raise GraphError(f"{name} is {meta[name]!r}; it must be a whole number of 0 or more")
    for name in flags:
        if not isinstance(meta[name], bool):
            raise GraphError(f"{name} is {meta[name]!r}; it must be true or false")


def check_pagerank(arrays: Mapping[str, Array], meta: Mapping[str, Any], graph: Graph) -> None:
    """Check the arrays of a `Ranker`: the fields of `Vectors`, scaled weights, super nodes and their members."""
    check_meta(meta, counts=("visits",), flags=("directed",))
    if not isinstance(meta["restart"], float) or not 0 < meta["restart"] < 1:
        raise GraphError(f"restart is {meta['restart']!r}; it must lie between 0 and 1")
    if meta["directed"] != graph.directed:
        raise GraphError("it was prepared for a graph with another kind of edges")
    n, vectors, supers, groups = graph.num_nodes, len(arrays["volume"]), len(arrays["members"]), len(arrays["spill"])
    entries, hubs, weights = len(arrays["ids"]), len(arrays["hubs"]), graph.weights
    forms: dict[str, tuple[str, tuple[int, ...]]] = {
        **dict.fromkeys(("group", "vector_of", "cut_start", "cut_stop", "assignment"), ("int32", (n,))),
        **dict.fromkeys(("component", "position"), ("int32", (n + supers,))),
        **dict.fromkeys(("limit", "mass"), ("float32", (n,))),
        **dict.fromkeys(("largest", "mean_row"), ("float32", (vectors,))),
        **dict.fromkeys(("values", "row_value"), ("float32", (entries,))),
        **dict.fromkeys(("ids", "row_vector"), ("int32", (entries,))),
        "total": ("float64", (n,)),
        "members": ("float64", (supers,)),
        "volume": ("float64", (vectors,)),
        "hubs": ("int32", (hubs,)),
        "ptr": ("int64", (vectors + 1,)),
        "row_ptr": ("int64", (n + 1,)),
        "spill": ("float32", (groups, vectors)),
        "matrix": ("float32", (vectors, vectors)),
        "cut_inside": ("bool", (n,)),
        "arc_weights": ("float32", (0 if weights is None else graph.num_arcs,)),
        "member_ptr": ("int64", (supers + 1,)),
        "member_node": ("int32", (len(arrays["member_node"]),)),
    }
    if missing := {*Vectors._fields} - {"restart"} - forms.keys():
        raise AssertionError(f"no check for {missing}")
    for name, (dtype, shape) in forms.items():
        check_form(arrays[name], dtype, shape, name=name)
    most = {"group": groups, "vector_of": vectors, "hubs": n, "ids": n, "row_vector": vectors, "member_node": n}
    for name, count in most.items():
        check_range(arrays[name], 0, count - 1, name=name)
    check_range(arrays["assignment"], -1, supers - 1, name="assignment")
    if supers + hubs > vectors:
        raise GraphError(f"{supers} super nodes and {hubs} hubs do not fit into {vectors} vectors")
    for name, rows in (("ptr", vectors), ("row_ptr", n), ("member_ptr", supers)):
        check_offsets(
            arrays[name], entries if name != "member_ptr" else len(arrays["member_node"]), rows=rows, name=name
        )
    for name in ("values", "arc_weights"):  # a score of 0 would be listed again and again
        if arrays[name].size and not arrays[name].min() > 0:
            raise GraphError(f"{name} must be above 0")
    for name in ("total", "mass", "volume", "values", "row_value", "largest", "spill", "matrix", "mean_row"):
        if not all_finite(arrays[name]):
            raise GraphError(f"{name} must be finite")
    _check_degrees(arrays, graph)


def _check_degrees(arrays: Mapping[str, Array], graph: Graph) -> None:
    """Refuse degrees that are not those of the graph: a push would make mass out of nothing and never end."""
    total, limit, assignment = arrays["total"], arrays["limit"], arrays["assignment"]
    expected = graph.degrees.astype(np.float64)
    if graph.weights is not None:
        used = np.flatnonzero(expected)
        sums = np.add.reduceat(arrays["arc_weights"], graph.indptr[used], dtype=np.float64) if len(used) else 0.0
        expected[used] = sums
    expected += assignment >= 0
    if not np.allclose(total, expected, rtol=_ROUNDING, atol=0):
        raise GraphError("total has other degrees than the graph")
    hubs = np.isinf(limit)
    if not np.array_equal(np.flatnonzero(hubs), arrays["hubs"]) or not np.allclose(
        limit[~hubs], total[~hubs], rtol=_ROUNDING, atol=_ROUNDING
    ):
        raise GraphError("limit is not that of the degrees and the hubs")


def check_links(arrays: Mapping[str, Array], graph: Graph) -> None:
    """Check the arrays of a `LinkRanker`: lengths of rows, and the reversed arcs of a directed graph."""
    check_form(arrays["lengths"], "float64", (graph.num_nodes,), name="lengths")
    if not all_finite(arrays["lengths"]):
        raise GraphError("lengths must be finite")
    if not graph.directed:
        return
    indptr, indices, weights = (arrays[f"back_{name}"] for name in ("indptr", "indices", "weights"))
    check_form(indptr, "int64", (graph.num_nodes + 1,), name="back_indptr")
    check_form(indices, "uint32", (graph.num_arcs,), name="back_indices")
    check_form(weights, "float32", (0 if graph.weights is None else graph.num_arcs,), name="back_weights")
    check_offsets(indptr, graph.num_arcs, rows=graph.num_nodes, name="back_indptr")
    check_range(indices, 0, graph.num_nodes - 1, name="back_indices")
    if weights.size and not (weights.min() > 0 and all_finite(weights)):
        raise GraphError("back_weights must be finite and above 0")


def check_nearest(arrays: Mapping[str, Array], meta: Mapping[str, Any], graph: Graph) -> None:
    """Check the arrays of a `FeatureRanker`: rows and candidates."""
    check_meta(meta, counts=("columns", "visits"))
    if meta["columns"] > LARGEST_ID:
        raise GraphError(f"columns is {meta['columns']}; it must be at most {LARGEST_ID}")
    check_form(arrays["indptr"], "int64", (graph.num_nodes + 1,), name="indptr")
    check_form(arrays["indices"], "int32", (len(arrays["values"]),), name="indices")
    check_form(arrays["values"], "float32", (len(arrays["indices"]),), name="values")
    shape = (graph.num_nodes, meta["columns"])
    check_sparse(arrays["values"], arrays["indices"], arrays["indptr"], shape=shape, name="rows")
    if "candidates" in arrays:
        candidates = arrays["candidates"]
        check_form(candidates, "int32", (graph.num_nodes, candidates.shape[-1]), name="candidates")
        check_range(candidates, -1, graph.num_nodes - 1, name="candidates")
