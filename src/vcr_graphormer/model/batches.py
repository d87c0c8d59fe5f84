"""Node ids → `Batch` of tensors. Features are not copied per token: a batch holds indices of rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812
from threadpoolctl import ThreadpoolController
from torch import Tensor

from ..base.machine import default_threads
from ..errors import ConfigError
from ..tokens.layout import Layout
from .gpu.packed import Packed, pack
from .labels import GRID, OFFSET
from .matrices import Matrix, Rows, choose, select, slice_rows

_AHEAD = 2  # batches that wait in the background while one is in use
_MOST_READERS = 12  # threads that read batches; chosen by hand
# If there are at most this many rows per row that a batch names, a GPU projects all: finding the named ones costs more.
_ROWS_PER_NAMED_ROW = 16
Take: TypeAlias = Callable[[Matrix, Tensor], Any]  # returns some rows of a matrix


@dataclass(frozen=True, eq=False)
class Batch:
    """Token lists of B nodes. Each list has the node itself, L hops and k neighbours: S = 1 + L + k tokens.

    Attributes
    ----------
    nodes : [B]
        Ids of the nodes.
    place : [B, 1 + k]
        Index of the node and of each neighbour in `rows`; 0 for padding.
    scores : [B, S]
        Weight of each token: 1 for the node, (L-l+1) / (1+…+L) for hop l, the score by the kind of
        its place for a neighbour.
    mask : [B, S] or None
        False for padding. None if there is no padding.
    hops : L matrices [B, d]
        Hop features of the nodes: (P^l X)(u).
    rows : matrices [rows, d], the last maybe [rows, n]
        Features X(i), with rich tokens (PX)(i) … too, and maybe A(i, :). Empty if the rows are projected already.
    label_hops : [B, l, c] or None
        Training labels around the node, its own left out.
    labels : [B, k, c] or None
        Training labels of the neighbours; zero rows for those without.
    labels_around : [B, k, c] or None
        Training labels around the neighbours, the target's own left out; zero rows for padding.
    shared : [B, k, kinds - 1] or None
        Scores of the neighbours by later kinds than their own, 0 for those that a kind does not propose. The first kind
        is left out. None if lists are not distinct.
    draw : [B, 1] or None
        Random numbers by which training hides one of two paths. None: the model draws them.
    """

    nodes: Tensor
    place: Tensor
    scores: Tensor
    mask: Tensor | None
    hops: tuple[Matrix, ...]
    rows: tuple[Rows, ...] = ()
    label_hops: Tensor | None = None
    labels: Tensor | None = None
    labels_around: Tensor | None = None
    shared: Tensor | None = None
    draw: Tensor | None = None

    def __len__(self) -> int:
        return len(self.nodes)

    def split(self, size: int) -> Iterator[Batch]:
        """Yield batches of at most `size` consecutive nodes, without rows: those are projected once for all."""
        for start in range(0, len(self), size):
            yield self.part(start, min(start + size, len(self)))

    def part(self, start: int, stop: int) -> Batch:
        """Return the batch of the nodes start … stop - 1, without rows."""
        if (start, stop) == (0, len(self)):
            return replace(self, rows=())
        return replace(self, rows=())._map(partial(slice_rows, start=start, stop=stop))

    def take(self, which: Tensor) -> Batch:
        """Return the batch of the nodes at these places of the batch, without rows."""
        return replace(self, rows=())._map(partial(select, rows=which))

    def cut(self, length: int) -> Batch:
        """Return the batch with the first `length` tokens of each list, none of which is a neighbour."""
        return replace(
            self,
            place=self.place[:, :1],
            scores=self.scores[:, :length],
            mask=None if self.mask is None else self.mask[:, :length],
            hops=self.hops[: length - 1],
            label_hops=None if self.label_hops is None else self.label_hops[:, : length - 1],
            labels=None,
            labels_around=None,
            shared=None,
        )

    def to(self, device: torch.device) -> Batch:
        """Return the batch on another device."""
        return self._map(
            lambda matrix: matrix.to(device, non_blocking=True) if isinstance(matrix, Tensor) else matrix.to(device)
        )

    def unpacked(self) -> Batch:
        """Return the batch with all its rows ready for products."""
        return self._map(lambda matrix: matrix.unpack() if isinstance(matrix, Packed) else matrix)

    @property
    def tensors(self) -> list[Tensor]:
        """Return all tensors of a batch that is dense or packed, in the order of the fields."""
        found: list[Tensor] = []
        self._map(lambda matrix: found.extend(matrix.tensors if isinstance(matrix, Packed) else (matrix,)))
        return found

    def pin_memory(self) -> Batch:
        """Return the batch in page-locked memory, from where a GPU reads without waiting."""
        return self._map(lambda matrix: matrix.pin_memory())

    def _map(self, change: Callable[[Any], Any]) -> Batch:
        def apply(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(apply(item) for item in value)
            return None if value is None else change(value)

        return replace(self, **{item.name: apply(getattr(self, item.name)) for item in fields(self)})


@dataclass(frozen=True, eq=False)
class Inputs:
    """The tensors that batches are made from, on one device.

    `rich_tokens` is as in `ModelConfig`, `adjacency` are rows A(i, :). Fields that are not listed are as in `Batch`.

    Attributes
    ----------
    features : [n, d]
        Features X, dense or sparse.
    hops : L matrices [n, d]
        Hop features P^l X.
    ids, scores : [n, k], in one piece or several side by side
        Neighbours, kind by kind. -1 is padding.
    shared : [n, p] per kind after the first
        Scores of the first p neighbours by this kind, see `TokenLists.shared`. Empty if lists are not distinct.
    layout : Layout
        Which token stands where in a list.
    device : torch.device
        The device of the batches.
    rich_labels : ([n, c], [n, k], [n, c]) or None
        Training labels around each node, how much of a neighbour's comes from the target, and the labels themselves.
    streamed : bool
        Whether the tensors lie in main memory or a memory map, and batches are read ahead in the background.
    dtype : torch.dtype
        What a GPU gets of features and hops that are streamed.
    """

    features: Matrix
    hops: tuple[Matrix, ...]
    ids: tuple[Tensor, ...]
    scores: tuple[Tensor, ...]
    layout: Layout
    device: torch.device
    streamed: bool = False
    dtype: torch.dtype = torch.float32
    rich_tokens: int = 0
    label_hops: Tensor | None = None
    labels: Tensor | None = None
    rich_labels: tuple[Tensor, Tensor, Tensor] | None = None
    adjacency: Matrix | None = None
    shared: tuple[Tensor, ...] = ()

    def __post_init__(self) -> None:
        neighbours = sum(int(ids.shape[1]) for ids in self.ids)
        if (len(self.hops), neighbours) != (self.layout.hops, self.layout.num_neighbours):
            raise ConfigError(
                f"the inputs have {len(self.hops)} hops and {neighbours} neighbours, their layout {self.layout.hops} "
                f"and {self.layout.num_neighbours}"
            )

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes of the graph."""
        return int(self.features.shape[0])

    @property
    def num_hops(self) -> int:
        """Return the number of hops (L)."""
        return self.layout.hops

    @property
    def num_tokens(self) -> int:
        """Return the length of a token list."""
        return self.layout.num_tokens

    @property
    def num_bytes(self) -> int:
        """Return the bytes of features, hops and token lists."""
        return sum(matrix.nbytes for matrix in (self.features, *self.hops, *self.ids, *self.scores, *self.shared))

    @property
    def sources(self) -> tuple[Matrix, ...]:
        """Return the matrices whose rows a node token carries: X, with rich tokens PX …, and maybe the links."""
        links = () if self.adjacency is None else (self.adjacency,)
        return (self.features, *self.hops[: self.rich_tokens], *links)

    @property
    def home(self) -> torch.device:
        """Return the device where the tensors lie."""
        return self.ids[0].device

    @cached_property
    def padded(self) -> bool:
        """Return whether any list has padding. Without it attention needs no mask and is faster."""
        return any(bool((ids < 0).any()) for ids in self.ids)

    @cached_property
    def own_scores(self) -> Tensor:
        """Return the weights of the node itself and of its hops: 1, then (L-l+1) / (1+…+L)."""
        steps = torch.arange(self.num_hops, 0, -1, dtype=torch.float32)
        return torch.cat([torch.ones(1), steps / max(1.0, float(steps.sum()))]).to(self.home)

    def batch(self, nodes: Tensor, with_rows: bool = True, alone: Tensor | None = None) -> Batch:
        """Return the token lists of `nodes`, without rows if these are projected already.

        `alone` [B] says of which nodes the neighbours are not read: then their rows are not needed.
        """
        # Streamed rows are read in the background, so they are copied here; others when they are projected.
        take = select if self.streamed else choose
        return self._batch(nodes, with_rows, alone, take_hops=select, take_rows=take)

    def packed(self, nodes: Tensor, with_rows: bool = True) -> Batch:
        """Return a batch whose features and hops are packed for the way to a GPU: use `Batch.unpacked` there."""
        how = partial(pack, dtype=self.dtype, pinned=self.device.type == "cuda")
        return self._batch(nodes, with_rows, None, take_hops=how, take_rows=how)

    def _batch(
        self, nodes: Tensor, with_rows: bool, alone: Tensor | None, *, take_hops: Take, take_rows: Take
    ) -> Batch:
        nodes = nodes.to(self.home)
        ids = torch.cat([piece[nodes] for piece in self.ids], 1)
        scores = torch.cat([piece[nodes].float() for piece in self.scores], 1)
        shared = self.shared_scores(nodes)
        neighbours = ids.clamp(min=0).long()
        read = neighbours if alone is None else torch.where(alone[:, None], nodes[:, None], neighbours)
        place = torch.cat([nodes[:, None], read], 1)
        rows: tuple[Rows, ...] = ()
        if with_rows:
            place, rows = self._rows(place, take_rows)
        mask = None
        if self.padded:
            shown = torch.ones(len(nodes), self.layout.first_neighbour, dtype=torch.bool, device=ids.device)
            mask = torch.cat([shown, ids >= 0], 1)
        labels = None
        if self.labels is not None:
            labels = self.labels[neighbours] * (ids >= 0)[..., None]
        return Batch(
            nodes=nodes,
            place=place,
            scores=torch.cat([self.own_scores.expand(len(nodes), -1), scores], 1),
            mask=mask,
            hops=tuple(take_hops(hop, nodes) for hop in self.hops),
            rows=rows,
            label_hops=None if self.label_hops is None else self.label_hops[nodes],
            labels=labels,
            labels_around=self._labels_around(nodes, ids),
            shared=shared,
        )

    def _labels_around(self, nodes: Tensor, ids: Tensor) -> Tensor | None:
        """Return the labels around the neighbours without those of the targets, on the grid of `model.labels`."""
        if self.rich_labels is None:
            return None
        around, weights, known = self.rich_labels
        others = around[ids.clamp(min=0).long()] - weights[nodes].double()[..., None] * known[nodes, None]
        return (((others / GRID + OFFSET).round() * GRID + 0.0) * (ids >= 0)[..., None]).float()

    def shared_scores(self, nodes: Tensor) -> Tensor | None:
        """Return the scores of some nodes' neighbours by later kinds than their own, as in `Batch`."""
        if not self.shared:
            return None
        length = self.layout.num_neighbours
        return torch.stack([F.pad(piece[nodes].float(), (0, length - piece.shape[1])) for piece in self.shared], 2)

    @property
    def same_shapes(self) -> bool:
        """Return whether batches of one size have tensors of one shape: if everything lies on a GPU."""
        return self.device.type == "cuda" and not self.streamed

    def takes_all_rows(self, size: int) -> bool:
        """Return whether a batch of `size` nodes takes all rows as they lie: if it names about as many as there are."""
        named = size * (self.num_tokens - self.num_hops)
        factor = _ROWS_PER_NAMED_ROW if self.device.type == "cuda" else 1
        return not self.streamed and self.num_nodes <= named * factor

    def _rows(self, place: Tensor, take: Take) -> tuple[Tensor, tuple[Rows, ...]]:
        """Return the rows a batch needs, and `place` as indices of these rows.

        On a CPU every row comes once. On a GPU it comes as often as it is named: so the shape depends on the batch size
        alone, and a step can be recorded.
        """
        if self.takes_all_rows(len(place)):
            return place, self.sources
        if self.same_shapes:
            needed, index = place.flatten(), torch.arange(place.numel(), device=place.device).view_as(place)
        else:
            needed, index = torch.unique(place, return_inverse=True)
        return index, tuple(take(source, needed) for source in self.sources)

    def batches(self, nodes: Tensor, size: int, with_rows: bool = True) -> Iterator[Batch]:
        """Return batches of consecutive `nodes`."""
        return self.batches_of(torch.split(nodes, size) if len(nodes) else (), with_rows)

    def batches_of(self, parts: Iterable[Tensor], with_rows: bool = True, packed: bool = False) -> Iterator[Batch]:
        """Return a batch of the nodes of each part, in their order; streamed ones are read ahead.

        With `packed` those that are streamed to a GPU arrive packed: use `Batch.unpacked`, or copy them elsewhere.
        """
        if not self.streamed:
            return (self.batch(part, with_rows) for part in parts)

        def read(part: Tensor) -> Batch:
            on_gpu = self.device.type == "cuda"
            return self.packed(part, with_rows).pin_memory() if on_gpu else self.batch(part, with_rows)

        _ = self.padded  # computed here once, not by every reader
        # Most wait in main memory: they must not fill a GPU too small for the inputs.
        if self.device.type != "cuda":
            return (batch.to(self.device) for batch in _read_ahead(read, parts))
        arriving = _sent_ahead(_read_ahead(read, parts), self.device)
        return arriving if packed else (batch.unpacked() for batch in arriving)


