"""Token lists become tensors: literal values, whole or in parts, at once or read ahead."""

import threading
import time
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vcr_graphormer import ConfigError
from vcr_graphormer.model import batches
from vcr_graphormer.model.batches import Batch, Inputs
from vcr_graphormer.model.matrices import Matrix, SparseRows
from vcr_graphormer.tokens.layout import Layout

CPU = torch.device("cpu")
LAYOUT = Layout(3, {"structure": 2, "content": 1})
IDS = torch.tensor([[1, 2, 3], [0, -1, 4], [-1, -1, -1], [4, 0, 1], [3, 2, -1]], dtype=torch.int32)
SCORES = torch.tensor([[0.5, 0.25, 0.125], [0.5, 0, 0.5], [0, 0, 0], [0.75, 0.5, 0.25], [1, 0.5, 0]])


def make_inputs(**keywords: Any) -> Inputs:
    """Five nodes: node i has the features (i, 10 i) and the hops (100 l + i, i); two structure tokens, one content."""
    number = torch.arange(5.0)
    hops = tuple(torch.stack([100 * hop + number, number], 1) for hop in (1, 2, 3))
    settings: dict[str, Any] = {"ids": (IDS,), "scores": (SCORES,), "layout": LAYOUT, **keywords}
    return Inputs(torch.stack([number, 10 * number], 1), hops, device=CPU, **settings)


def make_full(**keywords: Any) -> Inputs:
    """Everything a batch may carry: rich tokens, labels, labels around and scores by later kinds."""
    ids = torch.tensor([[1, 2, -1], [0, -1, 4], [-1, -1, -1], [4, 0, 1], [3, 2, 0]])
    return make_inputs(
        ids=(ids,),
        rich_tokens=2,
        label_hops=torch.arange(30.0).reshape(5, 2, 3),
        labels=torch.arange(1.0, 16.0).reshape(5, 3),
        rich_labels=(
            torch.arange(1.0, 16.0, dtype=torch.float64).reshape(5, 3),
            torch.tensor([[0.5, 0.0, 0.0], [0.0, 0.0, 0.25], [0.0] * 3, [0.0, 1.0, 0.0], [0.0] * 3]),
            torch.eye(5, 3),
        ),
        shared=(torch.tensor([[0.5, 0.0], [0.25, 0.0], [0.0, 0.0], [0.0, 0.125], [0.0, 1.0]]),),
        **keywords,
    )


def tensors(batch: Batch) -> dict[str, Tensor]:
    """All tensors of a batch by name."""
    found: dict[str, Tensor] = {}
    for item in fields(batch):
        value = getattr(batch, item.name)
        parts = value if isinstance(value, tuple) else () if value is None else (value,)
        found |= {f"{item.name}{number}": part for number, part in enumerate(parts)}
    return found


def assert_equal(first: Batch, second: Batch) -> None:
    mine, theirs = tensors(first), tensors(second)
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        assert torch.equal(tensor, theirs[name]), name


def gathered(batch: Batch) -> list[Tensor]:
    """The features of each node and its neighbours, by each of the batch's rows."""
    found = []
    for rows in batch.rows:
        assert isinstance(rows, Tensor)
        found.append(rows[batch.place])
    return found


def reading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("vcr-read-ahead")]


def test_literal_values_of_a_padded_node() -> None:
    inputs = make_inputs()
    batch = inputs.batch(torch.tensor([1, 3]))
    assert len(batch) == 2
    assert batch.nodes.tolist() == [1, 3]
    assert batch.place.tolist() == [[1, 0, 0, 4], [3, 4, 0, 1]]
    sixth = torch.tensor(1 / 6).item()
    third = torch.tensor(1 / 3).item()
    assert batch.scores.tolist() == [[1, 0.5, third, sixth, 0.5, 0, 0.5], [1, 0.5, third, sixth, 0.75, 0.5, 0.25]]
    assert batch.mask is not None
    assert batch.mask.tolist() == [[True, True, True, True, True, False, True], [True] * 7]
    hops: list[Any] = [hop.tolist() for hop in batch.hops if isinstance(hop, Tensor)]
    assert hops == [[[101, 1], [103, 3]], [[201, 1], [203, 3]], [[301, 1], [303, 3]]]
    assert batch.rows[0] is inputs.features  # 8 places: more than there are nodes
    assert (batch.label_hops, batch.labels) == (None, None)
    single = inputs.batch(torch.tensor([1]))  # 4 places: only the rows it needs, which are 0, 1 and 4
    assert single.place.tolist() == [[1, 0, 0, 2]]
    assert isinstance(single.rows[0], Tensor)
    assert single.rows[0].tolist() == [[0, 0], [1, 10], [4, 40]]


