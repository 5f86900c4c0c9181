"""Between which thresholds values lie.

With at most 255 thresholds, comparing with all of them is faster than a binary search, each step of which is
mispredicted half of the time, if eight comparisons go into one instruction.

Where only the samples on each side of a threshold are counted, not even an interval is needed: `tally` keeps one sum
for each threshold in a register, compares a value with all of them at once and adds where it does not exceed. LLVM
does not find this form of a loop by itself, so it is written out for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from dynfrsdb_engine.kernel import inlined, inner
from dynfrsdb_engine.local import local_floats, local_ints

AT_ONCE = 8
INFINITY = np.float32(np.inf)
FLOAT, WORD = ir.FloatType(), ir.IntType(32)


@inner
def interval(cuts: npt.NDArray[np.float32], x: float) -> int:
    """The first threshold that `x` does not exceed, or their number."""
    passed = np.int32(0)
    for j in range(cuts.size):
        passed = np.int32(passed + np.int32(cuts[j] < x))
    return np.int64(passed)


@inner
def intervals(cuts: npt.NDArray[np.float32], values: npt.NDArray[np.float32], passed: npt.NDArray[np.int32]) -> None:
    """Fill `passed` with how many of `cuts`, in any order, are below each value.

    The comparisons of eight values go into one instruction, and eight thresholds stay at hand meanwhile.
    """
    n, size = values.size, cuts.size
    wide = local_floats()
    for j in range(size + AT_ONCE):
        wide[j] = cuts[j] if j < size else INFINITY
    for i in range(n):
        passed[i] = 0
    for j in range(0, size, AT_ONCE):
        a, b, c, d = wide[j], wide[j + 1], wide[j + 2], wide[j + 3]
        e, f, g, h = wide[j + 4], wide[j + 5], wide[j + 6], wide[j + 7]
        for i in range(n):
            x = values[i]
            passed[i] += (
                np.int32(a < x) + np.int32(b < x) + np.int32(c < x) + np.int32(d < x)
                + np.int32(e < x) + np.int32(f < x) + np.int32(g < x) + np.int32(h < x)
            )  # fmt: skip


def _side_by_side(lanes: int) -> Any:
    """A `tally` of exactly so many thresholds."""
    floats, words = ir.VectorType(FLOAT, lanes), ir.VectorType(WORD, lanes)
    everywhere = ir.Constant(words, None)

    def spread(builder: Any, number: Any, kind: Any) -> Any:
        empty = ir.Constant(kind, ir.Undefined)
        return builder.shuffle_vector(builder.insert_element(empty, number, WORD(0)), empty, everywhere)

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        cuts, values, weights, sums = (make_array(kinds[i])(context, builder, args[i]).data for i in (0, 2, 3, 4))
        cuts, sums = (builder.gep(place, [args[1]]) for place in (cuts, sums))
        limits = builder.load(builder.bitcast(cuts, floats.as_pointer()), align=4)
        total = cgutils.alloca_once_value(builder, ir.Constant(words, None))
        with cgutils.for_range(builder, make_array(kinds[2])(context, builder, args[2]).nitems) as loop:
            x = spread(builder, builder.load(builder.gep(values, [loop.index])), floats)
            weight = spread(builder, builder.load(builder.gep(weights, [loop.index])), words)
            added = builder.select(builder.fcmp_ordered("<=", x, limits), weight, ir.Constant(words, None))
            builder.store(builder.add(builder.load(total), added), total)
        builder.store(builder.load(total), builder.bitcast(sums, words.as_pointer()), align=4)
        return context.get_dummy_value()

    @intrinsic  # type: ignore[untyped-decorator]
    def tally_some(typing: Any, cuts: Any, first: Any, values: Any, weights: Any, sums: Any) -> Any:
        return types.void(cuts, types.intp, values, weights, sums), lower

    return tally_some


_tally_8, _tally_16, _tally_32 = _side_by_side(8), _side_by_side(16), _side_by_side(32)


@inlined
def tally(
    cuts: npt.NDArray[np.float32],
    size: int,
    values: npt.NDArray[np.float32],
    weights: npt.NDArray[np.int32],
    sums: npt.NDArray[np.int32],
) -> None:
    """Fill `sums` with the weights of the values that do not exceed each of `cuts`, of which there are `size`.

    `cuts` and `sums` are arrays of local.py; what lies behind the last threshold is overwritten."""
    at = np.int64(0)
    for j in range(size, min(size + 31, cuts.size)):
        cuts[j] = -INFINITY
    while at < size:
        if size - at <= 8:
            _tally_8(cuts, at, values, weights, sums)
            at += 8
        elif size - at <= 16:
            _tally_16(cuts, at, values, weights, sums)
            at += 16
        else:
            _tally_32(cuts, at, values, weights, sums)
            at += 32


@inner
def sort(values: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None:
    """Fill `out` with up to 255 values in ascending order: each goes to the place that says how many do not exceed it.

    Equal ones go to the same place, the last of theirs; the gaps that they leave, filled with more than all, take the
    value behind.
    """
    size, wide, places, ones = values.size, local_floats(), local_ints(), local_ints()
    for i in range(size):
        wide[i], ones[i], out[i] = values[i], 1, INFINITY
    tally(wide, size, values, ones[:size], places)
    sum_of = np.int64(0)
    for i in range(size):
        out[places[i] - 1] = values[i]
        sum_of += places[i]
    if sum_of > size * (size + 1) // 2:
        for i in range(size - 2, -1, -1):
            out[i] = min(out[i], out[i + 1])
