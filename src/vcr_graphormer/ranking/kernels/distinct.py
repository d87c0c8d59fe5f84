"""Take the best new nodes of a ranking, those that no earlier list holds, compiled."""

from __future__ import annotations

from .push import jit


@jit
def take_new(ranked, ranked_scores, earlier, least, ids, scores, shared):
    """Walk down each row of `ranked` until `ids` has its new nodes; the rest of a row of `ids` keeps its padding.

    A node that stands in `earlier` is skipped, and its score is written to its place in `shared`: at least `least`, for
    0 means that the walk did not meet the node there.
    """
    k = ids.shape[1]
    for row in range(len(ranked)):
        size = 0
        for i in range(ranked.shape[1]):
            v = ranked[row, i]
            if size == k or v < 0:
                break
            place = -1
            for j in range(earlier.shape[1]):
                if earlier[row, j] == v:
                    place = j
                    break
            if place >= 0:
                x = ranked_scores[row, i]
                shared[row, place] = least if abs(x) < least else x
            else:
                ids[row, size], scores[row, size] = v, ranked_scores[row, i]
                size += 1
