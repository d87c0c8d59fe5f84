"""`Scorer` against the obvious way: extend the graph, bring all lists up to date, run the model on the bigger graph."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch

import vcr_graphormer as vcr
from tests.support.plain import model_config, plain_config, token_config, train_config
from tests.support.runs import CONFIG, named_graph
from vcr_graphormer.data.growth import Growth
from vcr_graphormer.errors import GraphError, StoreError
from vcr_graphormer.runs.serving import tokens as live_tokens
from vcr_graphormer.runs.serving.journal import JOURNAL, Journal
from vcr_graphormer.runs.serving.requests import NewGraph, Sizes, read_graph
from vcr_graphormer.runs.serving.scoring import Scorer
from vcr_graphormer.tokens.growth import Update, update
from vcr_graphormer.tokens.store import TokenStore

FEATURES = np.random.default_rng(5).normal(size=(3, 8)).astype(np.float32)
EDGES: list[tuple[str, str]] = [("x0", "n5"), ("n9", "x0"), ("x1", "x0"), ("x1", "n70"), ("x0", "n7"), ("n5", "x1")]
NAMES = ["x0", "x1", "x2"]  # x2 has no edge


def request(
    names: list[str] | None = None, edges: list[tuple[str, str]] | None = None, weights: list[float] | None = None
) -> dict[str, Any]:
    """New nodes as JSON."""
    chosen = EDGES if edges is None else edges
    content = [{"source": source, "target": target} for source, target in chosen]
    if weights is not None:
        content = [{**edge, "weight": weight} for edge, weight in zip(content, weights, strict=True)]  # type: ignore[dict-item]
    nodes = [{"id": name, "features": FEATURES[int(name[1:]) % 3].tolist()} for name in names or NAMES]
    return {"nodes": nodes, "edges": content}


def read(run: vcr.Run, content: dict[str, Any]) -> NewGraph:
    return read_graph(content, run.original, Sizes())


def train(graph: vcr.Graph, config: vcr.Config, folder: Path) -> vcr.Run:
    split = vcr.Split.random(graph.labels, seed=0)
    short = replace(config, training=replace(config.training, epochs=1))
    return vcr.train(graph, split, short, folder, device="cpu", baselines="none")


def make_config(**settings: Any) -> vcr.Config:
    """A small model whose settings say what it reads: names of tokens or of the model."""
    tokens = {"hops": 2, "clusters": 4, "structure_tokens": 3, "content_tokens": 3}
    model: dict[str, Any] = {"hidden_channels": 16, "heads": 2, "rich_tokens": 1, "label_embedding": True}
    for name, value in settings.items():
        (tokens if hasattr(vcr.TokenConfig(), name) else model)[name] = value
    return plain_config(
        tokens=token_config(**tokens), model=model_config(**model), training=train_config(epochs=1, batch_size=64)
    )


def slowly(run: vcr.Run, bigger: vcr.Graph, nodes: list[str]) -> vcr.Predictions:
    """Predict new nodes with all lists in memory, as `refresh="new"` makes them."""
    lists: Any = Update(TokenStore.open(run.tokens_folder), Growth(run.graph, bigger), "new").to_lists()
    return replace(run, other_graph=bigger, other_tokens=lists).predict(nodes)


def extended(run: vcr.Run, features: Any = FEATURES, weights: Any = None) -> vcr.Graph:
    sources, targets = zip(*EDGES, strict=True)
    values = None if weights is None else np.array(weights, dtype=np.float32)
    return run.graph.extend(names=NAMES, features=features, edges=(list(sources), list(targets)), weights=values)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> vcr.Run:
    """The default without neighbours by features, which read rows of older nodes as they were (docs/serve.md)."""
    config = replace(vcr.Config(), tokens=vcr.TokenConfig(nearest_tokens=0))
    return train(named_graph(), config, tmp_path_factory.mktemp("serving") / "run")


@pytest.fixture(scope="module")
def scorer(run: vcr.Run) -> Scorer:
    return Scorer.open(run.path)


def test_known_nodes_are_predicted_as_the_run_does(run: vcr.Run, scorer: Scorer) -> None:
    nodes = [f"n{node}" for node in range(150)]
    fast, slow = scorer.predict(nodes), run.predict(nodes)
    np.testing.assert_allclose(fast.probabilities, slow.probabilities, atol=1e-6)
    assert np.array_equal(fast.labels, slow.labels)
    assert fast.names is not None and fast.names.tolist() == nodes
    np.testing.assert_allclose(scorer.embed(nodes), run.embed(nodes), atol=1e-5)


def test_new_nodes_are_predicted_as_on_the_bigger_graph(run: vcr.Run, scorer: Scorer) -> None:
    expected = slowly(run, extended(run), NAMES)
    for _ in range(2):  # the second time, nothing is left of the first
        fast = scorer.predict_new(read(run, request()))
        np.testing.assert_allclose(fast.probabilities, expected.probabilities, atol=1e-5)
        assert scorer.num_nodes == 150
    some = scorer.predict_new(read(run, request()), ["x1", "n3"])
    np.testing.assert_allclose(some.probabilities[0], expected.probabilities[1], atol=1e-5)
    assert np.array_equal(some.probabilities[1:], scorer.predict(["n3"]).probabilities)
    with pytest.raises(GraphError, match="there is no node named 'x1'"):
        scorer.predict(["x1"])


@pytest.mark.parametrize(
    "settings",
    [
        {"label_hops": 2, "distinct": True},
        {"label_hops": 1, "self_loops": True},
        {"content": "features", "content_clusters": 5, "distinct": True},
        {"content": "links", "label_hops": 2},
        {"link_tokens": 3, "distinct": True},
        {"structure_tokens": 0},
        {"structure_tokens": 0, "content_tokens": 0, "rich_tokens": 0},
        {"hops": 0, "rich_tokens": 0, "clusters": 0},
        {"normalize_rows": True, "score_type": "float16"},
        {"hop_type": "float16"},
    ],
    ids=lambda settings: ", ".join(f"{name}={value}" for name, value in settings.items()),
)
def test_every_switch(settings: dict[str, Any], tmp_path: Path) -> None:
    run = train(named_graph(), make_config(**settings), tmp_path / "run")
    scorer = Scorer.open(run.path)
    np.testing.assert_allclose(
        scorer.predict(["n3", "n9"]).probabilities, run.predict(["n3", "n9"]).probabilities, atol=1e-6
    )
    fast = scorer.predict_new(read(run, request()))
    np.testing.assert_allclose(fast.probabilities, slowly(run, extended(run), NAMES).probabilities, atol=1e-5)


def test_new_features_that_float16_cannot_hold_are_the_callers_mistake(tmp_path: Path) -> None:
    run = train(named_graph(), make_config(hop_type="float16"), tmp_path / "run")
    scorer, large, whole = Scorer.open(run.path), request(), request()
    for node in large["nodes"]:
        node["features"] = [1e7 * value for value in node["features"]]
    before = scorer.predict_new(read(run, whole)).probabilities
    with pytest.raises(GraphError, match="but float16 ends at 65,504"):  # status 400; a StoreError would be 500
        scorer.predict_new(read(run, large))
    np.testing.assert_array_equal(scorer.predict_new(read(run, whole)).probabilities, before)


@pytest.mark.parametrize("directed", [False, True])
def test_weights_and_direction(directed: bool, tmp_path: Path) -> None:
    plain, random = named_graph(), np.random.default_rng(0)
    edges = np.stack([np.repeat(np.arange(150), plain.degrees), plain.indices])[:, :900]
    graph = vcr.Graph.from_edges(
        edges,
        edge_weight=random.uniform(0.5, 2, edges.shape[1]),
        features=plain.features,
        labels=plain.labels,
        names=[f"n{node}" for node in range(150)],
        class_names=plain.class_names,
        directed=directed,
    )
    run = train(graph, make_config(label_hops=2), tmp_path / "run")
    weights = [1.0, 2.0, 0.5, 1.0, 3.0, 0.25]
    fast = Scorer.open(run.path).predict_new(read(run, request(weights=weights)))
    expected = slowly(run, extended(run, weights=weights), NAMES)
    np.testing.assert_allclose(fast.probabilities, expected.probabilities, atol=1e-5)


def test_sparse_features(tmp_path: Path) -> None:
    graph = named_graph()
    dense = np.asarray(graph.features)
    values = np.where(np.abs(dense) > 1, dense, 0).astype(np.float32)
    run = train(replace(graph, features=sp.csr_matrix(values)), make_config(label_hops=2), tmp_path / "run")
    scorer = Scorer.open(run.path)
    content = request()
    for node in content["nodes"]:  # by the number of the column; those that are left out are 0
        node["features"] = {str(column): value for column, value in enumerate(node["features"]) if abs(value) > 1}
    features = sp.csr_matrix(np.where(np.abs(FEATURES) > 1, FEATURES, 0))
    fast = scorer.predict_new(read(run, content))
    np.testing.assert_allclose(fast.probabilities, slowly(run, extended(run, features), NAMES).probabilities, atol=1e-5)
    known = scorer.predict(["n1", "n2"]).probabilities
    np.testing.assert_allclose(known, run.predict(["n1", "n2"]).probabilities, atol=1e-6)


def test_rich_labels_of_older_nodes_stay(tmp_path: Path) -> None:
    """Labels around older neighbours are those of before, so answers differ a little from those on the bigger graph."""
    run = train(named_graph(), make_config(rich_labels=True, label_hops=1), tmp_path / "run")
    scorer = Scorer.open(run.path)
    nodes = [f"n{node}" for node in range(150)]
    np.testing.assert_allclose(scorer.predict(nodes).probabilities, run.predict(nodes).probabilities, atol=1e-6)
    fast = scorer.predict_new(read(run, request()))
    np.testing.assert_allclose(fast.probabilities, slowly(run, extended(run), NAMES).probabilities, atol=0.02)


def test_nearest_by_features(tmp_path: Path) -> None:
    """Rows of older nodes stay; those of new nodes, and all scores of theirs, are close to those made anew."""
    run = train(named_graph(), make_config(nearest_tokens=3, distinct=True), tmp_path / "run")
    scorer = Scorer.open(run.path)
    fast = scorer.predict_new(read(run, request()))
    np.testing.assert_allclose(fast.probabilities, slowly(run, extended(run), NAMES).probabilities, atol=0.02)
    alone = request(["x0"], [])  # without an edge nothing of the others changes
    bigger = run.graph.extend(names=["x0"], features=FEATURES[:1])
    fast = scorer.predict_new(read(run, alone))
    np.testing.assert_allclose(fast.probabilities, slowly(run, bigger, ["x0"]).probabilities, atol=1e-5)


def test_standardized_features(tmp_path: Path) -> None:
    graph = named_graph()
    scaled = (np.asarray(graph.features) * 10.0 ** np.arange(8)).astype(np.float32)
    config = replace(make_config(), data=vcr.DataConfig(scale="standard"))
    run = train(replace(graph, features=scaled), config, tmp_path / "run")
    assert run.preparation.mean is not None
    small = replace(graph, features=FEATURES, indptr=np.zeros(4, np.int64), indices=np.empty(0, np.int32), names=None)
    prepared = run.prepare(replace(small, labels=None)).features
    fast = Scorer.open(run.path).predict_new(read(run, request()))
    np.testing.assert_allclose(fast.probabilities, slowly(run, extended(run, prepared), NAMES).probabilities, atol=1e-5)


def test_features_made_from_degrees(tmp_path: Path) -> None:
    graph = replace(named_graph(), features=None)
    run = train(graph, replace(make_config(), data=vcr.DataConfig(features="degree")), tmp_path / "run")
    content = request()
    for node in content["nodes"]:
        del node["features"]
    sources, targets = zip(*EDGES, strict=True)
    bigger = graph.extend(names=NAMES, edges=(sources, targets))
    features = np.asarray(bigger.with_features("degree").features)[150:]
    assert features.shape[1] == run.graph.num_features
    fast = Scorer.open(run.path).predict_new(read(run, content))
    np.testing.assert_allclose(fast.probabilities, slowly(run, extended(run, features), NAMES).probabilities, atol=1e-5)


def test_labels_around_a_hub_are_those_of_before(run: vcr.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many arcs, labels around neighbours are not computed anew. Here 0: the second hop is of before."""
    monkeypatch.setattr(live_tokens, "MOST_ARCS", 0)
    scorer = Scorer.open(run.path)
    fast = scorer.predict_new(read(run, request())).probabilities
    slow = slowly(run, extended(run), NAMES).probabilities
    assert not np.allclose(fast, slow, atol=1e-7)
    np.testing.assert_allclose(fast, slow, atol=0.05)


