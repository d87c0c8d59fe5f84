"""The compiled loops of label propagation: join neighbours, then contract what joined."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np


@nb.njit(nogil=True, cache=True)
def join_neighbours(indptr: Any, indices: Any, weights: Any, start: Any, largest: int, passes: int) -> Any:
    """Label [n] of every node: each in its turn takes the label heaviest among its neighbours that has room.

    In the order of the nodes, which is that of their arcs on the disk. A node's own label wins a tie, then the one met
    first. Ends early when hardly anyone moves.
    """
    num_nodes = len(indptr) - 1
    label, size = start.copy(), np.zeros(num_nodes, np.int32)
    heard, met = np.zeros(num_nodes), np.empty(num_nodes, np.int32)
    for u in range(num_nodes):
        size[label[u]] += 1
    for _ in range(passes):
        moved = 0
        for u in range(num_nodes):
            own, count = label[u], 0
            for e in range(indptr[u], indptr[u + 1]):
                other = label[indices[e]]
                if heard[other] == 0.0:
                    met[count] = other
                    count += 1
                heard[other] += weights[e] if len(weights) else 1.0
            best, most = own, heard[own]
            for i in range(count):
                other = met[i]
                if heard[other] > most and size[other] < largest:
                    best, most = other, heard[other]
                heard[other] = 0.0
            if best != own:
                size[own] -= 1
                size[best] += 1
                label[u] = best
                moved += 1
        if moved * 200 < num_nodes:
            break
    return label


@nb.njit(nogil=True, cache=True)
def contract(indptr: Any, indices: Any, weights: Any, piece: Any, members: Any, pieces: int, most: int) -> Any:
    """The graph of the pieces as CSR: weight of the arcs from one to another, the `most` heaviest of each piece.

    `members`: nodes sorted by piece.
    """
    heard, met = np.zeros(pieces), np.empty(pieces, np.int32)
    starts = np.zeros(pieces + 1, np.int64)
    found, amount = np.empty(pieces * most, np.int32), np.empty(pieces * most)
    total, place = 0, 0
    for p in range(pieces):
        count = 0
        while place < len(members) and piece[members[place]] == p:
            u = members[place]
            place += 1
            for e in range(indptr[u], indptr[u + 1]):
                other = piece[indices[e]]
                if other != p:
                    if heard[other] == 0.0:
                        met[count] = other
                        count += 1
                    heard[other] += weights[e] if len(weights) else 1.0
        order = np.argsort(-heard[met[:count]], kind="mergesort")
        for i in order[:most]:
            found[total], amount[total] = met[i], heard[met[i]]
            total += 1
        for i in range(count):
            heard[met[i]] = 0.0
        starts[p + 1] = total
    return starts, found[:total].copy(), amount[:total].copy()
