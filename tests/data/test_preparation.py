"""Features are prepared by training nodes alone: missing values, constant columns, scales. Bags of words stay."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import vcr_graphormer as vcr
from vcr_graphormer import ConfigError, DataConfig, Graph, GraphError, StoreError
from vcr_graphormer.data.preparation import MOST_DIFFERENT, PREPARATION_FILE, Preparation, spread
from vcr_graphormer.data.schema import Column, Schema

TRAIN = np.arange(4)
NAN = float("nan")
NUMBERS = DataConfig(scale="none")


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


def table_of(*columns: list[float], types: str = "") -> Graph:
    """Return a graph of five nodes with features of a table: numbers, or types by their first letters."""
    words = {"n": "number", "f": "flag", "d": "date"}
    schema = Schema(tuple(Column(f"c{i}", words[types[i] if types else "n"]) for i in range(len(columns))))
    graph = graph_of(*([0.0] * 5 for _ in columns))
    rows = np.array(columns, dtype=np.float32).T
    return replace(graph, features=rows, feature_names=schema.feature_names, schema=schema)


def test_missing_values_become_the_median_and_a_column_says_where() -> None:
    graph = table_of([1, NAN, 3, 8, NAN], [2, 4, 6, 8, NAN])
    found = Preparation.learn(graph, TRAIN, NUMBERS)
    prepared = found.apply(graph)
    # No training node lacks the second column, so nothing can be learned from where it is missing.
    expected = [[1, 2, 0], [3, 4, 1], [3, 6, 0], [8, 8, 0], [3, 5, 1]]
    assert np.asarray(prepared.features).tolist() == expected
    assert np.asarray(prepared.features).dtype == np.float32
    assert prepared.feature_names == ("c0", "c1", "c0=missing")
    assert prepared.schema is None
    assert not found.standardizes
    assert np.isnan(np.asarray(graph.features)).sum() == 3


def test_constant_and_empty_columns_of_a_table_become_zero() -> None:
    graph = table_of([7, 7, 7, 7, 8], [NAN, NAN, NAN, NAN, 5], [0, 1, 0, 1, 2])
    found = Preparation.learn(graph, TRAIN, NUMBERS)
    assert found.constant.tolist() == [0, 1]
    assert np.asarray(found.apply(graph).features).tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 1], [0, 0, 2]]


def test_only_numbers_and_dates_of_a_table_are_standardized() -> None:
    graph = table_of([0, 1e6, 0, 1e6, NAN], [1, 0, 0, 0, 1], [0, 2, 0, 2, 4], types="nfd")
    found = Preparation.learn(graph, TRAIN, DataConfig())
    assert found.standardizes
    assert np.asarray(found.apply(graph).features).tolist() == [
        [-1, 1, -1], [1, 0, 1], [-1, 0, -1], [1, 0, 1], [0, 1, 3]
    ]  # fmt: skip


def test_none_keeps_numbers_and_refuses_missing_ones() -> None:
    config = DataConfig(prepare="none")
    whole = table_of([0, 1e6, 0, 1e6, 2], [7, 7, 7, 7, 7])
    assert Preparation.learn(whole, TRAIN, config).apply(whole) is whole
    with pytest.raises(GraphError, match="the feature 'c0' has 1 missing values: train with data.prepare = \"auto\""):
        lacking = table_of([0, 1e6, 0, 1e6, NAN])
        Preparation.learn(lacking, TRAIN, config).apply(lacking)
    with pytest.raises(ConfigError, match="data.scale is 'standard', but data.prepare is 'none'"):
        Preparation.learn(whole, TRAIN, replace(config, scale="standard"))
    with pytest.raises(ConfigError, match="data.prepare is 'some'; it must be auto or none"):
        Preparation.learn(whole, TRAIN, DataConfig(prepare="some"))


def test_missing_values_need_medians() -> None:
    arrays = graph_of([0, 1e6, 0, 1e6, 5e5])
    with pytest.raises(GraphError, match="the feature 'c0' has 1 missing values"):
        Preparation.learn(arrays, TRAIN, DataConfig()).apply(table_of([1, NAN, 1, 1, 1]))


def test_missing_values_are_kept_in_the_file(tmp_path: Path) -> None:
    graph = table_of([1, NAN, 3, 8, NAN], [0, 1e6, 0, 1e6, 1 / 3])
    found = Preparation.learn(graph, TRAIN, DataConfig())
    found.save(tmp_path)
    again = Preparation.open(tmp_path)
    assert again.apply(graph).fingerprint == found.apply(graph).fingerprint
    assert again.apply(graph).num_features == 3


def test_files_of_version_1_open(tmp_path: Path) -> None:
    scale = {"mean": [2.0], "deviation": [0.5]}
    (tmp_path / PREPARATION_FILE).write_text(json.dumps({"version": 1, "made": None, "scale": scale}))
    found = Preparation.open(tmp_path)
    assert np.asarray(found.apply(graph_of([1, 2, 3, 4, 5])).features).ravel().tolist() == [-2, 0, 2, 4, 6]
    assert found.standardizes


def slowly_prepared(graph: Graph, train: np.ndarray) -> np.ndarray:
    """Return the prepared numbers of a table, column by column, always standardized."""
    columns, indicators = [], []
    for column in np.asarray(graph.features, dtype=np.float64).T:
        known = [value for value in column[train] if not np.isnan(value)]
        median = float(np.median(known)) if known else 0.0
        filled = np.array([median if np.isnan(value) else value for value in column])
        deviation = filled[train].std()
        varies = deviation > np.finfo(np.float32).eps * abs(filled[train].mean())
        columns.append((filled - filled[train].mean()) / deviation if varies else np.zeros(len(column)))
        if 0 < len(known) < len(train):
            indicators.append(np.isnan(column).astype(float))
    return np.column_stack([*columns, *indicators])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_a_slow_twin_and_no_leak(width: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(size=(width, 5)).round(1) * 10.0 ** random.integers(0, 6, size=(width, 1))
    values[random.random(values.shape) < 0.3] = np.nan
    values[random.random(width) < 0.2] = 3.0
    graph = table_of(*values.tolist())
    config = DataConfig(scale="standard")
    found = Preparation.learn(graph, TRAIN, config)
    np.testing.assert_allclose(np.asarray(found.apply(graph).features), slowly_prepared(graph, TRAIN), 1e-4, 1e-6)
    other = np.array(graph.features)
    other[4] = np.where(random.random(width) < 0.5, np.nan, 1e9)  # the only node that is not for training
    again = Preparation.learn(replace(graph, features=other), TRAIN, config)
    for name in ("mean", "deviation", "median", "indicators"):
        np.testing.assert_array_equal(getattr(found, name), getattr(again, name))


def test_blocks_of_columns_and_rows_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = vcr.generate(300, 600, features=35, seed=3)
    train, config = np.arange(0, 300, 2), DataConfig(scale="standard")
    rows = np.asarray(graph.features)[train].astype(np.float64)
    found = Preparation.learn(graph, train, config)
    np.testing.assert_array_equal(found.mean, rows.mean(axis=0))
    np.testing.assert_array_equal(found.deviation, rows.std(axis=0))
    whole = found.apply(graph).fingerprints["features"]
    monkeypatch.setattr("vcr_graphormer.data.preparation._ROWS_AT_ONCE", 7)
    assert found.apply(graph).fingerprints["features"] == whole
