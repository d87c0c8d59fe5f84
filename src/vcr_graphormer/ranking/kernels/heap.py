"""Keep the k best entries seen so far: a compiled heap in two arrays, whose root is the worst entry."""

from __future__ import annotations

from .push import jit


@jit
def worse(score, node, i, j):
    """Return whether entry i ranks behind entry j: it has a smaller score, or the same score and a larger id."""
    return score[i] < score[j] or (score[i] == score[j] and node[i] > node[j])


@jit
def swap(score, node, i, j):
    """Exchange two entries."""
    score[i], score[j] = score[j], score[i]
    node[i], node[j] = node[j], node[i]


@jit
def sink(score, node, size, i):
    """Move entry i down until no child is worse than it."""
    while True:
        child = 2 * i + 1
        if child >= size:
            return
        if child + 1 < size and worse(score, node, child + 1, child):
            child += 1
        if not worse(score, node, child, i):
            return
        swap(score, node, child, i)
        i = child


@jit
def offer(score, node, size, x, v):
    """Add node v with score x if it is among the len(score) best so far; return the new size."""
    if size < len(score):
        i = size
        score[i], node[i] = x, v
        while i > 0 and worse(score, node, i, (i - 1) // 2):
            swap(score, node, i, (i - 1) // 2)
            i = (i - 1) // 2
        return size + 1
    if x > score[0] or (x == score[0] and v < node[0]):
        score[0], node[0] = x, v
        sink(score, node, size, 0)
    return size


@jit
def unload(score, node, size, out_node, out_score):
    """Move all entries of the heap to a row, best first."""
    for i in range(size - 1, -1, -1):
        out_node[i], out_score[i] = node[0], score[0]
        score[0], node[0] = score[i], node[i]
        sink(score, node, i, 0)
