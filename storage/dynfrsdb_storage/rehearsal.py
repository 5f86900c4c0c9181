"""A rehearsal: rows that are only tried, and never written.

Whoever wants to know what a change would do needs the rows of new samples where kernels look for rows: in the map of
rows.bin. A rehearsal gives them a map of its own, private to the process, in which they lie behind the last slot:

    rows.bin     | slot 0 | ... | slot n-1 |
    our map      | slot 0 | ... | slot n-1 | tried | tried |     copy on write: no byte of these reaches the disk

A map cannot reach behind the end of its file. So the file is made longer, by a hole that reads as zeros, and as long as
it was when the rehearsal is over. Who dies meanwhile leaves a file that is too long, which is no error (FORMAT.md).

Only under the writer lock.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dynfrsdb_storage import layout
from dynfrsdb_storage.disk import disk_error
from dynfrsdb_storage.rows import RowFile, RowWriter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    from dynfrsdb_storage import lazynumpy as np


class Rehearsal:
    """Places behind the last slot, and what was written there."""

    def __init__(self, path: Path, store: str, slots: int, writer: RowWriter) -> None:
        self._path, self._store, self._writer = path, store, writer
        self._first = self._next = slots
        self._length = path.stat().st_size
        self._tried: list[tuple[npt.NDArray[np.uint32], layout.Array]] = []
        self.rows: RowFile | None = None
        """Everything, with what is tried; None if nothing is."""

    def reserve(self, n: int) -> npt.NDArray[np.uint32]:
        """`n` slots to write rows into."""
        self._next += n
        return np.arange(self._next - n, self._next, dtype=np.uint32)

    def write(self, slots: layout.Array, ids: layout.Array, ys: layout.Array, x: layout.Array) -> None:
        """Write rows into slots that `reserve` gave."""
        self._tried.append((slots, self._writer.packed(slots, ids, ys, x)))
        self._let_be(max(self._length, self._next * self._writer.slot_bytes))
        self.rows = RowFile(self._path, self._next, self._writer.n_features, self._store, private=True)
        for places, rows in self._tried:
            self.rows.try_rows(places, rows)

    def close(self) -> None:
        """Let rows.bin be as long as it was; whoever still has `rows` must not look behind the last slot any more."""
        if self._tried:
            self.rows = None
            self._let_be(self._length)

    def _let_be(self, length: int) -> None:
        try:
            os.truncate(self._path, length)
        except OSError as error:
            raise disk_error(error) from error
