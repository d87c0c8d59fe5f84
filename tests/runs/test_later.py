"""A run on a later state of its graph: new nodes are predicted, explained and embedded without training again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vcr_graphormer as vcr
from tests.support.runs import CONFIG
from vcr_graphormer import Graph, GraphError, Run, Split, generate


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    graph = generate(nodes=200, edges=800, classes=3, features=8, seed=1)
    edges = graph.to_scipy().tocoo()
    named = Graph.from_edges(
        np.stack([edges.row, edges.col]),
        features=graph.features,
        labels=graph.labels,
        names=[f"n{number}" for number in range(200)],
        class_names=["a", "b", "c"],
    )
    split = Split.random(named.labels, seed=0)
    return vcr.train(named, split, CONFIG, tmp_path_factory.mktemp("later") / "run", baselines="none")


def grown(run: Run) -> Graph:
    features = np.asarray(run.original.features)
    return run.original.extend(
        names=["new-1", "new-2"], features=features[[3, 5]], edges=(["new-1", "new-1", "new-2"], ["n3", "n4", "new-1"])
    )


def test_new_nodes(run: Run) -> None:
    later = run.on(grown(run))
    predictions = later.predict(["new-1", "n7"])
    assert predictions.names is not None and predictions.names.tolist() == ["new-1", "n7"]
    np.testing.assert_allclose(predictions.probabilities.sum(axis=1), 1, atol=1e-5)
    assert later.embed(["new-2"]).shape == (1, run.embed(["n0"]).shape[1])
    assert later.explain("new-1").node == 200
    far = later.predict(["n150"]).probabilities
    np.testing.assert_allclose(far, run.predict(["n150"]).probabilities, atol=0.1)


def test_old_nodes_stay_as_they_were_with_new(run: Run) -> None:
    later = run.on(grown(run), refresh="new")
    names = [f"n{number}" for number in range(200)]
    np.testing.assert_array_equal(later.store.ids("structure")[:200], run.store.ids("structure"))
    same = np.abs(later.predict(names).probabilities - run.predict(names).probabilities).max(axis=1) < 1e-5
    assert same.sum() >= 190  # labels around the neighbours of new nodes change with their degrees


def test_all_is_a_fresh_start(run: Run, tmp_path: Path) -> None:
    graph = grown(run)
    tokens = vcr.tokenize(run.prepare(graph), run.split.train, run.config.tokens, tmp_path / "tokens")
    ours, fresh = run.on(graph, refresh="all"), run.on(graph, tokens)
    np.testing.assert_array_equal(ours.predict().probabilities, fresh.predict().probabilities)


def test_update_takes_a_run(run: Run, tmp_path: Path) -> None:
    store = vcr.update(run, grown(run), out=tmp_path / "tokens")
    assert store.num_nodes == 202 and store.growth["new"] == 2
    np.testing.assert_array_equal(store.ids("structure"), run.on(grown(run)).store.ids("structure"))


def test_nodes_in_another_order(run: Run) -> None:
    graph = grown(run)
    order = np.random.default_rng(0).permutation(graph.num_nodes)
    place = np.argsort(order)
    edges = graph.to_scipy().tocoo()
    shuffled = Graph.from_edges(
        np.stack([place[edges.row], place[edges.col]]),
        features=np.asarray(graph.features)[order],
        labels=np.asarray(graph.labels)[order],
        names=np.asarray(graph.names)[order].tolist(),
        class_names=["a", "b", "c"],
    )
    later, again = run.on(graph), run.on(shuffled)
    nodes = ["n0", "n77", "new-1"]
    np.testing.assert_allclose(again.predict(nodes).probabilities, later.predict(nodes).probabilities, atol=1e-5)


def test_labels_of_training_nodes_are_those_of_training(run: Run) -> None:
    graph = grown(run)
    labels = np.array(graph.labels)
    labels[run.split.train] = -1
    blank = run.on(replace(graph, labels=labels))
    np.testing.assert_array_equal(blank.predict().probabilities, run.on(graph).predict().probabilities)


def test_a_later_state_needs_no_labels(run: Run) -> None:
    graph = grown(run)
    blank = run.on(replace(graph, labels=None, class_names=None))
    np.testing.assert_array_equal(blank.predict().probabilities, run.on(graph).predict().probabilities)
    assert blank.predict(["new-1"]).class_names == ("a", "b", "c")
    edges = graph.to_scipy()[1:, 1:].tocoo()
    without_first = Graph.from_edges(
        np.stack([edges.row, edges.col]),
        features=np.asarray(graph.features)[1:],
        names=np.asarray(graph.names)[1:].tolist(),
    )
    assert np.asarray(run.on(without_first).graph.names)[0] == "n0"


def test_what_is_refused(run: Run) -> None:
    with pytest.raises(GraphError, match="have no names"):
        run.on(generate(nodes=210, edges=800, classes=3, features=8, seed=1))
    with pytest.raises(vcr.ConfigError, match="refresh is 'some'"):
        run.on(grown(run), refresh="some")
