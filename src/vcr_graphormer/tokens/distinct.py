"""Lists without repeats: a node that several kinds of neighbours propose takes one place and keeps all its scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base.checks import Array
from .config import TokenConfig


def places_before(counts: Mapping[str, int], config: TokenConfig) -> dict[str, int]:
    """Return how many neighbours stand before those of each kind that must not repeat them.

    To be sure of its own tokens, such a kind ranks that many nodes more.

    >>> places_before({"structure": 3, "content": 2, "links": 0, "mine": 1}, TokenConfig(distinct=True))
    {'content': 3, 'mine': 5}
    """
    before, places = 0, {}
    for kind, count in counts.items():
        if config.distinct and count and before:
            places[kind] = before
        before += count
    return places


def leave_repeats_out(ids: Array, scores: Array, *, earlier: Array, count: int, score_type: str) -> dict[str, Array]:
    """Return ids and scores of a ranking's `count` best new nodes, and its scores of the nodes that are not new.

    The ranking proposes a node if it ranks it before the last new node. If there are fewer than `count` new nodes, it
    proposes all nodes that it ranks.

    Parameters
    ----------
    ids, scores : [m, r]
        The ranking, best first, padded with -1.
    earlier : [m, p]
        The neighbours that stand in the lists already.
    count
        New nodes to take; padding where the ranking ends.
    score_type
        Type of the returned scores.

    Returns
    -------
    dict
        `ids` and `scores` [m, count]; `shared` [m, p]: the score of the node at that place of `earlier`, 0 where the
        ranking does not propose it.

    >>> lists = leave_repeats_out(
    ...     np.array([[5, 2, 7, 8]]), np.array([[0.4, 0.3, 0.2, 0.1]]), earlier=np.array([[2, 8]]), count=2,
    ...     score_type="float32",
    ... )
    >>> lists["ids"].tolist(), lists["shared"].round(1).tolist()
    ([[5, 7]], [[0.30000001192092896, 0.0]])
    """
    from ..ranking.kernels.distinct import take_new  # here, so that stores open without loading compiled code

    least: Any = np.finfo(score_type).smallest_subnormal  # a proposed score must not be rounded to 0
    new, new_scores = np.full((len(ids), count), -1, np.int32), np.zeros((len(ids), count), np.float32)
    shared = np.zeros(earlier.shape, np.float32)
    ranked, ranked_scores = np.ascontiguousarray(ids, np.int32), np.ascontiguousarray(scores, np.float32)
    earlier = np.ascontiguousarray(earlier, np.int32)
    take_new(ranked, ranked_scores, earlier, np.float32(least), new, new_scores, shared)
    return {"ids": new, "scores": new_scores.astype(score_type), "shared": shared.astype(score_type)}
