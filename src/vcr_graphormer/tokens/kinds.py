"""Kinds of neighbours: one description each. Building, inputs, explanation and report loop over them.

To add a kind, describe it here: its name, how many tokens, which super nodes, which ranker. Only this file compares the
texts of the setting `tokens.content`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
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
from .adapt import adapt_tokens
from .config import TokenConfig
from .hops import check_hops
from .layout import HOP, NEIGHBOURS, SELF

Train = NDArray[np.int64] | None
Connect = Callable[[Graph, Train, TokenConfig], Connections]


_COARSEST = 0.2  # tolerance of longer rankings: beyond, a push no longer looks back (`pagerank.LOOK_BACK_BELOW`)


def _pagerank() -> type[NodeRanker]:
    from ..ranking.pagerank import Ranker

    return Ranker


def _links() -> type[NodeRanker]:
    from ..ranking.links import LinkRanker

    return LinkRanker


def _by_hop_features() -> type[NodeRanker]:
    from ..ranking.nearest import HopFeatureRanker

    return HopFeatureRanker


def _training_labels(graph: Graph, train: Train) -> dict[str, str]:
    if train is None:
        return {}
    labels = None if graph.labels is None else np.asarray(graph.labels)[train]
    return {"training nodes": digest(train), "training labels": digest(labels)}


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
        Whether a training node's own super node would reveal its label. It is ranked without the edge to it then, as if
        its label were unknown.
    check : callable
        Refuses a graph, training nodes or settings that this kind cannot use.
    labels : callable
        Hashes of the training nodes and labels the lists depend on, by name; default: of all of them.
    settings : tuple of str
        Names of the settings the lists depend on, apart from the number of tokens; default: all.
    reserve : bool
        Whether distinct lists keep the ids of the longer ranking that they were cut from. `update` compares these
        instead of all nodes. It needs a ranker that can rank among candidates.

    >>> STRUCTURE.count(TokenConfig(structure_tokens=5))
    5
    """

    name: str
    count: Callable[[TokenConfig], int]
    ranker: Callable[[], type[NodeRanker]] = _pagerank
    connect: Connect = lambda graph, train, config: no_connections(graph.num_nodes)
    own_label_left_out: bool = False
    check: Callable[[Graph, Train, TokenConfig], None] = lambda graph, train, config: None
    labels: Callable[[Graph, Train], dict[str, str]] = _training_labels
    settings: tuple[str, ...] = tuple(item.name for item in fields(TokenConfig))
    reserve: bool = False

    def connections(self, graph: Graph, train: Train, config: TokenConfig) -> Connections:
        """Make the super nodes; none where no token of this kind is asked for."""
        return self.connect(graph, train, config) if self.count(config) else no_connections(graph.num_nodes)

    def depends_on(self, graph: Graph, train: Train, config: TokenConfig) -> dict[str, Any]:
        """Return what the lists of one graph depend on, by name: number of tokens, settings, training labels."""
        count = self.count(config)
        if not count:
            return {"tokens": 0}
        used = {name: getattr(config, name) for name in self.settings}
        return {"tokens": count, **self.labels(graph, train), **used}

    def effort(self, config: TokenConfig, more: int = 0) -> dict[str, Any]:
        """Return the keywords of the ranker's `rank`, which ranks `more` nodes than this kind has tokens.

        The tolerance is a fraction of the last score, which is smaller then. The same fraction would take 1.4 times the
        time for distinct lists; times the root it takes 1.2 times, at nearly the same recall (docs/log.md).
        """
        coarser = min(_COARSEST, config.tolerance * math.sqrt(1 + more / max(1, self.count(config))))
        return {"tolerance": max(config.tolerance, coarser), "leave_out": self.own_label_left_out}


def _check_labels(graph: Graph, train: Train, config: TokenConfig) -> None:
    assert train is not None  # `_choose_content` has refused it
    unlabelled = train[np.asarray(graph.labels)[train] < 0]
    if unlabelled.size:
        raise GraphError(f"train contains node {unlabelled[0]}, which has no label")


