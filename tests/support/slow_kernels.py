"""What every kernel of `vcr_graphormer.model.gpu.kernels` computes, written plainly: names and arguments are the same.

Gradients are formulas here, too, not autograd's: tests compare them with autograd, and the kernels with them.
"""

import math

import numpy as np
import torch
from torch import Tensor


def random_bits(seed: Tensor, groups: Tensor) -> Tensor:
    """16 random bits for each of eight entries of every group: seven rounds of Philox 4x32 (Salmon et al., 2011)."""
    mask, key = np.uint64(0xFFFFFFFF), np.uint64(int(seed.flatten()[0]))
    keys = [key & mask, key >> np.uint64(32)]
    counter = [groups.numpy().astype(np.uint64), *(np.zeros(groups.shape, np.uint64) for _ in range(3))]
    for _ in range(7):
        first, second = np.uint64(0xD2511F53) * counter[0], np.uint64(0xCD9E8D57) * counter[2]
        high, low = np.uint64(32), mask
        counter = [
            (second >> high) ^ counter[1] ^ keys[0],
            second & low,
            (first >> high) ^ counter[3] ^ keys[1],
            first & low,
        ]
        keys = [(keys[0] + np.uint64(0x9E3779B9)) & mask, (keys[1] + np.uint64(0xBB67AE85)) & mask]
    a, b, c, d = counter
    halves = [half for word in (a, c, b, d) for half in (word & np.uint64(0xFFFF), word >> np.uint64(16))]
    return torch.from_numpy(np.stack(halves, -1).reshape(*groups.shape[:-1], -1).astype(np.int64))


def factors(seed: Tensor, fraction: float, groups: Tensor, width: int) -> Tensor:
    """What dropout multiplies entries by: 0, or a little more than 1."""
    least = min(round(fraction * 65536), 65535)
    return (random_bits(seed, groups)[..., :width] >= least) * (65536 / (65536 - least))


