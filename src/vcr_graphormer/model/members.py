"""Several models of one form that are trained at once and predict together: their mean logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..tokens.layout import Layout
from .batches import Batch
from .config import ModelConfig
from .matrices import Rows
from .transformer import Attended, VCRGraphormer


class Members(nn.Module):
    """`config.members` models that read the same batches, each with its own weights and dropout.

    While training, `forward` returns the logits of one member after the other, so that each learns alone. Otherwise it
    returns their mean. Projected rows and tokens of all members stand side by side in the last dimension. On a CPU,
    members share which nodes of a step are trained without one of two paths: rows that no path reads are not projected.

    Parameters are those of `VCRGraphormer`.
    """

    def __init__(self, config: ModelConfig, layout: Layout, **sizes: int) -> None:
        super().__init__()
        self.config, self.layout = config.check(layout.hops).check_resolved(), layout
        alone = replace(config, members=1)
        self.members = nn.ModuleList(VCRGraphormer(alone, layout, **sizes) for _ in range(config.members))
        self.num_outputs = self.all[0].num_outputs

    @property
    def all(self) -> list[VCRGraphormer]:
        """Return the members."""
        members: list[Any] = list(self.members)
        return members

    @property
    def kinds(self) -> nn.Parameter | None:
        """Return the embedding of kinds of the first member, if members have one."""
        return self.all[0].kinds

    @property
    def gates(self) -> list[nn.Parameter]:
        """Return the gate of every member, if paths are gated."""
        return [gate for member in self.all for gate in member.gates]

    @property
    def vector_width(self) -> int:
        """Return the width of the vectors that `represent` returns."""
        return sum(member.vector_width for member in self.all)

    def forward(self, batch: Batch, projected: Tensor | None = None) -> Tensor:
        """Return mean logits [B, c]; while training, those of every member [members · B, c]."""
        logits = [member(batch, rows) for member, rows in zip(self.all, self._parts(projected), strict=True)]
        return torch.cat(logits) if self.training else _mean(logits)

    def represent(self, batch: Batch, projected: Tensor | None = None) -> Tensor:
        """Return the vectors of all members side by side."""
        pairs = zip(self.all, self._parts(projected), strict=True)
        return torch.cat([member.represent(batch, rows) for member, rows in pairs], 1)

    def project_rows(self, rows: tuple[Rows, ...]) -> Tensor:
        """Return the projections of every row side by side."""
        return torch.cat([member.project_rows(rows) for member in self.all], 1)

    def tokens(self, batch: Batch, projected: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the projected token lists of all members [B, S, members · h], and the mask."""
        pairs = zip(self.all, self._parts(projected), strict=True)
        lists = [member.tokens(batch, rows) for member, rows in pairs]
        return torch.cat([tokens for tokens, _ in lists], 2), lists[0][1]

    def look(self, tokens: Tensor, mask: Tensor | None) -> Attended:
        """Return mean logits and mean weights of projected token lists."""
        pairs = zip(self.all, self._parts(tokens), strict=True)
        looks = [member.look(part, mask) for member, part in pairs if part is not None]
        return Attended(*(_mean(list(values)) for values in zip(*looks, strict=True)))

    def read(self, tokens: Tensor, mask: Tensor | None) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
        """Return mean logits, the vectors of all paths of all members, and mean readout weights."""
        pairs = zip(self.all, self._parts(tokens), strict=True)
        logits, vectors, weights = zip(*(m.read(part, mask) for m, part in pairs if part is not None), strict=True)
        return _mean(list(logits)), tuple(vector for one in vectors for vector in one), _mean(list(weights))

    def _parts(self, joined: Tensor | None) -> list[Tensor | None]:
        """Return each member's part of the last dimension."""
        return [None] * len(self.members) if joined is None else list(joined.chunk(len(self.members), -1))


Model = VCRGraphormer | Members


def make_model(config: ModelConfig, layout: Layout, **sizes: int) -> Model:
    """Return a new model with random weights: one, or several that predict together."""
    return (VCRGraphormer if config.members == 1 else Members)(config, layout, **sizes)


def _mean(tensors: list[Tensor]) -> Tensor:
    """Return the mean, added in the order of the members: the bits of torch's `mean` depend on where tensors lie."""
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total / len(tensors)
