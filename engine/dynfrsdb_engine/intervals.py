"""Between which thresholds values lie.

With at most 255 thresholds, comparing with all of them is faster than a binary search, each step of which is
mispredicted half of the time, if eight comparisons go into one instruction."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.kernel import inner
from dynfrsdb_engine.local import local_floats, local_ints

AT_ONCE = 8
INFINITY = np.float32(np.inf)


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


@inner
def sort(values: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None:
    """Fill `out` with up to 255 values in ascending order: each goes to the place that says how many are below it.

    Equal ones go to the same place; the gaps that they leave, filled with less than all, take the value before.
    """
    places = local_ints()
    intervals(values, values, places[: values.size])
    for i in range(values.size):
        out[i] = -INFINITY
    for i in range(values.size):
        out[places[i]] = values[i]
    for i in range(1, values.size):
        out[i] = max(out[i], out[i - 1])
