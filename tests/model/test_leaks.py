"""A target's own label cannot reach its own prediction, whatever switches are on; test labels reach nothing."""

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.plain import model_config, plain_config, token_config, train_config
from vcr_graphormer import (
    Graph,
    Kind,
    ModelConfig,
    Split,
    TokenConfig,
    VCRGraphormer,
    content_connections,
    exact_pagerank,
    generate,
    make_inputs,
    tokenize,
    train,
)
from vcr_graphormer.model.batches import Batch
from vcr_graphormer.model.matrices import Selection, SparseRows
from vcr_graphormer.ranking.connections import Connections
from vcr_graphormer.tokens.layout import Layout


@pytest.fixture(scope="module")
def graph() -> Graph:
    return generate(nodes=120, edges=420, classes=3, features=6, homophily=0.6, seed=3)


@pytest.fixture(scope="module")
def split(graph: Graph) -> Split:
    return Split.random(graph.labels, seed=1)


def flipped(graph: Graph, node: int) -> Graph:
    labels = np.array(graph.labels)
    labels[node] = (labels[node] + 1) % 3
    return replace(graph, labels=labels)


def own_batch(
    graph: Graph,
    split: Split,
    model: ModelConfig,
    tokens: TokenConfig,
    node: int,
    out: Path,
    kinds: Sequence[Kind] = (),
) -> Batch:
    store = tokenize(graph, split.train, tokens, out, kinds=kinds)
    return make_inputs(graph, store, model, split.train, torch.device("cpu")).batch(torch.tensor([node]))


SWITCHES = list(product((0, 2), (0, 2), (False, True), (False, True), (False, True), ("labels",)))
SWITCHES += [(0, 0, True, False, False, "links"), (2, 2, True, True, True, "links")]


@pytest.mark.parametrize(("rich", "label_hops", "embedding", "adjacency", "self_loops", "content"), SWITCHES)
def test_flipping_the_own_label_changes_no_input_of_the_own_row(
    graph: Graph,
    split: Split,
    tmp_path: Path,
    rich: int,
    label_hops: int,
    embedding: bool,
    adjacency: bool,
    self_loops: bool,
    content: str,
) -> None:
    model = model_config(
        hidden_channels=8,
        heads=2,
        rich_tokens=rich,
        label_hops=label_hops,
        label_embedding=embedding,
        rich_labels=rich > 0,
        adjacency_rows=adjacency,
        rank_embedding=True,
        feature_dropout=0.5,
        embedding_dropout=0.2,
        dropout=0.0,
        attention_dropout=0.0,
    )
    # Graphs of this size are pushed to the end: the ranking is exact to float32.
    tokens = token_config(
        hops=2,
        clusters=3,
        structure_tokens=4,
        content_tokens=6,
        link_tokens=3,
        nearest_tokens=3,
        self_loops=self_loops,
        content=content,
    )
    node = int(split.train[0])
    before = own_batch(graph, split, model, tokens, node, tmp_path / "before")
    after = own_batch(flipped(graph, node), split, model, tokens, node, tmp_path / "after")
    for item in fields(Batch):
        _same(item.name, getattr(before, item.name), getattr(after, item.name))
    torch.manual_seed(0)
    layout = Layout(2, {"structure": 4, "content": 6, "links": 3, "nearest": 3})
    read = VCRGraphormer(model, layout, num_features=6, num_outputs=3, num_labels=3, num_nodes=120)
    for training in (False, True):
        outputs = []
        for batch in (before, after):
            torch.manual_seed(1)  # the same dropout
            outputs.append(read.train(training)(batch))
        torch.testing.assert_close(outputs[0], outputs[1], atol=2e-6, rtol=1e-5)


def _same(name: str, before: Any, after: Any) -> None:
    if isinstance(before, Selection) and isinstance(after, Selection):  # rows that are copied when they are read
        before, after = before.copied(), after.copied()
    if isinstance(before, SparseRows):
        before, after = (before.indptr, before.indices, before.values), (after.indptr, after.indices, after.values)
    if isinstance(before, tuple):
        for first, second in zip(before, after, strict=True):
            _same(name, first, second)
    elif name in ("scores", "shared") and before is not None:  # the ranking's error, of float32 here
        torch.testing.assert_close(after, before, atol=1e-6, rtol=1e-5)
        assert torch.equal(before != 0, after != 0)
    elif before is not None:
        assert torch.equal(before, after), name
        assert before.numpy().tobytes() == after.numpy().tobytes(), name


def by_training_label(graph: Graph, train: Any, config: TokenConfig) -> Connections:
    return content_connections(graph.labels, train)


def test_it_would_show_without_leaving_the_own_label_out(graph: Graph, split: Split, tmp_path: Path) -> None:
    # The test above can fail: with the paper's plain reading the own label moves the content ranking.
    tokens = token_config(hops=2, clusters=3, structure_tokens=4, content_tokens=0)
    model, node = model_config(hidden_channels=8, heads=2), int(split.train[5])
    moved = []
    for left_out in (True, False):
        kind = Kind("mine", lambda config: 6, connect=by_training_label, own_label_left_out=left_out)
        scores = [
            own_batch(labelled, split, model, tokens, node, tmp_path / f"{left_out}{number}", [kind]).scores
            for number, labelled in enumerate((graph, flipped(graph, node)))
        ]
        moved.append(not torch.allclose(scores[0], scores[1], atol=1e-4))
    assert moved == [False, True]


def test_exact_pagerank_without_the_own_label_does_not_know_it(graph: Graph, split: Split) -> None:
    node = int(split.train[5])
    vectors = []
    for labelled in (graph, flipped(graph, node)):
        others = split.train[split.train != node]
        vectors.append(exact_pagerank(labelled, content_connections(labelled.labels, others), node))
    assert (vectors[0] == vectors[1]).all()


@pytest.mark.parametrize("consistency", [0.0, 1.0])
def test_test_labels_change_neither_tokens_nor_weights(
    graph: Graph, split: Split, tmp_path: Path, consistency: float
) -> None:
    labels = np.array(graph.labels)
    labels[split.test] = (labels[split.test] + 1) % 3
    other = replace(graph, labels=labels)
    model = model_config(hidden_channels=8, heads=2, label_hops=2, label_embedding=True, rich_labels=True)
    config = plain_config(
        tokens=token_config(hops=2, clusters=3, structure_tokens=3, content_tokens=3),
        model=model,
        training=train_config(epochs=3, batch_size=32, consistency=consistency),
    )
    first = train(graph, split, config, tmp_path / "first", device="cpu")
    second = train(other, split, config, tmp_path / "second", device="cpu")
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(tensor, second.model.state_dict()[name])
    assert first.metrics["val"] == second.metrics["val"]
    assert first.metrics["test"] != second.metrics["test"]
