"""Measure how super nodes change PageRank (Theorem 2): how much probability moves, from which nodes to which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..data.graph import Graph
from ..ranking.connections import Connections
from ..ranking.exact import exact_pagerank
from ..ranking.ranker import Ranking

_SOURCES_AT_ONCE = 10  # the dense vectors of all sources would not fit in memory for large graphs


@dataclass(frozen=True, eq=False)
class Transfer:
    """The change c that super nodes make to the PageRank r of one node: r̃ = r + c, with Σ c = 0.

    In the words of the paper, nodes whose score grows are brightened and nodes whose score shrinks are faded.

    Attributes
    ----------
    node : int
        The source of both PageRanks.
    moved : float
        Probability that moved: the sum of what nodes lose, which equals what other nodes and super nodes gain.
    to_supers : float
        The part of `moved` that super nodes gain.
    elsewhere : float
        The loss of all nodes but the source. A ranking leaves the source out and can estimate only this.
    brightened, gains : [k]
        The ordinary nodes that gain most, and their gains.
    faded, losses : [k]
        The nodes that lose most, and their losses.
    scores : float64
        r̃ of the node's tokens, to compare with the scores of a ranking; empty unless tokens were given.
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
    """Compute the change of PageRank for some nodes, exact to 1e-10.

    At a restart of 0.15 it takes 146 passes over the edges, once with and once without super nodes.

    Parameters
    ----------
    k
        How many brightened and faded nodes to list.
    leave_out
        Leave out each source's own edge to its super node, as leave-own-label-out rankings do.
    tokens
        Ids [m, k] whose exact scores to return; negative ids are skipped.
    """
    transfers = []
    for start in range(0, len(nodes), _SOURCES_AT_ONCE):
        sources = nodes[start : start + _SOURCES_AT_ONCE]
        plain = np.atleast_2d(exact_pagerank(graph, None, sources, restart))
        rewired = np.atleast_2d(exact_pagerank(graph, connections, sources, restart))
        for row, node in enumerate(sources.tolist()):
            after = rewired[row]
            if leave_out and connections.assignment[node] >= 0:
                assignment = connections.assignment.copy()
                assignment[node] = -1
                after = exact_pagerank(graph, Connections(assignment, connections.count), node, restart)
            ids = np.empty(0, dtype=np.int32) if tokens is None else tokens[start + row]
            transfers.append(_transfer(node, plain[row], rewired=after, k=k, tokens=ids[ids >= 0]))
    return transfers


def _transfer(
    node: int, plain: NDArray[np.float64], *, rewired: NDArray[np.float64], k: int, tokens: NDArray[np.int32]
) -> Transfer:
    """Compare the PageRank of a node without and with super nodes."""
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
    """Estimate `Transfer.elsewhere` of each source from rankings without and with super nodes.

    A node that has left the list scores at most as much as the last entry of the new list. The estimate takes that
    score, so it is a lower bound.
    """
    moved = np.zeros(len(plain.ids))
    for row in range(len(moved)):
        before, after = plain.ids[row], rewired.ids[row]
        before, scores = before[before >= 0], plain.scores[row][before >= 0].astype(np.float64)
        after, new_scores = after[after >= 0], rewired.scores[row][after >= 0].astype(np.float64)
        # A list that is not full holds every node that can be reached: all others have a score of 0.
        bound = new_scores[-1] if len(after) == rewired.ids.shape[1] else 0.0
        score_of = dict(zip(after.tolist(), new_scores.tolist(), strict=True))
        scores_after = np.array([score_of.get(node, bound) for node in before.tolist()])
        moved[row] = np.maximum(scores - scores_after, 0).sum()
    return moved
