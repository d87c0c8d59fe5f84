"""Several networks of one form as one: with small graphs a GPU, or Python, starts one operation instead of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from benchmarks.baselines.features import Rows, contents, with_contents
from benchmarks.baselines.links import Links
from benchmarks.baselines.network import Network


class _Loss(nn.Module):
    """A network whose call returns its loss, because only calls take parameters from outside."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, *arguments: Any) -> Tensor:
        """Return what training minimizes."""
        return self.network.loss(*arguments)


class Together(nn.Module):
    """B networks side by side; each parameter and buffer of all stands in one tensor with a first dimension of B.

    Each network learns as if it were alone: nothing is shared but the optimizer's settings and the links. A single
    network is called as it is.
    """

    def __init__(self, networks: Sequence[Network]) -> None:
        super().__init__()
        self.warmup, self._form = networks[0].warmup, [networks[0]]
        self.alone = networks[0] if len(networks) == 1 else None
        if self.alone is None:
            parameters, buffers = stack_module_state(list(networks))
            self.names = {name: name.replace(".", "/") for name in (*parameters, *buffers)}  # no dots in names
            for name, tensor in parameters.items():
                self.register_parameter(self.names[name], nn.Parameter(tensor.detach()))
            for name, tensor in buffers.items():
                self.register_buffer(self.names[name], tensor)

    @property
    def form(self) -> Network:
        """Return the network whose code is run; its own parameters are not."""
        return self._form[0] if self.alone is None else self.alone  # a copy of this module copies what is alone

    def set_warming(self, warming: bool) -> None:
        """Say whether the warm-up goes on."""
        self.form.warming = warming

    def train(self, mode: bool = True) -> Together:
        """Set the mode of all networks."""
        super().train(mode)
        self.form.train(mode)
        return self

    def forward(self, x: Tensor | Rows, links: Links) -> Tensor:
        """Return logits [B, n, c]; features [B, n, d], or [1, n, d] for all, or sparse in the same way."""
        return self._call(self.form, "", lambda one: (one, links), x)

    def loss(self, x: Tensor | Rows, links: Links, nodes: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each network [B]; nodes and labels have one row for each."""
        network = _Loss(self.form)
        return self._call(network, "network.", lambda one, own, known: (one, links, own, known), x, nodes, labels)

    def _call(
        self, module: nn.Module, prefix: str, arrange: Callable[..., Any], x: Tensor | Rows, *others: Tensor
    ) -> Tensor:
        entries = contents(x)
        if self.alone is not None:
            result: Tensor = module(*arrange(with_contents(x, entries[0]), *(tensor[0] for tensor in others)))[None]
            return result
        state = {prefix + name: getattr(self, kept) for name, kept in self.names.items()}

        def one(own: dict[str, Tensor], read: Tensor, *rest: Tensor) -> Tensor:
            called: Tensor = functional_call(module, own, arrange(with_contents(x, read), *rest))
            return called

        shared = len(entries) == 1
        dimensions = (0, None if shared else 0, *[0] * len(others))
        calls = vmap(one, dimensions, randomness="different")
        outputs: Tensor = calls(state, entries[0] if shared else entries, *others)
        return outputs


def padded(rows: Sequence[Tensor], fill: Callable[[Tensor], Any]) -> Tensor:
    """Stack rows that may differ in length; `fill` says from a row what stands behind its end.

    >>> padded([torch.tensor([3, 4]), torch.tensor([5])], lambda row: row[0]).tolist()
    [[3, 4], [5, 5]]
    """
    longest = max(len(row) for row in rows)
    return torch.stack([torch.cat([row, row.new_full((longest - len(row),), fill(row))]) for row in rows])
