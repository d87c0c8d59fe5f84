"""Kinds of neighbours: one description each, over which building, inputs, explanation and report loop.

To add a kind, describe it here: its name, how many tokens, which super nodes, which ranker. The texts of the setting
`tokens.content` are compared in this file and in no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.folders import digest
from ..data.graph import Graph
from ..data.tasks import TASKS
from ..errors import ConfigError, GraphError
from ..ranking.connections import (
    Connections,
    content_connections,
    feature_connections,
    no_connections,
    structure_connections,
)
from ..ranking.ranker import NodeRanker
from .config import TokenConfig
from .hops import check_hops

Train = NDArray[np.int64] | None


def _pagerank() -> type[NodeRanker]:
    from ..ranking.pagerank import Ranker

    return Ranker


def _links() -> type[NodeRanker]:
    from ..ranking.links import LinkRanker

    return LinkRanker


def _not_connected(graph: Graph, train: Train, config: TokenConfig) -> Connections:
    return no_connections(graph.num_nodes)


def _nothing_to_check(graph: Graph, train: Train, config: TokenConfig) -> None:
    return


def _no_labels(graph: Graph, train: Train) -> dict[str, str]:
    return {}


@dataclass(frozen=True)
class Kind:
    """One kind of neighbours in a token list.

    Attributes
    ----------
    name : str
        Its name in stores, explanations and reports.
    count : callable
        How many tokens of this kind the settings ask for.
    ranker : callable
        Returns the class that ranks. A function, so that stores open without loading compiled code.
    connect : callable
        Makes the super nodes from graph, training nodes and settings; default: none.
    own_label_left_out : bool
        Whether a training node's own super node would tell its label, so that `leave_own_label_out` applies.
    check : callable
        Refuses what cannot be done with a graph.
    labels : callable
        Hashes of the labels the lists depend on, by name; default: none.
    settings : tuple of str
        Names of the settings the lists depend on, the number of tokens aside; default: all.

    >>> STRUCTURE.count(TokenConfig(structure_tokens=5))
    5
    """

    name: str
    count: Callable[[TokenConfig], int]
    ranker: Callable[[], type[NodeRanker]] = _pagerank
    connect: Callable[[Graph, Train, TokenConfig], Connections] = _not_connected
    own_label_left_out: bool = False
    check: Callable[[Graph, Train, TokenConfig], None] = _nothing_to_check
    labels: Callable[[Graph, Train], dict[str, str]] = _no_labels
    settings: tuple[str, ...] = tuple(item.name for item in fields(TokenConfig))

    def connections(self, graph: Graph, train: Train, config: TokenConfig) -> Connections:
        """Make the super nodes; none where no token of this kind is asked for."""
        return self.connect(graph, train, config) if self.count(config) else no_connections(graph.num_nodes)

    def depends_on(self, graph: Graph, train: Train, config: TokenConfig) -> dict[str, Any]:
        """Return what the lists of one graph depend on, by name: number of tokens, settings, training labels."""
        count = self.count(config)
        if not count:
            return {"tokens": 0, "super_tokens": config.super_tokens}
        return {
            "tokens": count,
            **self.labels(graph, train),
            **{name: getattr(config, name) for name in self.settings},
        }

    def leaves_out(self, config: TokenConfig) -> bool:
        """Return whether a training node is ranked without the edge to its own super node."""
        return self.own_label_left_out and config.leave_own_label_out

    def effort(self, config: TokenConfig) -> dict[str, Any]:
        """Return how the ranker ranks: its keywords."""
        return {
            "tolerance": config.tolerance,
            "leave_out": self.leaves_out(config),
            "keep_super": config.super_tokens == "mean",
        }


def _connect_clusters(graph: Graph, train: Train, config: TokenConfig) -> Connections:
    return structure_connections(graph, config.clusters, config.seed, partitioner=config.partitioner)


def _check_clusters(graph: Graph, train: Train, config: TokenConfig) -> None:
    _check_range("clusters", config.clusters, 0, graph)


def _connect_labels(graph: Graph, train: Train, config: TokenConfig) -> Connections:
    return content_connections(graph.labels, train)


def _check_labels(graph: Graph, train: Train, config: TokenConfig) -> None:
    if train is None:
        raise GraphError("tokens.content is 'labels': pass the training nodes")
    unlabelled = train[np.asarray(graph.labels)[train] < 0]
    if unlabelled.size:
        raise GraphError(f"train contains node {unlabelled[0]}, which has no label")


def _training_labels(graph: Graph, train: Train) -> dict[str, str]:
    assert train is not None
    return {"training nodes": digest(train), "training labels": digest(np.asarray(graph.labels)[train])}


def _connect_features(graph: Graph, train: Train, config: TokenConfig) -> Connections:
    return feature_connections(graph.features, config.content_clusters, config.seed)


def _check_features(graph: Graph, train: Train, config: TokenConfig) -> None:
    _check_range("content_clusters", config.content_clusters, 1, graph)


def _check_range(name: str, value: int, least: int, graph: Graph) -> None:
    if not least <= value <= graph.num_nodes:
        raise ConfigError(
            f"tokens.{name} is {value}; it must lie between {least} and the number of nodes ({graph.num_nodes})"
        )


def _count_content(config: TokenConfig) -> int:
    return config.content_tokens


_STORED = ("super_tokens", "score_type")
_RANKED = ("restart", "tolerance", "partitioner", "seed", *_STORED)
STRUCTURE = Kind(
    "structure",
    lambda config: config.structure_tokens,
    connect=_connect_clusters,
    check=_check_clusters,
    settings=("clusters", *_RANKED),
)
# What `tokens.content` can be. All are stored under the name content.
CONTENT: Mapping[str, Kind] = {
    "labels": Kind(
        "content",
        _count_content,
        connect=_connect_labels,
        own_label_left_out=True,
        check=_check_labels,
        labels=_training_labels,
        settings=("leave_own_label_out", *_RANKED),
    ),
    "features": Kind(
        "content",
        _count_content,
        connect=_connect_features,
        check=_check_features,
        settings=("content_clusters", *_RANKED),
    ),
    "links": Kind("content", _count_content, ranker=_links, settings=_STORED),
}
LINKS = Kind("links", lambda config: config.link_tokens, ranker=_links, settings=_STORED)


def kinds_of(config: TokenConfig) -> tuple[Kind, ...]:
    """Return the kinds of neighbours of resolved settings, in the order of the list.

    The first two are always there, with or without tokens, as in the first release's stores.

    >>> [kind.name for kind in kinds_of(TokenConfig(content="features", link_tokens=2))]
    ['structure', 'content', 'links']
    """
    return (STRUCTURE, CONTENT[config.content], *((LINKS,) if config.link_tokens else ()))


def resolve(config: TokenConfig, graph: Graph, train: Train) -> TokenConfig:
    """Refuse settings that cannot be met with this graph, and decide what `content = "auto"` means."""
    config.check()
    check_hops(graph, config.hops)
    if config.super_tokens == "mean" and graph.features is None:
        raise GraphError("tokens.super_tokens is 'mean' but the graph has no features to average")
    config = replace(config, content=_choose_content(config, graph, train))
    for kind in kinds_of(config):
        if kind.count(config):
            kind.check(graph, train, config)
    return config


def _choose_content(config: TokenConfig, graph: Graph, train: Train) -> str:
    if config.content == "links":
        return "links"
    labelled = graph.labels is not None and TASKS[graph.task].has_classes
    if config.content == "features" or (config.content == "auto" and not (labelled and train is not None)):
        if config.content_tokens and graph.features is None:
            raise GraphError(
                "content tokens need class labels and training nodes, or features: set tokens.content=links, or "
                "content_tokens=0"
            )
        return "features"
    if not labelled:
        raise GraphError("tokens.content is 'labels' but the graph has no class labels: use 'features' or 'links'")
    if train is None:
        raise GraphError("tokens.content is 'labels': pass the training nodes")
    return "labels"


def member_means(features: Any, connections: Connections) -> NDArray[np.float32]:
    """Return the mean features of each super node's members [count, d]; zero where there are none."""
    members = np.flatnonzero(connections.assignment >= 0)
    shape = (connections.count, len(connections.assignment))
    weights = 1.0 / np.maximum(connections.sizes, 1)[connections.assignment[members]]
    average = sp.csr_matrix((weights.astype(np.float32), (connections.assignment[members], members)), shape=shape)
    product = average @ (features if sp.issparse(features) else np.asarray(features))
    return np.asarray(product.toarray() if sp.issparse(product) else product, dtype=np.float32)