def test_kept_nodes_are_those_of_updates_in_steps(run: vcr.Run, tmp_path: Path) -> None:
    scorer = Scorer.open(run.path)
    steps = [(["x0"], [("x0", "n5"), ("x0", "n7")]), (["x1"], [("x1", "x0"), ("x1", "n70")]), (["x4"], [("x4", "x1")])]
    graph, store = run.graph, TokenStore.open(run.tokens_folder)
    answers = []
    for number, (names, edges) in enumerate(steps):
        fast = scorer.predict_new(read(run, request(names, edges)), keep=True)
        features = np.stack([FEATURES[int(name[1:]) % 3] for name in names])
        sources, targets = zip(*edges, strict=True)
        bigger = graph.extend(names=names, features=features, edges=(sources, targets))
        store = update(store, bigger, tmp_path / str(number), before=graph, refresh="new")
        graph = bigger
        expected = replace(run, other_graph=bigger, other_tokens=store).predict(names)
        np.testing.assert_allclose(fast.probabilities, expected.probabilities, atol=1e-5)
        answers.append(fast.probabilities)
    assert (scorer.kept, scorer.num_nodes) == (3, 153)
    again = scorer.predict(["x0", "x1", "x4"]).probabilities
    assert np.array_equal(again, np.concatenate(answers))
    with pytest.raises(GraphError, match="'x0' is in the graph already: give new nodes new names"):
        scorer.predict_new(read(run, request(["x0"], [])))