def _read_ahead(read: Callable[[Tensor], Batch], parts: Iterable[Tensor]) -> Iterator[Batch]:
    """Yield batches in the order of the parts, read a few ahead by threads, whose errors are raised here."""
    readers = max(1, min(_MOST_READERS, default_threads(None) * 3 // 4))
    with ThreadPoolExecutor(readers, "vcr-read-ahead", _alone, (_controller(),)) as pool:
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


def _sent_ahead(batches: Iterable[Batch], device: torch.device) -> Iterator[Batch]:
    """Yield batches on a GPU: each is copied there while the one before is in use."""
    copying = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    sent: deque[tuple[Batch, torch.cuda.Event]] = deque()
    used: deque[torch.cuda.Event] = deque()

    def arrived() -> Batch:
        batch, copied = sent.popleft()
        now = torch.cuda.current_stream(device)
        now.wait_event(copied)
        for tensor in batch.tensors:  # its memory must not be used again before the caller's work is done
            tensor.record_stream(now)
        return batch

    for batch in batches:
        with torch.cuda.stream(copying):
            sent.append((batch.to(device), copying.record_event()))
        if len(sent) > 1:
            yield arrived()
            used.append(torch.cuda.current_stream(device).record_event())
            if len(used) > _AHEAD:  # the GPU is behind: sending more would only take memory
                used.popleft().synchronize()
    while sent:
        yield arrived()


def _alone(controller: ThreadpoolController) -> None:
    """Let torch use no further threads in the thread that calls this: many readers work at a time."""
    torch.get_num_threads()  # torch sets the number when a thread asks first, and would do so later
    controller.limit(limits=1, user_api="openmp")


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
