"""What super nodes do to PageRank (Theorem 2): the probability mass that moves from faded to brightened nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..data.graph import Graph
from ..ranking.connections import Connections
from ..ranking.exact import exact_pagerank
from ..ranking.ranker import Ranking

_AT_ONCE = 10  # sources: the dense vectors of all of them would not fit for large graphs


@dataclass(frozen=True, eq=False)
class Transfer:
    """How super nodes change the PageRank r of one node into r̃ = r + c; Σ c = 0.

    Attributes
    ----------
    node : int
        The source of both PageRanks.
    moved : float
        Mass that moved: the sum of what the faded nodes lose, which is what the brightened and the super nodes gain.
    to_supers : float
        The part of it that rests on super nodes.
    elsewhere : float
        The loss of faded nodes other than the source itself: what a ranking, which leaves the source out, can see.
    brightened, gains : [k]
        The ordinary nodes that gain most, and how much.
    faded, losses : [k]
        Those that lose most, and how much.
    scores : float64
        r̃ of the node's tokens, to compare a ranking's estimates with; empty unless asked for.
    """

    node: int
    moved: float
    to_supers: float
    elsewhere: float
    brightened: NDArray[np.int64]
    gains: NDArray[np.float64]
    faded: NDArray[np.int64]
    losses: NDArray[np.float64]
    scores: NDArray[np.float64]


def mass_transfer(
    graph: Graph,
    connections: Connections,
    nodes: NDArray[np.int64],
    restart: float = 0.15,
    k: int = 10,
    leave_out: bool = False,
    tokens: NDArray[np.int32] | None = None,
) -> list[Transfer]:
    """The exact change of PageRank for some nodes, to 1e-10, at about 140 passes over the edges.

    Parameters
    ----------
    leave_out
        Without a source's own edge to its super node, as in leave-own-label-out rankings.
    tokens
        Ids [m, k] whose exact scores are wanted; negative ones are left out.
    """
    found = []
    for start in range(0, len(nodes), _AT_ONCE):
        part = nodes[start : start + _AT_ONCE]
        plain = np.atleast_2d(exact_pagerank(graph, None, part, restart))
        rewired = np.atleast_2d(exact_pagerank(graph, connections, part, restart))
        for row, node in enumerate(part.tolist()):
            after = rewired[row]
            if leave_out and connections.assignment[node] >= 0:
                assignment = connections.assignment.copy()
                assignment[node] = -1
                after = exact_pagerank(graph, Connections(assignment, connections.count), node, restart)
            ids = np.empty(0, dtype=np.int32) if tokens is None else tokens[start + row]
            found.append(_transfer(node, plain[row], after, k, ids[ids >= 0]))
    return found


def _transfer(
    node: int, plain: NDArray[np.float64], rewired: NDArray[np.float64], k: int, tokens: NDArray[np.int32]
) -> Transfer:
    change = rewired[: len(plain)] - plain
    losses = np.maximum(-change, 0)
    order = np.argsort(change, kind="stable")
    brightened, faded = order[::-1][:k], order[:k]
    brightened, faded = brightened[change[brightened] > 0], faded[change[faded] < 0]
    return Transfer(
        node,
        float(losses.sum()),
        float(rewired[len(plain) :].sum()),
        float(losses.sum() - losses[node]),
        brightened,
        change[brightened],
        faded,
        -change[faded],
        rewired[tokens],
    )


def estimate_transfer(plain: Ranking, rewired: Ranking) -> NDArray[np.float64]:
    """Estimate `Transfer.elsewhere` from rankings without and with super nodes, where the exact way takes too long.

    Of a faded node that is no longer in the rewired list only a bound is known, the last score of that list: the
    estimate is a lower one.
    """
    moved = np.zeros(len(plain.ids))
    for row in range(len(moved)):
        before, after = plain.ids[row], rewired.ids[row]
        before, scores = before[before >= 0], plain.scores[row][before >= 0].astype(np.float64)
        after, new_scores = after[after >= 0], rewired.scores[row][after >= 0].astype(np.float64)
        # Where the whole reach fits into the list, a node that is not in it has no score at all.
        bound = new_scores[-1] if len(after) == rewired.ids.shape[1] else 0.0
        known = dict(zip(after.tolist(), new_scores.tolist(), strict=True))
        now = np.array([known.get(node, bound) for node in before.tolist()])
        moved[row] = np.maximum(scores - now, 0).sum()
    return moved
