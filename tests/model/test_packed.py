"""Rows on their way to a GPU: the same numbers, rounded once."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from tests.support.plain import model_config, token_config
from vcr_graphormer import generate, make_inputs, make_lists
from vcr_graphormer.model import batches
from vcr_graphormer.model.gpu import packed
from vcr_graphormer.model.gpu.packed import pack
from vcr_graphormer.model.inputs import to_matrix
from vcr_graphormer.model.matrices import SparseRows, project

CPU = torch.device("cpu")
ROWS = torch.tensor([5, 0, 5, 39])


def numbers(dtype: type = np.float32) -> np.ndarray:
    """Zeros, and numbers halfway between two bfloat16, large, small and negative ones."""
    random = np.random.default_rng(0)
    dense: Any = random.standard_normal((40, 21)) * np.exp(random.normal(0, 3, (40, 21)))
    dense[random.random((40, 21)) < 0.6] = 0
    dense[5, :4] = 1 + 1 / 256, 1 + 3 / 256, -1 - 1 / 256, 1e-30
    result: np.ndarray = dense.astype(dtype)
    return result


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("form", ["dense", "sparse", "float16"])
def test_the_rows_arrive_rounded(form: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = numbers(np.float16 if form == "float16" else np.float32)
    matrix = to_matrix(sp.csr_matrix(plain) if form == "sparse" else plain, CPU, dtype=None, dense=False)
    expected = torch.from_numpy(plain)[ROWS].to(dtype)
    parcel = pack(matrix, ROWS, dtype, pinned=False)
    assert parcel.pin_memory() is parcel
    arrived = parcel.to(CPU).unpack()
    assert isinstance(arrived, torch.Tensor)
    assert (arrived.dtype, arrived.shape) == (dtype, (4, 24 if form == "sparse" else 21))
    torch.testing.assert_close(arrived[:, :21], expected, rtol=0, atol=0)
    assert not arrived[:, 21:].any()
    weight = torch.randn(21, 3).to(dtype)
    torch.testing.assert_close(project(arrived, weight), expected @ weight)
    if form == "sparse":
        monkeypatch.setattr(packed, "_most_bytes", lambda device: 4 * 24 * dtype.itemsize - 1)
        kept = parcel.to(CPU).unpack()
        assert isinstance(kept, SparseRows)
        assert (kept.indices.dtype, kept.values.dtype, kept.shape) == (torch.int32, dtype, (4, 21))
        torch.testing.assert_close(kept.to_dense(), expected, rtol=0, atol=0)


def test_columns_have_as_many_bits_as_they_need() -> None:
    for width, dtype in ((32_767, torch.int16), (32_768, torch.int32)):
        wide = sp.csr_matrix(([1.0, 2.0], ([0, 1], [0, width - 1])), (2, width), dtype=np.float32)
        matrix = to_matrix(wide, CPU, dtype=None, dense=False)
        rows = pack(matrix, torch.tensor([1, 0]), torch.bfloat16, pinned=False).rows
        assert isinstance(rows, SparseRows)
        assert (rows.indices.dtype, rows.indices.tolist()) == (dtype, [width - 1, 0])


@pytest.mark.parametrize("sparse", [False, True])
def test_packed_batches_are_the_batches(sparse: bool) -> None:
    graph = generate(200, 800, classes=3, features=12, seed=0)
    if sparse:
        graph = graph.with_features("identity")
    lists = make_lists(graph, None, token_config(hops=2, clusters=4, structure_tokens=3, content_tokens=0))
    inputs = make_inputs(graph, lists, model_config(rich_tokens=1), np.arange(50), CPU, streamed=True)
    nodes = torch.tensor([7, 31, 8])
    plain, sent = inputs.batch(nodes), inputs.packed(nodes).to(CPU).unpacked()
    for name in ("nodes", "place", "scores"):
        torch.testing.assert_close(getattr(sent, name), getattr(plain, name))
    assert len(sent.rows) == len(plain.rows) == 2
    for theirs, ours in zip((*plain.hops, *plain.rows), (*sent.hops, *sent.rows), strict=True):
        expected = theirs.to_dense() if isinstance(theirs, SparseRows) else theirs
        assert isinstance(ours, torch.Tensor)
        torch.testing.assert_close(ours[:, : graph.num_features], expected, rtol=0, atol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("sparse", [False, True])
def test_batches_arrive_on_a_gpu(sparse: bool, dtype: torch.dtype) -> None:
    graph = generate(200, 800, classes=3, features=12, seed=0)
    graph = graph.with_features("identity") if sparse else graph
    lists = make_lists(graph, None, token_config(hops=2, clusters=4, structure_tokens=3, content_tokens=0))
    gpu = torch.device("cuda")
    inputs = make_inputs(graph, lists, model_config(rich_tokens=1), np.arange(50), gpu, dtype, streamed=True)
    parts = torch.split(torch.randperm(200), 30)
    for part, batch in zip(parts, inputs.batches_of(parts), strict=True):
        expected = inputs.packed(part).to(CPU).unpacked()
        for ours, theirs in zip((*batch.hops, *batch.rows), (*expected.hops, *expected.rows), strict=True):
            assert isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor)
            assert (ours.device.type, ours.dtype) == ("cuda", dtype)
            torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=0)
        assert batch.place.tolist() == expected.place.tolist()


def test_readers_use_one_thread_each() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        counts: Any = list(batches._read_ahead(lambda _: torch.get_num_threads(), [ROWS] * 5))  # type: ignore[arg-type, return-value]
        assert counts == [1] * 5
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
