"""Batches copied into tensors that stay: the same logits and gradients as the batches themselves."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.support.plain import model_config, token_config
from vcr_graphormer import Inputs, VCRGraphormer, generate, make_inputs, make_lists
from vcr_graphormer.model.batches import Batch
from vcr_graphormer.model.gpu import packed
from vcr_graphormer.model.gpu.fixed import FixedBatch, packed_matrices

CPU = torch.device("cpu")
SIZE = 12
FORMS: list[dict[str, Any]] = [
    {},
    {"rich_tokens": 1, "normalize_rows": True},
    {"label_hops": 1, "label_embedding": True, "kind_embedding": True},
]


def make_case(sparse: bool, model: Any) -> tuple[Inputs, VCRGraphormer]:
    graph = generate(200, 800, classes=3, features=12, seed=0)
    if sparse:
        graph = graph.with_features("identity")
    lists = make_lists(graph, None, token_config(hops=2, clusters=4, structure_tokens=3, content_tokens=0))
    inputs = make_inputs(graph, lists, model, np.arange(50), CPU, streamed=True)
    torch.manual_seed(0)
    sizes = {"num_features": graph.num_features, "num_outputs": 3, "num_labels": 3, "num_nodes": 200}
    return inputs, VCRGraphormer(model, lists.layout, **sizes)


def packed_batches(inputs: Inputs, count: int, seed: int) -> list[Batch]:
    random = np.random.default_rng(seed)
    return [inputs.packed(torch.from_numpy(random.choice(200, SIZE, replace=False))) for _ in range(count)]


def gradients(model: VCRGraphormer, batch: Batch) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The gradients as the trainer computes them: rows are projected first, and learn from the gradient of the rest."""
    model.zero_grad()
    projected = model.project_rows(batch.rows)
    rows = projected.detach().requires_grad_()
    logits = model(batch.part(0, len(batch)), rows)
    torch.autograd.backward(logits.square().sum())
    torch.autograd.backward(projected, rows.grad)
    return logits.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("settings", FORMS, ids=["plain", "rich", "labels"])
def test_logits_and_gradients_are_those_of_the_batch(sparse: bool, settings: dict[str, Any]) -> None:
    inputs, model = make_case(
        sparse, model_config(hidden_channels=16, heads=2, dropout=0.0, attention_dropout=0.0, **settings)
    )
    fixed = FixedBatch(packed_batches(inputs, 4, seed=0), CPU)
    assert fixed.becomes_dense
    shapes = {tuple(tensor.shape for tensor in fixed.packed.unpacked().tensors)}
    filled = 0
    for batch in packed_batches(inputs, 6, seed=1):  # each leaves something in the spare room for the next one
        if not fixed.fill(batch):
            continue
        filled += 1
        padded, plain = fixed.packed.unpacked(), batch.unpacked()
        shapes.add(tuple(tensor.shape for tensor in padded.tensors))
        assert padded.rows[0].shape[0] > plain.rows[0].shape[0]
        expected, found = gradients(model, plain), gradients(model, padded)
        torch.testing.assert_close(found[0], expected[0])
        torch.testing.assert_close(found[1], expected[1])
    assert filled > 2
    assert len(shapes) == 1


def test_room_is_an_eighth_more_than_the_largest_example_has() -> None:
    inputs, _ = make_case(True, model_config())
    examples = packed_batches(inputs, 3, seed=0)
    rows = max(packed_matrices(example)[-1].tensors[0].numel() - 1 for example in examples)
    room = FixedBatch(examples, CPU).packed
    hop, *_, features = packed_matrices(room)
    assert hop.rows.shape == (SIZE, 200)
    assert features.rows.shape == (-(-(rows + rows // 8) // 8) * 8, 200)
    assert len(features.tensors[2]) == features.rows.shape[0]  # of the identity, a row has one entry


def test_what_does_not_fit_changes_nothing() -> None:
    inputs, _ = make_case(True, model_config())
    alone = inputs.packed(torch.full((SIZE,), 7))  # one node, over and over: few rows
    fixed = FixedBatch([alone], CPU)
    assert fixed.fill(alone)
    before = [tensor.clone() for tensor in fixed.packed.tensors]
    assert not fixed.fill(inputs.packed(torch.arange(SIZE)))
    assert not fixed.fill(inputs.packed(torch.full((SIZE - 1,), 7)))
    for tensor, kept in zip(fixed.packed.tensors, before, strict=True):
        assert torch.equal(tensor, kept)


def test_too_large_to_be_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, _ = make_case(True, model_config())
    examples = packed_batches(inputs, 1, seed=0)
    monkeypatch.setattr(packed, "_most_bytes", lambda device: SIZE * 200 * 4)  # the hops, but not the rows
    assert not FixedBatch(examples, CPU).becomes_dense
