"""Hops on a GPU: the numbers that processors compute, to the same bits, where a graph is large enough to pay."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.checks import Array
from ..base.machine import available_memory
from ..data.graph import Graph
from ..errors import ConfigError
from .hops import ENTRIES_AT_ONCE, Step, dense_source

if TYPE_CHECKING:  # torch is loaded only where there is a GPU
    import torch
    from torch import Tensor

# Products of all hops together below which a GPU does not pay: it takes seconds to start. Chosen by hand; two cores do
# a thousand million per second (docs/large-graphs.md).
WORTH_A_GPU = 1 << 33
_DRIVERS = Path("/dev/nvidiactl"), Path("/dev/dxg")  # the second is Windows's, for Linux inside it
_FRACTION = 0.8  # of the free memory that matrices may take
_MOST_WAITING = 16  # hops that wait on the device to be written


def check_device(device: str) -> None:
    """Refuse a name that no device can have."""
    if not isinstance(device, str) or not re.fullmatch(r"auto|cpu(:0)?|cuda(:\d+)?", device):
        raise ConfigError(f"device is {device!r}; it must be auto, cpu, cuda or cuda:N")


def gpu_for_hops(graph: Graph, self_loops: bool, hops: int, device: str = "auto") -> GpuStep | None:
    """Return the step of a walk on the GPU of that name; None without a GPU or Triton, and where it does not pay.

    `auto` is the first GPU. Torch is loaded only if a driver is there and the graph is large enough.
    """
    work = hops * graph.num_arcs * graph.num_features
    if device.startswith("cpu") or work < WORTH_A_GPU or not any(driver.exists() for driver in _DRIVERS):
        return None
    import torch

    from ..ranking.kernels.gpu_hops import HAS_TRITON, add_rows_on_gpu

    if not HAS_TRITON or not torch.cuda.is_available():
        return None
    place = torch.device("cuda" if device == "auto" else device)
    try:
        free, _ = torch.cuda.mem_get_info(place)
        made = GpuStep.of(Step.of(graph, self_loops), place, int(_FRACTION * free), add_rows_on_gpu)
        if made.free > 0:
            made.try_out()
        return made
    except Exception as error:  # no C compiler for Triton, an old GPU, no memory: processors give the same numbers
        warnings.warn(f"hops are computed on the CPU, because {place} cannot: {error}", RuntimeWarning, stacklevel=2)
        return None


def free_gpu() -> None:
    """Give the memory that torch keeps back to the device: what comes next asks how much is free."""
    import torch

    torch.cuda.empty_cache()


@dataclass(frozen=True, eq=False)
class Product:
    """A hop [n, d], on the device or, where it does not fit there, in main memory."""

    values: Tensor

    def blocks(self) -> Iterator[Array]:
        """Yield the rows in blocks that nothing else uses, from the first to the last."""
        import torch

        rows = max(1, ENTRIES_AT_ONCE // max(1, self.values.shape[1]))
        on_gpu = self.values.device.type == "cuda"
        for part in torch.split(self.values, rows):
            # Torch keeps page-locked memory and lends it again when the block is gone.
            yield torch.empty(part.shape, dtype=part.dtype, pin_memory=on_gpu).copy_(part).numpy()


@dataclass(frozen=True, eq=False)
class GpuStep:
    """A step whose graph lies on a device.

    Attributes
    ----------
    step : Step
        The same step in main memory.
    arrays : tuple
        `indptr`, `indices`, `weights` or None, `left`, `right` and whether there are self-loops.
    free : int
        Bytes for the matrices.
    multiply : callable
        Writes consecutive rows of P times a matrix: `add_rows_on_gpu`, or a plain loop in tests.
    """

    step: Step
    arrays: tuple[Any, ...]
    device: torch.device
    free: int
    multiply: Callable[..., None]

    @classmethod
    def of(cls, step: Step, device: torch.device, free: int, multiply: Callable[..., None]) -> GpuStep:
        """Copy the graph to the device. `free` are the bytes for graph and matrices."""
        graph = step.graph
        host = (graph.indptr, graph.indices, graph.weights, step.left, step.right)
        free -= sum(array.nbytes for array in host if array is not None)
        arrays = [None if array is None else _tensor(array, device) for array in host] if free > 0 else []
        return cls(step, (*arrays, step.self_loops), device, free, multiply)

    def times(self, source: Any, dtype: str = "float32") -> Product | None:
        """Return P times a matrix, or times the numbers of this type that a product is stored as.

        None where it stays sparse, or does not fit. Columns do not depend on each other: as many as fit are computed
        together.
        """
        import torch

        numbers: Any = source.values if isinstance(source, Product) else dense_source(self.step, source)
        if numbers is None:
            return None
        if isinstance(source, Product) and dtype != "float32":
            numbers = numbers.to(getattr(torch, dtype))
        nodes, width = numbers.shape
        at_once = self._columns(numbers)
        if not at_once or (at_once < width and nodes * width * 4 > available_memory()):
            return None
        if isinstance(numbers, torch.Tensor) and at_once < width:  # blocks of columns are read from main memory
            numbers = numbers.cpu().numpy()
        try:
            if at_once == width:
                return Product(self._columns_of(_tensor(numbers, self.device)))
            product = torch.empty(nodes, width)
            for start in range(0, width, at_once):
                part = np.ascontiguousarray(numbers[:, start : start + at_once])
                product[:, start : start + at_once] = self._columns_of(_tensor(part, self.device)).cpu()
            return Product(product)
        except torch.cuda.OutOfMemoryError:
            return None

    def try_out(self) -> None:
        """Compute one number, so that errors of the device and its compiler come first."""
        import torch

        numbers = torch.zeros(self.step.graph.num_nodes, 1, device=self.device)
        self.multiply(*self.arrays, numbers, 0, numbers[:1].clone())
        torch.cuda.synchronize(self.device)

    def most_waiting(self, width: int) -> int:
        """Return how many products may wait on the device to be written, beside a source and a product."""
        bytes_of_hop = max(1, 4 * self.step.graph.num_nodes * width)
        return int(min(max(self.free // bytes_of_hop - 2, 0), _MOST_WAITING))

    def _columns(self, numbers: Any) -> int:
        """Return how many columns of a matrix, and of its product, fit on the device."""
        nodes, width = numbers.shape
        each = nodes * (numbers.dtype.itemsize + 4)
        return int(min(width, max(self.free, 0) // max(1, each)))

    def _columns_of(self, source: Tensor) -> Tensor:
        import torch

        product = torch.empty(source.shape, dtype=torch.float32, device=self.device)
        self.multiply(*self.arrays, source, 0, product)
        return product


def _tensor(array: Any, device: torch.device) -> Tensor:
    """Return an array, which may be a memory map, as a tensor on the device; a tensor that is there as it is."""
    import torch

    if isinstance(array, torch.Tensor):
        return array.to(device)
    with warnings.catch_warnings():  # nothing writes to a memory map
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)
