"""Hops on a GPU: the same bits as on processors, whatever fits at a time."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from tests.support.command import run
from tests.support.plain import token_config
from tests.support.runs import CONFIG, all_bytes, named_graph
from vcr_graphormer import ConfigError, Graph, Split, TokenConfig, generate, tokenize, train
from vcr_graphormer.base.jobs import JobFolder
from vcr_graphormer.ranking.kernels import gpu_hops
from vcr_graphormer.tokens import build, gpu
from vcr_graphormer.tokens.gpu import GpuStep, check_device, gpu_for_hops
from vcr_graphormer.tokens.hops import Step, propagate

CPU = torch.device("cpu")
NODES, WIDTH = 61, 7
KINDS = ["plain", "weighted", "directed"]


def multiply(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    weights: torch.Tensor | None,
    left: torch.Tensor,
    right: torch.Tensor,
    loops: bool,
    source: torch.Tensor,
    first: int,
    out: torch.Tensor,
) -> None:
    """Add neighbour by neighbour in plain Python, with the roundings of the compiled loop."""
    numbers = source if source.dtype == torch.float64 else source.float()
    for i in range(len(out)):
        u = first + i
        arcs = range(int(indptr[u]), int(indptr[u + 1]))
        pairs = [(int(indices[e]), 1.0 if weights is None else float(weights[e])) for e in arcs]
        total = torch.zeros_like(numbers[0])
        for v, weight in sorted([*pairs, *([(u, 1.0)] if loops else [])]):
            total += float(np.float32(weight * float(left[u]) * float(right[v]))) * numbers[v]
        out[i] = total.float()


def example(kind: str, nodes: int = NODES, features: Any = None) -> Graph:
    """A graph whose last node has no edges."""
    edges = generate(nodes - 1, 5 * nodes, classes=3, seed=1).to_scipy().tocoo()
    random = np.random.default_rng(1)
    weight = random.random(len(edges.row)) if kind == "weighted" else None
    given = random.standard_normal((nodes, WIDTH)).astype(np.float32) if features is None else features
    pairs = [edges.row, edges.col]
    return Graph.from_edges(pairs, nodes, features=given, edge_weight=weight, directed=kind == "directed")


def assert_same_bits(blocks: Any, expected: Any) -> None:
    found, wanted = (np.concatenate(list(parts)).view(np.uint32) for parts in (blocks, expected))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [WIDTH, 3])
def test_all_columns_or_some_at_a_time(
    kind: str, loops: bool, dtype: type, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "ENTRIES_AT_ONCE", 10 * WIDTH)  # blocks of ten rows
    asked: list[tuple[int, ...]] = []

    def watched(*arguments: Any) -> None:
        asked.append(tuple(arguments[6].shape))
        multiply(*arguments)

    step = Step.of(example(kind), loops)
    device = replace(GpuStep.of(step, CPU, 1 << 20, watched), free=columns * NODES * (np.dtype(dtype).itemsize + 4))
    source: Any = np.random.default_rng(2).standard_normal((NODES, WIDTH)).astype(dtype)
    product = device.times(source)
    assert product is not None
    assert asked == [(NODES, WIDTH)] if columns == WIDTH else [(NODES, 3), (NODES, 3), (NODES, 1)]
    assert [len(block) for block in product.blocks()] == [10] * 6 + [1]
    first = np.concatenate(list(propagate(step, source)))
    assert_same_bits(product.blocks(), [first])
    second = device.times(product)  # the product is the next source, where it lies
    assert second is not None
    assert_same_bits(second.blocks(), propagate(step, first))


def test_what_does_not_fit_is_left_to_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step.of(example("plain"))
    fits = GpuStep.of(step, CPU, 1 << 20, multiply)
    assert GpuStep.of(step, CPU, 100, multiply).times(step.graph.features) is None  # not even the graph
    assert replace(fits, free=NODES * 8 - 1).times(step.graph.features) is None  # not even a column
    monkeypatch.setattr(gpu, "available_memory", lambda: NODES * WIDTH * 4 - 1)
    assert replace(fits, free=NODES * 8).times(step.graph.features) is None  # columns are joined in main memory
    assert fits.times(step.graph.features) is not None
    identity = Step.of(step.graph.with_features("identity"))
    assert fits.times(sp.identity(NODES, dtype=np.float32, format="csr")) is None  # the product stays sparse
    assert identity.graph.num_features == NODES


@pytest.mark.parametrize(("free", "waiting"), [(NODES * WIDTH * 4 * 2, 0), (NODES * WIDTH * 4 * 5, 3), (1 << 30, 16)])
def test_so_many_hops_wait_on_the_device(free: int, waiting: int) -> None:
    device = GpuStep.of(Step.of(example("plain")), CPU, 1 << 20, multiply)
    assert replace(device, free=free).most_waiting(WIDTH) == waiting


@pytest.mark.parametrize("free", [1 << 20, NODES * 8 * WIDTH, NODES * 8 * 2], ids=["all", "one", "columns"])
@pytest.mark.parametrize("features", ["dense", "sparse"])
@pytest.mark.parametrize("hop_type", ["float32", "float16"])
def test_the_store_has_the_same_bytes(
    free: int, features: str, hop_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparse = sp.random(NODES, WIDTH, 0.1, "csr", np.float32, np.random.default_rng(0))
    graph = example("plain", features=sparse if features == "sparse" else None)
    config: TokenConfig = token_config(hops=5, clusters=3, structure_tokens=2, content_tokens=0, hop_type=hop_type)
    expected = tokenize(graph, None, config, tmp_path / "processors", device="cpu")
    shown: list[tuple[str, int, int]] = []

    def on_device(graph: Graph, loops: bool, hops: int, device: str) -> GpuStep:
        assert (hops, device) == (5, "cuda:1")
        return replace(GpuStep.of(Step.of(graph, loops), CPU, 1 << 20, multiply), free=free)

    monkeypatch.setattr(build, "gpu_for_hops", on_device)
    how: dict[str, Any] = {"threads": 2, "device": "cuda:1", "progress": lambda *row: shown.append(row)}
    store = tokenize(graph, None, config, tmp_path / "device", **how)
    store.verify()
    assert all_bytes(store) == all_bytes(expected)
    assert [row for row in shown if row[0] == "hop features"] == [("hop features", done, 5) for done in range(6)]


def test_a_failed_write_ends_the_job_and_the_next_call_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, config = example("plain"), token_config(hops=4, clusters=3, structure_tokens=2, content_tokens=0)
    expected = tokenize(graph, None, config, tmp_path / "whole")
    asked: list[int] = []

    def on_device(graph: Graph, loops: bool, hops: int, _: str) -> GpuStep:
        asked.append(hops)
        return GpuStep.of(Step.of(graph, loops), CPU, 1 << 20, multiply)

    write = JobFolder.write_blocks

    def failing(job: Any, name: str, *rest: Any) -> Any:
        if name == "hop_3":
            raise OSError("no space left")
        return write(job, name, *rest)

    monkeypatch.setattr(build, "gpu_for_hops", on_device)
    with monkeypatch.context() as patch:
        patch.setattr(JobFolder, "write_blocks", failing)
        with pytest.raises(OSError, match="no space left"):
            tokenize(graph, None, config, tmp_path / "tokens", threads=1)
    assert all_bytes(tokenize(graph, None, config, tmp_path / "tokens", threads=1)) == all_bytes(expected)
    assert asked[0] == 4 and asked[1] in (1, 2)  # hop 4 may have been written before the error was seen


def test_small_graphs_other_names_and_machines_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = example("plain")
    with pytest.raises(ConfigError, match="device is 'tpu'; it must be auto, cpu, cuda or cuda:N"):
        check_device("tpu")
    monkeypatch.setattr(gpu, "GpuStep", None)  # reaching for it would fail
    assert gpu_for_hops(graph, True, 3) is None  # too small
    monkeypatch.setattr(gpu, "WORTH_A_GPU", 1)
    assert gpu_for_hops(graph, True, 3, "cpu") is None
    monkeypatch.setattr(gpu, "_DRIVERS", ())
    assert gpu_for_hops(graph, True, 3, "cuda") is None


def test_a_gpu_that_fails_is_left_out_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "WORTH_A_GPU", 1)
    monkeypatch.setattr(gpu, "_DRIVERS", (Path(),))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu_hops, "HAS_TRITON", True)
    with pytest.warns(RuntimeWarning, match="hops are computed on the CPU, because cuda:99 cannot: "):
        assert gpu_for_hops(example("plain"), True, 3, "cuda:99") is None
    monkeypatch.setattr(gpu_hops, "HAS_TRITON", False)
    assert gpu_for_hops(example("plain"), True, 3, "cuda:99") is None


def test_training_and_the_command_pass_the_device_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def watched(graph: Graph, loops: bool, hops: int, device: str) -> None:
        asked.append(device)

    monkeypatch.setattr(build, "gpu_for_hops", watched)
    graph = named_graph()
    train(graph, Split.random(graph.labels, seed=0), CONFIG, tmp_path / "run", device="cpu", progress=False)
    given = graph.save(tmp_path / "graph")
    for name in ("auto", "cpu"):
        run("tokenize", "--dataset", str(given), "--out", str(tmp_path / name), "--device", name)
    assert asked == ["cpu", "auto", "cpu"]
    text = run("tokenize", "--dataset", str(given), "--out", str(tmp_path / "tpu"), "--device", "tpu", code=2)
    assert "device is 'tpu'; it must be auto, cpu, cuda or cuda:N" in text


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, WIDTH, 100, 1000])
def test_a_gpu_has_the_bits_of_processors(
    kind: str, loops: bool, dtype: type, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "WORTH_A_GPU", 1)
    features: Any = np.random.default_rng(2).standard_normal((2000, width)).astype(dtype)
    if dtype == np.float32:
        features[:, 0] *= np.float32(1e-41)  # numbers below the smallest normal one
    step = Step.of(example(kind, 2000, features.astype(np.float32)), loops)
    device = gpu_for_hops(step.graph, loops, 2)
    assert device is not None
    product = device.times(features)
    assert product is not None
    first = np.concatenate(list(propagate(step, features)))
    assert_same_bits(product.blocks(), [first])
    for dtype_of_store in ("float32", "float16"):
        second = device.times(product, dtype_of_store)
        assert second is not None
        assert_same_bits(second.blocks(), propagate(step, first.astype(dtype_of_store)))
