"""Copies short byte ranges inside compiled loops."""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_memcpy: Any = cgutils.raw_memcpy  # only parts of numba have type information


def _copy_bytes(_context: Any, out: Any, _at: Any, data: Any, _start: Any, _length: Any) -> Any:
    """`out[at : at + length] = data[start : start + length]` as one memcpy: a loop costs four times as much."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, at, source, start, length = arguments
        to_array = context.make_array(out)(context, builder, value=to)
        source_array = context.make_array(data)(context, builder, value=source)
        target, origin = builder.gep(to_array.data, [at]), builder.gep(source_array.data, [start])
        _memcpy(builder, target, origin, length, 1)
        return context.get_dummy_value()

    return types.void(out, types.int64, data, types.int64, types.int64), generate


copy_bytes: Any = intrinsic(_copy_bytes)
