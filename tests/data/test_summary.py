"""Summary numbers against slow twins and by hand."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tests.support import graphs, naive
from vcr_graphormer import Graph
from vcr_graphormer.data.summary import count_classes, label_homophily, summarize_features


def test_two_components_by_hand() -> None:
    summary = graphs.two_components().summary()
    assert (summary.nodes, summary.edges, summary.components, summary.largest_component) == (5, 4, 2, 3)
    assert (summary.isolated, summary.degree_quantiles["min"], summary.degree_quantiles["max"]) == (0, 1, 2)
    assert (summary.edge_homophily, summary.labelled, summary.classes) == (None, 0, 0)
    # indptr: 6 int64, indices: 8 int32
    assert summary.memory_bytes == 48 + 32


def test_text_names_everything_asked_for() -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]], num_nodes=4, labels=[0, 0, 1, -1], features=np.eye(4))
    text = str(graph.summary())
    for part in ("nodes", "edges", "4 dense float32", "2 classes, 3 nodes labelled", "isolated nodes", "components"):
        assert part in text
    assert "0.500 of edges" in text


@pytest.mark.parametrize("make", graphs.TINY)
def test_components_equal_naive(make: Callable[[], Graph]) -> None:
    graph = make()
    expected = naive.components(graph)
    summary = graph.summary()
    assert (summary.components, summary.largest_component) == (len(expected), max(map(len, expected)))


@given(graphs.edge_lists(), st.booleans(), st.data())
def test_homophily_and_isolated_equal_naive(
    case: tuple[int, list[tuple[int, int]]], directed: bool, data: st.DataObject
) -> None:
    n, edges = case
    labels = data.draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n))
    graph = Graph.from_edges(np.array(edges, dtype=np.int64).reshape(-1, 2).T, n, labels=labels, directed=directed)
    assert label_homophily(graph) == pytest.approx(naive.homophily(graph))
    touched = {node for edge in edges if edge[0] != edge[1] for node in edge}
    assert graph.summary().isolated == n - len(touched)
    assert graph.summary().components == len(naive.components(graph))


def test_features_and_classes_are_summed_up() -> None:
    nodes = {"id": ["a", "b", "c"], "x": [1.0, None, 3.0], "one": [7, 7, 7], "label": ["no", "yes", "no"]}
    graph = Graph.from_frames(nodes, {"source": ["a", "b"], "target": ["b", "c"]}, id="id", label="label")
    first, second = summarize_features(graph)
    assert (first.name, first.type, first.low, first.high, first.missing, first.constant) == (
        "x",
        "number",
        1,
        3,
        1,
        False,
    )
    assert (second.name, second.constant, second.missing) == ("one", True, 0)
    assert count_classes(graph) == {"no": 2, "yes": 1}
    sparse = Graph.from_edges([[0], [1]], features=sp.csr_matrix([[0.0, 2.0], [0.0, -1.0]]))
    assert [(row.low, row.high) for row in summarize_features(sparse)] == [(0, 0), (-1, 2)]
    several = Graph.from_edges([[0], [1]], labels=[[1, 0], [1, 1]], task="multilabel")
    assert count_classes(several) == {"0": 2, "1": 1}
    assert (summarize_features(several), count_classes(sparse)) == ([], {})