def test_no_answer_depends_on_other_nodes(scorer: Scorer) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        nodes = [f"n{node}" for node in range(150)]
        together = scorer.predict(nodes).probabilities
        alone = np.concatenate([scorer.predict([node]).probabilities for node in nodes])
        some = np.concatenate([scorer.predict(nodes[start : start + 7]).probabilities for start in range(0, 150, 7)])
    finally:
        torch.set_num_threads(threads)
    assert np.array_equal(together, alone)
    assert np.array_equal(together, some)


def test_explanations(run: vcr.Run, scorer: Scorer) -> None:
    fast, slow = scorer.explain("n7"), run.explain("n7")
    assert (fast.node, fast.name, fast.explained, fast.label) == (slow.node, slow.name, slow.explained, slow.label)
    assert len(fast.tokens) == len(slow.tokens)
    for one, other in zip(fast.tokens, slow.tokens, strict=True):
        assert (one.kind, one.hop, one.node, one.name, one.label) == (
            *(other.kind, other.hop, other.node, other.name, other.label),
        )
        assert one.distance == other.distance
        assert one.effect == pytest.approx(other.effect, abs=1e-5)
    new = scorer.with_new(read(run, request()), lambda: scorer.explain("x0", "b"))
    assert (new.node, new.name, new.explained, new.label) == (150, "x0", "b", None)
    distances = {token.name: token.distance for token in new.tokens if token.name is not None}
    assert (distances["x0"], distances["n5"], distances["x1"]) == (0, 1, 1)


