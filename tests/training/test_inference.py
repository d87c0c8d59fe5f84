"""Logits in batches: whatever the batch size, and wherever the inputs lie."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.model.test_transformer import NODES, make_inputs, make_model
from tests.support.plain import model_config
from vcr_graphormer import ConfigError
from vcr_graphormer.training.devices import choose_micro_batch, choose_precision, memory_advice, within_memory
from vcr_graphormer.training.inference import compute


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("streamed", [False, True])
def test_any_batch_size_gives_the_same(size: int, streamed: bool) -> None:
    from dataclasses import replace

    model, inputs = make_model(), replace(make_inputs(), streamed=streamed)
    nodes = np.array([3, 0, 11, 3])
    expected = model(make_inputs().batch(torch.from_numpy(nodes))).detach().numpy()
    np.testing.assert_allclose(compute(model, inputs, nodes, size), expected, atol=1e-6)
    assert compute(model, inputs, nodes, size, vectors=True).shape == (4, 8)


def test_no_nodes_and_the_mode_of_the_model() -> None:
    model, inputs = make_model().train(), make_inputs()
    assert compute(model, inputs, np.empty(0, dtype=np.int64), 4).shape == (0, 4)
    assert compute(model, inputs, np.empty(0, dtype=np.int64), 4, vectors=True).shape == (0, 8)
    assert model.training  # as it was


def test_progress_counts_nodes() -> None:
    seen: list[tuple[str, int, int]] = []
    compute(make_model(), make_inputs(), np.arange(NODES), 5, progress=lambda *row: seen.append(row))
    assert seen == [("inference", 5, 12), ("inference", 10, 12), ("inference", 12, 12)]


def test_choices() -> None:
    cpu = torch.device("cpu")
    assert choose_precision("auto", cpu) == choose_precision("float32", cpu) == torch.float32
    assert choose_precision("bfloat16", cpu) == torch.bfloat16
    model = model_config(hidden_channels=512)
    assert choose_micro_batch(0, 2000, 37, model, cpu) == (24 << 20) // (4 * 37 * 512 * 3) == 110
    assert choose_micro_batch(0, 50, 37, model, cpu) == 50
    assert choose_micro_batch(9, 2000, 37, model, cpu) == 9
    assert choose_micro_batch(0, 2000, 37, model, torch.device("cuda")) == 2000
    assert choose_micro_batch(0, 2000, 10**6, model, cpu) == 1
    # One layer that encodes the target alone makes no keys and values: three times as many nodes.
    target = replace(model, readout="target")
    assert choose_micro_batch(0, 2000, 37, target, cpu) == (24 << 20) // (4 * 37 * 512) == 332
    assert choose_micro_batch(0, 2000, 37, replace(target, layers=2), cpu) == 110


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: not enough memory: you tried")])
def test_out_of_memory_becomes_advice(error: Exception) -> None:
    message = r"out of memory on cpu: lower training.batch_size \(7\)"
    advice = memory_advice(7, 20, 64)
    with pytest.raises(ConfigError, match=message), within_memory(torch.device("cpu"), advice):
        raise error
    with pytest.raises(RuntimeError, match="another"), within_memory(torch.device("cpu"), ""):
        raise RuntimeError("another")
