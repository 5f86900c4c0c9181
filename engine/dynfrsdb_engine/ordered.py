"""Floats as whole numbers that have the same order.

The bits of a positive float32 grow with it, those of a negative one shrink. Turned around where the sign is set they
are whole numbers in the order of the floats: the least and the greatest of many are found several to an instruction,
which numbers that might be NaN do not allow, and the next float below one is one less."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from dynfrsdb_engine.kernel import inner

SIGN, REST = np.int32(31), np.int32(0x7FFFFFFF)

if TYPE_CHECKING:

    def bits_of(x: float) -> np.int32:
        """In a kernel: the bits of a float32, as int32."""

    def float_of(bits: np.int32) -> float:
        """In a kernel: the float32 with these bits."""
else:

    @intrinsic
    def bits_of(typing, x):
        def lower(context, builder, signature, args):
            return builder.bitcast(args[0], ir.IntType(32))

        return types.int32(types.float32), lower

    @intrinsic
    def float_of(typing, bits):
        def lower(context, builder, signature, args):
            return builder.bitcast(args[0], ir.FloatType())

        return types.float32(types.int32), lower


@inner
def turned(bits: np.int32) -> np.int32:
    """From bits to a number in the order of the floats, and back."""
    return np.int32(bits ^ np.int32(np.int32(bits >> SIGN) & REST))


@inner
def next_below(x: float) -> float:
    """The greatest float32 below `x`; -0.0, which no sample has, is passed over."""
    steps = np.int32(2) if x == np.float32(0.0) else np.int32(1)
    return float_of(turned(np.int32(turned(bits_of(x)) - steps)))


@inner
def least_and_greatest(values: npt.NDArray[np.float32]) -> tuple[float, float]:
    """The range of values, of which there is at least one; none is NaN."""
    least = turned(bits_of(values[0]))
    greatest = least
    for i in range(values.size):
        number = turned(bits_of(values[i]))
        least = min(least, number)
        greatest = max(greatest, number)
    return float_of(turned(least)), float_of(turned(greatest))
