"""The encoder in few passes over the tokens: on a GPU in bfloat16, by the kernels of `kernels` and their gradients.

A step reads and writes the tokens many times, and that takes longer than its products. Here each pass does all that it
can: bias, dropout, sum and norm at once, attention straight from and into what the linear layers write. Nothing of
dropout is stored but a seed. Numbers differ from those of the operations one by one by the rounding of bfloat16.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from ..transformer import EncoderLayer

_LONGEST_LIST = 128  # tokens whose scores fit into the registers of one program
_WIDEST_HEAD = 128
_WIDEST = 4096  # columns of a row, which one program holds; of the feed-forward part twice as many
# GPUs whose processors have at least 160 KB of shared memory: the gradient of attention needs 107 KB for lists of 64.
_WITH_ROOM = {(8, 0), (8, 7), (9, 0), (10, 0), (10, 3)}
_SEEDS = 1 << 62  # as many as 64 bits hold, less what torch does not draw


def usable(tokens: Tensor, length: int, heads: int | None = None) -> bool:
    """Return whether the kernels can read tokens [..., h] in lists of this length, with this number of heads if any."""
    width = tokens.shape[-1]
    return (
        not torch.compiler.is_compiling()  # first: a compiler would read on
        and _runs_on(tokens.device)
        and tokens.dtype == torch.bfloat16
        and 1 < length <= _LONGEST_LIST
        and 16 <= width <= _WIDEST
        and (heads is None or width // heads <= _WIDEST_HEAD)
    )


@cache
def _kernels() -> Any:
    """Return the kernels. They are loaded where a GPU runs them, because importing Triton takes time."""
    from . import kernels

    return kernels


@cache
def _runs_on(device: torch.device) -> bool:
    """Return whether Triton is there and works. It needs a C compiler, too, and not every machine has one."""
    if device.type != "cuda":
        return False
    try:
        if not _kernels().AVAILABLE or torch.cuda.get_device_capability(device) not in _WITH_ROOM:
            return False
        row = torch.ones(1, 16, device=device)
        with torch.cuda.device(device):
            _kernels().add_norm(row, None, None, row[0], row[0], 1e-5, 0.0, row)
    except Exception as error:  # whatever Triton lacks, the operations one by one do the same
        warnings.warn(f"Triton cannot compile, so a GPU takes longer: {error}", RuntimeWarning, stacklevel=2)
        return False
    return True


class _Attend(torch.autograd.Function):
    """`kernels.attend` with its gradient."""

    @staticmethod
    def forward(context: Any, packed: Tensor, bias: Tensor, mask: Tensor | None, heads: int, *dropout: Any) -> Tensor:
        context.save_for_backward(packed, bias, mask)
        context.settings = heads, *dropout
        mixed: Tensor = _kernels().attend(packed, bias, mask, *context.settings)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = gradients[0].contiguous()
        return *_kernels().attend_backward(gradient, *context.saved_tensors, *context.settings), None, None, None, None


class _AddNorm(torch.autograd.Function):
    """`kernels.add_norm` with its gradient."""

    @staticmethod
    def forward(
        context: Any, tokens: Tensor, added: Tensor | None, bias: Tensor | None, weight: Tensor, *rest: Any
    ) -> tuple[Tensor, Tensor]:
        total, normed = _kernels().add_norm(tokens, added, bias, weight, *rest)
        context.save_for_backward(total, weight)
        context.settings = *rest[1:], added is not None
        context.set_materialize_grads(False)
        return total.view_as(total), normed

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        total, weight = context.saved_tensors
        of_total, of_normed = (None if gradient is None else gradient.contiguous() for gradient in gradients)
        of_normed = torch.zeros_like(total) if of_normed is None else of_normed
        found = _kernels().add_norm_backward(of_total, of_normed, total, weight, *context.settings)
        of_tokens, of_added, of_bias, *of_norm = found
        adds = context.settings[-1]
        return of_tokens, of_added if adds else None, of_bias if adds else None, *of_norm, None, None, None


class _Gelu(torch.autograd.Function):
    """`kernels.gelu` with its gradient."""

    @staticmethod
    def forward(context: Any, values: Tensor, bias: Tensor, *dropout: Any) -> Tensor:
        context.save_for_backward(values, bias)
        context.dropout = dropout
        activated: Tensor = _kernels().gelu(values, bias, *dropout)
        return activated

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = gradients[0].contiguous()
        return *_kernels().gelu_backward(gradient, *context.saved_tensors, *context.dropout), None, None


class _ReadOut(torch.autograd.Function):
    """`kernels.read_out` with its gradient. Nothing is learned from the weights that it returns."""

    @staticmethod
    def forward(context: Any, tokens: Tensor, mask: Tensor | None, score: Tensor) -> tuple[Tensor, Tensor]:
        vectors, weights = _kernels().read_out(tokens, mask, score)
        context.save_for_backward(tokens, mask, score, weights)
        context.mark_non_differentiable(weights)
        return vectors, weights

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, Tensor]:
        of_tokens, of_score = _kernels().read_out_backward(gradients[0].contiguous(), *context.saved_tensors)
        return of_tokens, None, of_score


class _LookUp(torch.autograd.Function):
    """`kernels.look_up` with its gradient. Scores are data."""

    @staticmethod
    def forward(context: Any, table: Tensor, index: Tensor, scores: Tensor, weight: Tensor) -> Tensor:
        context.save_for_backward(index, scores)
        context.rows = len(table)
        tokens: Tensor = _kernels().look_up(table, index, scores, weight)
        return tokens

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        index, scores = context.saved_tensors
        of_table, of_weight = _kernels().look_up_backward(gradients[0].contiguous(), index, scores, context.rows)
        return of_table, None, None, of_weight


def encode(layers: list[EncoderLayer], last: nn.LayerNorm, tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Return the norm of the tokens [B, S, h] that leave the layers."""
    mask = None if mask is None else mask.contiguous()
    norms = [*(layer.first_norm for layer in layers), last]
    # Drawn on the device, so that a recorded step has other numbers at every replay; each row aligned to 16 bytes.
    seeds = torch.zeros(4 * len(layers) + 1, 2, dtype=torch.int64, device=tokens.device)
    if any(layer.training for layer in layers):
        seeds.random_(_SEEDS)
    normed: Tensor
    tokens, normed = _apply(_AddNorm, tokens.contiguous(), None, None, *_norm(norms[0]), 0.0, seeds[-1])
    for number, layer in enumerate(layers):
        own = seeds[4 * number :]
        attention, dropout = (layer.attention_dropout, layer.dropout.fraction) if layer.training else (0.0, 0.0)
        # The kernel that reads a product adds its bias, and sums the bias' gradient.
        packed = F.linear(normed, layer.query_key_value.weight)
        mixed = _apply(_Attend, packed, layer.query_key_value.bias, mask, layer.heads, attention, own[0])
        added = F.linear(mixed, layer.mix.weight)
        tokens, normed = _apply(_AddNorm, tokens, added, layer.mix.bias, *_norm(layer.second_norm), dropout, own[1])
        parts: list[Any] = list(layer.feedforward)
        first, _, _, second = parts
        inner = _apply(_Gelu, F.linear(normed, first.weight), first.bias, dropout, own[2])
        added = F.linear(inner, second.weight)
        tokens, normed = _apply(_AddNorm, tokens, added, second.bias, *_norm(norms[number + 1]), dropout, own[3])
    return normed


def read_out(tokens: Tensor, mask: Tensor | None, score: Tensor) -> tuple[Tensor, Tensor]:
    """Return one vector per list [B, h] and the weight of each token in it [B, S], by the readout `attention`."""
    vectors, weights = _apply(_ReadOut, tokens.contiguous(), None if mask is None else mask.contiguous(), score)
    return vectors, weights


def look_up(table: Tensor, index: Tensor, scores: Tensor, weight: Tensor) -> Tensor:
    """Return tokens [B, S, h]: row `index` of the table each, plus its score times the weight."""
    tokens: Tensor = _apply(_LookUp, table.contiguous(), index.contiguous(), scores.contiguous(), weight)
    return tokens


def _norm(norm: nn.LayerNorm) -> tuple[Tensor, Tensor, float]:
    return norm.weight, norm.bias, norm.eps


def _apply(function: Any, first: Tensor, *others: Any) -> Any:
    with torch.cuda.device_of(first):  # type: ignore[no-untyped-call]  # Triton starts kernels on the current device
        return function.apply(first, *others)
