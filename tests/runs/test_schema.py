"""A run on other data: features and classes are found by name, and the preparation of the run is used."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import vcr_graphormer as vcr
from tests.support.runs import CONFIG, named_graph
from vcr_graphormer import DataConfig, Graph, GraphError, Run, Split, StoreError
from vcr_graphormer.data.schema import Schema

NAMES = tuple(f"column{i}" for i in range(8))
ORDER = [3, 1, 0, 2, 7, 5, 4, 6]
LONGER = replace(CONFIG, training=replace(CONFIG.training, epochs=20))


@pytest.fixture(scope="module")
def graph() -> Graph:
    return replace(named_graph(), feature_names=NAMES)


@pytest.fixture(scope="module")
def run(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Run:
    split = Split.random(graph.labels, seed=0)
    return vcr.train(graph, split, LONGER, tmp_path_factory.mktemp("runs") / "run", device="cpu", baselines="none")


def test_a_run_keeps_names(run: Run) -> None:
    opened = Run.open(run.path, "cpu")
    assert opened.schema.feature_names == NAMES
    assert opened.schema.classes == ("a", "b", "c")
    assert (run.path / "schema.json").is_file()


def test_features_in_another_order(run: Run, graph: Graph, tmp_path: Path) -> None:
    features = np.asarray(graph.features)[:, ORDER]
    other = replace(graph, features=features, feature_names=tuple(NAMES[i] for i in ORDER))
    tokens = vcr.tokenize(run.prepare(other), run.split.train, run.config.tokens, tmp_path / "tokens")
    assert run.on(other, tokens).evaluate("test") == run.evaluate("test")
    assert (run.on(other, tokens).predict().probabilities == run.predict().probabilities).all()
    # Without names they are taken as they stand, which is the mistake that names prevent.
    nameless = replace(other, feature_names=None)
    wrong = vcr.tokenize(nameless, run.split.train, run.config.tokens, tmp_path / "wrong")
    assert run.on(nameless, wrong).evaluate("test")["accuracy"] < run.evaluate("test")["accuracy"] - 0.2
    with pytest.raises(StoreError, match="was not made from features as the model reads them"):
        run.on(other, wrong)


def test_classes_in_another_order(run: Run, graph: Graph) -> None:
    place = np.array([2, 0, 1])
    other = replace(graph, labels=place[np.asarray(graph.labels)], class_names=("b", "c", "a"))
    found = run.on(other, run.store)
    assert found.evaluate("test") == run.evaluate("test")
    assert found.graph.class_names == ("a", "b", "c")
    renamed = replace(graph, class_names=("a", "b", "z"))
    with pytest.raises(GraphError, match="^unknown class 'z'; the classes are a, b, c$"):
        run.on(renamed, run.store)


def test_missing_and_extra_columns(run: Run, graph: Graph) -> None:
    lacking = replace(graph, features=np.asarray(graph.features)[:, :7], feature_names=NAMES[:7])
    with pytest.raises(GraphError, match="^the feature 'column7' is missing; there are: column0, column1"):
        run.prepare(lacking)
    wider = np.column_stack([np.ones(150, np.float32), np.asarray(graph.features)])
    with pytest.warns(UserWarning, match="column 'extra': was not there in training and is ignored"):
        prepared = run.prepare(replace(graph, features=wider, feature_names=("extra", *NAMES)))
    assert prepared.fingerprints["features"] == graph.fingerprints["features"]


def test_a_run_of_before_knows_its_classes(run: Run, graph: Graph, tmp_path: Path) -> None:
    import shutil

    old = Path(shutil.copytree(run.path, tmp_path / "old"))
    (old / "schema.json").unlink()
    opened = Run.open(old, "cpu")
    assert opened.schema == run.schema
    with pytest.raises(GraphError, match="unknown class 'z'"):
        opened.prepare(replace(graph, class_names=("a", "b", "z")))
    shutil.rmtree(old / "graph")
    assert Run.open(old, "cpu").schema == Schema()
    (old / "schema.json").write_text("{}")
    with pytest.raises(StoreError, match="schema.json has version None"):
        _ = Run.open(old, "cpu").schema


def accounts(graph: Graph, seed: int = 0) -> pa.Table:
    """Return a table with missing values, a date, a category, and one column on another scale."""
    random, rows = np.random.default_rng(seed), graph.num_nodes
    features = np.asarray(graph.features, dtype=np.float64)
    columns: dict[str, pa.Array] = {name: pa.array(features[:, i]) for i, name in enumerate(NAMES)}
    columns["amount"] = pa.array(random.random(rows) * 1e6, mask=random.random(rows) < 0.2)
    columns["plan"] = pa.array(random.choice(["free", "paid"], rows))
    columns["since"] = pa.array(random.integers(15_000, 20_000, rows).astype("datetime64[D]"))
    columns["version"] = pa.array(np.ones(rows))
    return pa.table(columns)


def with_table(graph: Graph, table: pa.Table) -> Graph:
    schema = Schema.learn(table, categories=["plan"])
    return replace(graph, features=schema.encode(table), feature_names=schema.feature_names, schema=schema)


@pytest.fixture(scope="module")
def of_table(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Run:
    split = Split.random(graph.labels, seed=0)
    config = replace(LONGER, data=DataConfig())
    table = with_table(graph, accounts(graph))
    return vcr.train(table, split, config, tmp_path_factory.mktemp("table") / "run", device="cpu", baselines="none")


def test_a_table_is_prepared_and_told(of_table: Run) -> None:
    assert of_table.notes[:5] == [
        "dates as days: since",
        "categories as one column per value: plan (2 and other)",
        "missing values filled by the median, with a column that says where: amount",
        "constant columns set to 0: version",
        "numbers and dates standardized by mean and deviation of the training nodes: columns differ strongly",
    ]
    assert of_table.config.data.scale == "standard"
    assert of_table.graph.feature_names is not None
    assert of_table.graph.feature_names[-1] == "amount=missing"
    assert np.isfinite(np.asarray(of_table.graph.features)).all()
    assert np.abs(np.asarray(of_table.graph.features)).max() < 10
    again = Run.open(of_table.path, "cpu")
    assert again.evaluate("test") == pytest.approx(of_table.metrics["scores"]["test"])
    assert again.schema == of_table.schema


def test_a_run_on_a_table_is_reproduced(of_table: Run, graph: Graph, tmp_path: Path) -> None:
    table = with_table(graph, accounts(graph))
    again = vcr.train(table, of_table.split, of_table.config, tmp_path / "again", device="cpu", baselines="none")
    assert (again.predict().probabilities == of_table.predict().probabilities).all()


def test_a_later_table_in_another_order(of_table: Run, graph: Graph, tmp_path: Path) -> None:
    table = accounts(graph)
    later = with_table(graph, table.select(table.column_names[::-1]))
    prepared = of_table.prepare(later)
    assert prepared.fingerprints["features"] == of_table.graph.fingerprints["features"]
    tokens = vcr.tokenize(prepared, of_table.split.train, of_table.config.tokens, tmp_path / "tokens")
    assert (of_table.on(later, tokens).predict().probabilities == of_table.predict().probabilities).all()
    with pytest.raises(GraphError, match="the feature 'amount' has .* missing values"):
        vcr.tokenize(later, of_table.split.train, of_table.config.tokens, tmp_path / "raw")


def test_rows_of_other_nodes_change_no_preparation(of_table: Run, graph: Graph) -> None:
    """Values and holes of validation and test nodes say nothing about how columns are filled and scaled."""
    given = with_table(graph, accounts(graph))
    features = np.array(given.features)
    others = np.setdiff1d(np.arange(150), of_table.split.train)
    features[others] = np.where(np.arange(features.shape[1]) % 2, np.nan, -1e7)
    changed = vcr.adapt(of_table.config, replace(given, features=features), of_table.split).preparation
    for name in ("mean", "deviation", "median", "indicators"):
        np.testing.assert_array_equal(getattr(changed, name), getattr(of_table.preparation, name))


def test_the_training_graph_needs_no_warning(of_table: Run) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert of_table.prepare(of_table.original).fingerprint == of_table.graph.fingerprint
