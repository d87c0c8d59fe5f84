"""`TokenConfig`: what is in a token list, section `[tokens]`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.checks import check_seed
from ..data.graph import Graph
from ..errors import ConfigError, GraphError
from ..ranking.connections import PARTITIONERS
from ..ranking.exact import TOLERANCE, check_restart, check_tolerance
from .hops import check_hops

KINDS = ("structure", "content")


@dataclass(frozen=True)
class TokenConfig:
    """What is in a token list: section `[tokens]`."""

    hops: int = field(default=3, metadata={"help": "hop tokens P X … P^L X (the paper's L)"})
    clusters: int = field(
        default=10, metadata={"help": "METIS clusters, one super node each (s̄); 0 ranks on the graph as it is"}
    )
    partitioner: str = field(
        default="metis",
        metadata={"help": "of clusters: metis, or propagation, whose memory does not grow with edges"},
    )
    structure_tokens: int = field(default=8, metadata={"help": "structure-aware neighbours (k̄)"})
    content_tokens: int = field(default=8, metadata={"help": "content-aware neighbours (k̂)"})
    restart: float = field(default=0.15, metadata={"help": "restart probability of the walk (1 - the paper's α)"})
    tolerance: float = field(
        default=TOLERANCE, metadata={"help": "of the ranking, relative to the k-th score: smaller is closer and slower"}
    )
    content: str = field(
        default="auto",
        metadata={
            "help": "what content neighbours share: 'labels', 'features' (k-means) or 'links'; auto: labels if any"
        },
    )
    content_clusters: int = field(default=10, metadata={"help": "k-means clusters where content is 'features' (ŝ)"})
    leave_own_label_out: bool = field(
        default=True, metadata={"help": "rank a training node as if its own label were unknown"}
    )
    self_loops: bool = field(default=False, metadata={"help": "hops on the graph with self-loops"})
    super_tokens: str = field(
        default="drop", metadata={"help": "'drop' super nodes, or rank them too, with the 'mean' of their members"}
    )
    score_type: str = field(default="float32", metadata={"help": "how scores are stored: float32 or float16"})
    seed: int = field(default=0, metadata={"help": "seed of METIS and k-means"})

    def check(self, graph: Graph, train: NDArray[np.int64] | None) -> str:
        """Refuse what cannot be done with this graph; returns the kind of content in use: labels, features or links."""
        for name in ("structure_tokens", "content_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigError(f"tokens.{name} is {value!r}; it must be a whole number of 0 or more")
        check_hops(graph, self.hops)
        check_restart(self.restart)
        check_tolerance(self.tolerance)
        check_seed(self.seed)
        choices = {
            "partitioner": PARTITIONERS,
            "content": ("auto", "labels", "features", "links"),
            "super_tokens": ("drop", "mean"),
            "score_type": ("float32", "float16"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(f"tokens.{name} is {getattr(self, name)!r}; it must be {' or '.join(allowed)}")
        if self.super_tokens == "mean" and graph.features is None:
            raise GraphError("tokens.super_tokens is 'mean' but the graph has no features to average")
        content = self._kind_of_content(graph, train)
        counts = {
            "clusters": self.structure_tokens > 0,
            "content_clusters": self.content_tokens > 0 and content == "features",
        }
        for name, used in counts.items():
            value = getattr(self, name)
            least = 0 if name == "clusters" else 1
            if used and not least <= value <= graph.num_nodes:
                raise ConfigError(
                    f"tokens.{name} is {value}; it must lie between {least} and the number of nodes ({graph.num_nodes})"
                )
        if content == "labels" and self.content_tokens and train is not None and graph.labels is not None:
            unlabelled = train[np.asarray(graph.labels)[train] < 0]
            if unlabelled.size:
                raise GraphError(f"train contains node {unlabelled[0]}, which has no label")
        return content

    @property
    def by_links(self) -> bool:
        """Whether there are content neighbours that need no PageRank."""
        return self.content_tokens > 0 and self.content == "links"

    def _kind_of_content(self, graph: Graph, train: Any) -> str:
        if self.content == "links":
            return "links"
        labelled = graph.labels is not None and graph.task == "classification"
        if self.content == "features" or (self.content == "auto" and not (labelled and train is not None)):
            if self.content_tokens and graph.features is None:
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
