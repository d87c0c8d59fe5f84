"""Node ids → `Batch` of tensors. Features are never copied per token: a batch holds places among rows."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..errors import ConfigError
from ..tokens.layout import Layout
from .matrices import Matrix, select, slice_rows

_AHEAD = 2  # batches that lie ready in the background while one is in use
_MOST_READERS = 8


@dataclass(frozen=True, eq=False)
class Batch:
    """Token lists of some nodes: B nodes, each 1 itself, L hops, k neighbours; S = 1 + L + k tokens.

    Attributes
    ----------
    place : [B, 1 + k]
        Where the features of the node and of its neighbours lie in `rows`; super nodes follow the rows. 0 for padding.
    scores : [B, S]
        The scalar weight of each token: 1, (L-l+1) / (1+…+L), PageRank scores or link similarity.
    mask : [B, S] or None
        False for padding. None: there is none.
    hops : L matrices [B, d]
        (P^l X)(u).
    rows : matrices [rows, d], the last maybe [rows, n]
        X(i), with rich tokens (PX)(i) …, and maybe A(i, :); empty where the rows are projected already.
    super_rows : [count, d] or None
        Mean features of super nodes, where they may be tokens.
    own : ([B], [B], [B, d]) or None
        The place among the super nodes of a training node's own class, -1 for none, the members of that class, and the
        node's own features: its own part is taken out of the mean.
    label_hops : [B, l, c] or None
        Training labels around the node, its own left out.
    labels : [B, k, c] or None
        Training labels of the neighbours, zero rows where there is none.
    """

    nodes: Tensor
    place: Tensor
    scores: Tensor
    mask: Tensor | None
    hops: tuple[Matrix, ...]
    rows: tuple[Matrix, ...] = ()
    super_rows: Tensor | None = None
    own: tuple[Tensor, Tensor, Matrix] | None = None
    label_hops: Tensor | None = None
    labels: Tensor | None = None

    def __len__(self) -> int:
        return len(self.nodes)

    def split(self, size: int) -> Iterator[Batch]:
        """Consecutive parts of at most `size` nodes, without their rows: those are projected once for all parts."""
        if size >= len(self):
            yield replace(self, rows=())
            return
        for start in range(0, len(self), size):

            def cut(part: Matrix, start: int = start) -> Matrix:
                return slice_rows(part, start, start + size)

            whole = replace(self, rows=(), super_rows=None)
            yield replace(whole._map(cut), super_rows=self.super_rows)

    def to(self, device: torch.device) -> Batch:
        """The batch on another device."""
        return self._map(
            lambda part: part.to(device, non_blocking=True) if isinstance(part, Tensor) else part.to(device)
        )

    def pin_memory(self) -> Batch:
        """The batch in page-locked memory."""
        return self._map(lambda part: part.pin_memory())

    def _map(self, change: Callable[[Any], Any]) -> Batch:
        def apply(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(apply(item) for item in value)
            return None if value is None else change(value)

        return replace(self, **{item.name: apply(getattr(self, item.name)) for item in fields(self)})


@dataclass(frozen=True, eq=False)
class Inputs:
    """Everything batches are made from, as tensors on one device.

    Attributes
    ----------
    features : [n, d]
        X, dense or sparse.
    hops : L matrices [n, d]
        P^l X.
    ids, scores : [n, k], in one piece or several side by side
        Neighbours, kind by kind; -1 is padding, n + s is super node s, those of the first kind first.
    layout : Layout
        Which token stands where in a list.
    device : torch.device
        Where batches go.
    streamed : bool
        Whether the tensors lie elsewhere (main memory, a memory map) and batches are read ahead in the background.
    """

    features: Matrix
    hops: tuple[Matrix, ...]
    ids: tuple[Tensor, ...]
    scores: tuple[Tensor, ...]
    layout: Layout
    device: torch.device
    streamed: bool = False
    rich_tokens: int = 0
    super_rows: Tensor | None = None
    own: tuple[Tensor, Tensor] | None = None
    label_hops: Tensor | None = None
    labels: Tensor | None = None
    adjacency: Matrix | None = None

    def __post_init__(self) -> None:
        neighbours = sum(int(part.shape[1]) for part in self.ids)
        if (len(self.hops), neighbours) != (self.layout.hops, self.layout.num_neighbours):
            raise ConfigError(
                f"the inputs have {len(self.hops)} hops and {neighbours} neighbours, their layout {self.layout.hops} "
                f"and {self.layout.num_neighbours}"
            )

    @property
    def num_nodes(self) -> int:
        """Nodes of the graph."""
        return int(self.features.shape[0])

    @property
    def num_hops(self) -> int:
        """The paper's L."""
        return self.layout.hops

    @property
    def num_tokens(self) -> int:
        """Length of a token list."""
        return self.layout.num_tokens

    @property
    def num_bytes(self) -> int:
        """Bytes of features, hops and token lists."""
        return sum(part.nbytes for part in (self.features, *self.hops, *self.ids, *self.scores))

    @property
    def sources(self) -> tuple[Matrix, ...]:
        """What a node token carries: X, with rich tokens P X …, and the adjacency rows if they are asked for."""
        own = () if self.adjacency is None else (self.adjacency,)
        return (self.features, *self.hops[: self.rich_tokens], *own)

    @property
    def home(self) -> torch.device:
        """Where the tensors lie."""
        return self.ids[0].device

    @cached_property
    def padded(self) -> bool:
        """Whether any list is shorter than the others. Without padding attention needs no mask and is faster."""
        return any(bool((part < 0).any()) for part in self.ids)

    @cached_property
    def own_scores(self) -> Tensor:
        """The weights of the node itself and of its hops: 1, then (L-l+1) / (1+…+L)."""
        steps = torch.arange(self.num_hops, 0, -1, dtype=torch.float32)
        return torch.cat([torch.ones(1), steps / max(1.0, float(steps.sum()))]).to(self.home)

    def batch(self, nodes: Tensor, with_rows: bool = True) -> Batch:
        """The token lists of `nodes`; without rows where they are projected already."""
        nodes = nodes.to(self.home)
        ids = torch.cat([part[nodes] for part in self.ids], 1)
        scores = torch.cat([part[nodes].float() for part in self.scores], 1)
        neighbours = ids.clamp(min=0).long()
        place = torch.cat([nodes[:, None], neighbours], 1)
        rows: tuple[Matrix, ...] = ()
        if with_rows:
            place, rows = self._rows(place)
        mask = None
        if self.padded:
            shown = torch.ones(len(nodes), self.layout.first_neighbour, dtype=torch.bool, device=ids.device)
            mask = torch.cat([shown, ids >= 0], 1)
        labels = None
        if self.labels is not None:
            known = (ids >= 0) & (ids < self.num_nodes)
            labels = self.labels[torch.where(known, neighbours, 0)] * known[..., None]
        return Batch(
            nodes,
            place,
            torch.cat([self.own_scores.expand(len(nodes), -1), scores], 1),
            mask,
            tuple(select(hop, nodes) for hop in self.hops),
            rows,
            self.super_rows,
            None if self.own is None else (self.own[0][nodes], self.own[1][nodes], select(self.features, nodes)),
            None if self.label_hops is None else self.label_hops[nodes],
            labels,
        )

    @property
    def same_shapes(self) -> bool:
        """Whether batches of one size have tensors of one shape: where everything lies on a GPU."""
        return self.device.type == "cuda" and not self.streamed

    def takes_all_rows(self, size: int) -> bool:
        """Whether all rows are taken as they lie: where a batch names as many as there are.

        On a GPU also where it names a sixteenth of them: finding out which costs more than projecting them all.
        """
        named = size * (self.num_tokens - self.num_hops)
        return not self.streamed and self.num_nodes <= named * (16 if self.device.type == "cuda" else 1)

    def _rows(self, place: Tensor) -> tuple[Tensor, tuple[Matrix, ...]]:
        """The features a batch needs, each once: all of them where a batch names more than there are.

        On a GPU once for every time they are named: to find out which are named twice would cost more, and their number
        would differ from batch to batch, so that a step could not be recorded.
        """
        if self.takes_all_rows(len(place)):
            return place, self.sources
        ordinary = torch.where(place < self.num_nodes, place, place[:, :1])
        if self.same_shapes:
            needed, found = ordinary.flatten(), torch.arange(ordinary.numel(), device=place.device).view_as(place)
        else:
            needed, found = torch.unique(ordinary, return_inverse=True)
        place = torch.where(place < self.num_nodes, found, place - self.num_nodes + len(needed))
        return place, tuple(select(source, needed) for source in self.sources)

    def batches(self, nodes: Tensor, size: int, with_rows: bool = True) -> Iterator[Batch]:
        """Batches of consecutive `nodes`; read ahead in the background where they are streamed."""
        return self.batches_of(torch.split(nodes, size) if len(nodes) else (), with_rows)

    def batches_of(self, parts: Sequence[Tensor], with_rows: bool = True) -> Iterator[Batch]:
        """A batch of the nodes of each part, in their order."""
        if not self.streamed:
            return (self.batch(part, with_rows) for part in parts)

        def read(part: Tensor) -> Batch:
            batch = self.batch(part, with_rows)
            return batch.pin_memory() if self.device.type == "cuda" else batch

        _ = self.padded  # found out once, not by every reader at the same time
        # Copied by whoever asks: what lies ready must not fill a GPU whose memory was too small for the inputs.
        return (batch.to(self.device) for batch in _read_ahead(read, parts))


def _read_ahead(read: Callable[[Tensor], Batch], parts: Sequence[Tensor]) -> Iterator[Batch]:
    """Make batches in threads of their own, a few ahead, in the order of the parts. An error there is raised here."""
    readers = min(_MOST_READERS, max(1, (os.cpu_count() or 1) // 2))
    with ThreadPoolExecutor(readers, "vcr-read-ahead") as pool:
        waiting: deque[Future[Batch]] = deque()
        try:
            for part in parts:
                waiting.append(pool.submit(read, part))
                if len(waiting) > readers + _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # the caller may have stopped early
            for future in waiting:
                future.cancel()
