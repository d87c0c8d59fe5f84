"""Ask the processor to load a number of an array before it is needed, in compiled loops."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_TO_READ, _KEEP, _DATA = 0, 3, 1  # arguments of llvm.prefetch: no write follows, keep it in all caches, it is no code


@intrinsic
def _prefetch(context: Any, array: Any, index: Any) -> Any:
    """Start to load `array[index]`. It changes no result, and any index is allowed."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind, place = signature.args
        fields = context.make_array(kind)(context, builder, arguments[0])
        offset = context.cast(builder, arguments[1], place, types.intp)
        pointer = builder.gep(fields.data, [offset])
        byte, number = ir.IntType(8), ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), number, number, number])
        ask: Any = builder.module.declare_intrinsic("llvm.prefetch", (byte.as_pointer(),), shape)
        flags = (number(flag) for flag in (_TO_READ, _KEEP, _DATA))
        builder.call(ask, [builder.bitcast(pointer, byte.as_pointer()), *flags])
        return context.get_dummy_value()

    return types.void(array, index), generate


prefetch: Any = _prefetch  # numba gives it another signature
