"""The embedded digits and generated communities have the properties they promise."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from vcr_graphormer import ConfigError, digits, generate
from vcr_graphormer.data.datasets import DIGITS


def test_digits_are_the_real_images() -> None:
    graph = digits()
    images, labels = load_digits(return_X_y=True)
    np.testing.assert_array_equal(graph.features, (images / 16).astype(np.float32))
    np.testing.assert_array_equal(graph.labels, labels)
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == tuple(DIGITS)
    assert (graph.num_edges, graph.degrees.max()) == (5631, 10)


def test_digits_link_mutual_nearest_neighbours_only() -> None:
    graph = digits(neighbours=4)
    images = load_digits().data
    for u in (0, 500, 1796):
        mine = set(np.argsort(((images - images[u]) ** 2).sum(axis=1), kind="stable")[1:5].tolist())
        for v in graph.indices[graph.indptr[u] : graph.indptr[u + 1]]:
            theirs = np.argsort(((images - images[v]) ** 2).sum(axis=1), kind="stable")[1:5]
            assert v in mine
            assert u in theirs


@settings(deadline=None)
@given(
    st.integers(8, 60),
    st.integers(1, 4),
    st.sampled_from([0.2, 0.5, 0.9]),
    st.integers(0, 3),
)
def test_exact_number_of_edges(nodes: int, classes: int, homophily: float, seed: int) -> None:
    classes = min(classes, nodes)
    edges = nodes // 6  # few enough to fit inside every community
    graph = generate(nodes, edges, classes, homophily if classes > 1 else 1.0, seed, features=3)
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (nodes, edges, 3)
    assert graph.labels is not None
    assert set(graph.labels.tolist()) == set(range(classes))


@pytest.mark.parametrize("homophily", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("communities", [None, 40])
def test_homophily_is_the_one_asked_for(homophily: float, communities: int | None) -> None:
    graph = generate(5000, 40_000, classes=5, homophily=homophily, seed=2, communities=communities)
    measured = graph.summary().edge_homophily
    assert measured is not None
    assert measured == pytest.approx(homophily, abs=1e-9)


def test_degrees_are_skewed_and_features_tell_classes() -> None:
    graph = generate(5000, 40_000, classes=4, seed=0)
    assert graph.degrees.max() > 10 * graph.degrees.mean()
    features, labels = np.asarray(graph.features), np.asarray(graph.labels)
    centres = np.stack([features[labels == c].mean(axis=0) for c in range(4)])
    nearest = ((features[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == labels).mean() > 0.5


def test_same_seed_same_graph() -> None:
    assert generate(200, 600, seed=5).fingerprint == generate(200, 600, seed=5).fingerprint
    assert generate(200, 600, seed=5).fingerprint != generate(200, 600, seed=6).fingerprint
    # Fixed for ever: recorded benchmarks name a seed.
    assert generate(200, 600, seed=5, features=0).fingerprint == "244a578f8739bd35650892098d917416"


def test_shuffle_hides_the_order_of_drawing() -> None:
    labels = generate(1000, 3000, classes=2, seed=1).labels
    assert labels is not None
    assert 400 < int(labels[:500].sum() + (1 - labels[500:]).sum()) < 600


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nodes": 0, "edges": 0}, "nodes is 0; it must be at least 1"),
        ({"nodes": 5, "edges": 11, "classes": 2}, "edges is 11; 5 nodes can have between 0 and 10"),
        ({"nodes": 5, "edges": 1, "classes": 6}, r"classes is 6; it must be between 1 and nodes \(5\)"),
        ({"nodes": 5, "edges": 1, "classes": 2, "homophily": 1.5}, "homophily is 1.5"),
        ({"nodes": 5, "edges": 1, "classes": 1}, "with one class every edge is inside"),
        ({"nodes": 5, "edges": 1, "classes": 2, "communities": 1}, "communities is 1; it must be between classes"),
        ({"nodes": 5, "edges": 1, "classes": 2, "features": -1}, "features is -1"),
        ({"nodes": 5, "edges": 1, "classes": 2, "degree_exponent": 2.0}, "degree_exponent is 2.0"),
        ({"nodes": 5, "edges": 1, "classes": 2, "homophily": "a"}, "homophily is 'a'"),
        ({"nodes": 5, "edges": 1, "classes": 2, "seed": -1}, "seed is -1"),
        ({"nodes": 10, "edges": 40, "classes": 5, "homophily": 1.0}, "only 5 of 40 distinct edges inside groups"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        generate(**arguments)


def test_digits_do_not_depend_on_the_number_of_threads() -> None:
    script = "import vcr_graphormer; print(vcr_graphormer.digits().fingerprint)"
    prints = set()
    for threads in ("1", "4"):
        environment = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        run = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        prints.add(run.stdout)
    assert prints == {digits().fingerprint + "\n"}
    with pytest.raises(ConfigError, match="neighbours is 0; it must lie between 1 and 1796"):
        digits(0)