def of_rows(seed: Tensor, fraction: float, values: Tensor) -> Tensor:
    """The factors of the rows of a tensor, each padded to a power of 2."""
    width = values.shape[-1]
    eighths = max(16, 1 << (width - 1).bit_length()) // 8
    groups = torch.arange(values.numel() // width)[:, None] * eighths + torch.arange(eighths)
    return factors(seed, fraction, groups, width).view(values.shape).to(values)


def of_weights(seed: Tensor, fraction: float, weights: Tensor) -> Tensor:
    """The factors of attention weights [B, H, S, S], each list padded to a power of 2."""
    lists, heads, length = weights.shape[:3]
    rows = max(16, 1 << (length - 1).bit_length())
    groups = torch.arange(lists * heads * rows * rows // 8).view(lists, heads, rows, rows // 8)
    return factors(seed, fraction, groups[:, :, :length], length).to(weights)


def unpack(packed: Tensor, bias: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Queries, keys and values [B, H, S, D]."""
    lists, length, width = packed.shape
    return (packed + bias).view(lists, length, 3, heads, width // (3 * heads)).transpose(1, 3).unbind(2)


def softmax(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[3])
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None], -math.inf)
    return scores.softmax(-1).nan_to_num(0.0)  # a list that is hidden whole has no weights


def attend(packed: Tensor, bias: Tensor, mask: Tensor | None, heads: int, fraction: float, seed: Tensor) -> Tensor:
    query, key, value = unpack(packed, bias, heads)
    weights = softmax(query, key, mask)
    weights = weights * of_weights(seed, fraction, weights)
    return (weights @ value).transpose(1, 2).flatten(2)


def attend_backward(
    of_mixed: Tensor, packed: Tensor, bias: Tensor, mask: Tensor | None, heads: int, fraction: float, seed: Tensor
) -> tuple[Tensor, Tensor]:
    query, key, value = unpack(packed, bias, heads)
    given = of_mixed.view(*of_mixed.shape[:2], heads, -1).transpose(1, 2)
    weights = softmax(query, key, mask)
    kept = of_weights(seed, fraction, weights)
    of_value = (weights * kept).transpose(2, 3) @ given
    of_kept = given @ value.transpose(2, 3) * kept
    of_scores = weights * (of_kept - (weights * of_kept).sum(-1, keepdim=True)) / math.sqrt(query.shape[3])
    parts = torch.stack([of_scores @ key, of_scores.transpose(2, 3) @ query, of_value], 2)
    of_packed = parts.transpose(1, 3).flatten(2)
    return of_packed, of_packed.sum((0, 1))


def standardize(values: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    centred = values - values.mean(-1, keepdim=True)
    factor = 1 / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    return centred * factor, factor


def add_norm(
    tokens: Tensor,
    added: Tensor | None,
    bias: Tensor | None,
    weight: Tensor,
    norm_bias: Tensor,
    eps: float,
    fraction: float,
    seed: Tensor,
) -> tuple[Tensor, Tensor]:
    total = tokens if added is None or bias is None else tokens + (added + bias) * of_rows(seed, fraction, tokens)
    return total, standardize(total, eps)[0] * weight + norm_bias


def add_norm_backward(
    of_total: Tensor | None,
    of_normed: Tensor,
    total: Tensor,
    weight: Tensor,
    eps: float,
    fraction: float,
    seed: Tensor,
    adds: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    standard, factor = standardize(total, eps)
    scaled = of_normed * weight
    shared = scaled.mean(-1, keepdim=True) + standard * (scaled * standard).mean(-1, keepdim=True)
    of_tokens = factor * (scaled - shared) + (0 if of_total is None else of_total)
    of_added = of_tokens * of_rows(seed, fraction, total) if adds else of_tokens
    sums = (rows.flatten(0, -2).sum(0) for rows in (of_added * adds, of_normed * standard, of_normed))
    of_bias, of_weight, of_norm_bias = sums
    return of_tokens, of_added, of_bias, of_weight, of_norm_bias


def gelu(values: Tensor, bias: Tensor, fraction: float, seed: Tensor) -> Tensor:
    x = values + bias
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2 * of_rows(seed, fraction, values)


def gelu_backward(
    of_result: Tensor, values: Tensor, bias: Tensor, fraction: float, seed: Tensor
) -> tuple[Tensor, Tensor]:
    x = values + bias
    slope = (1 + torch.erf(x / math.sqrt(2))) / 2 + x * torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
    of_values = of_result * of_rows(seed, fraction, values) * slope
    return of_values, of_values.flatten(0, -2).sum(0)


def shown_of(tokens: Tensor, mask: Tensor | None) -> Tensor:
    return torch.ones(tokens.shape[:2], dtype=torch.bool) if mask is None else mask


def read_out(tokens: Tensor, mask: Tensor | None, score: Tensor) -> tuple[Tensor, Tensor]:
    shown = shown_of(tokens, mask)
    scores = (tokens @ score.flatten())[:, 1:].masked_fill(~shown[:, 1:], -math.inf)
    weights = torch.cat([torch.ones_like(scores[:, :1]), scores.softmax(-1).nan_to_num(0.0)], 1)
    kept = tokens.masked_fill(~shown[..., None], 0)
    return (weights[..., None] * kept).sum(1), weights


def read_out_backward(
    of_vectors: Tensor, tokens: Tensor, mask: Tensor | None, score: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    shown = shown_of(tokens, mask)
    kept = tokens.masked_fill(~shown[..., None], 0)
    of_weights = (kept * of_vectors[:, None]).sum(-1)
    others = torch.cat([torch.zeros_like(weights[:, :1]), weights[:, 1:]], 1)
    of_scores = others * (of_weights - (others * of_weights).sum(1, keepdim=True))
    of_tokens = (weights * shown)[..., None] * of_vectors[:, None] + of_scores[..., None] * score.flatten()
    return of_tokens, (of_scores[..., None] * kept).sum((0, 1)).view_as(score)


def look_up(table: Tensor, index: Tensor, scores: Tensor, weight: Tensor) -> Tensor:
    return table[index] + scores[..., None] * weight


def look_up_backward(of_tokens: Tensor, index: Tensor, scores: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    of_table = of_tokens.new_zeros(rows, of_tokens.shape[2])
    of_table.index_add_(0, index.flatten(), of_tokens.flatten(0, 1))
    return of_table, (scores[..., None] * of_tokens).sum((0, 1))
