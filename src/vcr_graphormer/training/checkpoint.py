"""Save and restore the state of training as one safetensors file, which exists whole or not at all. No pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..base.checks import misfit
from ..base.files import read_lines, replace_file
from ..errors import StoreError

if TYPE_CHECKING:
    from .trainer import Trainer

HISTORY = "history.jsonl"
_ABOUT = {
    **dict.fromkeys(("epoch", "step", "best_epoch", "improved"), int),
    **dict.fromkeys(("seconds", "best_value", "best_loss"), float),
}
_ROW = {"epoch": int, **dict.fromkeys(("loss", "val_loss", "val"), (float, None))}


def save_tensors(file: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write tensors and a dictionary, as JSON, to a file that exists whole or not at all."""
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    with replace_file(file) as temporary:
        try:
            temporary.touch()
            mode = temporary.stat().st_mode
            save_file(copies, temporary, metadata={"about": json.dumps(about)})
            temporary.chmod(mode)  # as all other files: safetensors lets nobody else read it
        except SafetensorError as error:  # a full disk, which it does not report as an OSError
            raise StoreError(f"cannot write {file}: {error}") from error


def load_tensors(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors, on the CPU, and the dictionary that `save_tensors` wrote."""
    if not file.is_file():
        raise StoreError(f"{file} is missing")
    try:
        with safe_open(file, framework="pt", device="cpu") as content:
            about = json.loads((content.metadata() or {}).get("about", "{}"))
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, RecursionError) as error:
        raise StoreError(f"{file} is damaged: {error}") from error
    except OSError as error:
        raise StoreError(f"cannot read {file}: {error.strerror or error}") from error
    if not isinstance(about, dict):
        raise StoreError(f"{file} is damaged: what it says about itself is {about!r}")
    return tensors, about


def save_training(trainer: Trainer, file: Path) -> None:
    """Write the state of training: weights, their average, the best weights, moments, random states and counters."""
    tensors = {f"model/{name}": value for name, value in trainer.model.state_dict().items()}
    if trainer.average is not None:
        tensors |= {f"average/{name}": value for name, value in trainer.average.state_dict().items()}
    best = trainer.best
    tensors |= {f"best/{name}": value for name, value in best.state.items()}
    moments = optimizer_tensors(trainer.optimizer, dict(trainer.model.named_parameters()))
    tensors |= {f"optimizer/{name}": value for name, value in moments.items()}
    tensors["random/cpu"] = torch.get_rng_state()
    if trainer.inputs.device.type == "cuda":
        tensors["random/cuda"] = torch.cuda.get_rng_state(trainer.inputs.device)
    about: dict[str, Any] = {"epoch": trainer.epoch, "step": trainer.step, "seconds": trainer.seconds}
    about |= {"best_epoch": best.epoch, "improved": best.improved, "best_value": best.value, "best_loss": best.loss}
    about["tensors"] = sorted(tensors)
    save_tensors(file, tensors, about)


def restore_training(trainer: Trainer, file: Path) -> None:
    """Set a trainer to the state that `save_training` wrote."""
    try:
        tensors, about = load_tensors(file)
    except StoreError as error:
        raise StoreError(f"{error}; delete it to train from the start") from error
    device = trainer.inputs.device
    if problem := misfit(about, _ABOUT, "what it says"):
        raise StoreError(f"{file} is damaged: {problem}; delete it to train from the start")
    if "tensors" in about and about["tensors"] != sorted(tensors):  # younger than the first checkpoints
        raise StoreError(f"{file} is damaged: it lacks parts of the training; delete it to train from the start")
    try:
        trainer.model.load_state_dict(under("model/", tensors))
        if trainer.average is not None:
            trainer.average.load_state_dict(under("average/", tensors))
        restore_optimizer(trainer.optimizer, dict(trainer.model.named_parameters()), under("optimizer/", tensors))
        trainer.best = replace(
            trainer.best,
            epoch=about["best_epoch"],
            improved=about["improved"],
            value=about["best_value"],
            loss=about["best_loss"],
            state={name: value.to(device) for name, value in under("best/", tensors).items()},
        )
        trainer.epoch, trainer.step, trainer.seconds = about["epoch"], about["step"], about["seconds"]
        torch.set_rng_state(tensors["random/cpu"])
        if device.type == "cuda" and "random/cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random/cuda"], device)
    except (KeyError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{file} does not fit this run ({error}): delete it to start again") from error


def optimizer_tensors(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the moments of an optimizer, by the name of the parameter."""
    return {
        f"{name}/{key}": value
        for name, parameter in parameters.items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> None:
    """Set an optimizer to the moments that `optimizer_tensors` returned."""
    for name, parameter in parameters.items():
        state = {key.rpartition("/")[2]: value for key, value in tensors.items() if key.rpartition("/")[0] == name}
        for key, value in state.items():
            if value.shape not in (torch.Size(), parameter.shape):
                raise ValueError(f"{name}/{key} has shape {list(value.shape)}")
        if state:
            optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in state.items()}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with a prefix, under their names without it."""
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def cut_history(file: Path, epochs: int) -> list[dict[str, float]]:
    """Keep the first epochs of a history, for those after the checkpoint are run again; return them."""
    rows = read_history(file)[:epochs]
    with replace_file(file) as temporary:
        temporary.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return rows


def read_history(file: Path) -> list[dict[str, float]]:
    """Return the rows of `history.jsonl`, one per epoch, up to a line that a crash cut short."""
    rows: list[dict[str, float]] = []
    with suppress(ValueError, RecursionError, StoreError):
        for line in read_lines(file) if file.is_file() else []:
            rows.append(json.loads(line))  # noqa: PERF401
    return [row for row in rows if misfit(row, _ROW) is None]
