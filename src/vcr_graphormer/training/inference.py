"""Compute logits or vectors of nodes, batch by batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.jobs import Progress
from ..model.batches import Inputs
from ..model.members import Model
from .devices import memory_advice, within_memory

# All rows are projected once if they need no more memory than the tokens of this many batches. Chosen, not measured.
_BATCHES_PROJECTED = 4


def compute(
    model: Model,
    inputs: Inputs,
    nodes: NDArray[np.int64],
    batch_size: int,
    vectors: bool = False,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Return the logits [m, c] of some nodes, or with `vectors` the vectors that the heads read [m, h]."""
    order = torch.from_numpy(np.ascontiguousarray(nodes, dtype=np.int64)).to(inputs.home)
    result: Tensor | None = None
    done = 0

    def keep(rows: Tensor) -> None:
        nonlocal result, done
        if result is None:
            result = torch.empty(len(order), rows.shape[1], dtype=torch.float32)
        result[done : done + len(rows)] = rows
        done += len(rows)
        if progress is not None:
            progress("inference", done, len(order))

    read_nodes(model, inputs, nodes=order, batch_size=batch_size, use=keep, vectors=vectors)
    if result is None:
        result = torch.empty(0, model.vector_width if vectors else model.num_outputs)
    return result.numpy()


@torch.no_grad()
def read_nodes(
    model: Model,
    inputs: Inputs,
    *,
    nodes: Tensor,
    batch_size: int,
    use: Callable[[Tensor], None],
    vectors: bool = False,
) -> None:
    """Call `use` with the logits or vectors of each batch of nodes, on the device of the batches."""
    was_training = model.training
    model.eval()
    width, members = model.config.hidden_channels, model.config.members
    most = _BATCHES_PROJECTED * batch_size * inputs.num_tokens // members
    once = not inputs.streamed and inputs.num_nodes <= most
    try:
        with within_memory(inputs.device, memory_advice(batch_size, inputs.num_tokens, width)):
            projected = model.project_rows(inputs.sources) if once else None
            for batch in inputs.batches(nodes, batch_size, with_rows=not once):
                use(model.represent(batch, projected) if vectors else model(batch, projected))
    finally:
        model.train(was_training)
