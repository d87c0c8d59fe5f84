"""Labels around a node, against dense powers; its own label leaves no trace in them, not one bit."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import graphs, naive
from vcr_graphormer import Graph
from vcr_graphormer.data.tasks import TASKS
from vcr_graphormer.model import labels
from vcr_graphormer.model.batches import Inputs
from vcr_graphormer.model.labels import label_hops, label_matrix, label_width, labels_around, power_diagonal
from vcr_graphormer.tokens.hops import normalized_adjacency
from vcr_graphormer.tokens.layout import Layout

NAN = float("nan")


def make_graph(n: int, edges: list[tuple[int, int]], seed: int, directed: bool, weighted: bool = False) -> Graph:
    """A graph of three classes, some labels unknown."""
    generator = np.random.default_rng(seed)
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    weights = generator.random(len(edges)) + 0.1 if weighted else None
    classes = generator.integers(-1, 3, n)
    return Graph.from_edges(pairs, n, weights, labels=classes, class_names=["a", "b", "c"], directed=directed)


@settings(deadline=None)
@given(graphs.edge_lists(), st.integers(0, 99), st.booleans(), st.booleans(), st.booleans())
def test_label_hops_equal_dense_powers_without_the_diagonal(
    case: tuple[int, list[tuple[int, int]]], seed: int, directed: bool, weighted: bool, self_loops: bool
) -> None:
    graph = make_graph(*case, seed, directed, weighted)
    known = label_matrix(graph, np.arange(0, graph.num_nodes, 2))
    found = label_hops(graph, known, 4, self_loops)
    step = naive.step_matrix(graph, self_loops)
    for power, (mine, theirs) in enumerate(zip(found, naive.label_hops(graph, known, 4, self_loops), strict=True), 1):
        assert mine.dtype == np.float32
        np.testing.assert_allclose(mine, theirs, atol=2e-6)
        matrix = np.linalg.matrix_power(step, power)
        np.testing.assert_allclose(mine, matrix @ known - np.diag(matrix)[:, None] * known, atol=2e-6)


@settings(deadline=None, max_examples=60)
@given(graphs.edge_lists(max_nodes=9), st.integers(0, 99), st.booleans(), st.booleans(), st.booleans())
def test_the_own_label_leaves_no_bit(
    case: tuple[int, list[tuple[int, int]]], seed: int, directed: bool, weighted: bool, self_loops: bool
) -> None:
    graph = make_graph(*case, seed, directed, weighted)
    train = np.arange(graph.num_nodes)
    before = label_hops(graph, label_matrix(graph, train), 4, self_loops)
    for node in train:
        for other in (-1, 0, 1, 2):
            flipped = np.array(graph.labels)
            flipped[node] = other
            after = label_hops(graph, label_matrix(replace(graph, labels=flipped), train), 4, self_loops)
            for first, second in zip(before, after, strict=True):
                assert first[node].tobytes() == second[node].tobytes(), (node, other, first[node], second[node])


@settings(deadline=None, max_examples=60)
@given(graphs.edge_lists(max_nodes=9), st.integers(0, 99), st.booleans(), st.booleans())
def test_the_own_label_changes_no_value(
    case: tuple[int, list[tuple[int, int]]], seed: int, directed: bool, self_loops: bool
) -> None:
    graph = make_graph(*case, seed, directed)
    known = label_matrix(graph, np.arange(graph.num_nodes))
    before = label_hops(graph, known, 4, self_loops)
    for node in range(graph.num_nodes):
        changed = known.copy()
        changed[node] = np.roll(known[node], 1)
        for first, second in zip(before, label_hops(graph, changed, 4, self_loops), strict=True):
            assert first[node].tolist() == second[node].tolist()


def draw_ids(graph: Graph, seed: int) -> np.ndarray:
    """Four neighbours of each node, drawn at random: padding, nodes, the target too."""
    return np.random.default_rng(seed).integers(-1, graph.num_nodes, (graph.num_nodes, 4)).astype(np.int32)


def around_neighbours(graph: Graph, known: np.ndarray, ids: np.ndarray, self_loops: bool) -> np.ndarray:
    """The labels around neighbours as batches have them."""
    sums, weights = labels_around(graph, known, ids, self_loops)
    inputs = Inputs(
        features=torch.zeros(len(ids), 1),
        hops=(),
        ids=(torch.from_numpy(ids),),
        scores=(torch.zeros(ids.shape),),
        layout=Layout(0, {"structure": ids.shape[1]}),
        device=torch.device("cpu"),
        rich_labels=(torch.from_numpy(sums), torch.from_numpy(weights), torch.from_numpy(known)),
    )
    around = inputs.batch(torch.arange(len(ids)), with_rows=False).labels_around
    assert around is not None
    return around.numpy()


@settings(deadline=None)
@given(graphs.edge_lists(), st.integers(0, 99), st.booleans(), st.booleans(), st.booleans())
def test_labels_around_neighbours_equal_sums_over_all_but_the_target(
    case: tuple[int, list[tuple[int, int]]], seed: int, directed: bool, weighted: bool, self_loops: bool
) -> None:
    graph = make_graph(*case, seed, directed, weighted)
    known, ids = label_matrix(graph, np.arange(0, graph.num_nodes, 2)), draw_ids(graph, seed)
    found = around_neighbours(graph, known, ids, self_loops)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, naive.labels_around(graph, known, ids, self_loops), atol=2e-6)


@settings(deadline=None, max_examples=60)
@given(graphs.edge_lists(max_nodes=9), st.integers(0, 99), st.booleans(), st.booleans(), st.booleans())
def test_the_targets_label_leaves_no_bit_around_its_neighbours(
    case: tuple[int, list[tuple[int, int]]], seed: int, directed: bool, weighted: bool, self_loops: bool
) -> None:
    graph = make_graph(*case, seed, directed, weighted)
    train, ids = np.arange(graph.num_nodes), draw_ids(graph, seed)
    before = around_neighbours(graph, label_matrix(graph, train), ids, self_loops)
    for node in train:
        for other in (-1, 0, 1, 2):
            flipped = np.array(graph.labels)
            flipped[node] = other
            known = label_matrix(replace(graph, labels=flipped), train)
            after = around_neighbours(graph, known, ids, self_loops)
            assert before[node].tobytes() == after[node].tobytes(), (node, other)


def test_literal_labels_around_the_neighbours_of_a_path() -> None:
    # 0 - 1 - 2: node 0 sees around 1 the label of 2, and around 2 nothing, for its only neighbour has no label.
    graph = replace(graphs.path(3), labels=np.array([0, 1, 1]))
    known = label_matrix(graph, np.array([0, 2]))
    found = around_neighbours(graph, known, np.array([[1, 2], [0, 2], [1, -1]], np.int32), False)
    root = math.sqrt(0.5)
    expected = [[[0.0, root], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]], [[root, 0.0], [0.0, 0.0]]]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("around", [(3, 3, 7), (3, 5, 6), (3, 3, 3)])
def test_the_own_label_does_not_decide_how_a_half_is_rounded(around: tuple[int, ...]) -> None:
    # The only walk from node 0 to the other labelled node, 4, weighs 2^-21: half of the grid that hops are kept on.
    # What float64 leaves of the own label, which comes back by nodes of odd degree, must not tip it over.
    edges = [(0, 1), (1, 2), (2, 3), (3, 4)]
    degrees = [1, 2, 2, 2, 1]
    count = 5
    for degree in around:
        middle, count = count, count + degree
        edges += [(0, middle), *((middle, leaf) for leaf in range(middle + 1, count))]
        degrees[0] += 1
    for node, degree in enumerate((8, 32, 32, 128, 32)):
        edges += [(node, leaf) for leaf in range(count, count + degree - degrees[node])]
        count += degree - degrees[node]
    graph = Graph.from_edges(np.array(edges).T, count)
    assert graph.degrees[:5].tolist() == [8, 32, 32, 128, 32]
    known = np.zeros((count, 2), dtype=np.float32)
    known[4, 1] = 1.0
    rows = []
    for own in ([0.0, 0.0], [1.0, 0.0], [0.0, 1.0]):
        known[0] = own
        rows.append(label_hops(graph, known, 4)[3][0].tolist())
    assert rows[0] == rows[1] == rows[2]


@settings(deadline=None)
@given(graphs.edge_lists(), st.integers(1, 4), st.booleans(), st.booleans())
def test_power_diagonal_is_the_diagonal_of_the_power(
    case: tuple[int, list[tuple[int, int]]], power: int, directed: bool, self_loops: bool
) -> None:
    graph = make_graph(*case, 0, directed)
    step = normalized_adjacency(graph, self_loops).astype(np.float64)
    expected = np.diag(np.linalg.matrix_power(naive.step_matrix(graph, self_loops), power))
    np.testing.assert_allclose(power_diagonal(step, power), expected, atol=1e-6)


def test_blocks_of_rows_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    step = normalized_adjacency(graphs.karate_club()).astype(np.float64)
    whole = [power_diagonal(step, power) for power in (1, 2, 3, 4)]
    monkeypatch.setattr(labels, "_ROWS_AT_ONCE", 5)
    for power, diagonal in enumerate(whole, 1):
        assert power_diagonal(step, power).tolist() == diagonal.tolist()


def test_blocks_of_targets_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graphs.karate_club()
    known, ids = np.eye(34, 2, dtype=np.float32), draw_ids(graph, 0)
    _, whole = labels_around(graph, known, ids)
    monkeypatch.setattr(labels, "_ROWS_AT_ONCE", 5)
    assert labels_around(graph, known, ids)[1].tolist() == whole.tolist()
    assert whole.any()


def test_literal_label_hops_of_a_path() -> None:
    # 0 - 1 - 2 with degrees 1, 2, 1: P(0, 1) = 1/√2. Two steps from 0 lead to 2 with weight 1/2, and back to 0.
    graph = replace(graphs.path(3), labels=np.array([0, 1, 1]))
    one, two = label_hops(graph, label_matrix(graph, np.array([0, 2])), 2)
    root = math.sqrt(0.5)
    np.testing.assert_allclose(one, [[0.0, 0.0], [root, root], [0.0, 0.0]], atol=1e-6)
    np.testing.assert_allclose(two, [[0.0, 0.5], [0.0, 0.0], [0.5, 0.0]], atol=1e-6)
    assert label_hops(graph, label_matrix(graph, np.array([0])), 0) == []


def test_a_directed_graph_looks_along_its_arcs() -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]], labels=[0, 1, 0], directed=True)
    one, two = label_hops(graph, label_matrix(graph, np.arange(3)), 2)
    assert one.tolist() == [[0, 1], [1, 0], [0, 0]]
    assert two.tolist() == [[1, 0], [0, 0], [0, 0]]


def test_classes() -> None:
    graph = Graph.from_edges([[0], [1]], num_nodes=5, labels=[2, 0, -1, 1, 1])
    assert label_width(graph) == 3
    known = label_matrix(graph, np.array([0, 2, 3]))  # of which 2 has no label
    assert known.tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert known.dtype == np.float32
    assert not label_matrix(graph, np.empty(0, dtype=np.int64)).any()


def test_multilabel() -> None:
    rows = [[1, 0, -1], [-1, -1, -1], [1, 1, 1], [-1, 1, 0]]
    graph = Graph.from_edges([[0], [1]], num_nodes=4, labels=rows)
    assert label_width(graph) == 3
    known = label_matrix(graph, np.array([0, 1, 3]))
    assert known.tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_regression() -> None:
    graph = Graph.from_edges([[0], [1]], num_nodes=5, labels=[1.0, 3.0, NAN, 100.0, 5.0], task="regression")
    train = np.array([0, 1, 2, 4])
    scale = TASKS["regression"].scale(np.asarray(graph.labels), train)
    assert scale is not None
    mean, spread = scale
    assert (mean.tolist(), spread.tolist()) == ([3.0], [pytest.approx((8 / 3) ** 0.5)])
    assert label_width(graph) == 2
    # Inputs are scaled by the nearest power of two, 2, so that one node's own target does not move the scale.
    expected: list[list[float]] = [[-1, 1], [0, 1], [0, 0], [0, 0], [1, 1]]
    np.testing.assert_allclose(label_matrix(graph, train), expected, atol=1e-6)


def test_regression_with_several_targets() -> None:
    rows = [[1.0, 7.0], [3.0, NAN], [NAN, NAN], [5.0, 7.0]]
    graph = Graph.from_edges([[0], [1]], num_nodes=4, labels=rows, task="regression")
    assert label_width(graph) == 3
    # The second target is the same everywhere: its spread counts as 1.
    expected: list[list[float]] = [[-1, 0, 1], [0, 0, 1], [0, 0, 0], [1, 0, 1]]
    np.testing.assert_allclose(label_matrix(graph, np.arange(4)), expected, atol=1e-6)


@pytest.mark.parametrize("train", [[0, 1], []])
def test_a_target_that_no_training_node_knows(train: list[int]) -> None:
    rows: Any = [[1.0, NAN], [3.0, NAN], [0.0, 2.0]]
    graph = Graph.from_edges([[0], [1]], num_nodes=3, labels=rows, task="regression")
    known = label_matrix(graph, np.array(train, dtype=np.int64))
    assert np.isfinite(known).all()
    assert known[:, 1].tolist() == [0, 0, 0]
