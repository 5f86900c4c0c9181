"""Ask for memory before it is needed.

A working set is far larger than the processor's caches, and a removal visits nodes all over it. Kernels that know where
they will be a few steps from now say so, and do not wait when they get there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dynfrsdb_engine.kernel import inner

LINE = 64
"""Bytes that the processor brings at once."""

if TYPE_CHECKING:

    def bring(address: int) -> None:
        """In a kernel: bring the line at an address."""
else:

    @intrinsic
    def bring(typing, address):
        def lower(context, builder, signature, args):
            word, place = cgutils.int32_t, cgutils.voidptr_t
            kind = cgutils.ir.FunctionType(cgutils.ir.VoidType(), [place, word, word, word])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            to_read, often, data = word(0), word(3), word(1)
            builder.call(function, [builder.inttoptr(args[0], place), to_read, often, data])
            return context.get_dummy_value()

        return types.none(types.intp), lower


@inner
def bring_row(array: npt.NDArray[Any], row: int) -> None:
    """Bring one line of an array."""
    at = array.ctypes.data + row * array.strides[0]
    end = at + array.strides[0]
    at &= -LINE
    while at < end:
        bring(at)
        at += LINE