def test_ids_without_names(tmp_path: Path) -> None:
    run = train(replace(named_graph(), names=None), CONFIG, tmp_path / "run")
    scorer = Scorer.open(run.path)
    assert scorer.find([3, "4", "id:5"]).tolist() == [3, 4, 5]
    content = {"nodes": [{"id": "new", "features": FEATURES[0].tolist()}], "edges": [{"source": "new", "target": 3}]}
    predictions = scorer.predict_new(read(run, content), keep=True)
    assert predictions.names is not None and predictions.names.tolist() == ["new"]
    assert scorer.find(["new", 150]).tolist() == [150, 150]
    for node, text in (
        ("7" * 30, "no node named"),
        (151, "nodes 0 to 150"),
        (-1, "there is no node -1"),
        ("x", "give ids"),
    ):
        with pytest.raises(GraphError, match=text):
            scorer.find([node])
    with pytest.raises(GraphError, match="'3' is in the graph already"):
        scorer.predict_new(read(run, {"nodes": [{"id": "3", "features": FEATURES[0].tolist()}]}))


@pytest.mark.parametrize(
    ("edges", "weights", "text"),
    [
        ([("x0", "n999")], None, r"graph.edges\[0\]: there is no node named 'n999'"),
        ([("x0", "n1"), ("n1", "n2")], None, r"graph.edges\[1\] links two nodes that are in the graph already"),
        ([("x0", "n1")], [2.0], "the edges of the graph have no weights: leave weight out, or give 1"),
    ],
)
def test_edges_that_cannot_be(run: vcr.Run, scorer: Scorer, edges: Any, weights: Any, text: str) -> None:
    with pytest.raises(GraphError, match=text):
        scorer.predict_new(read(run, request(["x0"], edges, weights)))
    assert scorer.num_nodes == 150