def test_what_inputs_are() -> None:
    inputs = make_inputs()
    assert inputs.num_bytes == 4 * (10 + 30 + 15 + 15)
    assert (inputs.home, inputs.padded) == (CPU, True)
    whole = make_inputs(ids=(IDS.clamp(min=0),))
    assert whole.padded is False
    assert whole.batch(torch.tensor([1])).mask is None


def test_weights_of_hops() -> None:
    inputs = make_inputs()
    torch.testing.assert_close(inputs.own_scores, torch.tensor([1, 3 / 6, 2 / 6, 1 / 6]), rtol=0, atol=0)
    one, none = (replace(LAYOUT, hops=hops) for hops in (1, 0))
    assert replace(inputs, hops=inputs.hops[:1], layout=one).own_scores.tolist() == [1, 1]
    assert replace(inputs, hops=(), layout=none).own_scores.tolist() == [1]
    with pytest.raises(ConfigError, match="the inputs have 1 hops and 3 neighbours, their layout 3 and 3"):
        replace(inputs, hops=inputs.hops[:1])


def test_pieces_side_by_side_are_one_list() -> None:
    scores = SCORES.half()  # every score is a binary fraction
    pieces = make_inputs(ids=(IDS[:, :2], IDS[:, 2:]), scores=(scores[:, :2], scores[:, 2:]))
    nodes = torch.tensor([4, 0, 2])
    assert pieces.num_tokens == 7
    assert_equal(pieces.batch(nodes), make_inputs().batch(nodes))
    assert pieces.batch(nodes).scores.dtype == torch.float32


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=7))
def test_needed_rows_and_all_rows_hold_the_same_features(chosen: list[int]) -> None:
    nodes = torch.tensor(chosen)
    needed, everything = make_full(streamed=True).batch(nodes), make_full().batch(nodes.repeat(2))
    assert everything.rows[0].shape[0] == 5  # 8 places or more
    for mine, theirs in zip(gathered(needed), gathered(everything), strict=True):
        assert torch.equal(mine, theirs[: len(nodes)])
    assert isinstance(needed.rows[0], Tensor)
    numbers = needed.rows[0][:, 0].tolist()
    assert numbers == sorted(set(numbers))  # each once


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=7))
def test_batches_on_a_gpu_have_one_shape_and_the_same_features(chosen: list[int]) -> None:
    # A graph so large that a batch names fewer than a sixteenth of its nodes; nothing is computed on the device.
    few = make_full()
    many = replace(few, features=torch.cat([few.features, torch.zeros(2000, 2)]))  # type: ignore[list-item]
    gpu = replace(many, device=torch.device("cuda"), rich_tokens=0)
    nodes = torch.tensor(chosen)
    assert gpu.same_shapes
    assert not replace(gpu, streamed=True).same_shapes
    mine, theirs = gpu.batch(nodes), replace(few, rich_tokens=0, streamed=True).batch(nodes)
    assert mine.rows[0].shape[0] == mine.place.numel()
    for first, second in zip(gathered(mine), gathered(theirs), strict=True):
        assert torch.equal(first, second)


def test_places_name_the_rows_of_the_batch() -> None:
    inputs = make_full()
    needed = inputs.batch(torch.tensor([3]))  # the rows 0, 1, 3 and 4
    assert needed.place.tolist() == [[2, 3, 0, 1]]
    assert gathered(needed)[0].tolist() == [[[3, 30], [4, 40], [0, 0], [1, 10]]]
    everything = inputs.batch(torch.tensor([0, 3]))
    assert everything.place.tolist() == [[0, 1, 2, 0], [3, 4, 0, 1]]
    bare = inputs.batch(torch.tensor([3]), with_rows=False)
    assert (bare.place.tolist(), bare.rows) == ([[3, 4, 0, 1]], ())


