"""Triton kernels of the encoder on a GPU: attention over short lists, sums with norms, GELU, readout and look-up.

Every function has a slow counterpart of the same name in `tests/support/slow_kernels.py`, which says what it computes.
Dropout is drawn anew in the backward pass: 16 bits per entry, from a seed in the memory of the GPU. The gradient of
what all rows share is summed per program and then over programs, so that it does not depend on their order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

try:
    import triton
    from triton import language as tl
except ImportError:  # then nothing here is called
    triton = tl = None

AVAILABLE = triton is not None
_LEVELS = 1 << 16  # of the random numbers; the fraction of dropout is a multiple of 2^-16
# Of whole rows per warp and turn, 16 for each thread: up to this width the sums of a row need no other warp.
_ENTRIES = 512
_PROGRAMS = 2112  # of kernels with sums over all rows, each of which takes many rows: 16 for each of 132 processors
_LISTS = 512  # programs for each head, likewise
_CHUNK = 64  # columns that the readout and the gradient of the look-up take at a time
_SLOTS = 32  # sorted tokens for each program of that gradient
_PIECES = 16  # sums of such programs that are added at a time


def _jit(kernel: Any) -> Any:
    """Compile a kernel. The sizes of batches and lists differ, and must not lead to another compilation."""
    if triton is None:
        return kernel
    names = kernel.__code__.co_varnames[: kernel.__code__.co_argcount]
    return triton.jit(
        kernel, do_not_specialize=[name for name in names if name in ("rows", "lists", "length", "count")]
    )


@_jit
def _hide(values, seed, groups, THRESHOLD: tl.constexpr):
    """Return the values with dropout. `groups` numbers each eight neighbouring entries, which share one draw."""
    if THRESHOLD > 0:
        a, b, c, d = tl.randint4x(tl.load(seed), groups, 7)  # seven rounds pass all tests of randomness of its authors
        words = tl.join(tl.join(a, b), tl.join(c, d))
        bits = tl.reshape(tl.join(words & 65535, words >> 16), values.shape).to(tl.int32)
        values = tl.where(bits >= THRESHOLD, values * (65536 / (65536 - THRESHOLD)), 0.0)
    return values


@_jit
def _part(
    packed, bias, number, part, head, length,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Return one head's queries (part 0), keys (1) or values (2) of a list, with their bias."""
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None]
    start = (part * HEADS + head) * WIDTH + column
    place = (number * length + row).to(tl.int64) * (3 * HEADS * WIDTH) + start
    tile = tl.load(packed + place, (row < length) & (column < WIDTH), 0.0)
    return (tile.to(tl.float32) + tl.load(bias + start, column < WIDTH, 0.0).to(tl.float32)).to(tile.dtype)


@_jit
def _weights(query, key, mask, number, length, scale, ROWS: tl.constexpr, HAS_MASK: tl.constexpr):
    """Return the softmax of the scores of all pairs of tokens of a list, 0 for hidden ones."""
    column = tl.arange(0, ROWS)[None]
    shown = column < length
    if HAS_MASK:
        shown = shown & (tl.load(mask + number * length + column, shown, 0) != 0)
    scores = tl.where(shown, tl.dot(query, tl.trans(key), input_precision="ieee") * scale, -float("inf"))
    weights = tl.exp(scores - tl.maximum(tl.max(scores, 1), -1e30)[:, None])
    return weights / tl.maximum(tl.sum(weights, 1), 1e-30)[:, None]