def _check_range(graph: Graph, name: str, *, value: int, least: int) -> None:
    if not least <= value <= graph.num_nodes:
        raise ConfigError(
            f"tokens.{name} is {value}; it must lie between {least} and the number of nodes ({graph.num_nodes})"
        )


def _check_features(graph: Graph, train: Train, config: TokenConfig) -> None:
    if graph.features is None:
        raise GraphError(
            f"tokens.nearest_tokens is {config.nearest_tokens} but the graph has no features to compare: set it to 0"
        )


def structure_clusters(graph: Graph, config: TokenConfig, threads: int = 1) -> Connections:
    """Return the super nodes of the structure, by the partitioner of the settings; none without structure tokens."""
    count = config.clusters if config.structure_tokens else 0
    return structure_connections(graph, count, config.seed, partitioner=config.partitioner, threads=threads)


_RANKED = ("restart", "tolerance", "partitioner", "seed", "score_type")
STRUCTURE = Kind(
    "structure",
    lambda config: config.structure_tokens,
    connect=lambda graph, train, config: structure_clusters(graph, config),
    check=lambda graph, train, config: _check_range(graph, "clusters", value=config.clusters, least=0),
    labels=_no_labels,
    settings=("clusters", *_RANKED),
)
LINKS = Kind(
    "links",
    lambda config: config.link_tokens,
    ranker=_links,
    labels=_no_labels,
    settings=("score_type",),
    reserve=True,
)
NEAREST = Kind(
    "nearest",
    lambda config: config.nearest_tokens,
    ranker=_by_hop_features,
    check=_check_features,
    labels=_no_labels,
    settings=("seed", "score_type"),
    reserve=True,
)
_BY_LABELS = Kind(
    "content",
    lambda config: config.content_tokens,
    connect=lambda graph, train, config: content_connections(graph.labels, train),
    own_label_left_out=True,
    check=_check_labels,
    settings=_RANKED,
)
_BY_FEATURES = Kind(
    "content",
    _BY_LABELS.count,
    connect=lambda graph, train, config: feature_connections(graph.features, config.content_clusters, config.seed),
    check=lambda graph, train, config: _check_range(graph, "content_clusters", value=config.content_clusters, least=1),
    labels=_no_labels,
    settings=("content_clusters", *_RANKED),
)
# The kinds that `tokens.content` can name. All are stored under the name content.
CONTENT: Mapping[str, Kind] = {
    "labels": _BY_LABELS,
    "features": _BY_FEATURES,
    "links": replace(LINKS, name="content", count=_BY_LABELS.count),
}
OPTIONAL = (LINKS, NEAREST)  # kinds that stand in a list only where a setting asks for them


def kinds_of(config: TokenConfig) -> tuple[Kind, ...]:
    """Return the kinds of neighbours of resolved settings, in the order of the list.

    Structure and content are always among them, even without tokens: every store has their arrays.

    >>> [kind.name for kind in kinds_of(TokenConfig(content="features", link_tokens=2, nearest_tokens=4))]
    ['structure', 'content', 'links', 'nearest']
    """
    return (STRUCTURE, CONTENT[config.content], *(kind for kind in OPTIONAL if kind.count(config)))


def resolve(config: TokenConfig, graph: Graph, train: Train, kinds: Sequence[Kind] = ()) -> TokenConfig:
    """Refuse settings that this graph cannot meet, and replace AUTO and `content = "auto"` by what they mean here.

    `kinds`: kinds that no setting names; they are checked too.
    """
    config = adapt_tokens(config.check(), graph, train)
    check_hops(graph, config.hops)
    graph.check_complete()
    config = replace(config, content=_choose_content(config, graph, train=train))
    for kind in (*kinds_of(config), *kinds):
        if kind.count(config):
            kind.check(graph, train, config)
    names = [kind.name for kind in (*kinds_of(config), *kinds)]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"there are two kinds of neighbours named '{name}': give yours another name")
        if name in (SELF, HOP, NEIGHBOURS) or not name.isidentifier():
            raise ConfigError(f"'{name}' cannot be the name of a kind of neighbours: use letters, not a reserved word")
    return config


def _choose_content(config: TokenConfig, graph: Graph, *, train: Train) -> str:
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
