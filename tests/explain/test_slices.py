"""Accuracy by class, degree and homophily, calibration: literal values."""

import numpy as np
import pytest

from tests.support import naive
from tests.support.graphs import karate_club
from vcr_graphormer import Graph
from vcr_graphormer.explain.slices import (
    Slice,
    by_class,
    by_degree,
    by_homophily,
    calibration,
    confusion,
    local_homophily,
)


def test_local_homophily_equals_a_loop() -> None:
    graph = karate_club()
    labels = np.arange(graph.num_nodes) % 3 - 1  # a third has none
    graph = Graph.from_scipy(graph.to_scipy(), labels=labels)
    nodes = np.array([33, 0, 5])
    for node, found in zip(nodes, local_homophily(graph, nodes), strict=True):
        around = [labels[other] for one, other in naive.arcs(graph) if one == node and labels[other] >= 0]
        expected = float("nan") if labels[node] < 0 or not around else np.mean([x == labels[node] for x in around])
        assert found == pytest.approx(expected, nan_ok=True)
    assert np.isnan(local_homophily(Graph.from_edges([[0], [1]], num_nodes=3, labels=[0, 1, 1]), np.array([2])))[0]


def test_slices() -> None:
    right = np.array([True, False, True, True])
    assert by_class(np.array([0, 0, 2, 2]), right, ["a", "b", "c"]) == [Slice("a", 2, 0.5), Slice("c", 2, 1.0)]
    assert by_degree(np.array([0, 3, 2, 17]), right) == [
        Slice("0", 1, 1.0),
        Slice("2 to 3", 2, 0.5),
        Slice("16 to 31", 1, 1.0),
    ]
    shares = np.array([0.0, 1.0, 0.2, np.nan])
    assert by_homophily(shares, right) == [
        Slice("0.0 to 0.2", 1, 1.0),
        Slice("0.2 to 0.4", 1, 1.0),
        Slice("0.8 to 1.0", 1, 0.0),
    ]


def test_confusion() -> None:
    assert confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 3).tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0]]


def test_calibration() -> None:
    probabilities = np.array([[0.95, 0.05], [0.05, 0.95], [0.6, 0.4], [1.0, 0.0]], dtype=np.float32)
    found = calibration(probabilities, np.array([0, 0, 0, 0]))
    assert [(row["low"], row["high"], row["count"]) for row in found["bins"]] == [(0.6, 0.7, 1), (0.9, 1.0, 3)]
    assert found["bins"][1]["accuracy"] == pytest.approx(2 / 3)
    assert found["error"] == pytest.approx((0.4 * 1 + (2.9 / 3 - 2 / 3) * 3) / 4)
