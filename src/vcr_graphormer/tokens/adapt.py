"""Choose the numbers of `TokenConfig` that are AUTO, for one graph and its training nodes."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.checks import unresolved
from ..data.agreement import MOST_NODES_COMPARED
from ..data.graph import Graph
from ..data.tasks import TASKS, known_labels
from .config import TokenConfig

HOPS = 3  # as in the presets of PubMed, Computer, Photo, CS and Physics
HOPS_OF_FEW_LABELS = 10  # labels are far away, so more hops reach more of them
MOST_CLUSTERS, NODES_PER_CLUSTER = 10, 10  # the paper's number for most graphs; at least so many nodes in each
NEIGHBOURS_OF_A_KIND = 8
# Labels are few where a class has fewer on average, and only a small fraction of the nodes has one. The second rule
# leaves out graphs that are small altogether, such as Texas (22 labels a class, 60 % of the nodes).
FEW_LABELS_PER_CLASS, FEW_LABELS_FRACTION = 30, 0.1


def labels_per_class(graph: Graph, train: NDArray[np.int64]) -> float:
    """Return the number of known training labels, divided by the number of classes; of values, all of them."""
    if graph.labels is None:
        return 0.0
    count = int(known_labels(np.asarray(graph.labels)[train]).sum())
    return count / max(1, graph.num_classes) if TASKS[graph.task].has_classes else float(count)


def has_few_labels(graph: Graph, train: NDArray[np.int64] | None) -> bool:
    """Return whether few nodes of each class have a label to learn from."""
    if train is None or graph.labels is None or not TASKS[graph.task].has_classes:
        return False
    few = len(train) < FEW_LABELS_FRACTION * graph.num_nodes
    return few and labels_per_class(graph, train) < FEW_LABELS_PER_CLASS


def adapt_tokens(config: TokenConfig, graph: Graph, train: NDArray[np.int64] | None) -> TokenConfig:
    """Return settings without AUTO.

    >>> from vcr_graphormer import generate
    >>> adapt_tokens(TokenConfig(), generate(50, 100), None).clusters
    5
    """
    clusters = max(1, min(MOST_CLUSTERS, graph.num_nodes // NODES_PER_CLUSTER))
    hops = HOPS_OF_FEW_LABELS if has_few_labels(graph, train) else HOPS
    if graph.features is None:
        hops = 0
    # Who wants no neighbours by PageRank wants hops only: then the other kinds have to be asked for.
    wanted = config.structure_tokens + config.content_tokens > 0 and graph.num_nodes <= MOST_NODES_COMPARED
    compared = NEIGHBOURS_OF_A_KIND if wanted else 0
    chosen: dict[str, Any] = {"hops": hops, "clusters": clusters, "content_clusters": clusters}
    chosen["link_tokens"] = 0 if config.content == "links" else compared
    chosen["nearest_tokens"] = 0 if graph.features is None else compared
    resolved = replace(config, **{name: chosen[name] for name in unresolved(config)})
    if config.partitioner == "auto":
        return replace(resolved, partitioner="kaminpar" if find_spec("kaminpar") is not None else "metis")
    return resolved
