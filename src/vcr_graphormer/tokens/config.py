"""`TokenConfig`: the settings of a token list, section `[tokens]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ..base.checks import AUTO, check_choice, check_seed, check_whole, setting
from ..ranking.connections import PARTITIONERS
from ..ranking.exact import TOLERANCE, check_restart, check_tolerance

CHOICES_OF_PARTITIONERS = ("auto", *PARTITIONERS)
CONTENTS = ("auto", "labels", "features", "links")
NUMBER_TYPES = ("float32", "float16")  # of stored scores and hops

# Settings that are younger than the first stores, at the value that changes nothing. That value is not stored.
YOUNGER: Mapping[str, Any] = {"link_tokens": 0, "nearest_tokens": 0, "distinct": False, "hop_type": "float32"}


@dataclass(frozen=True)
class TokenConfig:
    """The settings of a token list: section `[tokens]`. Numbers that are AUTO are chosen for the graph.

    Attributes
    ----------
    hops : int
        Hop tokens: features averaged over 1 … L steps (P X … P^L X); the paper's L.
    clusters : int
        METIS clusters, one super node each; the paper's s̄. 0 ranks on the graph as it is.
    partitioner : str
        What makes clusters: `metis`, `kaminpar` (faster, to be installed), or `propagation`, whose memory does not grow
        with the edges. `auto`: kaminpar where it is installed, else metis.
    structure_tokens : int
        Structure-aware neighbours; the paper's k̄.
    content_tokens : int
        Content-aware neighbours; the paper's k̂.
    link_tokens : int
        Neighbours that link to the same nodes, beside the other kinds.
    nearest_tokens : int
        Neighbours whose features, and features of the first hop, are most similar, beside the other kinds.
    distinct : bool
        Whether a node that several kinds propose takes one place only, so that later kinds go on to their next best.
    restart : float
        Restart probability of the walk; 1 - the paper's α.
    tolerance : float
        Tolerance of the ranking, relative to the k-th score: smaller is closer and slower.
    content : str
        What content-aware neighbours share: `labels`, `features` (k-means) or `links`. `auto`: labels if there are any.
    content_clusters : int
        k-means clusters where content is `features`; the paper's ŝ.
    self_loops : bool
        Whether hops run on the graph with self-loops.
    score_type : str
        How scores are stored: `float32` or `float16`.
    hop_type : str
        How dense hops are stored: `float32` or `float16`, which is half as large. Sparse hops are float32.
    seed : int
        Seed of METIS and k-means, 0 or more. A library that takes no number as large gets its remainder.
    """

    hops: int = setting(AUTO, "hop tokens: features averaged over 1 … L steps (L); auto: 3, more if few labels")
    clusters: int = setting(AUTO, "METIS clusters, one super node each; 0: no super nodes (s̄); auto: by nodes")
    partitioner: str = setting("metis", "what makes clusters: metis, kaminpar, propagation (least memory) or auto")
    structure_tokens: int = setting(8, "neighbours by PageRank with a super node per cluster (k̄)")
    content_tokens: int = setting(8, "neighbours by PageRank with a super node per label (k̂)")
    link_tokens: int = setting(AUTO, "neighbours that link to the same nodes; auto: 8, none in very large graphs")
    nearest_tokens: int = setting(
        AUTO, "neighbours with the most similar features and hop features; auto: 8, none in very large graphs"
    )
    distinct: bool = setting(True, "no node twice in a list: a later kind of neighbours goes on to its next best")
    restart: float = setting(0.15, "probability that a walk returns to its node in each step (1 - α)")
    tolerance: float = setting(TOLERANCE, "of the ranking, relative to the k-th score; smaller: more exact, slower")
    content: str = setting("auto", "what content neighbours share: labels, features or links; auto: labels if any")
    content_clusters: int = setting(AUTO, "k-means clusters where content is features (ŝ); auto: by nodes")
    self_loops: bool = setting(True, "compute hops on the graph with self-loops")
    score_type: str = setting("float32", "how scores are stored: float32 or float16")
    hop_type: str = setting("float32", "how dense hops are stored: float32, or float16 for half of the bytes")
    seed: int = setting(0, "seed of METIS and k-means")

    def check(self) -> TokenConfig:
        """Refuse values out of range, whatever the graph; `kinds.resolve` compares them with a graph."""
        for name in ("structure_tokens", "content_tokens", "link_tokens", "nearest_tokens"):
            check_whole(self, "tokens", name, 0)
        check_restart(self.restart)
        check_tolerance(self.tolerance)
        check_seed(self.seed)
        check_choice(self, "tokens", "partitioner", CHOICES_OF_PARTITIONERS)
        check_choice(self, "tokens", "content", CONTENTS)
        check_choice(self, "tokens", "score_type", NUMBER_TYPES)
        check_choice(self, "tokens", "hop_type", NUMBER_TYPES)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return all settings; one that is younger than the first stores is left out where it changes nothing."""
        unused = {name for name, value in YOUNGER.items() if getattr(self, name) == value}
        return {name: value for name, value in asdict(self).items() if name not in unused}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> TokenConfig:
        """Return the settings that `to_dict` has stored, perhaps among other entries."""
        names = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in {**YOUNGER, **stored}.items() if name in names})
