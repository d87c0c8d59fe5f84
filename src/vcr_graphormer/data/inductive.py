"""What an inductive training sees: the graph without validation and test nodes and their edges."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .graph import Graph
from .growth import subgraph
from .split import Split
from .tasks import name_classes


@dataclass(frozen=True, eq=False)
class Seen:
    """The part of a graph that is left when validation and test nodes are hidden.

    Attributes
    ----------
    graph : Graph
        Training nodes, nodes that belong to no part, and the edges between them. They are numbered anew.
    nodes : int64 [m]
        The number of each of them in the whole graph, ascending.
    train : int64
        The training nodes by their new numbers.
    """

    graph: Graph
    nodes: NDArray[np.int64]
    train: NDArray[np.int64]

    @classmethod
    def of(cls, graph: Graph, split: Split) -> Seen:
        """Hide the validation and test nodes of a split.

        >>> path = Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 4]], labels=[0, 1, 0, 1, 0])
        >>> seen = Seen.of(path, Split(train=[4, 1], val=[0], test=[2]))
        >>> seen.nodes.tolist(), seen.train.tolist(), seen.graph.num_edges
        ([1, 3, 4], [0, 2], 1)
        """
        hidden = np.concatenate([split.val, split.test])
        nodes = np.setdiff1d(np.arange(graph.num_nodes), hidden)
        # Classes stay those of the whole graph, even where no node that is left has one of them.
        names = None if graph.labels is None else tuple(name_classes(graph.class_names, graph.num_classes))
        return cls(replace(subgraph(graph, nodes), class_names=names), nodes, np.searchsorted(nodes, split.train))

    def places(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the new numbers of nodes that are seen."""
        return np.searchsorted(self.nodes, nodes)