def test_labels_of_neighbours_but_not_of_padding() -> None:
    batch = make_full().batch(torch.tensor([0, 1]))
    nothing = [0.0, 0.0, 0.0]
    assert batch.labels is not None
    assert batch.labels.tolist() == [[[4, 5, 6], [7, 8, 9], nothing], [[1, 2, 3], nothing, [13, 14, 15]]]
    assert batch.labels_around is not None  # less half of (1, 0, 0), and a quarter of (0, 1, 0)
    assert batch.labels_around.tolist() == [[[3.5, 5, 6], [7, 8, 9], nothing], [[1, 2, 3], nothing, [13, 13.75, 15]]]
    assert batch.label_hops is not None
    assert batch.label_hops.tolist() == torch.arange(12.0).reshape(2, 2, 3).tolist()
    assert len(batch.rows) == 3  # X, PX and P²X


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("make", [make_inputs, make_full])
def test_parts_put_together_are_the_whole(size: int, make: Any) -> None:
    whole = make().batch(torch.tensor([3, 1, 4, 0, 2]))
    parts = list(whole.split(size))
    assert [len(part) for part in parts] == [min(size, 5 - start) for start in range(0, 5, size)]
    assert all(part.rows == () for part in parts)
    pieces = [tensors(part) for part in parts]
    for name, tensor in tensors(replace(whole, rows=())).items():
        assert torch.equal(torch.cat([piece[name] for piece in pieces]), tensor), name


def test_sparse_features_and_hops() -> None:
    # Node i has the single feature i + 1 in column i mod 2.
    sparse = SparseRows(torch.arange(6), torch.tensor([0, 1, 0, 1, 0]), torch.arange(1.0, 6.0), 2)
    hops: tuple[Matrix, ...] = (sparse,)
    inputs = replace(make_inputs(), features=sparse, hops=hops, layout=replace(LAYOUT, hops=1), streamed=True)
    batch = inputs.batch(torch.tensor([1, 4]))
    rows, hop = batch.rows[0], batch.hops[0]
    assert isinstance(rows, SparseRows)
    assert isinstance(hop, SparseRows)
    assert rows.values.tolist() == [1, 2, 3, 4, 5]
    assert (hop.values.tolist(), hop.indices.tolist()) == ([2, 5], [1, 0])
    cuts = [part.hops[0] for part in batch.split(1)]
    assert [cut.values.tolist() for cut in cuts if isinstance(cut, SparseRows)] == [[2], [5]]
    assert batch.to(CPU).hops[0] is hop


@pytest.mark.parametrize("with_rows", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_streamed_batches_are_the_same(size: int, with_rows: bool) -> None:
    nodes = torch.tensor([4, 2, 0, 1, 3])
    plain = list(make_full().batches(nodes, size, with_rows))
    streamed = list(make_full(streamed=True).batches(nodes, size, with_rows))
    assert [batch.nodes.tolist() for batch in streamed] == [part.tolist() for part in torch.split(nodes, size)]
    for mine, theirs in zip(streamed, plain, strict=True):
        assert_equal(replace(mine, rows=(), place=theirs.place), replace(theirs, rows=()))
        for first, second in zip(gathered(mine), gathered(theirs), strict=True):
            assert torch.equal(first, second)
        if not with_rows:
            assert torch.equal(mine.place, theirs.place)
    assert reading_threads() == []


def test_an_error_while_reading_reaches_the_caller() -> None:
    reader = make_inputs(streamed=True).batches(torch.tensor([0, 1, 99, 2]), 1)
    assert [next(reader).nodes.tolist() for _ in range(2)] == [[0], [1]]
    with pytest.raises(IndexError, match="99"):
        next(reader)
    assert reading_threads() == []


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_an_abandoned_reader_ends_its_thread(taken: int) -> None:
    reader = make_inputs(streamed=True).batches(torch.arange(5).repeat(20), 1)
    for _ in range(taken):
        next(reader)
    assert len(reading_threads()) == (taken > 0)
    reader.close()  # type: ignore[attr-defined]
    assert reading_threads() == []


def test_reading_ahead_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    plain = Inputs.batch

    def count(self: Inputs, nodes: Tensor, with_rows: bool = True) -> Batch:
        read.append(len(nodes))
        return plain(self, nodes, with_rows)

    monkeypatch.setattr(Inputs, "batch", count)
    monkeypatch.setattr(batches, "_MOST_READERS", 1)
    reader = make_inputs(streamed=True).batches(torch.arange(5).repeat(20), 1)
    next(reader)
    for _ in range(1000):
        if len(read) >= 4:  # one in use, two waiting, one in hand
            break
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(read) == 4
    reader.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("streamed", [False, True])
def test_batches_of_parts_of_any_size_even_none(streamed: bool) -> None:
    parts = [torch.tensor([3, 1]), torch.tensor([], dtype=torch.int64), torch.tensor([2])]
    found = list(make_full(streamed=streamed).batches_of(parts))
    assert [batch.nodes.tolist() for batch in found] == [[3, 1], [], [2]]
    assert [len(batch.place) for batch in found] == [2, 0, 1]
