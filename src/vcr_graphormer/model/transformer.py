"""The transformer that reads token lists: it projects tokens, encodes them and reads out one vector per node."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from ..errors import ConfigError
from ..tokens.layout import Layout
from .batches import Batch
from .config import VOTES, ModelConfig
from .dropout import Dropout, dropout, hide, random_bits
from .gpu import fused
from .matrices import Matrix, Rows, project, row_sums, stack
from .readouts import READOUTS, SCORED, target

_GATE_START = 0.55  # half open, for tanh(0.55) = 0.5: from 0 a gate hardly opens in few steps (docs/log.md)
_FEEDFORWARD = 2  # width of the feed-forward part, in multiples of `hidden_channels`; as in NAGphormer
_EMBEDDING_SCALE = 0.02  # standard deviation of new embeddings, as in BERT: small, so that the features rule at first


class Attended(NamedTuple):
    """Logits [B, c] with their attention weights [layers, B, heads, S, S] and readout weights [B, S]."""

    logits: Tensor
    attention: Tensor
    readout: Tensor


class _TakeFirst(torch.autograd.Function):
    """Return the tokens [B, S, h] and a copy of the first of them [B, count, h], whose gradient is added in place.

    The gradient of a slice would be a tensor as large as the tokens, filled with zeros, and a sum with it. The gradient
    of the tokens must belong to nobody else: it comes from a norm that alone reads them.
    """

    @staticmethod
    def forward(context: Any, tokens: Tensor, count: int) -> tuple[Tensor, Tensor]:
        context.count = count
        return tokens.view_as(tokens), tokens[:, :count].clone()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        of_tokens, of_first = gradients
        of_tokens[:, : context.count] += of_first
        return of_tokens, None


class _Attend(torch.autograd.Function):
    """Attention of one query per head [B, H, h] to tokens [B, S, h]: mixed tokens [B, H, h], sums of weights [B, H, 1].

    The same as the operations one by one, but the gradient of the tokens is one product instead of a sum of two.
    """

    @staticmethod
    def forward(
        context: Any, tokens: Tensor, asked: Tensor, mask: Tensor | None, fraction: float
    ) -> tuple[Tensor, Tensor]:
        weights = _mask_scores(asked @ tokens.transpose(1, 2), mask).softmax(-1)  # (batch, heads, tokens)
        bits = random_bits(weights.numel(), fraction) if fraction else None
        kept = weights if bits is None else hide(weights, *bits)
        context.save_for_backward(tokens, asked, weights, kept)
        context.mask, context.bits = mask, bits
        return kept @ tokens, kept.sum(-1, keepdim=True)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        tokens, asked, weights, kept = context.saved_tensors
        of_mixed, of_sums = gradients
        of_weights = torch.baddbmm(of_sums, of_mixed, tokens.transpose(1, 2))
        if context.bits is not None:
            of_weights = hide(of_weights, *context.bits)
        of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdim=True))
        if context.mask is not None:
            of_scores = of_scores.masked_fill_(~context.mask[:, None], 0)
        of_tokens = torch.cat([of_scores, kept], 1).transpose(1, 2) @ torch.cat([asked, of_mixed], 1)
        return of_tokens, of_scores @ tokens, None, None


def _mask_scores(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return scores [B, H, S] that are least for hidden tokens, which then have the weight 0."""
    if mask is None:  # not by -inf: where explanations hide the whole list, all weights would be NaN
        return scores
    return scores.masked_fill(~mask[:, None], torch.finfo(scores.dtype).min)


