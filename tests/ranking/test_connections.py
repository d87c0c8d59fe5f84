"""Who is connected to which super node."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import graphs
from vcr_graphormer import (
    ConfigError,
    Connections,
    Graph,
    GraphError,
    content_connections,
    feature_connections,
    generate,
    structure_connections,
)


@pytest.mark.parametrize("make", graphs.TINY)
def test_structure_connects_every_node(make: Callable[[], Graph]) -> None:
    graph = make()
    for count in range(1, graph.num_nodes + 1):
        connections = structure_connections(graph, count)
        assert (connections.count, len(connections.assignment)) == (count, graph.num_nodes)
        assert connections.assignment.min() >= 0
        assert connections.sizes.sum() == graph.num_nodes
    assert structure_connections(graph, graph.num_nodes).sizes.tolist() == [1] * graph.num_nodes


def test_structure_finds_planted_communities_and_is_seeded() -> None:
    graph = generate(600, 6000, classes=3, homophily=0.95, seed=0)
    assert graph.labels is not None
    first = structure_connections(graph, 3, seed=0)
    table = np.zeros((3, 3))
    np.add.at(table, (first.assignment, graph.labels), 1)
    assert table.max(axis=1).sum() > 0.95 * 600
    np.testing.assert_array_equal(first.assignment, structure_connections(graph, 3, seed=0).assignment)
    mixed = generate(3000, 12_000, classes=3, homophily=0.5, seed=0)
    assert len({structure_connections(mixed, 20, seed=seed).assignment.tobytes() for seed in range(3)}) == 3


def test_structure_of_directed_and_weighted_graphs() -> None:
    one_way = Graph.from_edges([[0, 1, 2, 3, 4], [1, 2, 0, 4, 5]], num_nodes=6, directed=True)
    assert structure_connections(one_way, 2).sizes.tolist() == [3, 3]
    # Two heavy pairs on a ring of four: METIS cuts the light edges.
    ring = Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 0]], edge_weight=[100.0, 1.0, 100.0, 1.0])
    assignment = structure_connections(ring, 2).assignment
    assert assignment[0] == assignment[1] != assignment[2] == assignment[3]


def test_content_uses_training_labels_only() -> None:
    labels = np.array([0, 1, 2, 1, 0, 5])
    connections = content_connections(labels, [0, 1, 3])
    assert (connections.assignment.tolist(), connections.count) == ([0, 1, -1, 1, -1, -1], 2)
    changed = labels.copy()
    changed[[2, 4, 5]] = [0, 1, 9]
    other = content_connections(changed, [0, 1, 3])
    assert (other.assignment.tolist(), other.count) == (connections.assignment.tolist(), connections.count)
    # Class 1 has no training node: its super node has no member.
    assert content_connections(labels, [0, 2]).sizes.tolist() == [1, 0, 1]
    assert content_connections(labels, []).count == 0


def test_feature_clusters() -> None:
    features = np.repeat([[0.0, 0.0], [9.0, 9.0]], 20, axis=0) + np.random.default_rng(0).normal(0, 0.1, (40, 2))
    for form in (features, sp.csr_matrix(features)):
        assignment = feature_connections(form, 2, seed=1).assignment
        assert len(set(assignment[:20])) == len(set(assignment[20:])) == 1
        assert assignment[0] != assignment[20]
    np.testing.assert_array_equal(
        feature_connections(features, 5).assignment, feature_connections(features, 5).assignment
    )


def test_no_clusters_are_no_super_nodes() -> None:
    none = structure_connections(graphs.path(5), 0)
    assert (none.count, none.assignment.tolist()) == (0, [-1] * 5)


def test_bad_input() -> None:
    graph = graphs.path(5)
    for count, message in (
        (-1, "clusters is -1; it must lie between 1 and"),
        (6, r"number of nodes \(5\)"),
        (1.5, "1.5"),
    ):
        with pytest.raises(ConfigError, match=message):
            structure_connections(graph, count)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="clusters is 9"):
        feature_connections(np.ones((3, 2)), 9)
    with pytest.raises(GraphError, match="there are no features to cluster"):
        feature_connections(None, 2)
    with pytest.raises(GraphError, match="content connections need class ids"):
        content_connections([0.5, 1.5], [0])
    with pytest.raises(GraphError, match="train contains node 1, which has no label"):
        content_connections([0, -1], [0, 1])
    with pytest.raises(GraphError, match="train contains node 2 but labels has 2 entries"):
        content_connections([0, 1], [2])
    with pytest.raises(GraphError, match=r"assignment\[1\] is 3; it must lie between -1 and 1"):
        Connections(np.array([0, 3]), 2)
    with pytest.raises(GraphError, match="assignment has shape"):
        Connections(np.zeros((2, 2), dtype=np.int32), 1)
    with pytest.raises(ConfigError, match="count is -1"):
        Connections(np.array([-1], dtype=np.int32), -1)
    with pytest.raises(GraphError, match="assignment has 2 entries but the graph has 5 nodes"):
        Connections(np.zeros(2, dtype=np.int32), 1).check(5)
    assert repr(content_connections([0, 1, 1], [0, 2])) == "Connections(2 super nodes, 2 of 3 nodes connected)"