@_jit
def _groups(number, head, HEADS: tl.constexpr, ROWS: tl.constexpr):
    """Return numbers of the eights of a head's weights, for `_hide`."""
    row, group = tl.arange(0, ROWS)[:, None], tl.arange(0, ROWS // 8)[None]
    return ((number * HEADS + head) * ROWS + row) * (ROWS // 8) + group


@_jit
def _attend(
    packed, bias, mask, seed, mixed, length, scale,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    HAS_MASK: tl.constexpr, THRESHOLD: tl.constexpr,
):  # fmt: skip
    number, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
    query = _part(packed, bias, number, 0, head, length, HEADS, WIDTH, ROWS, COLUMNS)
    key = _part(packed, bias, number, 1, head, length, HEADS, WIDTH, ROWS, COLUMNS)
    value = _part(packed, bias, number, 2, head, length, HEADS, WIDTH, ROWS, COLUMNS)
    weights = _weights(query, key, mask, number, length, scale, ROWS, HAS_MASK)
    weights = _hide(weights, seed, _groups(number, head, HEADS, ROWS), THRESHOLD)
    result = tl.dot(weights.to(value.dtype), value, input_precision="ieee")
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None]
    place = (number * length + row).to(tl.int64) * (HEADS * WIDTH) + head * WIDTH + column
    tl.store(mixed + place, result.to(value.dtype), (row < length) & (column < WIDTH))


@_jit
def _attend_backward(
    packed, bias, mask, seed, of_mixed, of_packed, sums, lists, length, scale,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    HAS_MASK: tl.constexpr, THRESHOLD: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None]
    inside = (row < length) & (column < WIDTH)
    of_query_bias = tl.zeros([COLUMNS], tl.float32)
    of_key_bias, of_value_bias = of_query_bias, of_query_bias
    for number in range(tl.program_id(1), lists, tl.num_programs(1)):
        query = _part(packed, bias, number, 0, head, length, HEADS, WIDTH, ROWS, COLUMNS)
        key = _part(packed, bias, number, 1, head, length, HEADS, WIDTH, ROWS, COLUMNS)
        value = _part(packed, bias, number, 2, head, length, HEADS, WIDTH, ROWS, COLUMNS)
        place = (number * length + row).to(tl.int64) * (HEADS * WIDTH) + head * WIDTH + column
        given = tl.load(of_mixed + place, inside, 0.0)
        weights = _weights(query, key, mask, number, length, scale, ROWS, HAS_MASK)
        groups = _groups(number, head, HEADS, ROWS)
        kept = _hide(weights, seed, groups, THRESHOLD).to(value.dtype)
        of_value = tl.dot(tl.trans(kept), given, input_precision="ieee")
        of_weights = tl.dot(given, tl.trans(value), input_precision="ieee")
        of_weights = _hide(of_weights, seed, groups, THRESHOLD)
        of_scores = weights * (of_weights - tl.sum(weights * of_weights, 1)[:, None]) * scale
        of_scores = of_scores.to(value.dtype)
        of_query = tl.dot(of_scores, key, input_precision="ieee")
        of_key = tl.dot(tl.trans(of_scores), query, input_precision="ieee")
        place = (number * length + row).to(tl.int64) * (3 * HEADS * WIDTH) + head * WIDTH + column
        tl.store(of_packed + place, of_query.to(value.dtype), inside)
        tl.store(of_packed + place + HEADS * WIDTH, of_key.to(value.dtype), inside)
        tl.store(of_packed + place + 2 * HEADS * WIDTH, of_value.to(value.dtype), inside)
        of_query_bias += tl.sum(of_query, 0)
        of_key_bias += tl.sum(of_key, 0)
        of_value_bias += tl.sum(of_value, 0)
    own = tl.arange(0, COLUMNS)
    place = sums + (tl.program_id(1) * 3 * HEADS + head) * WIDTH + own
    tl.store(place, of_query_bias, own < WIDTH)
    tl.store(place + HEADS * WIDTH, of_key_bias, own < WIDTH)
    tl.store(place + 2 * HEADS * WIDTH, of_value_bias, own < WIDTH)


@_jit
def _standardize(values, inside, eps, WIDTH: tl.constexpr):
    """Return the rows with mean 0 and variance 1, and what they were scaled by."""
    centred = tl.where(inside, values - (tl.sum(values, 1) / WIDTH)[:, None], 0.0)
    factor = 1 / tl.sqrt(tl.sum(centred * centred, 1) / WIDTH + eps)
    return centred * factor[:, None], factor[:, None]


@_jit
def _add_norm(
    tokens, added, bias, weight, norm_bias, seed, total, normed, rows, eps,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, ADDS: tl.constexpr, THRESHOLD: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None]
    inside = (row < rows) & (column < WIDTH)
    place = row.to(tl.int64) * WIDTH + column
    values = tl.load(tokens + place, inside, 0.0)
    if ADDS:
        more = tl.load(added + place, inside, 0.0).to(tl.float32)
        more += tl.load(bias + column, column < WIDTH, 0.0).to(tl.float32)
        more = _hide(more, seed, row * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)[None], THRESHOLD)
        values = (values.to(tl.float32) + more).to(values.dtype)
        tl.store(total + place, values, inside)
    standard, _ = _standardize(tl.where(inside, values.to(tl.float32), 0.0), inside, eps, WIDTH)
    result = standard * tl.load(weight + column, column < WIDTH, 0.0).to(tl.float32)
    result += tl.load(norm_bias + column, column < WIDTH, 0.0).to(tl.float32)
    tl.store(normed + place, result.to(values.dtype), inside)


