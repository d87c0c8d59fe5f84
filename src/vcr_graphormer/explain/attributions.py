"""Why a node was classified as it was: every token with its score, its attention, and its effect when it is hidden."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.jobs import Progress
from ..data.tasks import Target
from ..errors import ConfigError
from ..model.batches import Inputs
from ..model.transformer import VCRGraphormer
from ..tokens.layout import Layout
from ..training.devices import memory_advice, within_memory


@dataclass(frozen=True, eq=False)
class Attributions:
    """What the model saw in the token lists of some nodes. S tokens each; padding is not shown.

    Attributes
    ----------
    nodes : int64 [m]
        Node ids.
    outputs : float32 [m, c]
        Probabilities, or values for regression.
    column : int64 [m]
        The output that is explained: the most probable class, or the one asked for.
    attention : float32 [m, S]
        Attention a token receives, averaged over layers, heads and the tokens that look; sums to 1. NaN for a model
        without encoder layers, which attends to nothing.
    readout : float32 [m, S]
        Its weight in the readout.
    effect : float32 [m, S]
        The explained output less the same with this token hidden: what the token adds to it.
    shown : bool [m, S]
        False for padding.
    ids, scores : [m, S]
        The token's node (-1 for hops and padding, n + s for super node s) and its scalar weight.
    layout : Layout
        Which token stands where.
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
        """The most probable output of each node."""
        best: NDArray[np.int64] = self.outputs.argmax(1)
        return best

    @property
    def explained(self) -> NDArray[np.float32]:
        """The explained output of each node."""
        return np.take_along_axis(self.outputs, self.column[:, None], 1)[:, 0]


def attribute(
    model: VCRGraphormer,
    inputs: Inputs,
    nodes: NDArray[np.int64],
    target: Target,
    lists_at_once: int,
    column: int | None = None,
    progress: Progress | None = None,
) -> Attributions:
    """Read the token lists of some nodes once whole, and once without each token.

    Parameters
    ----------
    lists_at_once
        Token lists computed at a time; every node takes 1 + S of them.
    column
        Explain this output instead of the most probable one (of the first target for regression).
    """
    if not len(nodes):
        raise ConfigError("there are no nodes to explain: the list is empty")
    parts: list[tuple[Any, ...]] = []
    size = max(1, lists_at_once // (1 + inputs.num_tokens))
    done = 0
    with (
        torch.no_grad(),
        within_memory(inputs.device, memory_advice(size, inputs.num_tokens, model.config.hidden_channels)),
    ):
        for tokens, mask, batch_nodes in _token_lists(model, inputs, nodes, size):
            seen = model.look(tokens, mask)
            outputs = target.output_tensor(seen.logits)
            chosen = target.task.explained(outputs)
            if column is not None:
                chosen = torch.full_like(chosen, column)
            whole = outputs.gather(1, chosen[:, None])  # (batch, 1)
            shown = torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device) if mask is None else mask
            hidden = ~torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device)
            without = _masked_outputs(model, tokens, shown[:, None] & hidden, target)  # (batch, tokens, outputs)
            left = without.gather(2, chosen[:, None, None].expand(-1, tokens.shape[1], 1))[..., 0]
            effect = torch.where(shown, whole - left, 0.0)
            attention = _received(seen.attention, shown)
            weights = seen.readout.float()
            parts.append(tuple(part.cpu().numpy() for part in (outputs, chosen, attention, weights, effect, shown)))
            done += len(batch_nodes)
            if progress is not None:
                progress("explaining", done, len(nodes))
    names = ("outputs", "column", "attention", "readout", "effect", "shown")
    arrays = {name: np.concatenate(pieces) for name, pieces in zip(names, zip(*parts, strict=True), strict=True)}
    ids, scores = _ids_and_scores(inputs, nodes)
    for kind in inputs.layout.supers:  # numbered across kinds in the inputs, by kind everywhere else
        own = ids[:, inputs.layout.places(kind)]
        own[own >= inputs.num_nodes] -= inputs.layout.super_offset(kind)
    return Attributions(nodes=nodes, ids=ids, scores=scores, layout=inputs.layout, **arrays)


