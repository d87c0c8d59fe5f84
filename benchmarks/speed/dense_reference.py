"""The plain reference implementation of the model: gather one dense tensor (batch, tokens, d + 1), then project it.

It has the weights of a `vcr_graphormer.VCRGraphormer` and computes the same, written as one would write it first: one
dense tensor per batch, separate products for queries, keys and values, and softmax attention in full.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from vcr_graphormer.model.batches import Inputs
from vcr_graphormer.model.matrices import SparseRows
from vcr_graphormer.model.transformer import EncoderLayer, VCRGraphormer


def dense_matrix(matrix: Tensor | SparseRows) -> Tensor:
    """Return a dense float32 copy."""
    if isinstance(matrix, Tensor):
        return matrix.float()
    full = torch.zeros(matrix.shape, device=matrix.values.device)
    owners = torch.repeat_interleave(torch.arange(len(full), device=full.device), matrix.indptr.diff().long())
    full[owners, matrix.indices.long()] = matrix.values.float()
    return full


class DenseReference(nn.Module):
    """A module that shares the parameters of a `VCRGraphormer` without extensions and computes the same."""

    def __init__(self, model: VCRGraphormer, inputs: Inputs) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs
        width = len(model.feature_weights[0])  # on a GPU our matrices are padded to an aligned width
        self.features = dense_matrix(inputs.features)[:, :width].contiguous()
        self.hops = [dense_matrix(hop)[:, :width].contiguous() for hop in inputs.hops]

    def gather(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the token lists of nodes as one dense tensor, and which tokens exist."""
        ids, scores = self.inputs.ids[0][nodes], self.inputs.scores[0][nodes].float()
        neighbours = self.features[ids.clamp(min=0).long()]  # (batch, neighbours, d)
        hops = torch.stack([hop[nodes] for hop in self.hops], 1)
        features = torch.cat([self.features[nodes][:, None], hops, neighbours], 1)
        weights = torch.cat([self.inputs.own_scores.expand(len(nodes), -1), scores], 1)
        own = torch.ones(len(nodes), 1 + len(self.hops), dtype=torch.bool, device=ids.device)
        return torch.cat([features, weights[..., None]], 2), torch.cat([own, ids >= 0], 1)

    def forward(self, nodes: Tensor) -> Tensor:
        """Return the logits of nodes."""
        model = self.model
        tokens, mask = self.gather(nodes)
        weight = torch.cat([model.feature_weights[0], model.score_weight[None]])
        current = tokens @ weight + model.bias
        for layer in model.layers:
            assert isinstance(layer, EncoderLayer)
            current = self.encode(layer, current, mask)
        current = model.norm(current)
        assert model.readout_weight is not None
        scores = model.readout_weight(current[:, 1:]).masked_fill(~mask[:, 1:, None], -math.inf)
        vector = current[:, 0] + (scores.softmax(1) * current[:, 1:]).sum(1)
        logits: Tensor = model.head(vector)
        return logits

    def encode(self, layer: EncoderLayer, current: Tensor, mask: Tensor) -> Tensor:
        """Run one encoder layer with attention in full."""
        attention_dropout, dropout = self.model.config.attention_dropout, self.model.config.dropout
        size, length, width = current.shape
        normed = layer.first_norm(current)
        rows, offsets = layer.query_key_value.weight.chunk(3), layer.query_key_value.bias.chunk(3)
        query, key, value = (
            F.linear(normed, row, offset).view(size, length, layer.heads, -1).transpose(1, 2)
            for row, offset in zip(rows, offsets, strict=True)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        weights = scores.masked_fill(~mask[:, None, None], -math.inf).softmax(-1)
        mixed = F.dropout(weights, attention_dropout, self.training) @ value
        mixed = layer.mix(mixed.transpose(1, 2).reshape(size, length, width))
        current = current + F.dropout(mixed, dropout, self.training)
        first, second = layer.feedforward[0], layer.feedforward[3]
        inner = F.dropout(F.gelu(first(layer.second_norm(current))), dropout, self.training)
        result: Tensor = current + F.dropout(second(inner), dropout, self.training)
        return result
