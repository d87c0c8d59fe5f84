"""A checkpoint holds every tensor to the bit, is refused where it is damaged, and an optimizer goes on from it."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from vcr_graphormer import StoreError
from vcr_graphormer.training.checkpoint import load_tensors, optimizer_tensors, restore_optimizer, save_tensors, under

TENSORS = {
    "model/weight": torch.tensor([[1.5, -0.0], [float("inf"), 1e-45]]),
    "model/step": torch.tensor(7.0),
    "random": torch.arange(5, dtype=torch.uint8),
    "half": torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
    "whole": torch.tensor([-(2**62)]),
    "empty": torch.empty(0, 3),
}
ABOUT = {"epoch": 3, "best": 0.1, "history": [[1, 0.5], [2, None]], "name": "Straße 😀"}


def test_round_trip(tmp_path: Path) -> None:
    file = tmp_path / "new" / "last.safetensors"
    save_tensors(file, TENSORS, ABOUT)
    tensors, about = load_tensors(file)
    assert about == ABOUT
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert (tensors[name].dtype, tensors[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(tensors[name], tensor)
    assert tensors["model/weight"][0, 1].signbit()
    assert [path.name for path in file.parent.iterdir()] == ["last.safetensors"]  # nothing temporary is left


def test_others_may_read_weights_as_all_other_files(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    save_tensors(tmp_path / "w", {"a": torch.ones(1)}, {})
    assert (tmp_path / "w").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_moments_of_another_shape_are_refused() -> None:
    layer = torch.nn.Linear(2, 3)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    parameters = dict(layer.named_parameters())
    moments = optimizer_tensors(optimizer, parameters)
    restore_optimizer(optimizer, parameters, moments)
    for name in ("weight/step", "weight/exp_avg"):
        with pytest.raises(ValueError, match=f"{name} has shape"):
            restore_optimizer(optimizer, parameters, {**moments, name: torch.ones(2)})


def test_views_shared_memory_and_gradients(tmp_path: Path) -> None:
    table = torch.arange(6.0).reshape(2, 3).requires_grad_()
    tensors = {"turned": table.t(), "part": table[1:], "whole": table, "again": table}
    save_tensors(tmp_path / "file", tensors, {})
    found, about = load_tensors(tmp_path / "file")
    assert about == {}
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor)
        assert not found[name].requires_grad


def test_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "last"
    for epoch in (1, 2):
        save_tensors(file, {"a": torch.tensor(float(epoch))}, {"epoch": epoch})
    tensors, about = load_tensors(file)
    assert (tensors["a"].item(), about) == (2.0, {"epoch": 2})
    with pytest.raises(TypeError):
        save_tensors(file, {"a": torch.tensor(3.0)}, {"epoch": object()})
    assert load_tensors(file)[1] == {"epoch": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere.safetensors is missing"):
        load_tensors(tmp_path / "nowhere.safetensors")
    with pytest.raises(StoreError, match="is missing"):
        load_tensors(tmp_path)


@pytest.mark.parametrize("kept", [0, 5, 40, -1])
def test_cut_short(tmp_path: Path, kept: int) -> None:
    file = tmp_path / "last"
    save_tensors(file, TENSORS, ABOUT)
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(StoreError, match="last is damaged: "):
        load_tensors(file)


def test_something_else(tmp_path: Path) -> None:
    file = tmp_path / "last"
    file.write_text("this is no checkpoint, only a text that is long enough to have a header\n" * 5)
    with pytest.raises(StoreError, match="last is damaged: "):
        load_tensors(file)
    header = json.dumps({"__metadata__": {"about": "{not json"}}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(StoreError, match="last is damaged: "):
        load_tensors(file)
    header = b"{}"
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    assert load_tensors(file) == ({}, {})


def make() -> tuple[list[torch.nn.Parameter], torch.optim.AdamW]:
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(3, 2)), torch.nn.Parameter(torch.randn(4))]
    return parameters, torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.01)


def walk(parameters: list[torch.nn.Parameter], optimizer: torch.optim.Optimizer, steps: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


def test_an_optimizer_goes_on_as_if_never_interrupted(tmp_path: Path) -> None:
    names = ["layers.0.weight", "bias"]
    parameters, optimizer = make()
    walk(parameters, optimizer, 3, seed=1)
    saved = {f"model/{name}": tensor for name, tensor in zip(names, parameters, strict=True)}
    named = dict(zip(names, parameters, strict=True))
    moments = {f"optimizer/{name}": tensor for name, tensor in optimizer_tensors(optimizer, named).items()}
    assert sorted(moments) == [
        f"optimizer/{name}/{key}" for name in ("bias", "layers.0.weight") for key in ("exp_avg", "exp_avg_sq", "step")
    ]
    save_tensors(tmp_path / "last", saved | moments, {})
    walk(parameters, optimizer, 4, seed=2)

    again, other = make()
    tensors = load_tensors(tmp_path / "last")[0]
    with torch.no_grad():
        for name, parameter in zip(names, again, strict=True):
            parameter.copy_(under("model/", tensors)[name])
    named_again = dict(zip(names, again, strict=True))
    restore_optimizer(other, named_again, under("optimizer/", tensors))
    walk(again, other, 4, seed=2)
    for mine, theirs in zip(again, parameters, strict=True):
        assert torch.equal(mine, theirs)
    for key, tensor in optimizer_tensors(optimizer, named).items():
        assert torch.equal(optimizer_tensors(other, named_again)[key], tensor)
    fresh, forgetful = make()
    with torch.no_grad():
        for name, parameter in zip(names, fresh, strict=True):
            parameter.copy_(tensors[f"model/{name}"])
    walk(fresh, forgetful, 4, seed=2)
    assert not torch.equal(fresh[0], parameters[0])  # the moments do matter


def test_an_optimizer_before_its_first_step() -> None:
    parameters, optimizer = make()
    named = dict(zip(["a", "b"], parameters, strict=True))
    assert optimizer_tensors(optimizer, named) == {}
    restore_optimizer(optimizer, named, {})
    assert not optimizer.state


def test_names_that_begin_alike() -> None:
    parameters, optimizer = make()
    walk(parameters, optimizer, 1, seed=0)
    tensors = optimizer_tensors(optimizer, dict(zip(["a", "a/b"], parameters, strict=True)))
    again, other = make()
    restore_optimizer(other, dict(zip(["a", "a/b"], again, strict=True)), tensors)
    assert other.state[again[0]]["exp_avg"].shape == (3, 2)
    assert other.state[again[1]]["exp_avg"].shape == (4,)


def test_under() -> None:
    tensors: dict[str, Tensor] = {"a/b": torch.tensor(1), "a/a/c": torch.tensor(2), "ab": torch.tensor(3)}
    assert {name: int(value) for name, value in under("a/", tensors).items()} == {"b": 1, "a/c": 2}
    assert under("x/", tensors) == {}
