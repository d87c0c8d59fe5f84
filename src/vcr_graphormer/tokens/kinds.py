"""Kinds of neighbours: which super nodes they need, and the means of these."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..data.graph import Graph
from ..ranking.connections import (
    Connections,
    content_connections,
    feature_connections,
    no_connections,
    structure_connections,
)
from .config import TokenConfig


def make_connections(
    graph: Graph, train: NDArray[np.int64] | None, config: TokenConfig, kind: str, content: str
) -> Connections:
    """The super nodes of `structure` or `content`; none where there are no tokens of the kind."""
    if not (config.structure_tokens if kind == "structure" else config.content_tokens):
        return no_connections(graph.num_nodes)
    if kind == "structure":
        return structure_connections(graph, config.clusters, config.seed, partitioner=config.partitioner)
    if content == "links":
        return no_connections(graph.num_nodes)
    if content == "labels":
        return content_connections(graph.labels, train)
    return feature_connections(graph.features, config.content_clusters, config.seed)


def member_means(features: Any, connections: Connections) -> NDArray[np.float32]:
    """Mean features of each super node's members [count, d]; zero where there are none."""
    members = np.flatnonzero(connections.assignment >= 0)
    shape = (connections.count, len(connections.assignment))
    weights = 1.0 / np.maximum(connections.sizes, 1)[connections.assignment[members]]
    average = sp.csr_matrix((weights.astype(np.float32), (connections.assignment[members], members)), shape=shape)
    product = average @ (features if sp.issparse(features) else np.asarray(features))
    return np.asarray(product.toarray() if sp.issparse(product) else product, dtype=np.float32)
