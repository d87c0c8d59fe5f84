"""Graph and store become tensors without a changed value; stores of other graphs are refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from tests.support import naive
from tests.support.plain import model_config, token_config
from vcr_graphormer import ConfigError, Graph, GraphError, StoreError, TokenStore, generate, tokenize
from vcr_graphormer.base.machine import available_memory
from vcr_graphormer.model.batches import Inputs
from vcr_graphormer.model.config import ModelConfig
from vcr_graphormer.model.inputs import make_inputs, residence, sparse_if_faster
from vcr_graphormer.model.labels import label_hops, label_matrix
from vcr_graphormer.model.matrices import Matrix, SparseRows, project, select
from vcr_graphormer.training.devices import find_device

CPU = torch.device("cpu")
NODES, CLASSES = 200, 4
TRAIN = np.arange(0, NODES, 2)
CONFIG = token_config(hops=2, clusters=5, structure_tokens=6, content_tokens=3)


def make_graph(sparse: bool = False) -> Graph:
    """200 nodes and 8 features, of which half of the entries are zero where they are sparse."""
    graph = generate(NODES, 500, classes=CLASSES, features=8, seed=1)
    dense = np.asarray(graph.features)
    return replace(graph, features=sp.csr_matrix(np.maximum(dense, 0))) if sparse else graph


@pytest.fixture(scope="module", params=[False, True], ids=["dense", "sparse"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, TokenStore]:
    graph = make_graph(request.param)
    return graph, tokenize(graph, TRAIN, CONFIG, tmp_path_factory.mktemp("store") / "tokens")


def convert(graph: Graph, store: TokenStore, model: ModelConfig | None = None, streamed: bool | None = None) -> Inputs:
    return make_inputs(graph, store, model or model_config(), TRAIN, CPU, streamed=streamed)


def dense(matrix: Any) -> np.ndarray:
    if isinstance(matrix, SparseRows):
        parts = (matrix.values.numpy(), matrix.indices.numpy(), matrix.indptr.numpy())
        return np.asarray(sp.csr_matrix(parts, shape=matrix.shape).toarray())
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)


def joined(store: TokenStore, part: str) -> np.ndarray:
    return np.concatenate([store.arrays[f"{kind}_{part}"] for kind in ("structure", "content")], axis=1)


@pytest.mark.parametrize("streamed", [None, False, True])
def test_nothing_is_changed(case: tuple[Graph, TokenStore], streamed: bool | None) -> None:
    graph, store = case
    inputs = convert(graph, store, streamed=streamed)
    assert (inputs.layout.counts["structure"], inputs.device, inputs.home) == (6, CPU, CPU)
    assert (inputs.streamed, len(inputs.ids)) == ((True, 2) if streamed else (False, 1))
    np.testing.assert_array_equal(torch.cat(inputs.ids, 1).numpy(), joined(store, "ids"))
    np.testing.assert_array_equal(torch.cat(inputs.scores, 1).numpy(), joined(store, "scores"))
    np.testing.assert_array_equal(dense(inputs.features), dense(graph.features))
    assert isinstance(inputs.features, SparseRows) == sp.issparse(graph.features)
    for number, hop in enumerate(inputs.hops, 1):
        np.testing.assert_array_equal(dense(hop), dense(store.hop(number)))
        assert isinstance(hop, SparseRows) == sp.issparse(store.hop(number))
        np.testing.assert_allclose(dense(hop), naive.hops(graph, 2, False)[number - 1], atol=1e-5)
    assert (inputs.label_hops, inputs.labels) == (None, None)


def test_streamed_batches_are_the_same(case: tuple[Graph, TokenStore]) -> None:
    model = model_config(rich_tokens=1, label_hops=2, label_embedding=True, rich_labels=True)
    nodes = torch.arange(0, NODES, 7)
    pairs = [convert(*case, model, streamed).batches(nodes, 10, with_rows=False) for streamed in (False, True)]
    for mine, theirs in zip(*pairs, strict=True):
        assert torch.equal(mine.place, theirs.place)
        assert torch.equal(mine.scores, theirs.scores)
        assert mine.labels is not None
        assert theirs.labels is not None
        assert torch.equal(mine.labels, theirs.labels)
        assert mine.labels_around is not None
        assert theirs.labels_around is not None
        assert torch.equal(mine.labels_around, theirs.labels_around)
        for first, second in zip(mine.hops, theirs.hops, strict=True):
            np.testing.assert_array_equal(dense(first), dense(second))


@pytest.mark.parametrize("streamed", [False, True])
def test_hops_of_float16_stay_so_until_a_batch_reads_them(tmp_path: Path, streamed: bool) -> None:
    graph = make_graph()
    store = tokenize(graph, TRAIN, replace(CONFIG, hop_type="float16"), tmp_path / "tokens")
    inputs = convert(graph, store, model_config(rich_tokens=1), streamed)
    assert [matrix.dtype for matrix in (inputs.features, *inputs.hops)] == [torch.float32] + 2 * [torch.float16]  # type: ignore[union-attr]
    nodes = torch.tensor([5, 3])
    (batch,) = inputs.batches(nodes, 2)
    for number, hop in enumerate(batch.hops, 1):
        np.testing.assert_array_equal(dense(hop), np.asarray(store.hop(number), np.float32)[[5, 3]])
        assert hop.dtype == torch.float32  # type: ignore[union-attr]
    weight = torch.randn(graph.num_features, 4)
    whole = project(inputs.hops[0], weight)  # as where a batch names most rows
    torch.testing.assert_close(whole[nodes], project(batch.hops[0], weight))


def test_batches_hold_the_features_of_the_ids(case: tuple[Graph, TokenStore]) -> None:
    graph, store = case
    batch = convert(graph, store).batch(torch.tensor([7, 31]))
    rows: Matrix = select(batch.rows[0], torch.arange(batch.rows[0].shape[0]))
    assert rows.shape[0] < NODES
    ids = np.column_stack([[7, 31], joined(store, "ids")[[7, 31]].clip(min=0)])
    np.testing.assert_array_equal(dense(rows)[batch.place.numpy()], dense(graph.features)[ids])


def test_labels_where_the_model_asks_for_them(case: tuple[Graph, TokenStore]) -> None:
    graph, store = case
    known = label_matrix(graph, TRAIN)
    inputs = convert(graph, store, model_config(label_embedding=True))
    assert inputs.labels is not None
    np.testing.assert_array_equal(inputs.labels.numpy(), known)
    assert inputs.label_hops is None
    assert not inputs.labels[1::2].any()  # not a training node
    inputs = convert(graph, store, model_config(label_hops=2, rich_tokens=1))
    assert inputs.label_hops is not None
    assert (inputs.labels, inputs.rich_tokens) == (None, 1)
    for place, hop in enumerate(label_hops(graph, known, 2)):
        np.testing.assert_array_equal(inputs.label_hops[:, place].numpy(), hop)


def test_labels_around_have_the_stores_self_loops(tmp_path: Path) -> None:
    graph = make_graph()
    config = token_config(hops=1, clusters=5, structure_tokens=3, content_tokens=0, self_loops=True)
    store = tokenize(graph, TRAIN, config, tmp_path / "tokens")
    inputs = convert(graph, store, model_config(label_hops=1, rich_labels=True))
    assert inputs.label_hops is not None
    known = label_matrix(graph, TRAIN)
    expected = naive.label_hops(graph, known, 1, self_loops=True)[0]
    np.testing.assert_allclose(inputs.label_hops[:, 0].numpy(), expected, atol=2e-6)
    around = inputs.batch(torch.arange(NODES)).labels_around
    assert around is not None
    expected = naive.labels_around(graph, known, store.arrays["structure_ids"], self_loops=True)
    np.testing.assert_allclose(around.numpy(), expected, atol=2e-6)


def test_labels_of_other_nodes_do_not_matter(case: tuple[Graph, TokenStore]) -> None:
    graph, store = case
    hidden = np.array(graph.labels)
    hidden[1::2] = -1
    model = model_config(label_hops=2, label_embedding=True)
    first, second = convert(graph, store, model), convert(replace(graph, labels=hidden), store, model)
    assert first.label_hops is not None
    assert first.labels is not None
    assert second.label_hops is not None
    assert second.labels is not None
    assert torch.equal(first.label_hops, second.label_hops)
    assert torch.equal(first.labels, second.labels)


def test_refused(case: tuple[Graph, TokenStore]) -> None:
    graph, store = case
    with pytest.raises(GraphError, match=r"the graph has no features: use graph.with_features\('degree'\) or"):
        convert(replace(graph, features=None), store)
    wider = replace(graph, features=np.ones((NODES, 9), dtype=np.float32))
    with pytest.raises(StoreError, match="has 200 nodes with 8 features, the graph 200 with 9: these are tokens of"):
        convert(wider, store)
    other = generate(100, 300, classes=CLASSES, features=8)
    with pytest.raises(StoreError, match="has 200 nodes with 8 features, the graph 100 with 8: .* another graph"):
        convert(other, store)
    with pytest.raises(ConfigError, match="model.rich_tokens is 3 but the token lists have 2 hops"):
        convert(graph, store, model_config(rich_tokens=3))


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_device("cpu") == CPU
    for name in ("gpu", "", "cuda:x", "meta"):
        with pytest.raises(ConfigError, match=f"device is '{name}'; it must be auto, cpu, cuda or cuda:N"):
            find_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device() == find_device("auto") == CPU
    for name in ("cuda", "cuda:1"):
        message = f"device is '{name}' but this machine has no GPU that torch can use: use --device cpu or auto"
        with pytest.raises(ConfigError, match=message):
            find_device(name)


def test_devices_of_a_machine_with_two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert (find_device(), find_device("cuda:1")) == (torch.device("cuda"), torch.device("cuda:1"))
    with pytest.raises(ConfigError, match="device is 'cuda:2' but this machine has 2 GPUs: use --device cpu or auto"):
        find_device("cuda:2")


@pytest.mark.parametrize(
    "model", [model_config(label_embedding=True), model_config(label_hops=1), model_config(rich_labels=True)]
)
def test_label_inputs_need_labels(case: tuple[Graph, TokenStore], model: ModelConfig) -> None:
    graph, store = case
    with pytest.raises(GraphError, match="no labels"):
        convert(replace(graph, labels=None), store, model)


def test_processes_that_torchrun_started_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cpu")
    free = available_memory()
    # A matrix that pretends to take a quarter of the free memory: one process may take half of it for inputs.
    matrix = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (free >> 14, 1 << 10), (0, 0))
    assert residence([matrix], device, torch.float32) == (True, True)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert residence([matrix], device, torch.float32) == (False, False)


def test_dense_features_with_many_zeros_become_sparse_rows(case: tuple[Graph, TokenStore]) -> None:
    graph, store = case
    zeros = np.where(np.random.default_rng(0).random(graph.features.shape) < 0.7, 0, 1)  # type: ignore[union-attr]
    inputs = convert(replace(graph, features=zeros.astype(np.float32)), store)
    assert isinstance(inputs.features, SparseRows)
    assert inputs.features.values.dtype == torch.float32
    np.testing.assert_array_equal(dense(inputs.features), zeros)
    assert sparse_if_faster(np.ones((3, 2))).shape == (3, 2)
    assert not sp.issparse(sparse_if_faster(np.empty((0, 2))))
