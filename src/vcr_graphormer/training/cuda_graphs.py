"""A training step recorded as a CUDA graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .trainer import Trainer


class CapturedStep:
    """`Trainer.take_step` recorded as a CUDA graph, which saves the time to launch its hundreds of kernels.

    It needs inputs on the GPU, so that all batches of one size have the same shapes, and a single process. All other
    steps call `Trainer.take_step` itself. An epoch has two sizes: a full batch, and the rest of the nodes.
    """

    # Ordinary steps of a size before recording, which make the optimizer's state; PyTorch's CUDA graph notes use 3.
    WARM_UP = 3

    @classmethod
    def possible(cls, trainer: Trainer, nodes: Tensor) -> bool:
        """Return whether a step with these nodes can be recorded and replayed."""
        inputs = trainer.inputs
        dense = all(isinstance(matrix, Tensor) for matrix in (*inputs.sources, *inputs.hops))
        return (
            inputs.same_shapes
            and trainer.processes.size == 1
            and trainer.steps_taken[len(nodes)] >= cls.WARM_UP
            and dense
        )

    def __init__(self, trainer: Trainer, nodes: Tensor, labels: Tensor) -> None:
        self.nodes, self.labels = nodes.clone(), labels.clone()
        self.graph = torch.cuda.CUDAGraph()
        # Steps follow one another and keep nothing, so that they can share their memory.
        pool = next((step.graph.pool() for step in trainer.captured.values()), None)
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph, pool=pool):
            self.loss = trainer.take_step(trainer.inputs.batch(self.nodes), self.labels)

    def __call__(self, nodes: Tensor, labels: Tensor) -> Tensor:
        """Replay the step with other nodes; the next call overwrites the returned loss."""
        self.nodes.copy_(nodes)
        self.labels.copy_(labels)
        self.graph.replay()
        return self.loss
