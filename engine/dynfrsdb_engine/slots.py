"""Lists of slots and ids: copied and sorted in plain loops.

numpy's own sort and slice assignment work inside a kernel too, but each takes longer to compile than the kernel around
it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.kernel import inner


@inner
def copy(source: npt.NDArray[np.uint32], start: int, n: int, target: npt.NDArray[np.uint32], at: int) -> None:
    """Copy `n` slots from `source[start:]` to `target[at:]`; the two must not overlap unless target is ahead."""
    for i in range(n):
        target[at + i] = source[start + i]


@inner
def sort(values: npt.NDArray[Any], n: int) -> None:
    """Sort the first `n` values in place: a shell sort, for lists that are short or nearly sorted."""
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
