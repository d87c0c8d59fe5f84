"""Compute exact PageRank on the rewired graph, the reference for the fast ranking."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import check_sources, is_number, to_numpy
from ..data.graph import Graph
from ..errors import ConfigError
from .connections import Connections, connections_of

# Default residual per weight at which a push stops, as a fraction of the k-th score. 0.07 keeps value recall@20 above
# 0.99 on every graph measured; 0.7 gives 0.95 to 0.98 at a twentieth to an eighth of the edge visits
# (results/ranking.json).
TOLERANCE = 0.07
# Bound of the L1 error of `exact_pagerank`.
PRECISION = 1e-10
# Smallest restart probability: here `exact_pagerank` takes 23,708 passes over the edges, at 0.15 it takes 146.
LEAST_RESTART = 0.001


def super_edge_weight(graph: Graph) -> float:
    """Return the weight of an edge to a super node: the mean edge weight, 1 if the graph has no weights.

    So scaling all weights changes nothing.
    """
    if graph.weights is None or not len(graph.weights):
        return 1.0
    return float(np.mean(graph.weights, dtype=np.float64))


def transition_matrix(graph: Graph, connections: Connections | None = None) -> sp.csr_matrix:
    """Return the transition matrix of the walk on the rewired graph, float64 [n + count, n + count].

    Super node s is row n + s. A walk at a node without edges stays there, so every row sums to 1.
    """
    connections = connections_of(connections, graph.num_nodes)
    total = graph.num_nodes + connections.count
    adjacency = sp.coo_matrix(graph.to_scipy().astype(np.float64))
    members = np.flatnonzero(connections.assignment >= 0)
    supers = graph.num_nodes + connections.assignment[members]
    weight = np.full(len(members), super_edge_weight(graph))
    rows = np.concatenate([adjacency.row, members, supers])
    columns = np.concatenate([adjacency.col, supers, members])
    values = np.concatenate([adjacency.data, weight, weight])
    rewired = sp.csr_matrix((values, (rows, columns)), shape=(total, total))
    degree = np.asarray(rewired.sum(axis=1)).ravel()
    stays = (degree == 0).astype(np.float64)
    scaled = sp.diags(1.0 / np.where(degree > 0, degree, 1.0)) @ rewired
    return sp.csr_matrix(scaled + sp.diags(stays))


def exact_pagerank(
    graph: Graph, connections: Connections | None = None, source: Any = 0, restart: float = 0.15
) -> NDArray[np.float64]:
    """Return personalized PageRank on the rewired graph, super nodes included, exact to 1e-10 in L1.

    It iterates r = restart · e_source + (1 - restart) · Pᵀ r; each step multiplies the error by 1 - restart.

    Parameters
    ----------
    source
        A node (or super node n + s), or several.

    Returns
    -------
    float64 [n + count], or [sources, n + count]

    >>> from vcr_graphormer import Graph
    >>> exact_pagerank(Graph.from_edges([[0], [1]]), source=0, restart=0.5).round(4).tolist()
    [0.6667, 0.3333]
    """
    check_restart(restart)
    backward = transition_matrix(graph, connections).T.tocsr()
    sources = check_sources(np.atleast_1d(to_numpy(source, "source")), backward.shape[0])
    start = np.zeros((backward.shape[0], len(sources)))
    start[sources, np.arange(len(sources))] = 1.0
    result = start.copy()
    steps = int(np.ceil(np.log(PRECISION / 2) / np.log1p(-restart)))
    for _ in range(steps):
        result = restart * start + (1.0 - restart) * (backward @ result)
    return np.ascontiguousarray(result[:, 0] if np.ndim(source) == 0 else result.T)


def check_restart(restart: float) -> None:
    """Raise for a restart probability outside of [0.001, 1)."""
    if not is_number(restart) or not LEAST_RESTART <= restart < 1:
        raise ConfigError(
            f"restart is {restart!r}; the restart probability must lie between {LEAST_RESTART} and 1 (the paper: 0.15)"
        )


def check_tolerance(tolerance: float) -> None:
    """Raise for a tolerance outside of (0, 1)."""
    if not is_number(tolerance) or not 0 < tolerance < 1:
        raise ConfigError(f"tolerance is {tolerance!r}; it must lie between 0 and 1 (default {TOLERANCE})")
