"""Measure what each token of a node contributes to its prediction: attention, readout weight and effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.jobs import Progress
from ..data.metrics import Threshold
from ..data.tasks import Target
from ..errors import ConfigError
from ..model.batches import Inputs
from ..model.members import Model
from ..tokens.layout import Layout
from ..training.devices import memory_advice, within_memory


@dataclass(frozen=True, eq=False)
class Attributions:
    """Attention, readout weight and effect of the S tokens of some nodes.

    Attributes
    ----------
    nodes : int64 [m]
        Node ids.
    outputs : float32 [m, c]
        Probabilities, or values for regression.
    column : int64 [m]
        The explained output: the most probable class, or the one the caller chose.
    attention : float32 [m, S]
        Attention each token receives, averaged over layers, heads and querying tokens; sums to 1. NaN for a model
        without encoder layers.
    readout : float32 [m, S]
        Weight of each token in the readout, the sum that makes one vector of the list.
    effect : float32 [m, S]
        The explained output minus the same output with this token hidden.
    shown : bool [m, S]
        False for padding.
    ids, scores : [m, S]
        The node of each token and its score by the kind of its place. The node is -1 for hops and padding.
    layout : Layout
        The kind of token at each place of a list.
    shared : float32 [m, k, kinds - 1] or None
        Scores of the k neighbours by later kinds, as in `Batch`; None if lists are not distinct.
    without : mapping of str to float32 [m, c]
        The outputs with all tokens of a group hidden, for each of `layout.groups`. A token that several kinds propose
        belongs to the kind of its place.
    threshold : Threshold or None
        What decides between two classes; None takes the most probable output.
    """

    nodes: NDArray[np.int64]
    outputs: NDArray[np.float32]
    column: NDArray[np.int64]
    attention: NDArray[np.float32]
    readout: NDArray[np.float32]
    effect: NDArray[np.float32]
    shown: NDArray[np.bool_]
    ids: NDArray[np.int64]
    scores: NDArray[np.float32]
    layout: Layout
    shared: NDArray[np.float32] | None = None
    without: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    threshold: Threshold | None = None

    def proposed_by(self, row: int, place: int) -> dict[str, float]:
        """Return the kinds that propose the token at a place, with their scores; the kind of the place comes first."""
        scores = {self.layout.names[self.kinds[place]]: float(self.scores[row, place])}
        if self.shared is not None and place >= self.layout.first_neighbour:
            later = self.shared[row, place - self.layout.first_neighbour].tolist()
            scores |= {kind: score for kind, score in zip(list(self.layout.counts)[1:], later, strict=True) if score}
        return scores

    @property
    def kinds(self) -> NDArray[np.int64]:
        """Return the kind of each place [S], as an index into `layout.names`."""
        return self.layout.kinds

    @property
    def attends(self) -> bool:
        """Whether the model has encoder layers."""
        return not np.isnan(self.attention).any()

    @property
    def predicted(self) -> NDArray[np.int64]:
        """Return the predicted class of each node; without classes the most probable output."""
        return self.decide(self.outputs)

    def decide(self, outputs: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return what outputs [m, c] predict."""
        columns: NDArray[np.int64] = outputs.argmax(1) if self.threshold is None else self.threshold.decide(outputs)
        return columns

    @property
    def explained(self) -> NDArray[np.float32]:
        """Return the explained output of each node."""
        return np.take_along_axis(self.outputs, self.column[:, None], 1)[:, 0]

    @property
    def kind_effects(self) -> dict[str, NDArray[np.float32]]:
        """Return the explained output minus the same output without a group of tokens [m], for each group."""
        return {
            name: self.explained - np.take_along_axis(outputs, self.column[:, None], 1)[:, 0]
            for name, outputs in self.without.items()
        }


