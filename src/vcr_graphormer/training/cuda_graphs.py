"""Training steps and the pass over the validation nodes, recorded as CUDA graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..model.batches import Inputs
from .inference import read_nodes

if TYPE_CHECKING:
    from .trainer import Trainer

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
        self.nodes, self.labels = nodes.clone(), labels.clone()
        self.graph = torch.cuda.CUDAGraph()
        pool = _pool(trainer)
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph, pool=pool):
            self.loss = trainer.take_step(trainer.inputs.batch(self.nodes), self.labels)

    def __call__(self, nodes: Tensor, labels: Tensor) -> Tensor:
        """Replay the step with other nodes; the next call overwrites the returned loss."""
        self.nodes.copy_(nodes)
        self.labels.copy_(labels)
        self.graph.replay()
        return self.loss


class CapturedValidation:
    """The logits of the validation nodes, `inference.compute`, recorded as a CUDA graph.

    Replays read the weights where they lie, so that they see what the steps before made of them.
    """

    @classmethod
    def possible(cls, trainer: Trainer) -> bool:
        """Return whether the pass can be recorded; it must have been computed some epochs before."""
        return _possible(trainer, trainer.val_inputs) and trainer.validated >= WARM_UP and len(trainer.val.nodes) > 0

    def __init__(self, trainer: Trainer) -> None:
        inputs, self.graph = trainer.val_inputs, torch.cuda.CUDAGraph()
        self.nodes = torch.from_numpy(trainer.val.nodes).to(inputs.home)  # kept, for replays read it
        pool = _pool(trainer)
        torch.cuda.synchronize()
        with torch.no_grad(), torch.cuda.graph(self.graph, pool=pool):
            model = trainer.low_precision(trainer.evaluated)
            parts: list[Tensor] = []
            read_nodes(model, inputs, nodes=self.nodes, batch_size=trainer.micro_batch, use=parts.append)
            self.logits = torch.cat(parts).float()

    def __call__(self) -> NDArray[np.float32]:
        """Return the logits [m, c] by the weights of now."""
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
