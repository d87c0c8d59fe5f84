"""The default adapts to the graph and says so; what the user gives is never changed."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vcr_graphormer as vcr
from vcr_graphormer import AUTO, Config, ConfigError, DataConfig, Graph, GraphError, Run, Split, StoreError
from vcr_graphormer.base.checks import unresolved
from vcr_graphormer.data.agreement import label_agreement
from vcr_graphormer.runs.adapt import adapt, choose_members, rarer_class
from vcr_graphormer.runs.config import load_config
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.tokens.adapt import adapt_tokens, has_few_labels

SHORT = load_config(overrides=["training.epochs=2", "model.hidden_channels=16", "data.seed=0"])


def make_graph(nodes: int = 300, classes: int = 3, **more: Any) -> Graph:
    return vcr.generate(nodes, 4 * nodes, classes=classes, features=8, homophily=0.6, seed=0, **more)


def split_of(nodes: int, train: int) -> Split:
    return Split(np.arange(train), np.arange(train, train + 20), np.arange(train + 20, nodes))


def with_large_column(graph: Graph) -> Graph:
    column = 1e6 * np.random.default_rng(1).random(graph.num_nodes)
    return replace(graph, features=np.column_stack([np.asarray(graph.features), column]).astype(np.float32))


@pytest.mark.parametrize(
    ("train", "batch_size", "epochs", "warmup_steps", "width", "dropout"),
    [
        (110, 32, 100, 20, 64, 0.5),
        (300, 32, 100, 50, 128, 0.3),
        (1000, 40, 100, 125, 128, 0.3),
        (1097, 43, 60, 78, 128, 0.3),
        (30_000, 1000, 60, 90, 128, 0.3),
    ],
)
def test_numbers_follow_the_training_nodes(
    train: int, batch_size: int, epochs: int, warmup_steps: int, width: int, dropout: float
) -> None:
    graph = make_graph(train + 100)
    config = adapt(Config(), graph, split_of(train + 100, train)).config
    training, model = config.training, config.model
    assert (training.batch_size, training.epochs, training.warmup_steps) == (batch_size, epochs, warmup_steps)
    assert (training.patience, training.label_smoothing, training.metric) == (epochs, 0.1, "accuracy")
    assert (model.hidden_channels, model.dropout, model.rich_tokens, model.label_hops) == (width, dropout, 1, 2)
    assert (model.neighbour_dropout, model.own_dropout, model.rich_labels) == (1 / 3, 1 / 3, train >= 3000)
    tokens = config.tokens
    assert (tokens.hops, tokens.clusters, tokens.link_tokens, tokens.nearest_tokens) == (3, 10, 8, 8)


@pytest.mark.parametrize(("columns", "of_features", "of_tokens"), [(99, 0.0, 0.0), (100, 0.5, 0.3)])
def test_few_columns_are_not_hidden(columns: int, of_features: float, of_tokens: float) -> None:
    graph = vcr.generate(300, 1200, classes=3, features=columns, seed=0)
    adapted = adapt(Config(), graph, split_of(300, 100))
    model = adapted.config.model
    assert (model.feature_dropout, model.embedding_dropout) == (of_features, of_tokens)
    told = f"no dropout of features: {columns} columns are few, and each may matter"
    assert (told in adapted.notes) == (not of_features)


def test_very_large_graphs_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcr_graphormer.tokens.adapt.MOST_NODES_COMPARED", 299)
    monkeypatch.setattr("vcr_graphormer.runs.adapt.MOST_NODES_COMPARED", 299)
    adapted = adapt(Config(), make_graph(), split_of(300, 100))
    assert (adapted.config.tokens.link_tokens, adapted.config.tokens.nearest_tokens) == (0, 0)
    assert "no neighbours by links or features: 300 nodes are many to compare" in adapted.notes
    without = adapt(Config(), replace(make_graph(200), features=None), split_of(200, 100)).config.tokens
    assert (without.link_tokens, without.nearest_tokens) == (8, 8)  # features are made from degrees
    bare = adapt_tokens(Config().tokens, replace(make_graph(200), features=None), None)
    assert (bare.link_tokens, bare.nearest_tokens, bare.hops) == (8, 0, 0)


def test_all_is_said_and_nothing_is_left_to_choose() -> None:
    graph, split = make_graph(60), split_of(60, 30)
    adapted = adapt(Config(), graph, split)
    assert adapted.notes == (
        "6 clusters: the graph has only 60 nodes",
        "width 64, dropout 0.5: 30 training nodes",
        "5 models that predict together: 30 training nodes",
        "hops are read directly: linked nodes tend to have the same class (Cohen's kappa 0.43)",
        "no dropout of features: 8 columns are few, and each may matter",
        "batch of 32 nodes: 30 training nodes, 1 steps an epoch",
        "100 epochs: 30 training nodes",
        "warm-up of 5 steps: 5% of all",
    )
    assert not any(unresolved(getattr(adapted.config, name)) for name in ("tokens", "model", "training"))
    assert adapted.graph is graph
    again = adapt(adapted.config, graph, split)
    assert (again.config, again.notes) == (adapted.config, ())


def test_what_is_given_stays() -> None:
    given = load_config(
        overrides=[
            *("tokens.hops=1", "tokens.clusters=7", "model.hidden_channels=24", "model.dropout=0", "training.epochs=9"),
            *("training.batch_size=11", "training.warmup_steps=0", "training.patience=4", "training.metric=macro_f1"),
            *("training.label_smoothing=0", "model.label_hops=0", "tokens.content_clusters=3", "data.scale=none"),
        ]
    )
    config = adapt(given, make_graph(), split_of(300, 100)).config
    expected = asdict(given)
    expected["data"] |= {"features": "given", "directed": False}
    expected["tokens"] |= {"link_tokens": 8, "nearest_tokens": 8}
    expected["model"] |= {"rich_tokens": 1, "neighbour_dropout": 1 / 3, "own_dropout": 1 / 3, "rich_labels": False}
    expected["model"] |= {"feature_dropout": 0.0, "embedding_dropout": 0.0, "members": 5, "own_hops": True}
    expected["training"]["threshold"] = 0.5
    assert asdict(config) == expected


def test_what_depends_on_other_settings() -> None:
    graph, split = make_graph(), split_of(300, 100)
    joint = adapt(load_config(overrides=["model.combine=joint", "tokens.hops=0", "model.heads=5"]), graph, split).config
    model = joint.model
    assert (model.neighbour_dropout, model.rich_tokens, model.label_hops, model.hidden_channels) == (0, 0, 0, 65)
    hidden = adapt(load_config(overrides=["model.own_dropout=0.9"]), graph, split).config.model
    assert hidden.neighbour_dropout == pytest.approx(0.1)
    with pytest.raises(ConfigError, match="training.batch_size is 0"):
        adapt(load_config(overrides=["training.batch_size=0"]), graph, split)


def test_hops_are_read_directly_where_linked_nodes_have_the_same_class() -> None:
    alike, mixed = (vcr.generate(400, 2000, classes=3, features=8, homophily=part, seed=0) for part in (0.9, 1 / 3))
    split = split_of(400, 200)
    adapted = adapt(Config(), alike, split)
    assert adapted.config.model.own_hops
    assert any(note.startswith("hops are read directly: linked nodes") for note in adapted.notes)
    assert label_agreement(alike, split.train) > 0.8 and abs(label_agreement(mixed, split.train)) < 0.2
    assert not adapt(Config(), mixed, split).config.model.own_hops
    # Only labels of training nodes are read.
    labels = np.asarray(mixed.labels).copy()
    labels[200:] = 0
    assert label_agreement(replace(mixed, labels=labels), split.train) == label_agreement(mixed, split.train)
    joint = adapt(load_config(overrides=["model.combine=joint"]), alike, split).config
    assert (
        not joint.model.own_hops
        and not adapt(load_config(overrides=["tokens.hops=0"]), alike, split).config.model.own_hops
    )
    values = replace(alike, labels=np.linspace(0, 1, 400, dtype=np.float32), class_names=None, task="regression")
    assert label_agreement(values, split.train) == 0
    alone = vcr.Graph.from_edges(np.empty((2, 0), int), num_nodes=3, labels=[0, 1, 0])
    assert label_agreement(alone, np.arange(3)) == 0


def test_few_epochs_where_features_nearly_tell_the_class() -> None:
    wide = vcr.generate(1500, 4500, classes=3, features=120, homophily=0.7, seed=0)
    adapted = adapt(Config(), wide, split_of(1500, 1001))
    model, training = adapted.config.model, adapted.config.training
    assert (training.epochs, model.rich_tokens, model.label_hops, model.members) == (20, 0, 0, 3)
    told = [note for note in adapted.notes if "similar features tell the class better" in note]
    assert len(told) == 1 and told[0].endswith("(Cohen's kappa 0.99 and 0.56)")
    assert "20 epochs: 1,001 training nodes, and features that are soon learned by heart" in adapted.notes
    # Not with fewer training nodes or columns, not where edges say nothing, and not against what is given.
    few_nodes = adapt(Config(), wide, split_of(1500, 1000)).config
    assert (few_nodes.training.epochs, few_nodes.model.label_hops) == (100, 2)
    narrow = replace(wide, features=np.asarray(wide.features)[:, :99])
    assert adapt(Config(), narrow, split_of(1500, 1001)).config.training.epochs == 60
    mixed = vcr.generate(1500, 4500, classes=3, features=120, homophily=1 / 3, seed=0)
    assert adapt(Config(), mixed, split_of(1500, 1001)).config.training.epochs == 60
    noisy = np.asarray(wide.features) + np.random.default_rng(0).normal(0, 10, (1500, 120)).astype(np.float32)
    assert adapt(Config(), replace(wide, features=noisy), split_of(1500, 1001)).config.training.epochs == 60
    given = load_config(overrides=["training.epochs=7", "model.label_hops=1", "model.members=1"])
    kept = adapt(given, wide, split_of(1500, 1001)).config
    assert (kept.training.epochs, kept.model.label_hops, kept.model.members, kept.model.rich_tokens) == (7, 1, 1, 0)
    # Only labels of training nodes are read.
    labels = np.asarray(wide.labels).copy()
    labels[1001:] = (labels[1001:] + 1) % 3
    assert adapt(Config(), replace(wide, labels=labels), split_of(1500, 1001)).config == adapted.config


def test_more_features_are_hidden_where_only_links_tell_the_class() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(3, size=560)
    pairs = [(page, 60 * labels[page] + to) for page in range(180, 560) for to in random.choice(60, 20, replace=False)]
    noise = random.normal(size=(560, 100)).astype(np.float32)
    edges = np.array(pairs).T
    graph = Graph.from_edges(edges, features=noise, labels=labels, directed=True)
    split = Split(np.arange(180, 480), np.arange(480, 520), np.arange(520, 560))
    adapted = adapt(Config(), graph, split)
    model = adapted.config.model
    assert (model.feature_dropout, model.embedding_dropout, model.rich_tokens, model.label_hops) == (0.8, 0.1, 0, 2)
    assert any(
        note.startswith("80% of the features are hidden while training: similar links") for note in adapted.notes
    )
    assert not any("nothing around neighbours" in note for note in adapted.notes)
    # Where features tell it, too, they are read.
    telling = noise.copy()
    telling[:, 0] += 100 * (labels - 1)
    told = adapt(load_config(overrides=["data.scale=none"]), replace(graph, features=telling), split).config.model
    assert (told.feature_dropout, told.embedding_dropout) == (0.5, 0.3)
    few = adapt(Config(), replace(graph, features=noise[:, :99]), split).config.model
    assert (few.feature_dropout, few.embedding_dropout, few.rich_tokens) == (0.0, 0.0, 1)
    # Of few training nodes it could be chance.
    fewer = replace(split, train=split.train[1:])
    assert adapt(Config(), graph, fewer).config.model.feature_dropout == 0.5


def test_members_by_training_nodes() -> None:
    assert [choose_members(train) for train in (1, 1000, 1001, 5000, 5001)] == [5, 5, 3, 3, 1]


def test_values_have_no_smoothing() -> None:
    graph = replace(make_graph(), labels=np.linspace(0, 1, 300, dtype=np.float32), class_names=None, task="regression")
    training = adapt(Config(), graph, split_of(300, 100)).config.training
    assert (training.label_smoothing, training.metric) == (0.0, "rmse")


def test_few_labels() -> None:
    graph = make_graph(2000)
    few = Split.per_class(graph.labels, 20, 30, seed=0)
    assert has_few_labels(graph, few.train)
    adapted = adapt(Config(), graph, few)
    config = adapted.config
    assert (config.tokens.hops, config.model.hidden_channels, config.model.dropout) == (10, 64, 0.5)
    assert adapted.notes[0] == "10 hops: about 20 labels a class are few"
    assert not has_few_labels(graph, Split.random(graph.labels, seed=0).train)
    small = make_graph(100)  # few labels a class, but most nodes have one
    assert not has_few_labels(small, Split.random(small.labels, seed=0).train)


@pytest.mark.parametrize(("rare", "metric"), [(0, "accuracy"), (29, "roc_auc"), (30, "accuracy"), (80, "roc_auc")])
def test_two_unbalanced_classes_are_judged_by_roc_auc(rare: int, metric: str) -> None:
    labels = np.arange(300) % 2
    labels[:100] = np.arange(100) < rare
    graph = replace(make_graph(classes=2), labels=labels)
    adapted = adapt(Config(), graph, split_of(300, 100))
    assert adapted.config.training.metric == metric
    told = f"judged by ROC-AUC: the rarer of two classes has {min(rare, 100 - rare)}% of the training labels"
    assert (told in adapted.notes) == (metric == "roc_auc")


def test_roc_auc_needs_both_classes_in_the_validation_part() -> None:
    labels = (np.arange(300) < 10).astype(np.int64)
    graph = replace(make_graph(classes=2), labels=labels)
    assert rarer_class(graph, split_of(300, 100)) is None
    assert rarer_class(make_graph(classes=3), split_of(300, 100)) is None


def test_one_unscaled_column_costs_nothing() -> None:
    graph = make_graph(400)
    split = Split.random(graph.labels, seed=0)
    config = load_config(overrides=["training.epochs=20", "model.hidden_channels=32", "model.members=1"])
    raw = replace(config, data=DataConfig(scale="none"))
    scores = {
        name: Workbench(one, torch.device("cpu")).train(split, settings).test
        for name, one, settings in (
            ("without", graph, config),
            ("unscaled", with_large_column(graph), raw),
            ("standardized", with_large_column(graph), config),
        )
    }
    assert scores["unscaled"] < 0.5
    assert min(scores["without"], scores["standardized"]) > 0.8


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    graph = with_large_column(make_graph())
    split = Split.random(graph.labels, seed=0)
    return vcr.train(graph, split, SHORT, tmp_path_factory.mktemp("runs") / "run", device="cpu", baselines="none")


def test_a_run_keeps_what_was_chosen(run: Run, tmp_path: Path) -> None:
    assert (run.config.data.scale, run.config.data.features) == ("standard", "given")
    assert run.config == load_config(run.path / "config.toml")
    assert run.notes[0].startswith("features standardized by mean and deviation of the training nodes")
    assert np.asarray(run.graph.features)[run.split.train].std(axis=0) == pytest.approx(1, abs=1e-4)
    assert float(np.asarray(run.original.features).max()) > 9e5
    again = vcr.train(run.original, run.split, run.config, tmp_path / "again", device="cpu", baselines="none")
    assert again.notes[1:] == []
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])
    stored = Run.open(run.path, "cpu")
    assert stored.evaluate("test") == pytest.approx(run.metrics["scores"]["test"])


def test_another_graph_is_prepared_alike(run: Run, tmp_path: Path) -> None:
    original, tokens = run.original, run.config.tokens
    prepared = vcr.tokenize(run.prepare(original), run.split.train, tokens, tmp_path / "prepared")
    assert (run.on(original, prepared).predict().probabilities == run.predict().probabilities).all()
    raw = vcr.tokenize(original, run.split.train, tokens, tmp_path / "raw")
    with pytest.raises(StoreError, match=r"make its tokens by tokenize\(run.prepare\(graph\)"):
        run.on(original, raw)


def test_a_graph_without_features_is_trained(tmp_path: Path) -> None:
    graph = replace(make_graph(), features=None)
    split = Split.random(graph.labels, seed=0)
    seen: list[Run] = []
    run = vcr.train(graph, split, SHORT, tmp_path / "run", device="cpu", baselines="none", on_start=seen.append)
    assert seen[0].notes[0] == "no features: made from the degree of each node"
    assert run.config.data.features == "degree"
    assert run.original.features is None
    assert run.graph.num_features == graph.with_features("degree").num_features
    given = replace(SHORT, data=DataConfig(features="given"))
    with pytest.raises(GraphError, match="the graph has no features"):
        vcr.train(graph, split, given, tmp_path / "given", device="cpu")


def test_a_directed_graph_is_trained(tmp_path: Path) -> None:
    plain = make_graph()
    edges = np.stack([np.repeat(np.arange(300), plain.degrees), plain.indices])[:, ::2]
    graph = Graph.from_edges(edges, 300, features=plain.features, labels=plain.labels, directed=True)
    split = Split.random(graph.labels, seed=0)
    run = vcr.train(graph, split, SHORT, tmp_path / "run", device="cpu", baselines="none")
    assert run.notes[0] == "directed edges: hops and PageRank follow their direction"


def test_settings_that_are_auto_in_the_tokens_alone(tmp_path: Path) -> None:
    graph = make_graph(60)
    store = vcr.tokenize(graph, None, vcr.TokenConfig(content_tokens=0), tmp_path / "tokens")
    assert (store.settings.hops, store.settings.clusters, store.settings.content_clusters) == (3, 6, 6)
    assert vcr.tokenize(graph, None, replace(store.settings, content="auto"), tmp_path / "tokens").path == store.path
    assert (
        vcr.tokenize(replace(graph, features=None), None, vcr.TokenConfig(content_tokens=0), tmp_path / "x").num_hops
        == 0
    )
    assert vcr.TokenConfig().hops == AUTO
