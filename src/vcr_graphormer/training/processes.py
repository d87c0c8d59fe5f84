"""The processes that train one model together, as torchrun starts them, and the few things they tell each other.

Alone, every function here is the identity: there is one loop for one process and for many. The first process (rank 0)
decides, writes and speaks; the others compute their share and follow.
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


# The others wait while the first process makes token lists, which may take hours. That a process died is seen by its
# closed connection, not by this clock.
_PATIENCE = timedelta(days=7)


_MEETING_TIME = timedelta(minutes=30)


_MEETING = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # set by torchrun


@dataclass(frozen=True, eq=False)
class Processes:
    """One process among those that train together.

    Attributes
    ----------
    rank, size : int
        Its number, and how many there are.
    local : int
        Its number on this machine: the GPU it takes.
    group : ProcessGroup
        What they talk over (gloo, main memory); None alone.

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
        """Meet the others if torchrun started this process, or if the caller has made a process group; else alone.

        The meeting lasts until the process ends, so that several trainings may follow each other.
        """
        if not dist.is_available():
            return cls()
        if not dist.is_initialized():
            if any(name not in os.environ for name in _MEETING) or os.environ["WORLD_SIZE"] == "1":
                return cls()
            try:
                store, rank, size = next(rendezvous("env://", timeout=_MEETING_TIME))
                store = PrefixStore(meet(store, rank, size), store)
                dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
            except (RuntimeError, ValueError) as error:
                raise ProcessError(f"the processes of this training cannot meet: {error}") from error
            atexit.register(_part)
        if dist.get_world_size() == 1:
            return cls()
        local = int(os.environ.get("LOCAL_RANK", "0"))
        return cls(dist.get_rank(), dist.get_world_size(), local, _group(dist.group.WORLD, "gloo"))

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def device(self, name: str) -> str:
        """The device of this process: of `auto` and `cuda` the GPU of its local number."""
        if self.size == 1:
            return name
        self.first(lambda: find_device(name))  # a wrong name is told once
        device = find_device(name)
        if device.type == "cuda" and device.index is None:
            found = torch.cuda.device_count()
            if self.local >= found:
                raise ConfigError(
                    f"process {self.local} of this machine has no GPU of its own, there are {found}: start torchrun "
                    f"with --nproc-per-node {found}, or use --device cpu"
                )
            device = torch.device("cuda", self.local)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        return str(device)

    def share(self, count: int) -> slice:
        """Which of `count` consecutive things are this process's; of few things some processes get none."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def seed(self, seed: int, epoch: int) -> None:
        """Let every process draw masks of its own, from seed and epoch, so that a resumed run draws the same."""
        if self.size > 1:
            mixed = np.random.SeedSequence((seed, epoch, self.rank)).generate_state(1, np.uint64)
            torch.manual_seed(int(mixed[0]))

    def agree(self, work: Callable[[], Result]) -> Result:
        """What the first process found: it works, the others wait. Its failure ends them too."""
        if self.size == 1:
            return work()
        told: list[Any] = [None]
        if self.is_first:
            try:
                told[0] = (None, work())
            except BaseException as error:
                with suppress(RuntimeError):  # the others are gone
                    dist.broadcast_object_list([(f"{type(error).__name__}: {error}", None)], 0, self.group)
                raise
        dist.broadcast_object_list(told, 0, self.group)
        failure, result = told[0]
        if failure is not None:
            raise ProcessError(f"the first process of this training stopped: {failure}")
        found: Result = result
        return found

    def first(self, work: Callable[[], Result]) -> Result | None:
        """Done by the first process while the others wait; they get None."""
        kept: list[Result] = []
        self.agree(lambda: kept.append(work()))
        return kept[0] if kept else None

    def gather(self, value: Result) -> list[Result]:
        """The value of every process, by rank."""
        found: list[Any] = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(found, value, self.group)
        return found

    def any(self, wish: bool) -> bool:
        """Whether any process wishes it."""
        if self.size == 1:
            return wish
        flag = torch.tensor(int(wish))
        dist.all_reduce(flag, dist.ReduceOp.MAX, self.group)
        return bool(flag)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes, entry by entry."""
        if self.size == 1:
            return values
        total = values.detach().cpu()
        dist.all_reduce(total, dist.ReduceOp.SUM, self.group)
        return total

    def collect(self, part: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        """The shares of `count` rows put together, in the first process; the others keep their own."""
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
        """Give every process the weights of the first."""
        if self.size > 1:
            with torch.no_grad():
                for value in model.state_dict().values():
                    told = value.cpu().contiguous()
                    dist.broadcast(told, 0, self.group)
                    value.copy_(told)

    def joint(self, worker: nn.Module, device: torch.device) -> Callable[[Tensor], Tensor]:
        """A function to pass the last tensor of a step through: its backward pass then averages the gradients of all.

        `DistributedDataParallel` averages when the backward pass of what it returned has reached every parameter. Our
        step goes backward once per micro-batch and once more through the projection, which adds to weights that the
        micro-batches used as well. So the wrapped module hands the projection through unchanged, after the
        micro-batches: their gradients lie in `.grad` by then, as in its documented accumulation (`no_sync`), and what
        the last pass does not reach is averaged as it lies (`find_unused_parameters`), or as zero where a process had
        no nodes. Nothing is left to overlap with: the projection's weights come last in any order.

        Averages, where sums are wanted: the trainer multiplies by the number of processes. A hook that sums would call
        into Python from a thread of gloo's, which may abort the process if the interpreter is just ending.
        """
        if self.size == 1:
            return _unchanged
        places = self.gather((socket.gethostname(), str(device)))
        if len({torch.device(place).type for _, place in places}) > 1:
            raise ConfigError(f"the processes compute on {places}: give all a GPU, or --device cpu")
        apart = device.type == "cuda" and len(set(places)) == self.size
        # NCCL wants a GPU per process; those that share one (--device cuda:0) talk over gloo, which is slow and works.
        group = _group(dist.group.WORLD, "nccl") if apart else self.group
        return DistributedDataParallel(_Last(worker), process_group=group, find_unused_parameters=True)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Let the end of another process be one readable error."""
        try:
            yield
        except VCRError:
            raise
        except RuntimeError as error:
            if self.size == 1 or not _is_lost(error):
                raise
            raise ProcessError(
                "another process of this training ended or cannot be reached; torchrun with --max-restarts goes on "
                f"from the last checkpoint, and so does train --resume ({str(error).splitlines()[0][:200]})"
            ) from error


class _Last(nn.Module):
    """All parameters of a model, and a forward pass that changes nothing."""

    def __init__(self, worker: nn.Module) -> None:
        super().__init__()
        self.worker = worker

    def forward(self, projected: Tensor) -> Tensor:
        return projected


def _unchanged(projected: Tensor) -> Tensor:
    return projected


@cache
def _group(world: Any, backend: str) -> Any:
    """All processes once more, over another backend or with more patience than the caller's group has."""
    return dist.new_group(backend=backend, timeout=_PATIENCE if backend == "gloo" else None)


def _part() -> None:
    """End the threads of all groups while the interpreter is still whole."""
    _group.cache_clear()
    gc.collect()
    if dist.is_initialized():
        dist.destroy_process_group()


def _is_lost(error: RuntimeError) -> bool:
    known = isinstance(error, dist.DistError)
    return known or any(word in str(error) for word in ("gloo", "NCCL", "onnection closed", "onnection reset"))


def agent_name() -> str | None:
    """The torchrun that started this process, by a name that its later attempts have too; None where none did."""
    job = os.environ.get("TORCHELASTIC_RUN_ID")
    return None if job is None else f"{job}@{socket.gethostname()}:{os.getppid()}"


def meet(store: Any, rank: int, size: int) -> str:
    """A name for this attempt, known to its processes and to no other.

    torchrun may give a new attempt the store of the one before (torch 2.13 does, with --standalone and with c10d), in
    which the addresses of dead processes lie; groups of the same names would call those. So each process asks under a
    name it has just made up, and the first one answers with a new name for all.
    """
    name = uuid.uuid4().hex
    if rank:
        store.set(f"vcr/ask/{rank}", name)
        given: str = store.get(f"vcr/answer/{name}").decode()
        store.set(f"vcr/heard/{given}/{rank}", "")
        return given
    waiting = set(range(1, size))
    end = time.monotonic() + _MEETING_TIME.total_seconds()
    while waiting:
        for other in sorted(waiting):
            if store.check([f"vcr/ask/{other}"]):  # it may be that of a dead one: then it is asked again later
                store.set(f"vcr/answer/{store.get(f'vcr/ask/{other}').decode()}", name)
            if store.check([f"vcr/heard/{name}/{other}"]):
                waiting.discard(other)
        if time.monotonic() > end:
            raise ProcessError(
                f"of the {size} processes of this training {sorted(waiting)} did not come: see their logs"
            )
        time.sleep(0.02)
    return name