@_jit
def _add_norm_backward(
    total, weight, seed, of_total, of_normed, of_tokens, of_added, sums, rows, eps,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    ADDS: tl.constexpr, HAS_TOTAL: tl.constexpr, THRESHOLD: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, COLUMNS)[None]
    factors = tl.load(weight + column, column < WIDTH, 0.0).to(tl.float32)
    of_bias = tl.zeros([ROWS, COLUMNS], tl.float32)
    of_weight, of_norm_bias = of_bias, of_bias
    for first in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (column < WIDTH)
        place = row.to(tl.int64) * WIDTH + column
        values = tl.load(total + place, inside, 0.0)
        standard, factor = _standardize(values.to(tl.float32), inside, eps, WIDTH)
        given = tl.load(of_normed + place, inside, 0.0).to(tl.float32)
        scaled = given * factors
        shared = tl.sum(scaled, 1)[:, None] / WIDTH + standard * (tl.sum(scaled * standard, 1)[:, None] / WIDTH)
        gradient = factor * (scaled - shared)
        if HAS_TOTAL:
            gradient += tl.load(of_total + place, inside, 0.0).to(tl.float32)
        tl.store(of_tokens + place, gradient.to(values.dtype), inside)
        if ADDS:
            gradient = _hide(gradient, seed, row * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)[None], THRESHOLD)
            if THRESHOLD > 0:
                tl.store(of_added + place, gradient.to(values.dtype), inside)
            of_bias += tl.where(inside, gradient, 0.0)
        of_weight += given * standard
        of_norm_bias += given
    own = tl.arange(0, COLUMNS)
    place = sums + tl.program_id(0) * (3 * WIDTH) + own
    tl.store(place, tl.sum(of_bias, 0), own < WIDTH)
    tl.store(place + WIDTH, tl.sum(of_weight, 0), own < WIDTH)
    tl.store(place + 2 * WIDTH, tl.sum(of_norm_bias, 0), own < WIDTH)


@_jit
def _normal(x):
    """Return distribution and density of the standard normal distribution.

    The formula is 7.1.26 of Abramowitz and Stegun, whose error of 7.5e-8 is that of float32. Its exponential is the
    density's, so that it takes half of the instructions of `erf`.
    """
    power = tl.exp(-0.5 * x * x)
    t = 1 / (1 + 0.2316418882663604 * tl.abs(x))
    series = 0.7107068705 + t * (-0.7265760135 + t * 0.5307027145)
    upper = t * (0.127414796 + t * (-0.142248368 + t * series)) * power
    return tl.where(x < 0, upper, 1 - upper), 0.3989422804014327 * power


@_jit
def _gelu(
    values, bias, seed, result, rows,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, THRESHOLD: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None]
    inside = (row < rows) & (column < WIDTH)
    place = row.to(tl.int64) * WIDTH + column
    given = tl.load(values + place, inside, 0.0)
    x = given.to(tl.float32) + tl.load(bias + column, column < WIDTH, 0.0).to(tl.float32)
    below, _ = _normal(x)
    x = _hide(x * below, seed, row * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)[None], THRESHOLD)
    tl.store(result + place, x.to(given.dtype), inside)


