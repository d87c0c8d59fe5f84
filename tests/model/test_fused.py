"""The encoder in few passes: its formulas against autograd, the kernels against their slow counterparts.

The kernels run on a GPU, or with `TRITON_INTERPRET=1` where Triton can be imported. Everything else runs anywhere.
"""

import os
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.model.test_transformer import LAYOUT, NODES, SMALL, make_inputs, make_model
from tests.support import slow_kernels
from vcr_graphormer.model.config import ModelConfig
from vcr_graphormer.model.gpu import fused, kernels
from vcr_graphormer.model.transformer import EncoderLayer

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and kernels.AVAILABLE
DEVICE = torch.device("cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu")
RUNS = INTERPRETED or (DEVICE.type == "cuda" and kernels.AVAILABLE)
needs_triton = pytest.mark.skipif(not RUNS, reason="kernels need a GPU, or Triton with TRITON_INTERPRET=1")
SEED = torch.tensor([0x1234_5678_9ABC_DEF0, 0])


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def make_mask(lists: int, length: int) -> Tensor:
    mask = torch.rand(lists, length, generator=torch.Generator().manual_seed(9)) < 0.7
    mask[:, 0] = True
    mask[-1, 1:] = False  # a list without neighbours
    return mask


def learned(*shape: int, seed: int) -> Tensor:
    return randn(*shape, seed=seed).requires_grad_()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Let the fused encoder run on a CPU, with slow kernels."""
    monkeypatch.setattr(fused, "_kernels", lambda: slow_kernels)
    monkeypatch.setattr(fused, "usable", lambda *_: True)
    return slow_kernels


@pytest.mark.parametrize("fraction", [0.0, 0.3])
@pytest.mark.parametrize("padded", [False, True])
def test_formulas_of_gradients(slow: ModuleType, fraction: float, padded: bool) -> None:
    mask = make_mask(3, 5) if padded else None
    tokens, packed = learned(3, 5, 8, seed=1), learned(3, 5, 24, seed=2)
    row, wide, score = learned(8, seed=3), learned(24, seed=4), learned(1, 8, seed=5)

    def check(function: Any, *arguments: Any) -> None:
        assert torch.autograd.gradcheck(function.apply, arguments)

    check(fused._Attend, packed, wide, mask, 2, fraction, SEED)
    check(
        fused._AddNorm,
        tokens,
        learned(3, 5, 8, seed=6),
        row,
        learned(8, seed=7),
        learned(8, seed=8),
        1e-5,
        fraction,
        SEED,
    )
    check(fused._AddNorm, tokens, None, None, row, learned(8, seed=7), 1e-5, fraction, SEED)
    check(fused._Gelu, packed, wide, fraction, SEED)
    check(fused._ReadOut, tokens, mask, score)
    index = torch.randint(7, (3, 5), generator=torch.Generator().manual_seed(0))
    check(fused._LookUp, learned(7, 8, seed=9), index, randn(3, 5, seed=10), row)


def test_a_norm_whose_sum_nobody_reads_and_the_other_way_round(slow: ModuleType) -> None:
    tokens, added, row = learned(2, 3, 8, seed=1), learned(2, 3, 8, seed=2), learned(8, seed=3)
    for which in (0, 1):
        given = (tokens, added, row)
        ours = fused._apply(fused._AddNorm, *given, row, row, 1e-5, 0.0, SEED)[which]
        total = tokens + added + row
        plain = (total, torch.nn.functional.layer_norm(total, (8,), row, row))[which]
        factors = randn(2, 3, 8, seed=4)
        for mine, expected in zip(
            torch.autograd.grad(ours, given, factors), torch.autograd.grad(plain, given, factors), strict=True
        ):
            torch.testing.assert_close(mine, expected)


CONFIGS = {
    "one layer": replace(SMALL, layers=1, readout="attention"),
    "two layers": replace(SMALL, readout="attention"),
    "mean": replace(SMALL, readout="mean"),
    "no layers": replace(SMALL, layers=0, readout="attention"),
    "kinds": replace(SMALL, readout="attention", kind_embedding=True, rank_embedding=True),
    "gated": replace(SMALL, readout="attention", combine="gated", own_hops=True),
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("padded", [False, True])
def test_the_model_is_the_same(monkeypatch: pytest.MonkeyPatch, name: str, padded: bool) -> None:
    model, batch = make_model(CONFIGS[name]).double(), make_inputs(padded=padded).batch(torch.arange(NODES))
    batch = batch._map(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)

    def results() -> list[Tensor]:
        model.zero_grad()
        logits, vectors, weights = model.read(*model.tokens(batch))
        torch.autograd.backward((logits * randn(*logits.shape)).sum())
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        return [logits, *vectors, weights, *gradients]

    expected = results()
    monkeypatch.setattr(fused, "_kernels", lambda: slow_kernels)
    monkeypatch.setattr(fused, "usable", lambda *_: True)
    monkeypatch.setattr(EncoderLayer, "forward", None)  # it would raise
    found = results()
    assert len(found) == len(expected) > 10
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)  # the plain readout has a float32 softmax


def test_attention_that_is_asked_for_takes_the_plain_way(slow: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "encode", None)  # it would raise
    model, batch = make_model(CONFIGS["two layers"]), make_inputs().batch(torch.arange(NODES))
    assert model.look(*model.tokens(batch)).attention.shape == (2, NODES, 2, 8, 8)


def test_dropout_is_drawn_anew_by_torchs_generator(slow: ModuleType) -> None:
    config: ModelConfig = replace(CONFIGS["one layer"], dropout=0.5, attention_dropout=0.5)
    model, batch = make_model(config), make_inputs().batch(torch.arange(NODES))
    state = torch.get_rng_state()
    first = model.eval()(batch)
    assert torch.equal(first, model(batch))
    assert torch.equal(state, torch.get_rng_state())  # predicting draws nothing
    model.train()
    torch.manual_seed(3)
    one, other = model(batch), model(batch)
    torch.manual_seed(3)
    assert torch.equal(one, model(batch))
    assert not torch.equal(one, other)
    assert not torch.equal(one, first)


def test_when_kernels_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = torch.zeros(2, 37, 512, dtype=torch.bfloat16)
    assert not fused.usable(tokens, 37, 8)  # on a CPU
    monkeypatch.setattr(fused, "_runs_on", lambda device: True)
    assert fused.usable(tokens, 37, 8)
    assert fused.usable(tokens, 128, 4)
    assert fused.usable(tokens, 37)  # no heads, no limit to their width
    assert not fused.usable(tokens.float(), 37, 8)
    assert not fused.usable(tokens, 129, 8)  # lists too long
    assert not fused.usable(tokens, 1, 8)  # nothing to attend to
    assert not fused.usable(tokens, 37, 2)  # heads too wide
    assert not fused.usable(tokens[..., :8], 37, 8)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not fused.usable(tokens, 37, 8)


def test_without_triton_there_are_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    fused._runs_on.cache_clear()
    monkeypatch.setattr(kernels, "AVAILABLE", False)
    assert not fused._runs_on(torch.device("cuda"))
    fused._runs_on.cache_clear()


def test_the_random_numbers_are_philoxs() -> None:
    # The published words of seven rounds for counter and key 0; the second and third stand the other way round.
    bits = slow_kernels.random_bits(torch.tensor(0), torch.arange(20_000)[None])
    words = [int(low) | int(high) << 16 for low, high in bits[0, :8].view(4, 2)]
    assert words == [0x5F6FB709, 0x4F121F81, 0x0D893F64, 0x4F730A48]
    assert abs(float((bits < 6554).double().mean()) - 0.1) < 0.005
    assert float(torch.corrcoef(bits.view(-1, 8).T.double())[~torch.eye(8, dtype=torch.bool)].abs().max()) < 0.05


SIZES = [(3, 5, 2, 8), (2, 37, 4, 16), (5, 16, 1, 16), (2, 33, 2, 24)]  # lists, tokens, heads, width of a head


@needs_triton
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("fraction", [0.0, 0.3])
@pytest.mark.parametrize("padded", [False, True])
def test_kernels_equal_their_slow_counterparts(size: tuple[int, int, int, int], fraction: float, padded: bool) -> None:
    lists, length, heads, width = size[0], size[1], size[2], size[2] * size[3]
    mask = make_mask(lists, length) if padded else None
    tokens, added, packed = (
        randn(lists, length, width),
        randn(lists, length, width, seed=1),
        randn(lists, length, 3 * width, seed=2),
    )
    row, other, wide = randn(width, seed=3), randn(width, seed=4), randn(3 * width, seed=5)
    index = torch.randint(9, (lists, length), generator=torch.Generator().manual_seed(6))
    scores, given = randn(lists, length, seed=7), randn(lists, length, width, seed=8)
    vectors, score = randn(lists, width, seed=9), randn(1, width, seed=10)
    weights = slow_kernels.read_out(tokens, mask, score)[1]
    calls: dict[str, tuple[Any, ...]] = {
        "attend": (packed, wide, mask, heads, fraction, SEED),
        "attend_backward": (given, packed, wide, mask, heads, fraction, SEED),
        "add_norm": (tokens, added, row, other, row, 1e-5, fraction, SEED),
        "gelu": (packed, wide, fraction, SEED),
        "gelu_backward": (given.repeat(1, 1, 3), packed, wide, fraction, SEED),
        "read_out": (tokens, mask, score),
        "read_out_backward": (vectors, tokens, mask, score, weights),
        "look_up": (tokens.flatten(0, 1)[:9], index, scores, row),
        "look_up_backward": (given, index, scores, 9),
    }
    for name, arguments in calls.items():
        compare(name, arguments)
    compare("add_norm", (tokens, None, None, other, row, 1e-5, fraction, SEED))
    compare("look_up_backward", (given, index // 8, scores, 2))  # long runs
    for of_total in (None, added):
        for adds in (False, True):
            compare("add_norm_backward", (of_total, given, tokens, row, 1e-5, fraction, SEED, adds), skip=not adds)


def compare(name: str, arguments: tuple[Any, ...], skip: bool = False) -> None:
    """Compare a kernel in float32 with its counterpart in float64; `skip` the gradients of what was not added."""
    expected = getattr(slow_kernels, name)(*arguments)
    given = [
        (argument.float() if argument.is_floating_point() else argument).to(DEVICE).contiguous()
        if isinstance(argument, Tensor)
        else argument
        for argument in arguments
    ]
    found = getattr(kernels, name)(*given)
    pairs = [(found, expected)] if isinstance(found, Tensor) else list(zip(found, expected, strict=True))
    for number, (one, other) in enumerate(pairs):
        if not (skip and number in (1, 2)):
            assert torch.allclose(one.cpu().double(), other, rtol=1e-5, atol=1e-5), (name, number)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU; slow kernels stand in for it above")
def test_a_model_on_a_gpu_differs_by_rounding_only(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(CONFIGS["two layers"], hidden_channels=64, heads=4)
    model = make_model(config)
    batch = make_inputs().batch(torch.arange(NODES))
    exact = model(batch).detach()
    low = model.to("cuda", torch.bfloat16)
    assert fused.usable(torch.zeros(1, 8, 64, dtype=torch.bfloat16, device="cuda"), LAYOUT.num_tokens, 4)
    found = low(batch.to(torch.device("cuda"))).float().cpu().detach()
    assert float((found - exact).norm() / exact.norm()) < 0.02
