"""The methods that every ranker has, and the lists that it returns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from ..base.checks import is_whole
from ..base.machine import available_memory, format_bytes
from ..base.mapping import Closed
from ..data.graph import Graph
from ..errors import ConfigError, GraphError
from .connections import Connections

_WORTH_A_LOOK = 1 << 26  # bytes


@dataclass(frozen=True, eq=False)
class Ranking:
    """The k best nodes of each source, best first, ties by smaller id; the source itself is never among them.

    Attributes
    ----------
    ids : int32 [m, k]
        Node ids, or n + s for super node s; padded with -1 if fewer than k nodes can be reached.
    scores : float32 [m, k]
        PageRank scores, or similarities of links or features; 0 for padding.
    sources : int64 [m]
        The node each row belongs to.
    visits : int
        Edges touched for all sources together; those touched while preparing do not count.
    """

    ids: NDArray[np.int32]
    scores: NDArray[np.float32]
    sources: NDArray[np.int64]
    visits: int

    def to_edge_index(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the lists as edges [2, e] from each listed node to its source, and their scores [e].

        These are PyG's `edge_index` and `edge_weight`: messages flow from the best nodes to the source.

        >>> ids, scores = np.array([[1, 2], [0, -1]], np.int32), np.array([[0.5, 0.25], [0.5, 0]], np.float32)
        >>> edge_index, edge_weight = Ranking(ids, scores, np.array([0, 1]), visits=0).to_edge_index()
        >>> edge_index.tolist(), edge_weight.tolist()
        ([[1, 2, 0], [0, 0, 1]], [0.5, 0.25, 0.5])
        """
        return lists_to_edges(self.ids, self.scores, self.sources)


def lists_to_edges(
    ids: NDArray[np.int32], scores: NDArray[Any], sources: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return lists [m, k] as edges [2, e] from listed nodes to sources, without padding, and their scores [e]."""
    present = ids >= 0
    targets = np.broadcast_to(sources[:, None], ids.shape)[present]
    return np.stack([ids[present].astype(np.int64), targets]), scores[present].astype(np.float32)


class Preparation(TypedDict, total=False):
    """How a ranker is prepared. A ranker ignores the entries it does not need.

    Attributes
    ----------
    restart : float
        Probability to return to the source in each step (1 - the paper's α).
    coarse : int32 [n]
        Clusters of the second level, from `coarse_clusters`; made if they are not given.
    seed : int
        Seed of these clusters.
    partitioner : str
        What makes these clusters: `metis`, `kaminpar`, or `propagation`, whose memory does not grow with the edges.
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
    """How sources are ranked. A ranker ignores the entries it does not need.

    Attributes
    ----------
    tolerance : float
        Residual per edge weight at which the push stops, as a fraction of the k-th score. Smaller is more exact and
        slower.
    leave_out : bool
        Whether to rank each source as if it had no edge to its super node.
    threads : int or None
        Default: all cores this process may use. No result depends on it.
    """

    tolerance: float
    leave_out: bool
    threads: int | None


class Candidates(NamedTuple):
    """The nodes to compare each source with: a row of `lists`, and `more[starts[row] : starts[row + 1]]`.

    Nodes may come twice; -1 stands for none. The source itself is never among them.
    """

    lists: NDArray[np.int32]
    starts: NDArray[np.int64]
    more: NDArray[np.int32]

    @classmethod
    def join(cls, lists: NDArray[np.int32], rows: NDArray[np.int64], nodes: NDArray[np.int64]) -> Candidates:
        """Return the nodes of lists, one row per source, with one more node for each of some rows.

        >>> found = Candidates.join(np.array([[4, 2], [3, -1]], np.int32), np.array([1, 0, 1]), np.array([5, 2, 6]))
        >>> found.starts.tolist(), found.more.tolist()
        ([0, 1, 3], [2, 5, 6])
        """
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(lists)))]).astype(np.int64)
        return cls(lists, starts, nodes[np.argsort(rows, kind="stable")].astype(np.int32))

    def of(self, part: slice) -> Candidates:
        """Return those of some sources."""
        return Candidates(self.lists[part], self.starts[part.start : part.stop + 1], self.more)


