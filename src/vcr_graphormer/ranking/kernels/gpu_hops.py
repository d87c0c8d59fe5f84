"""Compute rows of one hop on a GPU, to the bits of the compiled loop for processors (Triton)."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # torch for processors comes without
    triton = None

HAS_TRITON = triton is not None
_WIDTHS = 16, 512  # fewest and most columns that a program adds up
_AT_ONCE = 8  # arcs whose rows are read before the first is added: reading takes longer than adding
_COUNTED = 64  # arcs that are looked at together to find the place of the self-loop


def add_rows_on_gpu(
    indptr: Tensor,
    indices: Tensor,
    weights: Tensor | None,
    left: Tensor,
    right: Tensor,
    loops: bool,
    source: Tensor,
    first: int,
    out: Tensor,
) -> None:
    """Write row `first + i` of P times `source` to out[i], as `add_rows` does for processors.

    A program adds up some columns of one row: arc by arc in the same order, with factors rounded in the same way, and
    without instructions that multiply and add with one rounding. So the bits are the same.
    """
    columns = source.shape[1]
    if not (len(out) and columns):
        return
    width = min(max(triton.next_power_of_2(columns), _WIDTHS[0]), _WIDTHS[1])
    # Triton starts kernels on the current GPU, which need not be the one with the numbers.
    with torch.cuda.device(out.device) if out.device.type == "cuda" else nullcontext():
        _add_rows[(len(out), triton.cdiv(columns, width))](
            indptr,
            indices,
            left if weights is None else weights,
            left,
            right,
            source,
            out,
            first,
            columns,
            weighted=weights is not None,
            loops=loops,
            doubles=source.dtype == torch.float64,
            width=width,
            at_once=_AT_ONCE,
            counted=_COUNTED,
            num_warps=1 if width <= 128 else 4,
            enable_fp_fusion=False,
        )


if HAS_TRITON:

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _add_rows(  # type: ignore[no-untyped-def]
        indptr,
        indices,
        weights,
        left,
        right,
        source,
        out,
        first,
        columns,
        weighted: tl.constexpr,
        loops: tl.constexpr,
        doubles: tl.constexpr,
        width: tl.constexpr,
        at_once: tl.constexpr,
        counted: tl.constexpr,
    ):
        row = tl.program_id(0).to(tl.int64)
        u = first + row
        column = tl.program_id(1) * width + tl.arange(0, width)
        shown = column < columns
        begin, end = tl.load(indptr + u), tl.load(indptr + u + 1)
        own = tl.load(left + u)
        place = end  # of the self-loop: before the first neighbour with a larger id
        if loops:
            place = begin
            for e in range(begin, end, counted):
                arcs = e + tl.arange(0, counted)
                place += tl.sum((tl.load(indices + arcs, mask=arcs < end, other=0x7FFFFFFF) <= u).to(tl.int64))
            end += 1
        total = tl.zeros([width], tl.float64 if doubles else tl.float32)
        for e in range(begin, end, at_once):
            for step in tl.static_range(at_once):
                # Beyond the last arc 0 · 0 is added, which changes nothing: a sum that begins with 0 is never -0.
                arc, inside, is_arc = e + step, e + step < end, e + step < end
                if loops:
                    is_arc = inside & (arc != place)
                    arc -= (arc > place).to(tl.int64)
                v = tl.load(indices + arc, mask=is_arc, other=0).to(tl.int64)
                if loops:
                    v = tl.where(is_arc, v, u)
                factor = own
                if weighted:
                    factor = tl.load(weights + arc, mask=is_arc, other=1.0).to(tl.float64) * own
                factor = (factor * tl.load(right + v, mask=inside, other=0.0)).to(tl.float32)
                numbers = tl.load(source + v * columns + column, mask=shown & inside, other=0.0)
                total += factor.to(total.dtype) * numbers.to(total.dtype)
        tl.store(out + row * columns + column, total.to(tl.float32), mask=shown)
