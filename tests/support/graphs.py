"""Tiny graphs whose every property is known by heart, and hypothesis strategies for random ones."""

import numpy as np
from hypothesis import strategies as st

from vcr_graphormer import Graph

# Zachary's karate club (1977): 34 members, 78 friendships, 1-based as in the original table.
_KARATE = (
    "2 1,3 1,3 2,4 1,4 2,4 3,5 1,6 1,7 1,7 5,7 6,8 1,8 2,8 3,8 4,9 1,9 3,10 3,11 1,11 5,11 6,12 1,13 1,13 4,14 1,14 2,"
    "14 3,14 4,17 6,17 7,18 1,18 2,20 1,20 2,22 1,22 2,26 24,26 25,28 3,28 24,28 25,29 3,30 24,30 27,31 2,31 9,32 1,"
    "32 25,32 26,32 29,33 3,33 9,33 15,33 16,33 19,33 21,33 23,33 24,33 30,33 31,33 32,34 9,34 10,34 14,34 15,34 16,"
    "34 19,34 20,34 21,34 23,34 24,34 27,34 28,34 29,34 30,34 31,34 32,34 33"
)


def path(n: int = 5) -> Graph:
    """0 - 1 - … - n-1."""
    return Graph.from_edges([range(n - 1), range(1, n)], num_nodes=n, name="path")


def star(leaves: int = 6) -> Graph:
    """Node 0 in the middle."""
    return Graph.from_edges([[0] * leaves, range(1, leaves + 1)], num_nodes=leaves + 1, name="star")


def two_components() -> Graph:
    """A triangle 0, 1, 2 and an edge 3 - 4."""
    return Graph.from_edges([[0, 1, 2, 3], [1, 2, 0, 4]], num_nodes=5, name="two components")


def isolated_node() -> Graph:
    """An edge 0 - 1 and node 2 alone."""
    return Graph.from_edges([[0], [1]], num_nodes=3, name="isolated node")


def single_node() -> Graph:
    return Graph.from_edges(np.empty((2, 0)), num_nodes=1, name="single node")


def karate_club() -> Graph:
    edges = np.array([[int(node) - 1 for node in pair.split()] for pair in _KARATE.split(",")])
    return Graph.from_edges(edges.T, num_nodes=34, name="karate club")


TINY = [path, star, two_components, isolated_node, single_node, karate_club]


@st.composite
def edge_lists(draw: st.DrawFn, max_nodes: int = 12, max_edges: int = 40) -> tuple[int, list[tuple[int, int]]]:
    """Any number of nodes and edges between them, self-loops and repetitions included."""
    n = draw(st.integers(1, max_nodes))
    node = st.integers(0, n - 1)
    return n, draw(st.lists(st.tuples(node, node), max_size=max_edges))
