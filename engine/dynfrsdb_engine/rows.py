"""Reading samples out of the rows file, each checked against its own hash.

The rows file is mapped into memory and reaches a kernel as two views of the same bytes: `words` (uint64) and `floats`
(float32), one line per slot:

    word 0 hash | word 1 id | word 2 target (int64) | floats 6 .. 6+d features | padding

The hash is a multilinear sum over the 32-bit words of the slot, its number included, so a row that moved, tore or
flipped a bit is seen before its values are used. An all-zero slot never passes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.hashing import mix
from dynfrsdb_engine.kernel import inner, kernel
from dynfrsdb_engine.prefetch import bring_row
from dynfrsdb_engine.reference import refer

FIRST_FEATURE = 6
"""Index of a slot's first feature among its float32 words."""
LOW, U32 = np.uint64(0xFFFFFFFF), np.uint64(32)
NO_HASH = np.uint64(0)
SOON = 12
"""How many rows ahead one is asked for."""


class Rows(NamedTuple):
    """The mapped rows file: two views of the same bytes, and the multipliers of its hash."""

    words: npt.NDArray[np.uint64]
    floats: npt.NDArray[np.float32]
    multipliers: npt.NDArray[np.uint64]


@inner
def intact(rows: Rows, slot: int) -> bool:
    """Whether the slot exists and its hash fits its bytes."""
    if slot >= rows.words.shape[0]:
        return False
    m = rows.multipliers
    total = m[0] + np.uint64(slot) * m[1]
    for j in range(1, rows.words.shape[1]):
        word = rows.words[slot, j]
        total += (word & LOW) * m[2 * j] + (word >> U32) * m[2 * j + 1]
    h = mix(total)
    return rows.words[slot, 0] == (h if h != NO_HASH else np.uint64(1))


@inner
def look_ahead(rows: Rows, slots: npt.NDArray[np.uint32], i: int) -> None:
    """Ask for a row that is needed soon."""
    if i + SOON < slots.size:
        bring_row(rows.words, np.int64(slots[i + SOON]))


@kernel
def gather(
    rows: Rows, slots: npt.NDArray[np.uint32], columns: npt.NDArray[np.float32], targets: npt.NDArray[np.int64]
) -> int:
    """Copy features (one line per feature) and targets of `slots`; returns the first bad slot's index, or -1."""
    rows = refer(rows)
    d = columns.shape[0]
    for i in range(slots.size):
        slot = np.int64(slots[i])
        look_ahead(rows, slots, i)
        if not intact(rows, slot):
            return i
        targets[i] = np.int64(rows.words[slot, 2])
        for f in range(d):
            columns[f, i] = rows.floats[slot, FIRST_FEATURE + f]
    return -1


@kernel
def gather_rows(
    rows: Rows,
    slots: npt.NDArray[np.uint32],
    lines: npt.NDArray[np.float32],
    targets: npt.NDArray[np.int64],
    ids: npt.NDArray[np.uint64],
) -> int:
    """As `gather`, with one line per sample and the ids."""
    rows = refer(rows)
    d = lines.shape[1]
    for i in range(slots.size):
        slot = np.int64(slots[i])
        if not intact(rows, slot):
            return i
        ids[i] = rows.words[slot, 1]
        targets[i] = np.int64(rows.words[slot, 2])
        for f in range(d):
            lines[i, f] = rows.floats[slot, FIRST_FEATURE + f]
    return -1