def attribute(
    model: Model,
    inputs: Inputs,
    nodes: NDArray[np.int64],
    target: Target,
    lists_at_once: int,
    column: int | None = None,
    progress: Progress | None = None,
) -> Attributions:
    """Compute the outputs of some nodes with all their tokens, with each token and with each group of tokens hidden.

    Parameters
    ----------
    lists_at_once
        Token lists computed at a time; every node takes 1 + S of them.
    column
        The output to explain; default: the most probable one, for regression the first.
    """
    if not len(nodes):
        raise ConfigError("there are no nodes to explain: the list is empty")
    batches: list[tuple[Any, ...]] = []
    size = max(1, lists_at_once // (1 + inputs.num_tokens))
    done = 0
    with (
        torch.no_grad(),
        within_memory(inputs.device, memory_advice(size, inputs.num_tokens, model.config.hidden_channels)),
    ):
        for tokens, mask in _token_lists(model, inputs, nodes=nodes, size=size):
            attended = model.look(tokens, mask)
            outputs = target.output_tensor(attended.logits)
            columns = target.explained(outputs)
            if column is not None:
                columns = torch.full_like(columns, column)
            whole = outputs.gather(1, columns[:, None])  # (batch, 1)
            shown = _shown(tokens, mask)
            masks = shown[:, None] & ~torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device)
            without = _masked_outputs(model, tokens, masks=masks, target=target)  # (batch, tokens, outputs)
            without = without.gather(2, columns[:, None, None].expand(-1, tokens.shape[1], 1))[..., 0]
            effect = torch.where(shown, whole - without, 0.0)
            attention, readout = _received(attended.attention, shown), attended.readout.float()
            # In a call of its own: the last bits of the effects above depend on the lists beside them.
            grouped = _without_groups(model, tokens, shown=shown, outputs=outputs, target=target)
            tensors = (outputs, columns, attention, readout, effect, shown, grouped)
            batches.append(tuple(tensor.cpu().numpy() for tensor in tensors))
            done += len(tokens)
            if progress is not None:
                progress("explaining", done, len(nodes))
    names = ("outputs", "column", "attention", "readout", "effect", "shown", "without")
    arrays: dict[str, Any] = {
        name: np.concatenate(pieces) for name, pieces in zip(names, zip(*batches, strict=True), strict=True)
    }
    arrays["without"] = dict(zip(inputs.layout.groups, np.moveaxis(arrays["without"], 1, 0), strict=True))
    ids, scores = _ids_and_scores(inputs, nodes)
    shared = inputs.shared_scores(torch.from_numpy(nodes).to(inputs.home))
    arrays["shared"] = None if shared is None else shared.cpu().numpy()
    threshold = target.threshold
    return Attributions(nodes=nodes, ids=ids, scores=scores, layout=inputs.layout, threshold=threshold, **arrays)


