"""Training steps and the pass over the validation nodes, recorded as CUDA graphs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ConfigError
from ..model.batches import Batch, Inputs
from ..model.gpu.fixed import FixedBatch, packed_matrices
from .inference import read_nodes

if TYPE_CHECKING:
    from .trainer import Trainer

_MOST_BATCHES = 32  # of a recorded validation: a graph of thousands would take long to record, and gain little
# Ordinary calls before recording: they compile kernels and make the optimizer's state. PyTorch's notes use 3.
WARM_UP = 3


class CapturedStep:
    """`Trainer.take_step` recorded as a CUDA graph, which saves the time to launch its hundreds of kernels.

    It needs inputs on the GPU, so that all batches of one size have the same shapes, and a single process. All other
    steps call `Trainer.take_step` itself. An epoch has two sizes: a full batch, and the rest of the nodes.
    """

    @classmethod
    def possible(cls, trainer: Trainer, nodes: Tensor) -> bool:
        """Return whether a step with these nodes can be recorded and replayed."""
        return _possible(trainer, trainer.inputs) and trainer.steps_taken[len(nodes)] >= WARM_UP

    def __init__(self, trainer: Trainer, nodes: Tensor, labels: Tensor) -> None:
        self.nodes, self.labels, self.device = nodes.clone(), labels.clone(), trainer.inputs.device
        self.graph = torch.cuda.CUDAGraph()
        pool = _pool(trainer)
        with on(self.device):
            torch.cuda.synchronize()
        with on(self.device), torch.cuda.graph(self.graph, pool=pool):
            self.loss = trainer.take_step(trainer.inputs.batch(self.nodes), self.labels)

    def __call__(self, nodes: Tensor, labels: Tensor) -> Tensor:
        """Replay the step with other nodes; the next call overwrites the returned loss."""
        self.nodes.copy_(nodes)
        self.labels.copy_(labels)
        with on(self.device):
            self.graph.replay()
        return self.loss


class CapturedValidation:
    """The logits of the validation nodes, `inference.compute`, recorded as a CUDA graph.

    Replays read the weights where they lie, so that they see what the steps before made of them.
    """

    @classmethod
    def possible(cls, trainer: Trainer) -> bool:
        """Return whether the pass can be recorded; it must have been computed some epochs before."""
        few = 0 < len(trainer.val.nodes) <= _MOST_BATCHES * trainer.micro_batch
        return few and _possible(trainer, trainer.val_inputs) and trainer.validated >= WARM_UP

    def __init__(self, trainer: Trainer) -> None:
        inputs, self.graph = trainer.val_inputs, torch.cuda.CUDAGraph()
        self.device = inputs.device
        self.nodes = torch.from_numpy(trainer.val.nodes).to(inputs.home)  # kept, for replays read it
        pool = _pool(trainer)
        with on(self.device):
            torch.cuda.synchronize()
        with torch.no_grad(), on(self.device), torch.cuda.graph(self.graph, pool=pool):
            model = trainer.low_precision(trainer.evaluated)
            parts: list[Tensor] = []
            read_nodes(model, inputs, nodes=self.nodes, batch_size=trainer.micro_batch, use=parts.append)
            self.logits = torch.cat(parts).float()

    def __call__(self) -> NDArray[np.float32]:
        """Return the logits [m, c] by the weights of now."""
        with on(self.device):
            self.graph.replay()
        logits: NDArray[np.float32] = self.logits.cpu().numpy()
        return logits


def _possible(trainer: Trainer, inputs: Inputs) -> bool:
    """Return whether what reads these inputs has the same shapes each time, in a single process."""
    dense = all(isinstance(matrix, Tensor) for matrix in (*inputs.sources, *inputs.hops))
    return inputs.same_shapes and trainer.processes.size == 1 and dense


def _pool(trainer: Trainer) -> Any:
    """Return the memory of what was recorded before. Graphs follow one another and keep nothing, so they share it."""
    first = next(iter(trainer.captured.values()), trainer.captured_validation)
    return None if first is None else first.graph.pool()


class StreamedSteps:
    """Steps with streamed batches of one size, recorded as a CUDA graph after the first ones.

    A packed batch is copied to tensors that stay, with some room to spare, and the step unpacks it there. One that does
    not fit takes a step of its own. Dropout of spare rows draws random numbers, too, so all steps of a size are padded,
    the first ones before recording as well.

    Parameters
    ----------
    examples
        Packed batches of this size, by which the room is measured.
    labels
        The labels of any batch of this size.
    """

    @classmethod
    def possible(cls, trainer: Trainer, batch: Batch) -> bool:
        """Return whether a step with this batch takes this way."""
        return bool(packed_matrices(batch)) and trainer.processes.size == 1

    def __init__(self, examples: Sequence[Batch], labels: Tensor) -> None:
        fixed = FixedBatch(list(examples), labels.device) if examples else None
        # Sparse products cannot be recorded, and would read the spare entries.
        self.fixed = fixed if fixed is not None and fixed.becomes_dense else None
        self.labels = labels.clone()
        self.taken = 0  # padded steps that were not replayed
        self.recordable = True
        self.graph: torch.cuda.CUDAGraph | None = None
        self.loss: Tensor

    def __call__(self, trainer: Trainer, batch: Batch, labels: Tensor) -> Tensor:
        """Take a step; the next call may overwrite the returned loss."""
        if self.fixed is None or not self.fixed.fill(batch):
            return trainer.take_step(batch.unpacked(), labels)
        fixed = self.fixed
        self.labels.copy_(labels)

        def step() -> Tensor:
            return trainer.take_step(fixed.packed.unpacked(), self.labels)

        if self.graph is None and self.recordable and self.taken >= WARM_UP:
            try:
                self.graph, self.loss = record(step, self.labels.device)
            except (RuntimeError, ConfigError) as error:
                self.recordable = False
                warnings.warn(f"a training step was not recorded, and is slower: {error}", stacklevel=2)
        if self.graph is None:
            self.taken += 1
            return step()
        with on(self.labels.device):
            self.graph.replay()
        return self.loss


def on(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which a GPU is the current one; of a CPU nothing changes."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def record(step: Callable[[], Tensor], device: torch.device) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """Return a step on a GPU as a CUDA graph that was not replayed yet, and the loss that replaying it writes."""
    with on(device):
        return _record(step, torch.cuda.current_device())


def _record(step: Callable[[], Tensor], device: int) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    generator = torch.cuda.default_generators[device]
    before = generator.clone_state()
    try:
        # Other threads take page-locked memory meanwhile, which they may. The outer stream is for the case of an error,
        # after which torch would go on with the stream that it records.
        with torch.cuda.stream(stream), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            loss = step()
    except BaseException:
        # Torch leaves both as they are while it records: then no random numbers, and no memory that is used again.
        generator.graphsafe_set_state(before)
        with suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(device, graph.pool())
        raise
    return graph, loss
