"""Lists of slots and ids: copied and sorted in plain loops.

numpy's own sort and slice assignment work inside a kernel too, but each takes longer to compile than the kernel around
it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.kernel import inner, maker
from dynfrsdb_engine.local import local_words

SHORT = 64
"""Up to here comparing all with all is faster than a radix sort."""
BITS, EIGHT, BYTE, ONE = np.uint64(64), np.uint64(8), np.uint64(255), np.uint64(1)


@inner
def copy(source: npt.NDArray[np.uint32], start: int, n: int, target: npt.NDArray[np.uint32], at: int) -> None:
    """Copy `n` slots from `source[start:]` to `target[at:]`; the two must not overlap unless target is ahead."""
    first, there = np.uint64(start), np.uint64(at)  # of a signed index every loop asks whether it counts from the end
    for i in range(np.uint64(n)):
        target[there + i] = source[first + i]


@inner
def sort(values: npt.NDArray[Any], n: int) -> None:
    """Sort the first `n` values in place. What is in order is left alone at once."""
    i = 1
    while i < n and values[i - 1] <= values[i]:
        i += 1
    if i >= n:
        return
    if n > SHORT or not sort_short(values, n):
        sort_long(values, n)


@inner
def sort_short(values: npt.NDArray[Any], n: int) -> bool:
    """Each goes to the place that says how many are less: comparisons without a branch, many in one instruction.

    Where two are equal there are not as many places as values: False, and nothing is changed.
    """
    ordered, sum_of = local_words(), 0
    for i in range(n):
        value, place = values[i], np.int32(0)
        for j in range(n):
            place += np.int32(values[j] < value)
        ordered[place] = value
        sum_of += place
    if sum_of != n * (n - 1) // 2:
        return False
    for i in range(n):
        values[i] = ordered[i]
    return True


@maker
def sort_long(values: npt.NDArray[Any], n: int) -> None:
    """A radix sort, byte by byte from the lowest."""
    spare, ends = np.empty(n, values.dtype), local_words()
    most = np.uint64(0)
    for i in range(n):
        most |= np.uint64(values[i])
    shift = np.uint64(0)
    while shift < BITS and most >> shift:
        for digit in range(257):
            ends[digit] = 0
        for i in range(n):
            ends[((np.uint64(values[i]) >> shift) & BYTE) + ONE] += 1
        for digit in range(1, 257):
            ends[digit] += ends[digit - 1]
        for i in range(n):
            digit = (np.uint64(values[i]) >> shift) & BYTE
            spare[ends[digit]] = values[i]
            ends[digit] += 1
        copy(spare, 0, n, values, 0)
        shift += EIGHT
