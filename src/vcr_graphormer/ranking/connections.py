"""Super nodes, one per METIS cluster, training label or feature cluster: which nodes each is linked to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import is_whole, seed_within, to_numpy, to_whole_numbers
from ..data.contract import check_features
from ..data.graph import Graph
from ..errors import ConfigError, GraphError, unknown_name

PARTITIONERS = ("metis", "kaminpar", "propagation")
# Of MiniBatchKMeans: batches, of scikit-learn's default size, keep memory flat; the best of three starts is taken.
_BATCH, _KMEANS_STARTS = 1024, 3
LARGEST_RANDOM_STATE = 2**32 - 1  # the largest seed that scikit-learn and pynndescent take


@dataclass(frozen=True, eq=False)
class Connections:
    """Virtual connections of a graph: super node s is linked to every node v with `assignment[v] == s`.

    Attributes
    ----------
    assignment : int32 [n]
        The super node of each node, -1 for none.
    count : int
        Number of super nodes (the paper's s̄ or ŝ); some may have no members.
    """

    assignment: NDArray[np.int32]
    count: int

    def __post_init__(self) -> None:
        values = to_numpy(self.assignment, "assignment")
        if values.ndim != 1:
            raise GraphError(f"assignment has shape {list(values.shape)}; it must be [n]")
        values = to_whole_numbers(values, "assignment")
        if self.count < 0:
            raise ConfigError(f"count is {self.count}; it must be 0 or more")
        wrong = (values < -1) | (values >= self.count)
        if wrong.any():
            node = int(np.flatnonzero(wrong)[0])
            raise GraphError(f"assignment[{node}] is {values[node]}; it must lie between -1 and {self.count - 1}")
        object.__setattr__(self, "assignment", np.ascontiguousarray(values, dtype=np.int32))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of members of each super node."""
        return np.bincount(self.assignment[self.assignment >= 0], minlength=self.count)

    def check(self, num_nodes: int) -> Connections:
        """Raise if the graph has another number of nodes; return the connections."""
        if len(self.assignment) != num_nodes:
            raise GraphError(f"assignment has {len(self.assignment)} entries but the graph has {num_nodes} nodes")
        return self

    def __repr__(self) -> str:
        members = int((self.assignment >= 0).sum())
        return f"Connections({self.count} super nodes, {members:,} of {len(self.assignment):,} nodes connected)"


def connections_of(connections: Any, num_nodes: int) -> Connections:
    """Return the connections that a caller gives, or none for None; refuse anything else, such as a list of sources."""
    if connections is None:
        return no_connections(num_nodes)
    if not isinstance(connections, Connections):
        raise GraphError(
            f"connections is a {type(connections).__name__}; it must be Connections, or None for none: give nodes to "
            f"rank by sources="
        )
    return connections.check(num_nodes)


def no_connections(num_nodes: int) -> Connections:
    """Return connections without any super node: the graph as it is."""
    return Connections(np.full(num_nodes, -1, dtype=np.int32), 0)


def structure_connections(
    graph: Graph,
    count: int,
    seed: int = 0,
    recursive: bool = False,
    partitioner: str = "metis",
    *,
    threads: int = 1,
) -> Connections:
    """Connect every node to the super node of its cluster, `count` clusters in all; 0 gives no super nodes.

    Parameters
    ----------
    recursive
        Bisect recursively instead of METIS's k-way scheme: faster for many clusters, but it cuts a few more edges.
    partitioner : "metis", "kaminpar" or "propagation"
        The memory of `metis` and `kaminpar` grows with the arcs, that of `propagation` with the nodes. KaMinPar is
        faster than METIS and cuts fewer edges; it has to be installed. Both ignore the direction of arcs.
    threads
        Only KaMinPar uses more than one, from 2^25 arcs on. It then finds other clusters every time.

    >>> from vcr_graphormer import Graph
    >>> structure_connections(Graph.from_edges([[0, 1, 3, 4], [1, 2, 4, 5]], num_nodes=6), count=2).sizes.tolist()
    [3, 3]
    """
    if is_whole(count, plain=True) and count == 0:
        return no_connections(graph.num_nodes)
    _check_count(count, "clusters", num_nodes=graph.num_nodes)
    if partitioner not in PARTITIONERS:
        raise unknown_name("partitioner", str(partitioner), PARTITIONERS)
    if count in (1, graph.num_nodes) or graph.num_arcs == 0:
        # There is nothing to choose, and METIS fails on some of these graphs.
        return Connections((np.arange(graph.num_nodes) % count).astype(np.int32), count)
    from .partitioners import cut_by_kaminpar, cut_by_metis, cut_by_propagation

    if partitioner == "kaminpar":
        return Connections(cut_by_kaminpar(graph, count, seed, threads=threads), count)
    if partitioner == "propagation":
        return Connections(cut_by_propagation(graph, count, seed), count)
    return Connections(cut_by_metis(graph, count, seed, recursive=recursive), count)


def content_connections(labels: Any, train: Any) -> Connections:
    """Connect the training nodes of each label to a super node, and no other node.

    The labels of other nodes are never read, so none can leak.
    """
    values, nodes = to_numpy(labels, "labels"), to_numpy(train, "train")
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise GraphError(
            f"labels is {values.dtype} of shape {list(values.shape)}; content connections need class ids [n]: "
            f"use feature_connections"
        )
    nodes = to_whole_numbers(nodes, "train")
    if nodes.size and not 0 <= int(nodes.min()) <= int(nodes.max()) < len(values):
        raise GraphError(f"train contains node {nodes.max()} but labels has {len(values)} entries")
    train_labels = values[nodes]
    if (train_labels < 0).any():
        raise GraphError(f"train contains node {nodes[train_labels < 0][0]}, which has no label")
    assignment = np.full(len(values), -1, dtype=np.int32)
    assignment[nodes] = train_labels
    return Connections(assignment, int(train_labels.max(initial=-1)) + 1)


def feature_connections(features: Any, count: int, seed: int = 0) -> Connections:
    """Connect every node to the super node of its k-means cluster of features, a pseudo-label."""
    from sklearn.cluster import MiniBatchKMeans

    if features is None:
        raise GraphError("there are no features to cluster: give the graph features or leave out content tokens")
    num_nodes = features.shape[0] if hasattr(features, "shape") else len(features)
    matrix = check_features(features, num_nodes)
    _check_count(count, "clusters", num_nodes=num_nodes)
    if not sp.issparse(matrix):
        matrix = np.asarray(matrix, dtype=np.float32)
    # Unlike full k-means, the result does not depend on the number of threads.
    start = seed_within(seed, LARGEST_RANDOM_STATE)
    model = MiniBatchKMeans(count, batch_size=_BATCH, n_init=_KMEANS_STARTS, random_state=start)
    return Connections(model.fit_predict(matrix).astype(np.int32), count)


def _check_count(count: Any, what: str, *, num_nodes: int) -> None:
    if not is_whole(count):
        raise ConfigError(f"{what} is {count!r}; it must be a whole number")
    if not 1 <= count <= num_nodes:
        raise ConfigError(f"{what} is {count}; it must lie between 1 and the number of nodes ({num_nodes})")
