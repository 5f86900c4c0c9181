"""Read and write numbers at any byte of a buffer.

Records are packed without gaps, so a number may begin anywhere. The machine does unaligned loads and stores in one
instruction; put together byte by byte they would be slow, and slower still to compile. Numbers are in the machine's
order, which must be little endian, as records are."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from dynfrsdb_engine.kernel import inner

if sys.byteorder != "little":
    raise ImportError("dynfrsdb needs a little-endian machine")

Bytes = npt.NDArray[np.uint8]


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, at: Any, number: Any) -> Any:
    """A pointer to a number of this type, `at` bytes into the array."""
    data = make_array(array_type)(context, builder, array).data
    place = builder.bitcast(data, cgutils.voidptr_t)
    return builder.bitcast(builder.gep(place, [at]), ir.PointerType(context.get_value_type(number)))


@intrinsic  # type: ignore[untyped-decorator]
def _store(typing: Any, array: Any, at: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(
            args[2], _pointer(context, builder, signature.args[0], args[0], args[1], signature.args[2]), align=1
        )
        return context.get_dummy_value()

    return types.void(array, types.int64, value), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _load(typing: Any, array: Any, at: Any, kind: Any) -> Any:
    number = kind.dtype

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, signature.args[0], args[0], args[1], number), align=1)

    return number(array, types.int64, kind), codegen


@inner
def put16(out: Bytes, at: int, v: int) -> int:
    """Write a u16; returns the offset behind it."""
    _store(out, at, np.uint16(v))
    return at + 2


@inner
def put32(out: Bytes, at: int, v: int) -> int:
    """Write a u32; returns the offset behind it."""
    _store(out, at, np.uint32(v))
    return at + 4


@inner
def put64(out: Bytes, at: int, v: int) -> int:
    """Write an i64; returns the offset behind it."""
    _store(out, at, np.int64(v))
    return at + 8


@inner
def put_float(out: Bytes, at: int, v: float) -> int:
    """Write a float32; returns the offset behind it."""
    _store(out, at, np.float32(v))
    return at + 4


@inner
def put_count(out: Bytes, at: int, v: int, wide: bool) -> int:
    """Write a count in two bytes, or four where it may be large."""
    return put32(out, at, v) if wide else put16(out, at, v)


@inner
def put_many16(out: Bytes, at: int, numbers: npt.NDArray[np.uint32], n: int) -> int:
    """Write the first `n` numbers, line after line, as u16, many in one instruction; returns the offset behind them."""
    flat = numbers.reshape(-1)
    for i in range(np.uint64(n)):
        put16(out, at + 2 * np.int64(i), np.int64(flat[i]))
    return at + 2 * n


@inner
def get16(data: Bytes, at: int) -> int:
    """Read a u16."""
    return np.int64(_load(data, at, np.uint16))


@inner
def get32(data: Bytes, at: int) -> int:
    """Read a u32."""
    return np.int64(_load(data, at, np.uint32))


@inner
def get64(data: Bytes, at: int) -> int:
    """Read an i64."""
    return _load(data, at, np.int64)


@inner
def get_float(data: Bytes, at: int) -> float:
    """Read a float32."""
    return _load(data, at, np.float32)


@inner
def get_count(data: Bytes, at: int, wide: bool) -> int:
    """Read a count of two bytes, or four."""
    return get32(data, at) if wide else get16(data, at)