def outputs_without(
    model: Model,
    inputs: Inputs,
    nodes: NDArray[np.int64],
    *,
    target: Target,
    lists_at_once: int,
    progress: Progress | None = None,
) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float32]]]:
    """Return the outputs [m, c] of whole lists, and those without each group of tokens.

    It costs a few lists per node, where `attribute` costs one per token.
    """
    groups = inputs.layout.groups
    size = max(1, lists_at_once // (1 + len(groups)))
    whole, without = [], []
    with (
        torch.no_grad(),
        within_memory(inputs.device, memory_advice(size, inputs.num_tokens, model.config.hidden_channels)),
    ):
        for tokens, mask in _token_lists(model, inputs, nodes=nodes, size=size):
            outputs = target.output_tensor(model.read(tokens, mask)[0])
            hidden = _without_groups(model, tokens, shown=_shown(tokens, mask), outputs=outputs, target=target)
            whole.append(outputs.cpu().numpy())
            without.append(hidden.cpu().numpy())
            if progress is not None:
                progress("hiding kinds of tokens", min(size * len(whole), len(nodes)), len(nodes))
    by_group = np.moveaxis(np.concatenate(without), 1, 0)
    return np.concatenate(whole), dict(zip(groups, by_group, strict=True))


def _token_lists(
    model: Model, inputs: Inputs, *, nodes: NDArray[np.int64], size: int
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield the projected token lists of the nodes and their masks, `size` nodes at a time."""
    order = torch.from_numpy(np.ascontiguousarray(nodes, dtype=np.int64)).to(inputs.home)
    for batch in inputs.batches(order, size):
        yield model.tokens(batch)


def _shown(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mask [B, S]: all true where a list has no padding."""
    return torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device) if mask is None else mask


def _masked_outputs(model: Model, tokens: Tensor, *, masks: Tensor, target: Target) -> Tensor:
    """Return the outputs [B, M, c] of each list under each of its masks [B, M, S]."""
    count, variants, length = masks.shape
    repeated = tokens.repeat_interleave(variants, 0)
    logits = model.read(repeated, masks.reshape(count * variants, length))[0]
    return target.output_tensor(logits).view(count, variants, -1)


def _without_groups(model: Model, tokens: Tensor, *, shown: Tensor, outputs: Tensor, target: Target) -> Tensor:
    """Return the outputs [B, groups, c] of each list without each group; `outputs` where a list has no such token."""
    groups = list(model.layout.groups.values())
    if not groups:
        return outputs[:, None][:, :0]
    hidden = torch.from_numpy(np.stack(groups)).to(tokens.device)  # (groups, tokens)
    without = _masked_outputs(model, tokens, masks=shown[:, None] & ~hidden, target=target)
    return torch.where((shown[:, None] & hidden).any(2, keepdim=True), without, outputs[:, None])


def _received(attention: Tensor, shown: Tensor) -> Tensor:
    """Return the mean of attention [layers, B, heads, S, S] over layers, heads and queries; NaN without layers."""
    if not len(attention):
        return torch.full(shown.shape, torch.nan, device=shown.device)
    queries = shown.float()[:, None, :, None]
    received = (attention.float().nan_to_num() * queries).sum(3) / queries.sum(2)  # (layers, batch, heads, tokens)
    return received.mean((0, 2))


def _ids_and_scores(inputs: Inputs, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the ids and scores of all tokens [m, S]."""
    rows = torch.from_numpy(nodes).to(inputs.home)
    neighbours = torch.cat([ids[rows] for ids in inputs.ids], 1).cpu().numpy().astype(np.int64)
    hops = np.full((len(nodes), inputs.layout.hops), -1)
    ids = np.concatenate([nodes[:, None], hops, neighbours], 1)
    scores = torch.cat([scores[rows].float() for scores in inputs.scores], 1).cpu().numpy()
    own = np.broadcast_to(inputs.own_scores.cpu().numpy(), (len(nodes), inputs.layout.first_neighbour))
    return ids, np.concatenate([own, scores], 1).astype(np.float32)


def faithfulness(
    model: Model,
    inputs: Inputs,
    attributions: Attributions,
    target: Target,
    lists_at_once: int,
    most: int = 8,
    seed: int = 0,
) -> dict[str, list[float]]:
    """Return the mean explained output after hiding 0, 1, … `most` tokens of each list, in three orders.

    The orders are `effect` (largest first), `attention` (most first, if the model has encoder layers) and `random`.
    The node itself is never hidden. If effects are faithful, the output falls fastest in their order. Only the first
    token makes it fall by definition: of tokens hidden together, one may have stood in for another.
    """
    random = np.random.default_rng(seed)
    orders = {"effect": attributions.effect}
    if attributions.attends:
        orders["attention"] = attributions.attention
    orders["random"] = random.random(attributions.effect.shape, dtype=np.float32)
    steps = np.arange(min(most, attributions.effect.shape[1] - 1) + 1)
    sums = {name: np.zeros(len(steps)) for name in orders}
    size = max(1, lists_at_once // len(steps))
    advice = memory_advice(size, inputs.num_tokens, model.config.hidden_channels)
    with torch.no_grad(), within_memory(inputs.device, advice):
        start = 0
        for tokens, mask in _token_lists(model, inputs, nodes=attributions.nodes, size=size):
            rows = slice(start, start + len(tokens))
            start += len(tokens)
            shown = _shown(tokens, mask)
            columns = torch.from_numpy(attributions.column[rows]).to(tokens.device)[:, None, None]
            for name, values in orders.items():
                ranks = np.full(values[rows].shape, len(steps))
                eligible = np.where(attributions.shown[rows], values[rows], -np.inf)[:, 1:]
                ranks[:, 1:] = np.argsort(np.argsort(-eligible, axis=1, kind="stable"), axis=1, kind="stable")
                kept = torch.from_numpy(ranks[:, None] >= steps[:, None]).to(tokens.device)  # (batch, steps, tokens)
                outputs = _masked_outputs(model, tokens, masks=kept & shown[:, None], target=target)
                explained = outputs.gather(2, columns.expand(-1, len(steps), 1))[..., 0]
                sums[name] += explained.double().sum(0).cpu().numpy()
    return {name: (total / max(1, len(attributions.nodes))).tolist() for name, total in sums.items()}
