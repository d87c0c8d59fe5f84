"""Inductive training: hidden nodes reach neither token lists nor weights; they are judged on the whole graph."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vcr_graphormer as vcr
from tests.support.plain import model_config, token_config, train_config
from tests.support.runs import CONFIG, named_graph
from vcr_graphormer import Config, ConfigError, DataConfig, Graph, Run, Split, generate
from vcr_graphormer.data.inductive import Seen
from vcr_graphormer.runs.baselines import run_baseline
from vcr_graphormer.runs.launch import SEEN_TOKENS
from vcr_graphormer.tokens.lists import make_lists

GRAPH = generate(nodes=120, edges=480, classes=3, features=6, homophily=0.6, seed=3)
# Every tenth node belongs to no part and stays in sight.
_PARTS = Split.random(GRAPH.labels, seed=1)
SPLIT = Split(_PARTS.train[_PARTS.train % 10 > 0], _PARTS.val, _PARTS.test)
MODEL: dict[str, Any] = {"hidden_channels": 8, "heads": 2, "rich_tokens": 1, "label_hops": 2}
MODEL |= {"label_embedding": True, "rich_labels": True, "rank_embedding": True}
TOKENS: dict[str, Any] = {"hops": 2, "clusters": 3, "structure_tokens": 3, "content_tokens": 3}
TOKENS |= {"link_tokens": 2, "nearest_tokens": 2}


def inductive(config: Config = CONFIG, **data: Any) -> Config:
    return replace(config, data=replace(config.data, inductive=True, **data))


def with_other_hidden_nodes(graph: Graph, split: Split) -> Graph:
    """The same graph with other features, labels and edges of all validation and test nodes."""
    hidden, random = np.concatenate([split.val, split.test]), np.random.default_rng(0)
    features, labels = np.array(graph.features), np.array(graph.labels)
    features[hidden] = 5 * random.normal(size=(len(hidden), features.shape[1]))
    labels[hidden] = (labels[hidden] + 1) % 3
    arcs = graph.to_scipy().tocoo()
    stays = ~(np.isin(arcs.row, hidden) | np.isin(arcs.col, hidden))
    more = np.stack([random.choice(hidden, 300), random.integers(graph.num_nodes, size=300)])
    edges = np.concatenate([np.stack([arcs.row, arcs.col])[:, stays], more], axis=1)
    return Graph.from_edges(edges, graph.num_nodes, features=features, labels=labels)


@pytest.mark.parametrize("content", ["labels", "features", "links"])
def test_hidden_nodes_change_neither_lists_nor_weights(tmp_path: Path, content: str) -> None:
    tokens = token_config(**TOKENS, content=content, content_clusters=3)
    data = DataConfig(inductive=True, scale="standard")
    one_epoch = train_config(epochs=1, batch_size=32)  # so that validation nodes choose nothing
    config = Config(data, tokens, model_config(**MODEL), one_epoch)
    graphs, runs = (GRAPH, with_other_hidden_nodes(GRAPH, SPLIT)), []
    for number, graph in enumerate(graphs):
        runs.append(vcr.train(graph, SPLIT, config, tmp_path / str(number), device="cpu", baselines="none"))
    seen = [Seen.of(run.graph, SPLIT) for run in runs]
    lists = [make_lists(part.graph, part.train, tokens) for part in seen]
    for name, array in lists[0].arrays.items():
        assert array.tobytes() == lists[1].arrays[name].tobytes(), name
    for name, tensor in runs[0].model.state_dict().items():
        assert torch.equal(tensor, runs[1].model.state_dict()[name]), name
    assert runs[0].history[0]["loss"] == runs[1].history[0]["loss"]
    assert runs[0].history[0]["val_loss"] != runs[1].history[0]["val_loss"]


def test_it_would_show_if_hidden_nodes_were_seen(tmp_path: Path) -> None:
    config = replace(CONFIG, training=replace(CONFIG.training, epochs=1))
    losses = [
        vcr.train(graph, SPLIT, config, tmp_path / str(number), device="cpu", baselines="none").history[0]["loss"]
        for number, graph in enumerate((GRAPH, with_other_hidden_nodes(GRAPH, SPLIT)))
    ]
    assert losses[0] != losses[1]


def test_nodes_of_no_part_stay_in_sight() -> None:
    seen, hidden = Seen.of(GRAPH, SPLIT), len(SPLIT.val) + len(SPLIT.test)
    assert seen.graph.num_nodes == 120 - hidden > len(SPLIT.train)
    assert seen.nodes[seen.train].tolist() == SPLIT.train.tolist()
    matrix = GRAPH.to_scipy()[seen.nodes][:, seen.nodes]
    assert (seen.graph.to_scipy() != matrix).nnz == 0
    assert seen.graph.num_classes == GRAPH.num_classes
    # A class that only hidden nodes have is still a class.
    labels = np.zeros(120, np.int64)
    labels[SPLIT.test] = 4
    assert Seen.of(replace(GRAPH, labels=labels), SPLIT).graph.num_classes == 5


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    graph = named_graph()
    split, out = Split.random(graph.labels, seed=0), tmp_path_factory.mktemp("inductive") / "run"
    return vcr.train(graph, split, inductive(), out, device="cpu")


def test_a_run_is_judged_on_the_whole_graph(run: Run) -> None:
    assert run.metrics["inductive"] is True
    assert Run.open(run.path).config.data.inductive
    assert run.store.num_nodes == 150
    assert run.evaluate("test") == run.metrics["scores"]["test"]
    assert "inductive: 60 validation and test nodes, and their edges, are hidden from the training" in run.notes
    assert not (run.path / SEEN_TOKENS).exists()
    hidden = int(run.split.test[0])
    assert run.explain(hidden).node == hidden
    later = run.on(run.original.extend(names=["new"], features=np.zeros((1, 8)), edges=(["new"], ["n3"])))
    assert later.predict(["new"]).probabilities.shape == (1, 3)


def test_baselines_of_a_run_are_inductive_too(run: Run) -> None:
    for row in run.baselines:
        own = run_baseline(row["name"], run.graph, run.split, metric="accuracy", training=run.config.training)
        hidden = run_baseline(
            row["name"], run.graph, run.split, metric="accuracy", training=run.config.training, inductive=True
        )
        assert (row["settings"], row["val"], row["test"]) == (hidden["settings"], hidden["val"], hidden["test"])
        assert (own["settings"], own["val"]) != (hidden["settings"], hidden["val"])


def test_resuming_gives_the_same_run(run: Run, tmp_path: Path) -> None:
    def stop(row: dict[str, float]) -> None:
        if row["epoch"] == 2:
            raise RuntimeError("stop")

    config = replace(inductive(), training=replace(CONFIG.training, checkpoint_every=1))
    with pytest.raises(RuntimeError, match="stop"):
        vcr.train(run.original, run.split, config, tmp_path / "run", device="cpu", on_epoch=stop, baselines="none")
    assert (tmp_path / "run" / SEEN_TOKENS).is_dir()
    again = vcr.resume(tmp_path / "run", "cpu")
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name]), name
    assert again.metrics["scores"] == run.metrics["scores"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": replace(CONFIG.model, adjacency_rows=True)}, "adjacency_rows knows nodes by number"),
        ({"data": DataConfig(features="identity", inductive=True)}, "identity know nodes by number"),
        ({"data": DataConfig(features="degree", inductive=True)}, "degree count edges to nodes that are hidden"),
        ({"training": replace(CONFIG.training, consistency=1.0)}, "consistency needs nodes without a label"),
        ({"tokens": replace(CONFIG.tokens, clusters=100)}, r"number of nodes \(90\)"),
    ],
)
def test_what_would_know_hidden_nodes_is_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    graph = named_graph()
    with pytest.raises(ConfigError, match=words):
        config = replace(inductive(), **change)
        vcr.train(graph, Split.random(graph.labels, seed=0), config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_features_made_for_a_graph_without_any_are_refused(tmp_path: Path) -> None:
    graph = replace(named_graph(), features=None)
    with pytest.raises(ConfigError, match="features made by degree"):
        vcr.train(graph, Split.random(graph.labels, seed=0), inductive(features="auto"), tmp_path / "run")


def test_tune_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tune searches on the whole graph"):
        vcr.tune(GRAPH, SPLIT, 1, tmp_path / "run", inductive())


@pytest.mark.parametrize("name", ["logistic regression on hops", "gradient boosting on hops", "GCN", "GraphSAGE"])
def test_a_baseline_learns_nothing_from_hidden_nodes(name: str) -> None:
    # Validation nodes are linked among themselves only, test nodes to training nodes: these can reach the validation
    # metric by what was learned alone.
    random, nodes = np.random.default_rng(0), 120
    train, val, test = np.arange(60), np.arange(60, 90), np.arange(90, nodes)
    labels = random.integers(3, size=nodes)
    features = (np.eye(3)[labels] + random.normal(size=(nodes, 3))).astype(np.float32)
    edges = [np.concatenate([train, test, val]), np.concatenate([np.roll(train, 1), train[:30], np.roll(val, 1)])]
    rows = []
    for factor in (1, -7):
        changed = features.copy()
        changed[test] *= factor
        graph = Graph.from_edges(edges, nodes, features=changed, labels=labels)
        split = Split(train, val, test)
        rows.append(run_baseline(name, graph, split, metric="accuracy", inductive=True))
    assert (rows[0]["settings"], rows[0]["val"]) == (rows[1]["settings"], rows[1]["val"])
