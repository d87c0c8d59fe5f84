"""Cluster by label propagation, compiled: give nodes the label of their neighbours, then contract the clusters."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

# Passes end when fewer than one node in this many changes its label.
NODES_PER_MOVE = 200


@nb.njit(nogil=True, cache=True)
def join_neighbours(indptr: Any, indices: Any, weights: Any, start: Any, largest: int, passes: int) -> Any:
    """Return a label for every node [n]: each node in turn takes the heaviest label of its neighbours.

    A label with `largest` nodes is full and takes no more. Of equally heavy labels the node's own wins, then the one
    met first. Nodes are visited by number, which is the order of their arcs on disk. `start` holds the first labels.
    """
    num_nodes = len(indptr) - 1
    label, size = start.copy(), np.zeros(num_nodes, np.int32)
    label_weight, met = np.zeros(num_nodes), np.empty(num_nodes, np.int32)
    for u in range(num_nodes):
        size[label[u]] += 1
    for _ in range(passes):
        moved = 0
        for u in range(num_nodes):
            own, count = label[u], 0
            for e in range(indptr[u], indptr[u + 1]):
                other = label[indices[e]]
                if label_weight[other] == 0.0:
                    met[count] = other
                    count += 1
                label_weight[other] += weights[e] if len(weights) else 1.0
            best, heaviest = own, label_weight[own]
            for i in range(count):
                other = met[i]
                if label_weight[other] > heaviest and size[other] < largest:
                    best, heaviest = other, label_weight[other]
                label_weight[other] = 0.0
            if best != own:
                size[own] -= 1
                size[best] += 1
                label[u] = best
                moved += 1
        if moved * NODES_PER_MOVE < num_nodes:
            break
    return label


@nb.njit(nogil=True, cache=True)
def contract(indptr: Any, indices: Any, weights: Any, piece: Any, members: Any, pieces: int, most: int) -> Any:
    """Return the graph of the pieces as CSR (indptr, indices, weights); a weight sums the arcs between two pieces.

    Each piece keeps its `most` heaviest edges. `piece` is the piece of every node, `members` the nodes sorted by piece.
    """
    piece_weight, met = np.zeros(pieces), np.empty(pieces, np.int32)
    starts = np.zeros(pieces + 1, np.int64)
    targets, target_weights = np.empty(pieces * most, np.int32), np.empty(pieces * most)
    total, next_member = 0, 0
    for p in range(pieces):
        count = 0
        while next_member < len(members) and piece[members[next_member]] == p:
            u = members[next_member]
            next_member += 1
            for e in range(indptr[u], indptr[u + 1]):
                other = piece[indices[e]]
                if other != p:
                    if piece_weight[other] == 0.0:
                        met[count] = other
                        count += 1
                    piece_weight[other] += weights[e] if len(weights) else 1.0
        order = np.argsort(-piece_weight[met[:count]], kind="mergesort")
        for i in order[:most]:
            targets[total], target_weights[total] = met[i], piece_weight[met[i]]
            total += 1
        for i in range(count):
            piece_weight[met[i]] = 0.0
        starts[p + 1] = total
    return starts, targets[:total].copy(), target_weights[:total].copy()
