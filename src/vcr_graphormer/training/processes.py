"""Communication between the processes that torchrun starts to train one model together.

In a single process every method returns its input or does nothing, so one training loop serves one process and many.
The first process (number 0) makes decisions, writes files and prints; the others compute their part.
"""

from __future__ import annotations

import atexit
import gc
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed import PrefixStore, rendezvous  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from ..errors import ConfigError, ProcessError, VCRError
from .devices import find_device

Result = TypeVar("Result")
# The others wait while the first process makes token lists, which may take hours. A dead process is noticed by its
# closed connection, so this timeout can be long.
_MESSAGE_TIMEOUT = timedelta(days=7)
# Processes on a cluster may start minutes apart; torch's own default is 30 minutes too.
_START_TIMEOUT = timedelta(minutes=30)
_POLL_SECONDS = 0.02  # pause between two looks at the store while processes start
_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # set by torchrun
_MOST_CHARACTERS = 200  # of torch's message that are quoted in ours


@dataclass(frozen=True, eq=False)
class Processes:
    """One process among those that train a model together.

    Attributes
    ----------
    rank : int
        The number of this process, from 0.
    size : int
        The number of processes.
    local : int
        The number of this process on its machine, which is also the number of its GPU.
    group : ProcessGroup
        The gloo group that sends messages through main memory; None for a single process.

    >>> alone = Processes()
    >>> alone.is_first, alone.share(5), alone.agree(lambda: 7)
    (True, slice(0, 5, None), 7)
    """

    rank: int = 0
    size: int = 1
    local: int = 0
    group: Any = None

    @classmethod
    def join(cls) -> Processes:
        """Connect to the others if torchrun started this process or the caller made a process group.

        Otherwise return a single process. The connection lasts until the process ends, for any number of trainings.
        """
        if not dist.is_available():
            return cls()
        if not dist.is_initialized():
            if any(name not in os.environ for name in _ENVIRONMENT) or os.environ["WORLD_SIZE"] == "1":
                return cls()
            try:
                store, rank, size = next(rendezvous("env://", timeout=_START_TIMEOUT))
                store = PrefixStore(meet(store, rank, size), store)
                dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
            except (RuntimeError, ValueError) as error:
                raise ProcessError(f"the processes of this training cannot meet: {error}") from error
            atexit.register(_disconnect)
        if dist.get_world_size() == 1:
            return cls()
        local = int(os.environ.get("LOCAL_RANK", "0"))
        return cls(dist.get_rank(), dist.get_world_size(), local, _group(dist.group.WORLD, "gloo"))

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def device(self, name: str) -> str:
        """Return the device of this process; for `auto` and `cuda` that is the GPU with its local number."""
        if self.size == 1:
            return name
        self.first(lambda: find_device(name))  # one process reports a wrong name, not all
        device = find_device(name)
        if device.type == "cuda" and device.index is None:
            count = torch.cuda.device_count()
            if self.local >= count:
                raise ConfigError(
                    f"process {self.local} of this machine has no GPU of its own, there are {count}: start torchrun "
                    f"with --nproc-per-node {count}, or use --device cpu"
                )
            device = torch.device("cuda", self.local)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        return str(device)

    def share(self, count: int) -> slice:
        """Return which of `count` consecutive items this process handles; none if there are too few for all."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def seed(self, seed: int, epoch: int) -> None:
        """Seed torch by seed, epoch and process: masks differ between processes, and a resumed run repeats them."""
        if self.size > 1:
            mixed = np.random.SeedSequence((seed, epoch, self.rank)).generate_state(1, np.uint64)
            torch.manual_seed(int(mixed[0]))

    def agree(self, work: Callable[[], Result]) -> Result:
        """Call `work` in the first process and return its result in all; if it fails, all raise."""
        if self.size == 1:
            return work()
        message: list[Any] = [None]
        if self.is_first:
            try:
                message[0] = (None, work())
            except BaseException as error:
                with suppress(RuntimeError):  # the others have ended
                    dist.broadcast_object_list([(f"{type(error).__name__}: {error}", None)], 0, self.group)
                raise
        dist.broadcast_object_list(message, 0, self.group)
        failure, result = message[0]
        if failure is not None:
            raise ProcessError(f"the first process of this training stopped: {failure}")
        answer: Result = result
        return answer

    def first(self, work: Callable[[], Result]) -> Result | None:
        """Call `work` in the first process while the others wait; they return None."""
        results: list[Result] = []
        self.agree(lambda: results.append(work()))
        return results[0] if results else None

    def gather(self, value: Result) -> list[Result]:
        """Return the values of all processes, in the order of their numbers."""
        values: list[Any] = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value, self.group)
        return values

    def any(self, value: bool) -> bool:
        """Return whether the value is true in any process."""
        if self.size == 1:
            return value
        flag = torch.tensor(int(value))
        dist.all_reduce(flag, dist.ReduceOp.MAX, self.group)
        return bool(flag)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes."""
        if self.size == 1:
            return values
        total = values.detach().cpu()
        dist.all_reduce(total, dist.ReduceOp.SUM, self.group)
        return total

    def collect(self, part: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        """Return all `count` rows in the first process, of which each has its `share`; the others return their part."""
        if self.size == 1:
            return part
        own = torch.from_numpy(np.ascontiguousarray(part))
        if not self.is_first:
            if len(own):
                dist.send(own, 0, self.group)
            return part
        whole = torch.empty(count, *own.shape[1:], dtype=own.dtype)
        whole[self.share(count)] = own
        for rank in range(1, self.size):
            rows = whole[Processes(rank, self.size).share(count)]
            if len(rows):
                dist.recv(rows, rank, self.group)
        return whole.numpy()

    def align(self, model: nn.Module) -> None:
        """Copy the weights of the first process to all."""
        if self.size > 1:
            with torch.no_grad():
                for value in model.state_dict().values():
                    buffer = value.cpu().contiguous()
                    dist.broadcast(buffer, 0, self.group)
                    value.copy_(buffer)

    def joint(self, worker: nn.Module, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Return a function for the last tensor of a step; its backward pass averages the gradients of all processes.

        `DistributedDataParallel` averages once the backward pass of its output has reached every parameter. Our step
        has one backward pass per micro-batch and a last one through the projection, which adds to the same weights.
        So the wrapped module returns the projected tensor unchanged, and the trainer calls it after the micro-batches.
        Their gradients lie in `.grad` by then, as in the documented accumulation (`no_sync`). Parameters that the last
        pass does not reach are averaged as they are (`find_unused_parameters`), or as zero if a process had no nodes.
        Nothing is left to overlap with communication, for the projection comes last in any order.

        The trainer needs sums, so it multiplies by the number of processes. A communication hook that sums would call
        Python from a thread of gloo, which can abort the process while the interpreter shuts down.
        """
        if self.size == 1:
            return _unchanged
        devices = self.gather((socket.gethostname(), str(device)))
        if len({torch.device(name).type for _, name in devices}) > 1:
            raise ConfigError(f"the processes compute on {devices}: give all a GPU, or --device cpu")
        one_gpu_each = device.type == "cuda" and len(set(devices)) == self.size
        # NCCL needs a GPU per process. Processes that share one (--device cuda:0) use gloo, which is slower.
        group = _group(dist.group.WORLD, "nccl") if one_gpu_each else self.group
        return DistributedDataParallel(_PassThrough(worker), process_group=group, find_unused_parameters=True)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turn torch's errors about a lost process into one readable error."""
        try:
            yield
        except VCRError:
            raise
        except RuntimeError as error:
            if self.size == 1 or not _is_lost_process(error):
                raise
            reason = str(error).splitlines()[0][:_MOST_CHARACTERS]
            raise ProcessError(
                "another process of this training ended or cannot be reached; torchrun with --max-restarts goes on "
                f"from the last checkpoint, and so does train --resume ({reason})"
            ) from error


class _PassThrough(nn.Module):
    """A module with all parameters of a model, whose forward pass returns its input."""

    def __init__(self, worker: nn.Module) -> None:
        super().__init__()
        self.worker = worker

    def forward(self, projected: Tensor) -> Tensor:
        return projected


def _unchanged(projected: Tensor) -> Tensor:
    return projected


@cache
def _group(world: Any, backend: str) -> Any:
    """Return a group of all processes over this backend; gloo gets a longer timeout than the caller's group."""
    return dist.new_group(backend=backend, timeout=_MESSAGE_TIMEOUT if backend == "gloo" else None)


def _disconnect() -> None:
    """End the threads of all groups before the interpreter shuts down."""
    _group.cache_clear()
    gc.collect()
    if dist.is_initialized():
        dist.destroy_process_group()


def _is_lost_process(error: RuntimeError) -> bool:
    """Return whether an error of torch is about communication; some are plain RuntimeErrors, known by their text."""
    texts = ("gloo", "NCCL", "onnection closed", "onnection reset")
    return isinstance(error, dist.DistError) or any(text in str(error) for text in texts)


def agent_name() -> str | None:
    """Return a name of the torchrun that started this process, the same after its restarts; None without torchrun."""
    job = os.environ.get("TORCHELASTIC_RUN_ID")
    return None if job is None else f"{job}@{socket.gethostname()}:{os.getppid()}"


def meet(store: Any, rank: int, size: int) -> str:
    """Return a name for this attempt that only its own processes know, and wait until all know it.

    After a restart torchrun may reuse the store of the failed attempt (torch 2.13 does, with --standalone and with
    c10d). That store holds the addresses of dead processes, and groups of the same names would connect to those. So
    each process asks under a new random name, and the first process answers with a new name for all.
    """
    name = uuid.uuid4().hex
    if rank:
        store.set(f"vcr/ask/{rank}", name)
        attempt: str = store.get(f"vcr/answer/{name}").decode()
        store.set(f"vcr/heard/{attempt}/{rank}", "")
        return attempt
    waiting = set(range(1, size))
    deadline = time.monotonic() + _START_TIMEOUT.total_seconds()
    while waiting:
        for other in sorted(waiting):
            if store.check([f"vcr/ask/{other}"]):  # maybe the question of a dead process: the live one asks later
                store.set(f"vcr/answer/{store.get(f'vcr/ask/{other}').decode()}", name)
            if store.check([f"vcr/heard/{name}/{other}"]):
                waiting.discard(other)
        if time.monotonic() > deadline:
            raise ProcessError(
                f"of the {size} processes of this training {sorted(waiting)} did not come: see their logs"
            )
        time.sleep(_POLL_SECONDS)
    return name