@_jit
def _gelu_backward(
    values, bias, seed, of_result, of_values, sums, rows,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, THRESHOLD: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, COLUMNS)[None]
    offset = tl.load(bias + column, column < WIDTH, 0.0).to(tl.float32)
    of_bias = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (column < WIDTH)
        place = row.to(tl.int64) * WIDTH + column
        given = tl.load(values + place, inside, 0.0)
        x = given.to(tl.float32) + offset
        gradient = tl.load(of_result + place, inside, 0.0).to(tl.float32)
        gradient = _hide(gradient, seed, row * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)[None], THRESHOLD)
        below, density = _normal(x)
        gradient *= below + x * density
        tl.store(of_values + place, gradient.to(given.dtype), inside)
        of_bias += gradient
    own = tl.arange(0, COLUMNS)
    tl.store(sums + tl.program_id(0) * WIDTH + own, tl.sum(of_bias, 0), own < WIDTH)


@_jit
def _read_out(
    tokens, mask, score, vectors, weights, length,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, HAS_MASK: tl.constexpr,
):  # fmt: skip
    number, row = tl.program_id(0), tl.arange(0, ROWS)
    shown = row < length
    if HAS_MASK:
        shown = shown & (tl.load(mask + number * length + row, shown, 0) != 0)
    start = (number.to(tl.int64) * length + row)[:, None] * WIDTH
    scores = tl.zeros([ROWS], tl.float32)
    for first in range(0, WIDTH, CHUNK):
        column = first + tl.arange(0, CHUNK)[None]
        tile = tl.load(tokens + start + column, shown[:, None] & (column < WIDTH), 0.0).to(tl.float32)
        scores += tl.sum(tile * tl.load(score + column, column < WIDTH, 0.0).to(tl.float32), 1)
    scores = tl.where(shown & (row > 0), scores, -float("inf"))
    own = tl.exp(scores - tl.maximum(tl.max(scores, 0), -1e30))
    own = tl.where(row == 0, 1.0, own / tl.maximum(tl.sum(own, 0), 1e-30))
    tl.store(weights + number * length + row, own.to(weights.dtype.element_ty), row < length)
    for first in range(0, WIDTH, CHUNK):
        column = first + tl.arange(0, CHUNK)[None]
        tile = tl.load(tokens + start + column, shown[:, None] & (column < WIDTH), 0.0).to(tl.float32)
        place, own_column = vectors + number.to(tl.int64) * WIDTH, first + tl.arange(0, CHUNK)
        result = tl.sum(tile * own[:, None], 0)
        tl.store(place + own_column, result.to(vectors.dtype.element_ty), own_column < WIDTH)


@_jit
def _read_out_backward(
    tokens, mask, score, weights, of_vectors, of_tokens, sums, length,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, HAS_MASK: tl.constexpr,
):  # fmt: skip
    number, row = tl.program_id(0), tl.arange(0, ROWS)
    shown = row < length
    if HAS_MASK:
        shown = shown & (tl.load(mask + number * length + row, shown, 0) != 0)
    start = (number.to(tl.int64) * length + row)[:, None] * WIDTH
    own = tl.where(shown, tl.load(weights + number * length + row, row < length, 0.0).to(tl.float32), 0.0)
    of_own = tl.zeros([ROWS], tl.float32)
    for first in range(0, WIDTH, CHUNK):
        column = first + tl.arange(0, CHUNK)[None]
        tile = tl.load(tokens + start + column, shown[:, None] & (column < WIDTH), 0.0).to(tl.float32)
        given = tl.load(of_vectors + number.to(tl.int64) * WIDTH + column, column < WIDTH, 0.0).to(tl.float32)
        of_own += tl.sum(tile * given, 1)
    others = tl.where(row > 0, own, 0.0)
    of_scores = others * (of_own - tl.sum(others * of_own, 0))
    for first in range(0, WIDTH, CHUNK):
        column, own_column = first + tl.arange(0, CHUNK)[None], first + tl.arange(0, CHUNK)
        tile = tl.load(tokens + start + column, shown[:, None] & (column < WIDTH), 0.0).to(tl.float32)
        given = tl.load(of_vectors + number.to(tl.int64) * WIDTH + column, column < WIDTH, 0.0).to(tl.float32)
        factors = tl.load(score + column, column < WIDTH, 0.0).to(tl.float32)
        gradient = own[:, None] * given + of_scores[:, None] * factors
        place = of_tokens + start + column
        tl.store(place, gradient.to(of_tokens.dtype.element_ty), (row < length)[:, None] & (column < WIDTH))
        total = tl.sum(tile * of_scores[:, None], 0)
        tl.store(sums + number.to(tl.int64) * WIDTH + own_column, total, own_column < WIDTH)


