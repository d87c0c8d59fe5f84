"""What every ranker returns: the best nodes of each source, with their scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError


@dataclass(frozen=True, eq=False)
class Ranking:
    """The k best nodes of each source, best first, ties by smaller id.

    Attributes
    ----------
    ids : int32 [m, k]
        Node ids; -1 where fewer than k nodes can be reached. n + s is super node s, where these are kept.
    scores : float32 [m, k]
        Their PageRank scores, or how much alike their links are; 0 for padding.
    sources : int64 [m]
        Whose row is whose.
    visits : int
        Edges touched for all sources together, those touched while preparing not counted.
    """

    ids: NDArray[np.int32]
    scores: NDArray[np.float32]
    sources: NDArray[np.int64]
    visits: int


def empty_lists(count: int, k: Any, score_type: Any = np.float32) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Ids and scores [count, k], all padding; refuses a length of lists that is none or does not fit."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ConfigError(f"k is {k!r}; it must be a whole number of at least 1")
    try:
        return np.full((count, k), -1, dtype=np.int32), np.zeros((count, k), dtype=score_type)
    except MemoryError as error:
        raise ConfigError(f"k is {k}: lists of that length do not fit into memory ({error})") from error