class Closing:
    """The end of a ranker that was opened from a folder: as a context manager, it lets go of its arrays."""

    def close(self) -> None:
        """Let go of all arrays; the ranker cannot be used afterwards. No file descriptor is held until then."""
        for item in fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, item.name, Closed("the ranker"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NodeRanker(Protocol):
    """A way to find the best nodes for any source. To add one, write a class with these methods."""

    stage: ClassVar[str]
    """The name of preparing in progress bars and measurements: `vectors`, `links`."""
    uses_clusters: ClassVar[bool]
    """Whether it needs the coarse clusters of the second level."""

    @property
    def visits(self) -> int:
        """Return the edges touched while preparing."""
        ...

    @classmethod
    def prepare(cls, graph: Graph, connections: Connections | None = None, **how: Unpack[Preparation]) -> Self:
        """Compute everything that does not depend on the sources."""
        ...

    def rank(self, sources: Any = None, k: int = 20, **how: Unpack[Effort]) -> Ranking:
        """Rank some sources (default: all nodes)."""
        ...

    def save(self, path: str | Path, graph: Graph) -> Path:
        """Write the ranker as a folder, for workers that share a filesystem but no memory."""
        ...

    @classmethod
    def open(cls, path: str | Path, graph: Graph) -> Self:
        """Open a saved ranker, with the graph it was prepared for."""
        ...

    @classmethod
    def memory(cls, graph: Graph, threads: int, partitioner: str) -> dict[str, int]:
        """Return about how many bytes each stage of preparing and ranking needs."""
        ...

    @classmethod
    def saved_bytes(cls, graph: Graph) -> int:
        """Return about how many bytes `save` writes."""
        ...


def check_ranking(ranking: Ranking, k: int, *, limit: int) -> Ranking:
    """Refuse lists that are not k long, ids of `limit` or more, and a source in its own list, where it sees its label.

    This costs one pass at the speed of memory, and holds for every ranker, a user's own too.
    """
    shape = (len(ranking.sources), k)
    if ranking.ids.shape != shape or ranking.scores.shape != shape:
        raise GraphError(f"the ranker returned ids {list(ranking.ids.shape)}; they must be {list(shape)}")
    if ranking.ids.size and not -1 <= ranking.ids.min() <= ranking.ids.max() < limit:
        raise GraphError(f"the ranker returned ids outside of -1 to {limit - 1}")
    own = (ranking.ids == ranking.sources[:, None]).any(axis=1)
    if own.any():
        raise GraphError(f"the ranker put node {ranking.sources[own][0]} into its own list: leave the source out")
    return ranking


def empty_lists(count: int, k: Any, score_type: Any = np.float32) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return ids and scores [count, k], all padding; refuse a k that is below 1 or does not fit into memory."""
    if not is_whole(k) or k < 1:
        raise ConfigError(f"k is {k!r}; it must be a whole number of at least 1")
    size = count * int(k) * (np.dtype(np.int32).itemsize + np.dtype(score_type).itemsize)
    # Linux grants memory that is not there and ends the process when it is used. Small lists need no look at it.
    if size > _WORTH_A_LOOK and size > (free := available_memory()):
        raise ConfigError(
            f"k is {k}: lists of that length do not fit into memory ({count:,} of them need {format_bytes(size)}, "
            f"{format_bytes(free)} are free); take a smaller k or fewer sources"
        )
    try:
        return np.full((count, k), -1, dtype=np.int32), np.zeros((count, k), dtype=score_type)
    except MemoryError as error:
        raise ConfigError(f"k is {k}: lists of that length do not fit into memory ({error})") from error