@_jit
def _look_up(
    table, index, scores, weight, tokens, rows, WIDTH: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr
):
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None]
    inside = (row < rows) & (column < WIDTH)
    tile = tl.load(table + tl.load(index + row, row < rows, 0).to(tl.int64) * WIDTH + column, inside, 0.0)
    more = tl.load(scores + row, row < rows, 0.0).to(tl.float32)
    result = tile.to(tl.float32) + more * tl.load(weight + column, column < WIDTH, 0.0).to(tl.float32)
    tl.store(tokens + row.to(tl.int64) * WIDTH + column, result.to(tile.dtype), inside)


@_jit
def _sum_runs(
    of_tokens, scores, named, order, of_table, heads, tails, sums, count,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Sum what tokens with the same row give it: a product with a matrix of 0 and 1. Tokens are sorted by row.

    The sum of a run that began before this program's tokens goes to `heads`, of one that may go on behind to `tails`.
    """
    first_slot = tl.program_id(0) * SLOTS
    slot = first_slot + tl.arange(0, SLOTS)
    there = slot < count
    name, token = tl.load(named + slot, there, -1), tl.load(order + slot, there, 0).to(tl.int64)
    others = first_slot + tl.arange(0, SLOTS)
    same = name[:, None] == tl.load(named + others, others < count, -1)[None]
    begins = there & (name != tl.load(named + slot - 1, there & (slot > 0), -1))
    last_name = tl.load(named + tl.minimum(first_slot + SLOTS, count) - 1)
    score = tl.load(scores + token, there, 0.0).to(tl.float32)
    place = name.to(tl.int64)[:, None] * WIDTH
    piece = tl.program_id(0).to(tl.int64) * WIDTH
    for first in range(0, WIDTH, CHUNK):
        own = first + tl.arange(0, CHUNK)
        column, inside = own[None], own[None] < WIDTH
        tile = tl.load(of_tokens + token[:, None] * WIDTH + column, there[:, None] & inside, 0.0)
        total = tl.dot(same.to(tile.dtype), tile, input_precision="ieee")
        tl.store(of_table + place + column, total.to(tile.dtype), begins[:, None] & inside)
        tl.store(heads + piece + column + slot[:, None] * 0, total, ((slot == first_slot) & ~begins)[:, None] & inside)
        tl.store(tails + piece + column + slot[:, None] * 0, total, (begins & (name == last_name))[:, None] & inside)
        tl.store(sums + piece + own, tl.sum(tile.to(tl.float32) * score[:, None], 0), own < WIDTH)


@_jit
def _join_runs(
    named, of_table, heads, tails, count,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, SLOTS: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Write the sum of the run that begins among this program's tokens and goes on behind them."""
    program = tl.program_id(0)
    first_slot, column = program * SLOTS, tl.arange(0, COLUMNS)
    next_slot = first_slot + SLOTS
    name = tl.load(named + tl.minimum(next_slot, count) - 1)
    before = tl.load(named + first_slot - 1, first_slot > 0, -1)
    after = tl.load(named + next_slot, next_slot < count, -1)
    if (after == name) & (before != name):
        total = tl.load(tails + program.to(tl.int64) * WIDTH + column, column < WIDTH, 0.0)
        piece = program + 1 + tl.arange(0, PIECES)
        more = 1
        while more > 0:
            slot = piece * SLOTS
            goes_on = tl.load(named + slot, slot < count, -1) == name
            place = piece.to(tl.int64)[:, None] * WIDTH + column[None]
            total += tl.sum(tl.load(heads + place, goes_on[:, None] & (column[None] < WIDTH), 0.0), 0)
            piece += PIECES
            more = tl.min(goes_on.to(tl.int32), 0)
        place = of_table + name.to(tl.int64) * WIDTH + column
        tl.store(place, total.to(of_table.dtype.element_ty), column < WIDTH)


def threshold(fraction: float) -> int:
    """Return the least of the 16-bit numbers of entries that dropout keeps."""
    return min(round(fraction * _LEVELS), _LEVELS - 1)


def _tile(width: int, length: int) -> dict[str, int]:
    """Return the sizes of tiles of attention: powers of 2, at least 16, which products of matrices need."""
    rows, columns = (max(16, triton.next_power_of_2(size)) for size in (length, width))
    return {"WIDTH": width, "ROWS": rows, "COLUMNS": columns, "num_warps": max(1, rows // 16)}


def _rows(width: int) -> dict[str, int]:
    """Return the sizes of tiles of whole rows."""
    columns = max(16, triton.next_power_of_2(width))
    rows, warps = max(1, _ENTRIES // columns), max(1, columns // _ENTRIES)
    return {"WIDTH": width, "COLUMNS": columns, "ROWS": rows, "num_warps": warps}


def _sums(like: Tensor, programs: int, *shape: int) -> Tensor:
    return torch.empty(programs, *shape, dtype=torch.float32, device=like.device)


def attend(packed: Tensor, bias: Tensor, mask: Tensor | None, heads: int, fraction: float, seed: Tensor) -> Tensor:
    """Return mixed values [B, S, h] of queries, keys and values side by side [B, S, 3h], to which the bias is added."""
    lists, length, width = packed.shape[0], packed.shape[1], packed.shape[2] // 3
    mixed = packed.new_empty(lists, length, width)
    sizes = {"HEADS": heads, "HAS_MASK": mask is not None, "THRESHOLD": threshold(fraction)}
    scale = (width // heads) ** -0.5
    tile = _tile(width // heads, length)
    _attend[(lists * heads,)](packed, bias, mask, seed, mixed, length, scale, **sizes, **tile)
    return mixed


def attend_backward(
    of_mixed: Tensor, packed: Tensor, bias: Tensor, mask: Tensor | None, heads: int, fraction: float, seed: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of what `attend` takes: of `packed`, in one tensor, and of its bias."""
    lists, length, width = packed.shape[0], packed.shape[1], packed.shape[2] // 3
    of_packed, programs = torch.empty_like(packed), min(lists, _LISTS)
    sums = _sums(packed, programs, 3 * width)
    sizes = {"HEADS": heads, "HAS_MASK": mask is not None, "THRESHOLD": threshold(fraction)}
    scale = (width // heads) ** -0.5
    given = (packed, bias, mask, seed, of_mixed, of_packed, sums, lists, length, scale)
    _attend_backward[(heads, programs)](*given, **sizes, **_tile(width // heads, length))
    return of_packed, sums.sum(0).to(bias.dtype)


def add_norm(
    tokens: Tensor, added: Tensor | None, bias: Tensor | None, weight: Tensor, norm_bias: Tensor,
    eps: float, fraction: float, seed: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return tokens + dropout(added + bias), and their norm; nothing is added if `added` is None."""
    width, normed = tokens.shape[-1], torch.empty_like(tokens)
    total, rows = tokens if added is None else torch.empty_like(tokens), tokens.numel() // width
    sizes = {"ADDS": added is not None, "THRESHOLD": threshold(fraction), **_rows(width)}
    grid = (triton.cdiv(rows, sizes["ROWS"]),)
    _add_norm[grid](tokens, added, bias, weight, norm_bias, seed, total, normed, rows, eps, **sizes)
    return total, normed


def add_norm_backward(
    of_total: Tensor | None, of_normed: Tensor, total: Tensor, weight: Tensor,
    eps: float, fraction: float, seed: Tensor, adds: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of tokens, `added`, bias, and the norm's weight and bias."""
    width, of_tokens, hides = total.shape[-1], torch.empty_like(total), adds and threshold(fraction) > 0
    of_added, rows = torch.empty_like(total) if hides else of_tokens, total.numel() // width
    sizes = {"ADDS": adds, "HAS_TOTAL": of_total is not None, "THRESHOLD": threshold(fraction), **_rows(width)}
    programs = min(_PROGRAMS, triton.cdiv(rows, sizes["ROWS"]))
    sums = _sums(total, programs, 3, width)
    given = (total, weight, seed, of_total, of_normed, of_tokens, of_added, sums, rows, eps)
    _add_norm_backward[(programs,)](*given, **sizes)
    of_bias, of_weight, of_norm_bias = sums.sum(0).to(weight.dtype)
    return of_tokens, of_added, of_bias, of_weight, of_norm_bias


def gelu(values: Tensor, bias: Tensor, fraction: float, seed: Tensor) -> Tensor:
    """Return dropout(GELU(values + bias))."""
    width, result = values.shape[-1], torch.empty_like(values)
    sizes, rows = {"THRESHOLD": threshold(fraction), **_rows(width)}, values.numel() // width
    _gelu[(triton.cdiv(rows, sizes["ROWS"]),)](values, bias, seed, result, rows, **sizes)
    return result


def gelu_backward(
    of_result: Tensor, values: Tensor, bias: Tensor, fraction: float, seed: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of values and bias."""
    width, of_values = values.shape[-1], torch.empty_like(values)
    sizes, rows = {"THRESHOLD": threshold(fraction), **_rows(width)}, values.numel() // width
    programs = min(_PROGRAMS, triton.cdiv(rows, sizes["ROWS"]))
    sums = _sums(values, programs, width)
    _gelu_backward[(programs,)](values, bias, seed, of_result, of_values, sums, rows, **sizes)
    return of_values, sums.sum(0).to(bias.dtype)


def _lists(tokens: Tensor, mask: Tensor | None) -> dict[str, Any]:
    rows, width = triton.next_power_of_2(tokens.shape[1]), tokens.shape[2]
    return {"WIDTH": width, "ROWS": rows, "CHUNK": _CHUNK, "HAS_MASK": mask is not None}


def read_out(tokens: Tensor, mask: Tensor | None, score: Tensor) -> tuple[Tensor, Tensor]:
    """Return one vector per list [B, h] and the weight of each token in it [B, S], by the readout `attention`."""
    lists, length, width = tokens.shape
    vectors, weights = tokens.new_empty(lists, width), tokens.new_empty(lists, length)
    _read_out[(lists,)](tokens, mask, score, vectors, weights, length, **_lists(tokens, mask))
    return vectors, weights


def read_out_backward(
    of_vectors: Tensor, tokens: Tensor, mask: Tensor | None, score: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of tokens and score."""
    lists, length, width = tokens.shape
    of_tokens, sums = torch.empty_like(tokens), _sums(tokens, lists, width)
    given = (tokens, mask, score, weights, of_vectors, of_tokens, sums, length)
    _read_out_backward[(lists,)](*given, **_lists(tokens, mask))
    return of_tokens, sums.sum(0).to(score.dtype).view_as(score)


def look_up(table: Tensor, index: Tensor, scores: Tensor, weight: Tensor) -> Tensor:
    """Return tokens [B, S, h]: a row of the table each, plus its score times the weight."""
    width = table.shape[1]
    tokens, rows, sizes = table.new_empty(*index.shape, width), index.numel(), _rows(width)
    _look_up[(triton.cdiv(rows, sizes["ROWS"]),)](table, index, scores, weight, tokens, rows, **sizes)
    return tokens


def look_up_backward(of_tokens: Tensor, index: Tensor, scores: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Return the gradients of a table of that many rows and of the weight. Sums are in the order of the tokens."""
    width, count = of_tokens.shape[2], index.numel()
    named, order = torch.sort(index.flatten().to(torch.int32), stable=True)
    of_table, programs = of_tokens.new_zeros(rows, width), triton.cdiv(count, _SLOTS)
    heads, tails, sums = (_sums(of_tokens, programs, width) for _ in range(3))
    given = (of_tokens, scores, named, order, of_table, heads, tails, sums, count)
    _sum_runs[(programs,)](*given, WIDTH=width, CHUNK=_CHUNK, SLOTS=_SLOTS)
    columns = triton.next_power_of_2(width)
    sizes = {"WIDTH": width, "COLUMNS": columns, "SLOTS": _SLOTS, "PIECES": _PIECES}
    _join_runs[(programs,)](named, of_table, heads, tails, count, **sizes)
    return of_table, sums.sum(0).to(of_tokens.dtype)
