"""Dropout hides the asked share, scales the rest exactly, and its gradient knows what was hidden."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vcr_graphormer.model.dropout import Dropout, dropout, hide, random_bits


def different(values: Tensor) -> list[float]:
    return sorted(set(values.flatten().tolist()))


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9])
def test_share_of_zeros_and_expectation(share: float) -> None:
    torch.manual_seed(0)
    found = dropout(torch.ones(1_000_000), share)
    assert (found == 0).float().mean().item() == pytest.approx(share, abs=2e-3)
    assert found.mean().item() == pytest.approx(1.0, abs=1e-2)


def test_places_are_hidden_independently() -> None:
    torch.manual_seed(0)
    hidden = (dropout(torch.ones(500_000), 0.3) == 0).double()
    for lag in range(1, 6):  # four decisions come from one random word
        assert (hidden[lag:] * hidden[:-lag]).mean().item() == pytest.approx(0.09, abs=3e-3)


@settings(deadline=None, max_examples=30)
@given(st.floats(1e-4, 0.999), st.sampled_from([torch.float32, torch.float64]))
def test_scale_is_exact(share: float, dtype: torch.dtype) -> None:
    values = torch.arange(1, 400, dtype=dtype)
    found = dropout(values, share)
    kept = found != 0
    scale = torch.tensor(65536 / (65536 - round(65536 * share)), dtype=dtype)
    assert torch.equal(found[kept], values[kept] * scale)


def test_scale_of_a_quarter_and_a_half() -> None:
    torch.manual_seed(0)
    assert different(dropout(torch.ones(1000), 0.25)) == [0.0, torch.tensor(4 / 3).item()]
    assert different(dropout(torch.ones(1000), 0.5)) == [0.0, 2.0]
    assert different(dropout(torch.ones(1000), 0.1)) == [0.0, torch.tensor(65536 / (65536 - 6554)).item()]


def test_gradient_has_the_same_mask() -> None:
    torch.manual_seed(3)
    values = torch.randn(40, 30, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(40, 30, dtype=torch.float64)
    found = dropout(values, 0.4)
    (found * weights).sum().backward()  # type: ignore[no-untyped-call]
    mask = (found != 0).double() * (65536 / (65536 - 26214))
    assert values.grad is not None
    torch.testing.assert_close(values.grad, mask * weights, rtol=0, atol=0)
    torch.testing.assert_close(found.detach(), values.detach() * mask, rtol=0, atol=0)


def test_same_seed_same_mask() -> None:
    values = torch.randn(7, 11)
    found = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        found.append(dropout(values, 0.5))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert not torch.equal(dropout(values, 0.5), dropout(values, 0.5))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (1,), (3, 5), (2, 3, 7)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    assert dropout(torch.ones(shape), 0.5).shape == shape


def test_transposed_values() -> None:
    torch.manual_seed(0)
    values = torch.arange(1.0, 13.0).reshape(3, 4).t()
    found = dropout(values, 0.5)
    assert torch.equal(found, torch.where(found != 0, 2 * values, 0.0))


def test_lower_precision_keeps_its_type() -> None:
    torch.manual_seed(0)
    found = dropout(torch.ones(1000, dtype=torch.bfloat16), 0.5)
    assert found.dtype == torch.bfloat16
    assert different(found) == [0.0, 2.0]


def test_share_of_nothing_is_the_input_itself() -> None:
    values = torch.randn(3)
    assert dropout(values, 0.0) is values


def test_share_that_rounds_to_everything() -> None:
    # settings allow every share below 1; the nearest multiple of 2^-16 may be 1 itself.
    assert dropout(torch.ones(1000), 1 - 1e-6).isfinite().all()


def test_module_works_while_training_only() -> None:
    torch.manual_seed(0)
    module, values = Dropout(0.5), torch.ones(1000)
    assert repr(module) == "Dropout(fraction=0.5)"
    assert different(module(values)) == [0.0, 2.0]
    assert module.eval()(values) is values
    assert Dropout(0.0)(values) is values
    assert not list(module.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 3])
def test_hidden_entries_are_those_with_few_bits(dtype: torch.dtype, threads: int) -> None:
    values = torch.randn(300, 700).to(dtype).t()  # not contiguous, and enough for several threads
    bits, least, scale = random_bits(values.numel(), 0.3)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = hide(values, bits, least, scale)
    finally:
        torch.set_num_threads(before)
    kept = (bits >= int(least)).view(values.shape)
    assert torch.equal(found, values * kept.to(dtype).mul_(scale))
    assert kept.float().mean().item() == pytest.approx(0.7, abs=0.01)