class EncoderLayer(nn.Module):
    """A layer that normalizes first: Z̃ = MHA(LN(Z)) + Z, then FFN(LN(Z̃)) + Z̃."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, inner = config.hidden_channels, config.hidden_channels * _FEEDFORWARD
        self.heads, self.attention_dropout = config.heads, config.attention_dropout
        self.first_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.second_norm = nn.LayerNorm(width)
        self.feedforward = nn.Sequential(
            nn.Linear(width, inner), nn.GELU(), Dropout(config.dropout), nn.Linear(inner, width)
        )
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        tokens: Tensor,
        mask: Tensor | None,
        attention: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the encoded tokens [B, S, h]; append the attention weights to `attention` if it is given."""
        size, length, width = tokens.shape
        joined = self.query_key_value(self.first_norm(tokens))  # (batch, tokens, 3 * hidden)
        query, key, value = joined.view(size, length, 3, self.heads, width // self.heads).transpose(1, 3).unbind(2)
        mixed = self.attend(query, key, value, mask, attention)  # (batch, heads, tokens, hidden / heads)
        tokens = tokens + self.dropout(self.mix(mixed.transpose(1, 2).reshape(size, length, width)))
        added: Tensor = tokens + self.dropout(self.feedforward(self.second_norm(tokens)))
        return added

    def encode_target(self, tokens: Tensor, mask: Tensor | None, own: Tensor) -> Tensor:
        """Return the encoded target [B, h], which is `forward(tokens, mask)[:, 0]` for a fraction of the work.

        One query needs no keys and values: the score qᵢ · (K xⱼ) is (Kᵀ qᵢ) · xⱼ, and Σ aⱼ (V xⱼ) is V (Σ aⱼ xⱼ). The
        bias of the keys adds the same to every score, so that it cancels. `own` is the target `tokens[:, 0]`.
        """
        width = tokens.shape[2]
        parts = (3, self.heads, width // self.heads)
        query_weight, key_weight, value_weight = self.query_key_value.weight.view(*parts, width).unbind()
        query_bias, _, value_bias = self.query_key_value.bias.view(parts).unbind()
        query = torch.einsum("bw,hew->bhe", self.first_norm(own), query_weight) + query_bias
        asked = torch.einsum("bhe,hew->bhw", query / math.sqrt(parts[2]), key_weight)
        mixed, sums = self._attend_once(self.first_norm(tokens), asked, mask)
        values = torch.einsum("bhw,hew->bhe", mixed, value_weight) + sums * value_bias
        own = own + self.dropout(self.mix(values.flatten(1)))
        added: Tensor = own + self.dropout(self.feedforward(self.second_norm(own)))
        return added

    def _attend_once(self, tokens: Tensor, asked: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the tokens mixed by the attention weights of one query per head, and the sums of these weights."""
        fraction = self.attention_dropout if self.training else 0.0
        if tokens.requires_grad and tokens.device.type == "cpu":
            mixed, sums = _Attend.apply(tokens, asked, mask, fraction)  # type: ignore[no-untyped-call]
            return mixed, sums
        scores = _mask_scores(asked @ tokens.transpose(1, 2), mask)  # (batch, heads, tokens)
        weights = dropout(scores.softmax(-1), fraction)
        return weights @ tokens, weights.sum(-1, keepdim=True)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, attention: list[Tensor] | None
    ) -> Tensor:
        """Return the values mixed by softmax attention over the tokens that the mask shows."""
        shown = None if mask is None else mask[:, None, None, :]  # (batch, 1, 1, tokens)
        fraction = self.attention_dropout if self.training else 0.0
        if attention is None and not (fraction and query.device.type == "cpu"):
            return F.scaled_dot_product_attention(query, key, value, attn_mask=shown, dropout_p=fraction)
        # On a CPU torch has no fused attention with dropout. This one has our cheap dropout.
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        if shown is not None:
            scores = scores.masked_fill(~shown, -math.inf)
        weights = scores.softmax(-1)
        if attention is not None:
            attention.append(weights)
        return dropout(weights, fraction) @ value


def _embedding(count: int, width: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(count, width) * _EMBEDDING_SCALE)


class ListReader(nn.Module):
    """Encoder layers, norm, readout and head: the way from projected token lists to logits."""

    def add_path(self, config: ModelConfig, layers: int, num_outputs: int) -> Self:
        """Add the layers of the path. A method, because a model adds them after its projections."""
        width = config.hidden_channels
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.make_weights = READOUTS[config.readout]
        self.readout_weight = nn.Linear(width, 1, bias=False) if self.make_weights in SCORED else None
        half = max(1, width // 2)
        self.head = nn.Sequential(nn.Linear(width, half), nn.GELU(), nn.Linear(half, num_outputs))
        return self

    def encode(
        self,
        tokens: Tensor,
        mask: Tensor | None,
        attention: list[Tensor] | None = None,
        *,
        own: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the nodes' vectors [B, h] and the readout weights [B, S] of projected token lists [B, S, h].

        If the readout is the target, the last layer computes nothing else, unless its attention weights are asked for.
        `own` is the target `tokens[:, 0]`, if it was taken before.
        """
        if attention is None and self.make_weights is target:
            weights = target(tokens, tokens.detach()[..., 0], None)
            layers: list[Any] = list(self.layers)
            for layer in layers[:-1]:
                tokens, own = layer(tokens, mask), None
            own = tokens[:, 0] if own is None else own
            vectors = self.norm(layers[-1].encode_target(tokens, mask, own) if layers else own)
            return vectors if mask is None else vectors.masked_fill(~mask[:, :1], 0), weights
        encoders: list[Any] = list(self.layers)
        heads = encoders[0].heads if encoders else None
        if attention is None and fused.usable(tokens, tokens.shape[1], heads):
            tokens = fused.encode(encoders, self.norm, tokens, mask)
            if self.readout_weight is not None:
                return fused.read_out(tokens, mask, self.readout_weight.weight)
            return self.read_out(tokens, mask)
        for layer in encoders:
            tokens = layer(tokens, mask, attention)
        return self.read_out(self.norm(tokens), mask)

    def read_out(self, tokens: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return one vector per node [B, h], and the weight of each token in it [B, S]."""
        shown = torch.ones_like(tokens[..., 0]) if mask is None else mask.to(tokens.dtype)
        weights = self.make_weights(tokens, shown, self.readout_weight)
        # Padding must not count even if it is infinite, and 0 times infinity is not 0.
        kept = tokens if mask is None else tokens.masked_fill(~mask[..., None], 0)
        return (weights[:, None] @ kept)[:, 0], weights


class VCRGraphormer(ListReader):
    """The model of the paper, with its extensions: `forward(batch)` returns logits.

    Parameters
    ----------
    config
        The settings of section `[model]`.
    layout
        Which token stands where in a list, for embeddings of kinds and ranks.
    num_features
        Width of the features (d).
    num_outputs
        Classes, label columns or targets.
    num_labels
        Width of the label rows, for label hops and label embedding.
    num_nodes
        Nodes of the graph, for adjacency rows.
    """

    def __init__(
        self,
        config: ModelConfig,
        layout: Layout,
        *,
        num_features: int,
        num_outputs: int,
        num_labels: int = 0,
        num_nodes: int = 0,
    ) -> None:
        super().__init__()
        self.config = config.check(layout.hops).check_resolved()
        if config.members != 1:
            raise ConfigError(f"model.members is {config.members}: make_model makes several models, this is one")
        self.layout, self.num_outputs = layout, num_outputs
        # A buffer lies on the device of the weights, so that a step can be recorded. It is not saved.
        self.kind_of_place: Tensor
        self.register_buffer("kind_of_place", torch.from_numpy(layout.embeddings), persistent=False)
        width = config.hidden_channels
        bound = 1 / math.sqrt(num_features + 1)  # as torch starts a linear layer with d + 1 inputs, [X ‖ w] W
        input_widths = [num_features] * (1 + config.rich_tokens) + [num_nodes] * config.adjacency_rows
        self.feature_weights = nn.ParameterList(
            nn.Parameter(torch.empty(columns, width).uniform_(-bound, bound)) for columns in input_widths
        )
        self.score_weight = nn.Parameter(torch.empty(width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(width).uniform_(-bound, bound))
        self.kinds = _embedding(layout.num_embeddings, width) if config.kind_embedding else None
        has_ranks = config.rank_embedding and layout.num_neighbours > 0
        self.ranks = _embedding(layout.num_neighbours, width) if has_ranks else None
        self.label_hop_weight = self._label_weight(num_labels) if config.label_hops else None
        self.label_weight = self._label_weight(num_labels) if config.label_embedding else None
        self.rich_label_weight = self._label_weight(num_labels) if config.rich_labels else None
        self.add_path(config, config.layers, num_outputs)
        self.own: ListReader | None = None
        if config.combine == "gated":
            first = replace(config, readout="attention") if config.own_hops else config
            self.own = ListReader().add_path(first, 0, num_outputs)
            self.gate = nn.Parameter(torch.full((), _GATE_START))

    def _label_weight(self, num_labels: int) -> nn.Parameter:
        return nn.Parameter(torch.randn(num_labels, self.config.hidden_channels) / math.sqrt(num_labels))

    @property
    def all(self) -> list[VCRGraphormer]:
        """Return the model itself, as `Members` does its members."""
        return [self]

    @property
    def gates(self) -> list[nn.Parameter]:
        """Return the gate, if paths are gated."""
        return [] if self.own is None else [self.gate]

    def forward(self, batch: Batch, projected: Tensor | None = None) -> Tensor:
        """Return logits [B, c]. A batch without rows needs `projected`, the rows of all nodes by `project_rows`."""
        # On a GPU sizes must not depend on random numbers, or a step could not be recorded.
        if self.own is not None and self._hides_paths and batch.place.device.type == "cpu":
            return self._forward_seen(batch, self.project_rows(batch.rows) if projected is None else projected)
        return self.read(*self.tokens(batch, projected))[0]

    def _forward_seen(self, batch: Batch, projected: Tensor) -> Tensor:
        """Return logits [B, c] while training; nodes that are predicted without the second path get no list."""
        draw = torch.rand(len(batch), 1) if batch.draw is None else batch.draw
        hidden = draw[:, 0] < self.config.neighbour_dropout
        both, alone = (which.nonzero()[:, 0] for which in (~hidden, hidden))
        logits = self._read(*self.tokens(batch.take(both), projected), None, draw[both])[0]
        tokens, mask = self._tokens(batch.take(alone).cut(self._own_tokens), projected)
        assert self.own is not None
        own_logits = self.own.head(self.own.encode(tokens, mask)[0])
        return torch.cat([logits, own_logits]).index_select(0, torch.cat([both, alone]).argsort())

    @property
    def _takes_target(self) -> bool:
        """Return whether the target is read by itself, and the tokens by nothing but the norm of the only layer."""
        return self.make_weights is target and len(self.layers) == 1

    @property
    def _own_tokens(self) -> int:
        """Return how many tokens the first path reads: the node and its hops, or the node alone."""
        return 1 if self.own is None or self.own.make_weights is target else self.layout.first_neighbour

    @property
    def vector_width(self) -> int:
        """Return the width of the vectors that `represent` returns."""
        return self.config.hidden_channels * (1 if self.own is None else 2)

    def represent(self, batch: Batch, projected: Tensor | None = None) -> Tensor:
        """Return each node's vector before the head [B, h]; of a gated model those of both paths [B, 2h]."""
        return torch.cat(self.read(*self.tokens(batch, projected))[1], 1)

    def look(self, tokens: Tensor, mask: Tensor | None) -> Attended:
        """Return the logits of projected token lists, with the weights of the layers and readout of whole lists."""
        layers: list[Tensor] = []
        logits, _, readout = self.read(tokens, mask, layers)
        shape = (0, len(tokens), self.config.heads, tokens.shape[1], tokens.shape[1])
        attention = torch.stack(layers) if layers else tokens.new_empty(shape)
        return Attended(logits, attention, readout)

    def read(
        self, tokens: Tensor, mask: Tensor | None, attention: list[Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
        """Return logits [B, c], the vector of each path [B, h] and readout weights [B, S] of projected token lists.

        Append the attention weights of the layers that read whole lists to `attention` if it is given.
        """
        return self._read(tokens, mask, attention, draw=None)

    def _read(
        self, tokens: Tensor, mask: Tensor | None, attention: list[Tensor] | None, draw: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
        """Return the same as `read`. `draw` are the random numbers [B, 1] that hide paths while training; None: new."""
        first: Tensor | None = None
        if attention is None and self._takes_target and tokens.requires_grad and tokens.device.type == "cpu":
            tokens, first = _TakeFirst.apply(tokens, self._own_tokens)  # type: ignore[no-untyped-call]
        if self.config.readout == VOTES:
            logits, vectors, weights = self._count_votes(tokens, mask, attention)
        else:
            vectors, weights = self.encode(tokens, mask, attention, own=None if first is None else first[:, 0])
            logits = self.head(vectors)
        if self.own is None:
            return logits, (vectors,), weights
        own = slice(self._own_tokens)
        own_tokens = tokens[:, own] if first is None else first
        own_vectors, _ = self.own.encode(own_tokens, None if mask is None else mask[:, own])
        gate = self.gate.tanh()
        own_logits, logits = self._hide_paths(self.own.head(own_vectors), gate * logits, draw)
        return own_logits + logits, (own_vectors, gate * vectors), weights

    def _count_votes(
        self, tokens: Tensor, mask: Tensor | None, attention: list[Tensor] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits [B, c], vectors [B, h] and weights [B, S] of the neighbours: each adds 1/k of its own logits.

        The weights do not depend on the mask. So a hidden neighbour takes its vote away, and no other vote grows.
        """
        for layer in self.layers:
            tokens = layer(tokens, mask, attention)
        first = self.layout.first_neighbour
        neighbours = self.norm(tokens[:, first:])  # (batch, neighbours, hidden)
        shown = torch.ones_like(neighbours[..., 0])
        if mask is not None:
            shown = mask[:, first:].to(neighbours.dtype)
            neighbours = neighbours.masked_fill(~mask[:, first:, None], 0)
        weights = shown / max(1, self.layout.num_neighbours)
        logits, vectors = ((weights[:, None] @ rows)[:, 0] for rows in (self.head(neighbours), neighbours))
        return logits, vectors, F.pad(weights, (first, 0))

    @property
    def _hides_paths(self) -> bool:
        return self.training and self.config.neighbour_dropout + self.config.own_dropout > 0

    def _hide_paths(self, first: Tensor, second: Tensor, draw: Tensor | None) -> tuple[Tensor, Tensor]:
        """While training, set the first path's logits to zero for some nodes, and the second path's for others."""
        if self._hides_paths:
            draw = torch.rand(len(first), 1, device=first.device) if draw is None else draw
            without_second, without_first = self.config.neighbour_dropout, self.config.own_dropout
            first, second = first * (draw < 1 - without_first), second * (draw >= without_second)
        return first, second

    def project_rows(self, rows: tuple[Rows, ...]) -> Tensor:
        """Return the projection of every row, X W₀ + (PX) W₁ + … + b."""
        weights = list(self.feature_weights)
        total = self._project(rows[0], weights[0])
        for matrix, weight in zip(rows[1:], weights[1:], strict=True):
            total = total + self._project(matrix, weight)
        return total + self.bias

    def _project(self, matrix: Rows, weight: Tensor) -> Tensor:
        """Return the product of rows, maybe normalized, and weight, with dropout of input features."""
        product = project(matrix, weight, self.config.feature_dropout if self.training else 0.0)
        return product / row_sums(matrix).to(product.dtype) if self.config.normalize_rows else product

    def tokens(self, batch: Batch, projected: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the projected token lists [B, S, h] and the mask, with dropout of entries and of tokens."""
        tokens = batch.scores.shape[1]
        if tokens != self.layout.num_tokens:
            raise ConfigError(
                f"the lists have {tokens} tokens, the model was made for {self.layout.num_tokens}: "
                f"give it the layout of the lists"
            )
        return self._tokens(batch, self.project_rows(batch.rows) if projected is None else projected)

    def _tokens(self, batch: Batch, projected: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the same as `tokens` for lists that may be cut off."""
        table, index = self._table(batch, projected)
        tokens = self._add_inputs(table, index, batch)  # (batch, tokens, hidden)
        of_places = self._of_places()
        tokens = tokens if of_places is None else tokens + of_places[: tokens.shape[1]]
        tokens = dropout(tokens, self.config.embedding_dropout if self.training else 0.0)
        return tokens, self._hide_some(batch, tokens)

    def _add_inputs(self, table: Tensor, index: Tensor, batch: Batch) -> Tensor:
        """Return the tokens: rows of the table, plus what each carries besides: its score, other kinds and labels.

        All of it is one product, [score ‖ kinds ‖ labels ‖ labels around] times one weight: a sum over all tokens for
        each would cost more than the products do. The gradient of `embedding` is a sorted sum: unlike that of indexing,
        it is deterministic and parallel.
        """
        first = self.layout.first_neighbour
        parts: list[Tensor] = []
        weights: list[Tensor] = []
        if self.kinds is not None and batch.shared is not None:  # a token gets the embeddings of all its kinds
            parts, weights = [batch.shared != 0], [self.kinds[first + 1 :]]
        for of_labels, labels in ((self.label_weight, batch.labels), (self.rich_label_weight, batch.labels_around)):
            if of_labels is not None and labels is not None:
                parts, weights = [*parts, labels], [*weights, of_labels]
        if not parts and fused.usable(table, index.shape[1]):
            return fused.look_up(table, index, batch.scores, self.score_weight)
        tokens, scores = F.embedding(index, table), batch.scores.to(table.dtype)[..., None]
        if not parts:
            return torch.addcmul(tokens, scores, self.score_weight)
        carried = torch.cat([part.to(tokens.dtype) for part in parts], 2)  # (batch, neighbours, columns)
        carried = torch.cat([scores, F.pad(carried, (0, 0, first, 0))], 2)
        weight = torch.cat([self.score_weight[None], *weights])
        return torch.addmm(tokens.flatten(0, 1), carried.flatten(0, 1), weight).view_as(tokens)

    def _of_places(self) -> Tensor | None:
        """Return what is learned for each place of a list [S, h]: the embedding of its kind and of its rank."""
        places = None if self.kinds is None else F.embedding(self.kind_of_place, self.kinds)
        if self.ranks is None:
            return places
        ranks = F.pad(self.ranks, (0, 0, self.layout.first_neighbour, 0))
        return ranks if places is None else places + ranks

    def _table(self, batch: Batch, projected: Tensor) -> tuple[Tensor, Tensor]:
        """Return a table of projected rows and hop rows, and the row of every token in it [B, S].

        On a GPU one look-up is faster than joining pieces (docs/log.md).
        """
        hops = self._project_hops(batch.hops)
        if self.label_hop_weight is not None and batch.label_hops is not None:
            around = (batch.label_hops.to(projected.dtype) @ self.label_hop_weight).unbind(1)  # (batch, hidden) each
            hops = [hop + labels for hop, labels in zip(hops, around, strict=False)] + hops[len(around) :]
        # By `shape`, not `len`: an export keeps the size of the batch open, which `len` would fix.
        size, device = batch.place.shape[0], batch.place.device
        starts = torch.arange(len(hops), device=device) * size + projected.shape[0]
        hop_index = starts + torch.arange(size, device=device)[:, None]  # (batch, hops)
        index = torch.cat([batch.place[:, :1], hop_index, batch.place[:, 1:]], 1)
        return torch.cat([projected, *hops]) if hops else projected, index

    def _project_hops(self, hops: tuple[Matrix, ...]) -> list[Tensor]:
        """Return the projected hop rows; on a GPU by one product, which takes less time than one for each hop."""
        dense = [hop for hop in hops if isinstance(hop, Tensor) and hop.device.type == "cuda"]
        if dense and len(dense) == len(hops):
            joined = self._project(stack(dense), self.feature_weights[0]) + self.bias
            return list(joined.chunk(len(dense)))
        return [self._project(hop, self.feature_weights[0]) + self.bias for hop in hops]

    def _hide_some(self, batch: Batch, tokens: Tensor) -> Tensor | None:
        if not (self.training and self.config.token_dropout):
            return batch.mask
        kept = torch.rand(tokens.shape[:2], device=tokens.device) >= self.config.token_dropout
        kept[:, 0] = True  # never the target
        return kept if batch.mask is None else kept & batch.mask
