"""What every ranker offers, and what it returns: the best nodes of each source, with their scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from ..data.graph import Graph
from ..errors import ConfigError
from .connections import Connections


@dataclass(frozen=True, eq=False)
class Ranking:
    """The k best nodes of each source, best first, ties by smaller id.

    Attributes
    ----------
    ids : int32 [m, k]
        Node ids; -1 where fewer than k nodes can be reached. n + s is super node s, where these are kept.
    scores : float32 [m, k]
        Their PageRank scores, or the similarity of their links; 0 for padding.
    sources : int64 [m]
        The node each row belongs to.
    visits : int
        Edges touched for all sources together, without those touched while preparing.
    """

    ids: NDArray[np.int32]
    scores: NDArray[np.float32]
    sources: NDArray[np.int64]
    visits: int


class Preparation(TypedDict, total=False):
    """How a ranker is prepared. A ranker that has no use for an entry ignores it.

    Attributes
    ----------
    restart : float
        Probability to return to the source in each step (1 - the paper's α).
    coarse : int32 [n]
        Clusters of the second level, from `coarse_clusters`; made where they are missing.
    seed : int
        Seed of these clusters.
    partitioner : str
        Of these clusters: metis, or propagation, whose memory does not grow with the edges.
    threads : int or None
        Default: all cores this process may use. No result depends on it.
    budget : int
        Bytes for the vectors of the second level.
    """

    restart: float
    coarse: NDArray[np.int32] | None
    seed: int
    partitioner: str
    threads: int | None
    budget: int


class Effort(TypedDict, total=False):
    """How sources are ranked. A ranker that has no use for an entry ignores it.

    Attributes
    ----------
    tolerance : float
        Residual per edge weight at which the push stops, as a fraction of the k-th score: smaller is closer and slower.
    leave_out : bool
        Rank each connected source as if its own edge to its super node were absent.
    keep_super : bool
        Whether super nodes may take places in the lists.
    threads : int or None
        Default: all cores this process may use. No result depends on it.
    """

    tolerance: float
    leave_out: bool
    keep_super: bool
    threads: int | None


class NodeRanker(Protocol):
    """A way to find the best nodes of any source. A new one is one new class."""

    stage: ClassVar[str]
    """What preparing makes, for progress bars and measurements: `vectors`, `links`."""
    uses_clusters: ClassVar[bool]
    """Whether it wants the coarse clusters of the second level."""

    @property
    def visits(self) -> int:
        """Return the edges touched while preparing."""
        ...

    @classmethod
    def prepare(cls, graph: Graph, connections: Connections | None = None, **how: Unpack[Preparation]) -> Self:
        """Compute once what serves any number of sources."""
        ...

    def rank(self, sources: Any = None, k: int = 20, **how: Unpack[Effort]) -> Ranking:
        """Rank some sources; default: all nodes."""
        ...

    def save(self, path: str | Path, graph: Graph) -> Path:
        """Write what was prepared as a folder, for workers that share a filesystem and no memory."""
        ...

    @classmethod
    def open(cls, path: str | Path, graph: Graph) -> Self:
        """Open what `save` wrote, with the graph it was prepared for."""
        ...

    @classmethod
    def memory(cls, graph: Graph, threads: int, partitioner: str) -> dict[str, int]:
        """Return the bytes that each stage of preparing and ranking needs, about."""
        ...

    @classmethod
    def saved_bytes(cls, graph: Graph) -> int:
        """Return the bytes that `save` writes, about."""
        ...


def empty_lists(count: int, k: Any, score_type: Any = np.float32) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return ids and scores [count, k], all padding; refuse a length that is none or does not fit."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ConfigError(f"k is {k!r}; it must be a whole number of at least 1")
    try:
        return np.full((count, k), -1, dtype=np.int32), np.zeros((count, k), dtype=score_type)
    except MemoryError as error:
        raise ConfigError(f"k is {k}: lists of that length do not fit into memory ({error})") from error
