"""Choose device, precision and the number of nodes computed at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..base.machine import default_threads
from ..errors import ConfigError
from ..model.config import ModelConfig

# Numbers in the tokens of a step (lists × tokens × width × members) for each thread on a CPU. With fewer, waking
# threads and waiting for them costs more than they save. On two cores a second thread made training 2.4 times slower on
# digits (0.6 million), no faster on PubMed (2.2 million), 1.85 times faster with 32 million (docs/log.md, "One thread
# for small steps").
NUMBERS_PER_THREAD = 1 << 21
_FLOAT_BYTES = 4  # of float32, in which a CPU computes
_QKV = 3  # query, key and value of all tokens lie in one tensor
# glibc maps larger tensors anew at each use, and the kernel clears them page by page. A PubMed step on two cores fell
# from 13 to 6.6 s (docs/log.md, "Speed on a CPU").
_WIDEST_BYTES = 24 << 20
# In order of preference. For 14 to 37 tokens on an H200 this is 5 to 8 % faster than cuDNN's or flash attention
# (docs/log.md, "Speed on an H200").
_ATTENTION_KERNELS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]


def find_device(name: str = "auto") -> torch.device:
    """Return the device of that name if this machine has it; `auto` is the first GPU, or else the CPU.

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
        gpus = f"{torch.cuda.device_count()} GPUs" if torch.cuda.is_available() else "no GPU that torch can use"
        raise ConfigError(f"device is {name!r} but this machine has {gpus}: use --device cpu or auto")
    return device


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the type of matrix products; `auto` is bfloat16 on a GPU that has it, float32 elsewhere."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if name == "bfloat16" else torch.float32


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Let torch use this number of threads meanwhile; None changes nothing. Sums are rounded by their number."""
    if count is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(default_threads(count))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def worthwhile_threads(numbers: int) -> int:
    """Return how many threads a training step is worth whose tokens have so many numbers: at most those of torch.

    >>> worthwhile_threads(NUMBERS_PER_THREAD // 2)
    1
    """
    return max(1, min(torch.get_num_threads(), numbers // NUMBERS_PER_THREAD))


@contextmanager
def within_memory(device: torch.device, advice: str) -> Iterator[None]:
    """Turn out of memory into an error with advice; on a GPU, prefer the attention kernel for short lists."""
    try:
        if device.type == "cuda":
            with sdpa_kernel(_ATTENTION_KERNELS, set_priority=True):
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
    """Return which settings to lower, with their values."""
    return (
        f"lower training.batch_size ({batch_size}), the tokens per node ({num_tokens}: tokens.structure_tokens, "
        f"content_tokens, link_tokens, nearest_tokens, hops), model.hidden_channels ({hidden}) or model.members; "
        f"memory grows with their product"
    )


def choose_micro_batch(wanted: int, batch_size: int, num_tokens: int, model: ModelConfig, device: torch.device) -> int:
    """Return how many nodes to compute at a time: `wanted`, or if that is 0, as many as suit the device.

    That is the whole batch on a GPU; on a CPU as many as keep the widest tensor within 24 MiB.
    """
    if wanted:
        return min(wanted, batch_size)
    if device.type != "cpu":
        return batch_size
    # If the only layer encodes the target alone, keys and values of the other tokens are not made.
    widest = 1 if model.readout == "target" and model.layers <= 1 else _QKV
    bytes_per_node = _FLOAT_BYTES * num_tokens * model.hidden_channels * widest
    return max(1, min(batch_size, _WIDEST_BYTES // bytes_per_node))
