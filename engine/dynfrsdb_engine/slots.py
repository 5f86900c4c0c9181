"""Lists of slots and ids: copied and sorted in plain loops.

numpy's own sort and slice assignment work inside a kernel too, but each takes longer to compile than the kernel around
it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.kernel import inner

SHORT = 80
"""Up to here a shell sort is faster: beyond, its branches, which nobody can foresee, cost more than a radix sort."""
BITS, EIGHT, BYTE, ONE = np.uint64(64), np.uint64(8), np.uint64(255), np.uint64(1)


@inner
def copy(source: npt.NDArray[np.uint32], start: int, n: int, target: npt.NDArray[np.uint32], at: int) -> None:
    """Copy `n` slots from `source[start:]` to `target[at:]`; the two must not overlap unless target is ahead."""
    for i in range(n):
        target[at + i] = source[start + i]


@inner
def sort(values: npt.NDArray[Any], n: int) -> None:
    """Sort the first `n` values in place. What is in order is left alone at once."""
    i = 1
    while i < n and values[i - 1] <= values[i]:
        i += 1
    if i >= n:
        return
    if n <= SHORT:
        sort_short(values, n)
    else:
        sort_long(values, n)


@inner
def sort_short(values: npt.NDArray[Any], n: int) -> None:
    """A shell sort."""
    gap = 1
    while gap < n // 9:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            value = values[i]
            j = i
            while j >= gap and values[j - gap] > value:
                values[j] = values[j - gap]
                j -= gap
            values[j] = value
        gap //= 3


@inner
def sort_long(values: npt.NDArray[Any], n: int) -> None:
    """A radix sort, byte by byte from the lowest."""
    spare, ends = np.empty(n, values.dtype), np.empty(257, np.int64)
    most = np.uint64(0)
    for i in range(n):
        most = max(most, np.uint64(values[i]))
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