def _token_lists(
    model: VCRGraphormer, inputs: Inputs, nodes: NDArray[np.int64], size: int
) -> Iterator[tuple[Tensor, Tensor | None, Tensor]]:
    """Projected token lists of the nodes, with their masks."""
    order = torch.from_numpy(np.ascontiguousarray(nodes, dtype=np.int64)).to(inputs.home)
    for batch in inputs.batches(order, size):
        tokens, mask = model.tokens(batch)
        yield tokens, mask, batch.nodes


def _masked_outputs(model: VCRGraphormer, tokens: Tensor, masks: Tensor, target: Target) -> Tensor:
    """Outputs [B, M, c] of each list under each of its masks [B, M, S]."""
    count, variants, length = masks.shape
    repeated = tokens.repeat_interleave(variants, 0)
    vectors = model.encode(repeated, masks.reshape(count * variants, length))[0]
    return target.output_tensor(model.head(vectors)).view(count, variants, -1)


def _received(attention: Tensor, shown: Tensor) -> Tensor:
    """Mean over layers, heads and shown queries of attention [layers, B, heads, S, S]; NaN without layers."""
    if not len(attention):
        return torch.full(shown.shape, torch.nan, device=shown.device)
    looking = shown.float()[:, None, :, None]
    total = (attention.float().nan_to_num() * looking).sum(3) / looking.sum(2)  # (layers, batch, heads, tokens)
    return total.mean((0, 2))


def _ids_and_scores(inputs: Inputs, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    chosen = torch.from_numpy(nodes).to(inputs.home)
    neighbours = torch.cat([part[chosen] for part in inputs.ids], 1).cpu().numpy().astype(np.int64)
    hops = np.full((len(nodes), inputs.layout.hops), -1)
    ids = np.concatenate([nodes[:, None], hops, neighbours], 1)
    scores = torch.cat([part[chosen].float() for part in inputs.scores], 1).cpu().numpy()
    own = np.broadcast_to(inputs.own_scores.cpu().numpy(), (len(nodes), inputs.layout.first_neighbour))
    return ids, np.concatenate([own, scores], 1).astype(np.float32)


def faithfulness(
    model: VCRGraphormer,
    inputs: Inputs,
    attributions: Attributions,
    target: Target,
    lists_at_once: int,
    most: int = 8,
    seed: int = 0,
) -> dict[str, list[float]]:
    """The mean explained output after hiding 0, 1, … `most` tokens of each list, in three orders.

    `effect`: largest effect first. `attention`: most attention first, if the model attends. `random`. The node itself
    stays. If effects are faithful, the first curve falls fastest. Hidden together, tokens may replace one another, so
    this is not true by definition beyond the first token.
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
        place = 0
        for tokens, mask, nodes in _token_lists(model, inputs, attributions.nodes, size):
            rows = slice(place, place + len(nodes))
            place += len(nodes)
            shown = torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device) if mask is None else mask
            chosen = torch.from_numpy(attributions.column[rows]).to(tokens.device)[:, None, None]
            for name, values in orders.items():
                ranks = np.full(values[rows].shape, len(steps))
                eligible = np.where(attributions.shown[rows], values[rows], -np.inf)[:, 1:]
                ranks[:, 1:] = np.argsort(np.argsort(-eligible, axis=1, kind="stable"), axis=1, kind="stable")
                kept = torch.from_numpy(ranks[:, None] >= steps[:, None]).to(tokens.device)  # (batch, steps, tokens)
                outputs = _masked_outputs(model, tokens, kept & shown[:, None], target)
                sums[name] += outputs.gather(2, chosen.expand(-1, len(steps), 1))[..., 0].double().sum(0).cpu().numpy()
    return {name: (total / max(1, len(attributions.nodes))).tolist() for name, total in sums.items()}
