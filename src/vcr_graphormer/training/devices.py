"""Devices, precision and memory: where a model computes, and how much at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..errors import ConfigError
from ..model.config import ModelConfig


def find_device(name: str = "auto") -> torch.device:
    """The device of that name, if this machine has it; `auto` is the first GPU, or else the CPU.

    >>> find_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"device is {name!r}; it must be auto, cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda") or (device.type == "cpu" and device.index):
        raise ConfigError(f"device is {name!r}; it must be auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        found = f"{torch.cuda.device_count()} GPUs" if torch.cuda.is_available() else "no GPU that torch can use"
        raise ConfigError(f"device is {name!r} but this machine has {found}: use --device cpu or auto")
    return device


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """The type of matrix products: `auto` is bfloat16 on a GPU that has it, float32 elsewhere."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if name == "bfloat16" else torch.float32


@contextmanager
def within_memory(device: torch.device, advice: str) -> Iterator[None]:
    """Out of memory becomes an error that says what to lower; attention takes the kernel that suits short lists."""
    try:
        if device.type == "cuda":
            # For lists of 14 to 37 tokens on an H200 the step is 5 to 8 % faster than with cuDNN's or flash attention.
            kernels = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
            with sdpa_kernel(kernels, set_priority=True):
                yield
        else:
            yield
    except (torch.cuda.OutOfMemoryError, MemoryError) as error:
        raise ConfigError(f"out of memory on {device}: {advice}") from error
    except RuntimeError as error:
        if "not enough memory" in str(error) or "can't allocate memory" in str(error):
            raise ConfigError(f"out of memory on {device}: {advice}") from error
        raise


def memory_advice(batch_size: int, num_tokens: int, hidden: int) -> str:
    """What to lower, with the values in use."""
    return (
        f"lower training.batch_size ({batch_size}), the tokens per node ({num_tokens}: tokens.structure_tokens, "
        f"tokens.content_tokens, tokens.hops) or model.hidden_channels ({hidden}); memory grows with their product"
    )


def choose_micro_batch(wanted: int, batch_size: int, num_tokens: int, model: ModelConfig, device: torch.device) -> int:
    """Nodes computed at a time: all of a batch on a GPU, on a CPU as many as keep the widest tensor below 24 MiB.

    Larger tensors are mapped anew each time and cleared page by page by the kernel: PubMed with batches of 2,000 took
    13 s a step on two cores in one piece and takes 6.5 in pieces, in a tenth of the memory.
    """
    if wanted:
        return min(wanted, batch_size)
    if device.type != "cpu":
        return batch_size
    widest = 4 * num_tokens * model.hidden_channels * max(3, model.feedforward)
    return max(1, min(batch_size, (24 << 20) // widest))