def test_an_error_leaves_nothing_behind(run: vcr.Run, scorer: Scorer) -> None:
    before = scorer.predict_new(read(run, request())).probabilities
    with pytest.raises(GraphError, match="no node named 'nobody'"):
        scorer.predict_new(read(run, request()), ["nobody"], keep=True)
    assert (scorer.num_nodes, scorer.kept) == (150, 0)
    assert np.array_equal(scorer.predict_new(read(run, request())).probabilities, before)


def test_a_model_that_knows_nodes_by_number_answers_for_these_only(tmp_path: Path) -> None:
    run = train(named_graph(), make_config(adjacency_rows=True), tmp_path / "run")
    scorer = Scorer.open(run.path)
    np.testing.assert_allclose(scorer.predict(["n3"]).probabilities, run.predict(["n3"]).probabilities, atol=1e-6)
    with pytest.raises(GraphError, match="cannot read new nodes"):
        scorer.predict_new(read(run, request()))


def test_kept_nodes_survive(run: vcr.Run, tmp_path: Path) -> None:
    file = tmp_path / JOURNAL
    scorer = Scorer.open(run.path, file)
    first = scorer.predict_new(read(run, request(["x0"], [("x0", "n5")])), keep=True).probabilities
    second = scorer.predict_new(read(run, request(["x1"], [("x1", "x0")])), keep=True).probabilities
    with pytest.raises(StoreError, match="another process"):
        Journal(file, "")
    scorer.close()
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"nodes": [{"id": "x2", "fea')  # as if the process died while it wrote
    again = Scorer.open(run.path, file)
    assert again.kept == 2
    assert np.array_equal(again.predict(["x0", "x1"]).probabilities, np.concatenate([first, second]))
    assert file.read_bytes() == whole
    again.predict_new(read(run, request(["x2"], [])), keep=True)
    again.close()
    assert len(file.read_text().splitlines()) == 4
    file.write_bytes(whole.replace(b'{"nodes"', b'{nodes"', 1))
    with pytest.raises(StoreError, match="damaged in line 2"):
        Scorer.open(run.path, file)
    file.write_bytes(whole.replace(b'"n5"', b'"n500"'))
    with pytest.raises(StoreError, match="does not fit this run: graph.edges.0.: there is no node named 'n500'"):
        Scorer.open(run.path, file)
    file.write_bytes(whole)  # limits are for requests, not for what is kept
    small = Scorer.open(run.path, file, sizes=Sizes(nodes=1, edges=0))
    assert small.kept == 2
    with pytest.raises(GraphError, match="graph.edges has 1 entries; at most 0 are allowed"):
        small.predict_new(request(["x2"], [("x2", "n1")]))
    small.close()
    file.write_text('{"something": "else"}\n')
    with pytest.raises(StoreError, match="no journal of kept nodes"):
        Scorer.open(run.path, file)


def test_a_failing_disk_keeps_nothing(run: vcr.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = Scorer.open(run.path, tmp_path / JOURNAL)

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(StoreError, match="No space left"):
            scorer.predict_new(read(run, request()), keep=True)
    assert (scorer.kept, scorer.num_nodes) == (0, 150)
    assert len((tmp_path / JOURNAL).read_text().splitlines()) == 1
    scorer.close()


def test_nodes_kept_for_another_graph(run: vcr.Run, tmp_path: Path) -> None:
    """The nodes that it knows by now are left out, and so are edges to nodes that are gone."""
    records = [request(["x0"], [("x0", "n5"), ("x0", "gone")]), request(["x1", "x2"], [("x1", "x0"), ("x2", "x1")])]
    grown = run.original.extend(names=["x1"], features=FEATURES[1:2])
    later = train(grown, CONFIG, tmp_path / "later")
    scorer = Scorer.open(later.path)
    scorer.replay(records, same_graph=False)
    assert (scorer.kept, scorer.num_nodes) == (2, 153)
    assert scorer.tokens.live.rows.take(scorer.find(["x0"]))[1].tolist() == [5]  # both ends of x1 - x0 are known
    assert scorer.tokens.live.rows.take(scorer.find(["x2"]))[1].tolist() == [150]
    unnamed = train(replace(named_graph(), names=None), CONFIG, tmp_path / "unnamed")
    with pytest.raises(StoreError, match="cannot be told apart"):
        Scorer.open(unnamed.path).replay(records, same_graph=False)


def test_columns_of_a_table(tmp_path: Path) -> None:
    """Numbers, categories and missing values by the names of the table, as the run learned them."""
    plain, random = named_graph(), np.random.default_rng(0)
    rows = [
        {"age": None if node % 9 == 0 else float(random.normal(40, 9)), "country": ("DE", "FR")[node % 2], "new": True}
        for node in range(150)
    ]
    schema = vcr.Schema.learn(pa.Table.from_pylist(rows), categories=["country"])
    graph = replace(plain, features=schema.encode_rows(rows), feature_names=schema.feature_names, schema=schema)
    config = replace(make_config(), data=vcr.DataConfig(prepare="auto"))
    run = train(graph, config, tmp_path / "run")
    assert run.preparation.median is not None
    scorer = Scorer.open(run.path)
    columns: list[dict[str, Any]] = [
        {"age": 31, "country": "FR", "new": False},
        {"age": None, "country": "XX", "new": True},
    ]
    content = {
        "nodes": [{"id": f"x{number}", "features": row} for number, row in enumerate(columns)],
        "edges": [{"source": "x0", "target": "n5"}, {"source": "x1", "target": "x0"}],
    }
    fast = scorer.predict_new(content)
    bigger = graph.extend(names=["x0", "x1"], features=schema.encode_rows(columns), edges=(["x0", "x1"], ["n5", "x0"]))
    slow = run.on(bigger, refresh="new").predict(["x0", "x1"])
    np.testing.assert_allclose(fast.probabilities, slow.probabilities, atol=1e-5)
    for wrong, text in (
        ({"age": "old", "country": "FR", "new": True}, r"features: .*age"),
        ({"age": 3, "country": "FR"}, "the column 'new' is missing"),
        ({"age": 3, "country": "FR", "new": True, "x": 1}, "'x', which is not one of the 3 columns"),
        ({"age": [], "country": "FR", "new": True}, r"features\['age'\] is \[\]; it must be a number, text"),
        ({"age": 3, "country": "\ud800", "new": True}, "it must be a short text"),
    ):
        with pytest.raises(GraphError, match=text):
            scorer.predict_new({"nodes": [{"id": "x", "features": wrong}]})


def test_names_of_features(run: vcr.Run, tmp_path: Path) -> None:
    names = tuple(f"column{number}" for number in range(8))
    named = train(replace(named_graph(), feature_names=names), CONFIG, tmp_path / "run")
    content = request(["x0"], [("x0", "n5")])
    expected = Scorer.open(named.path).predict_new(content).probabilities
    values = content["nodes"][0]["features"]
    content["nodes"][0]["features"] = dict(sorted(zip(names, values, strict=True), reverse=True))
    assert np.array_equal(Scorer.open(named.path).predict_new(content).probabilities, expected)
    del content["nodes"][0]["features"]["column3"]
    with pytest.raises(GraphError, match="features lacks 'column3': the graph has 8 features"):
        Scorer.open(named.path).predict_new(content)
