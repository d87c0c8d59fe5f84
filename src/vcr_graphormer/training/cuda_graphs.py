"""A training step recorded as a CUDA graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .trainer import Trainer


class CapturedStep:
    """A whole step recorded as a CUDA graph and replayed: no time goes into launching its hundreds of kernels.

    Only for full batches whose inputs lie on the GPU, whose shapes are then always the same, and for one process: the
    sum of gradients over several is not recorded. `Trainer.take_step` is what is recorded, and what runs wherever this
    does not.
    """

    WARM_UP = 3  # steps taken one by one first: they fill caches and make the optimizer's state

    @classmethod
    def possible(cls, trainer: Trainer, nodes: Tensor) -> bool:
        """Whether a step with these nodes can be replayed."""
        inputs = trainer.inputs
        dense = all(isinstance(matrix, Tensor) for matrix in (*inputs.sources, *inputs.hops))
        return (
            inputs.same_shapes
            and trainer.processes.size == 1
            and trainer.steps_taken >= cls.WARM_UP
            and dense
            and len(nodes) == trainer.config.batch_size
        )

    def __init__(self, trainer: Trainer, nodes: Tensor, labels: Tensor) -> None:
        self.nodes, self.labels = nodes.clone(), labels.clone()
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            self.loss = trainer.take_step(trainer.inputs.batch(self.nodes), self.labels)

    def __call__(self, nodes: Tensor, labels: Tensor) -> Tensor:
        """Replay the step with other nodes; the returned loss is overwritten by the next call."""
        self.nodes.copy_(nodes)
        self.labels.copy_(labels)
        self.graph.replay()
        return self.loss
