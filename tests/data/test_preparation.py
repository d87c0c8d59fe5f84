"""Features on different scales are standardized by training nodes alone; bags of words stay as they are."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import vcr_graphormer as vcr
from vcr_graphormer import ConfigError, DataConfig, Graph, GraphError, StoreError
from vcr_graphormer.data.preparation import MOST_DIFFERENT, PREPARATION_FILE, Preparation, spread

TRAIN = np.arange(4)


def graph_of(*columns: list[float]) -> Graph:
    return Graph.from_edges([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]], features=np.array(columns).T, labels=[0, 1, 0, 1, 0])


def test_columns_are_standardized_by_training_nodes() -> None:
    graph = graph_of([1, 3, 1, 3, 9], [0, 1e6, 0, 1e6, 5e5], [7, 7, 7, 7, 8])
    found = Preparation.learn(graph, TRAIN, DataConfig()).apply(graph)
    assert np.asarray(found.features).tolist() == [[-1, -1, 0], [1, 1, 0], [-1, -1, 0], [1, 1, 0], [7, 0, 0]]
    assert found.fingerprints["adjacency"] == graph.fingerprints["adjacency"]
    assert Preparation.learn(graph, TRAIN, DataConfig(scale="none")).apply(graph) is graph


def test_rows_of_other_nodes_are_not_read() -> None:
    rows = ([1, 3, 1, 3], [0, 1e6, 0, 1e6])
    one, other = (
        Preparation.learn(graph_of(*([*row, last] for row in rows)), TRAIN, DataConfig()) for last in (0, 1e9)
    )
    assert one.mean is not None
    assert other.mean is not None
    assert one.mean.tolist() == other.mean.tolist() == [2, 5e5]


@pytest.mark.parametrize(
    ("means", "deviations", "expected"),
    [
        ([0, 0], [1, 1], 1),
        ([0, 2000], [1, 5], 2000),  # a year beside a standardized column
        ([0, 0, 0], [1, 1e6, 1e6], 1e6),
        ([0, 0], [1e3, 1e3], 1e3),  # equal, but far from what weights start for
        ([0, 0], [1e-3, 1e-2], 10),
        ([5, 0], [0, 1], 1),  # a constant column does not count
        ([5, 5], [0, 0], 0),
    ],
)
def test_spread(means: list[float], deviations: list[float], expected: float) -> None:
    assert spread(np.array(means, dtype=float), np.array(deviations, dtype=float)) == expected


def test_auto_leaves_similar_columns_and_sparse_features() -> None:
    similar = graph_of([1, 3, 1, 3, 9], [0, 10, 0, 10, 5])
    assert Preparation.learn(similar, TRAIN, DataConfig()).empty
    assert not Preparation.learn(similar, TRAIN, DataConfig(scale="standard")).empty
    sparse = replace(similar, features=sp.csr_matrix([[1e6], [0], [0], [1], [2]], dtype=np.float32))
    assert Preparation.learn(sparse, TRAIN, DataConfig()).empty
    with pytest.raises(ConfigError, match="sparse features would become dense"):
        Preparation.learn(sparse, TRAIN, DataConfig(scale="standard"))
    with pytest.raises(ConfigError, match="data.scale is 'big'; it must be auto or none or standard"):
        Preparation.learn(similar, TRAIN, DataConfig(scale="big"))


def test_digits_and_generated_features_stay() -> None:
    for graph in (vcr.digits(), vcr.generate(300, 600, features=12, seed=3)):
        assert Preparation.learn(graph, vcr.Split.random(graph.labels, seed=0).train, DataConfig()).empty


@pytest.mark.skipif("VCR_DATA" not in os.environ, reason="real datasets: set VCR_DATA to the folder of their raw files")
@pytest.mark.parametrize(("name", "largest"), [("Computer", 1.5), ("Actor", 20), ("CiteSeer", 20), ("Tolokers", 10)])
def test_published_features_are_far_from_the_limit(name: str, largest: float) -> None:
    graph = vcr.load_dataset(name, os.environ["VCR_DATA"])
    matrix: sp.csr_matrix = sp.csr_matrix(graph.features)
    mean = np.asarray(matrix.mean(0)).ravel()
    deviation = np.sqrt(np.maximum(np.asarray(matrix.multiply(matrix).mean(0)).ravel() - mean**2, 0))
    assert spread(mean, deviation) < largest < MOST_DIFFERENT
    assert Preparation.learn(graph, np.arange(1000), DataConfig()).empty


def test_it_is_kept_in_a_file(tmp_path: Path) -> None:
    Preparation().save(tmp_path)
    assert not (tmp_path / PREPARATION_FILE).exists()
    assert Preparation.open(tmp_path).empty
    graph = graph_of([1, 3, 1, 3, 9], [0, 1e6, 0, 1e6, 1 / 3])
    Preparation.learn(graph, TRAIN, DataConfig()).save(tmp_path)
    again = Preparation.open(tmp_path)
    assert again.apply(graph).fingerprint == Preparation.learn(graph, TRAIN, DataConfig()).apply(graph).fingerprint
    with pytest.raises(GraphError, match="the graph has 1 features, but 2 dense ones were standardized"):
        again.apply(graph_of([1, 2, 3, 4, 5]))
    (tmp_path / PREPARATION_FILE).write_text(json.dumps({"version": 99}))
    with pytest.raises(StoreError, match="has another format"):
        Preparation.open(tmp_path)


def test_features_of_a_graph_without_any(tmp_path: Path) -> None:
    graph = replace(graph_of([1, 2, 3, 4, 5]), features=None)
    found = Preparation.learn(graph, TRAIN, DataConfig())
    assert found.apply(graph).fingerprint == graph.with_features("degree").fingerprint
    found.save(tmp_path)
    assert Preparation.open(tmp_path).made == "degree"
    assert Preparation.learn(graph, TRAIN, DataConfig(features="identity")).apply(graph).num_features == 5
    assert Preparation.learn(graph, TRAIN, DataConfig(features="given")).apply(graph) is graph
