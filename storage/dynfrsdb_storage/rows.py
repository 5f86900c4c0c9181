"""rows.bin: one fixed slot per sample, mapped for reading, written by pwrite.

    slot 0                                slot 1
    | hash | id | y | x x x x x | pad |   | hash | id | ...

The file holds the only copy of a person's raw values. It is mapped read-only, so kernels gather rows without a copy
and all processes share the page cache; and because a slot is a fixed place, a row can really be erased, by
overwriting it.

The file itself does not know which slots are live; LMDB alone decides that. A reader touches a row only inside the
read transaction of its snapshot, copies it, and then checks hash and id. An all-zero slot never passes, because a
hash is never 0.

Writing goes through pwrite, never through the map: on a full disk a store into a map is SIGBUS, a pwrite is an error.
"""

from __future__ import annotations

import mmap
import os
import struct
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynfrsdb_storage import layout
from dynfrsdb_storage.disk import grow_file, sync_data, write_at
from dynfrsdb_storage.errors import CorruptStore, ReadOnly

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    from dynfrsdb_storage import lazynumpy as np

Range = tuple[int, int]
_ZERO_AT_ONCE = 1 << 20
_HEAD = struct.Struct("<QQ")


class RowFile:
    """A read-only map of the first `slots` slots; its arrays stay valid as long as someone holds them. A `private` one
    may show rows that are not in the file (rehearsal.py)."""

    def __init__(self, path: Path, slots: int, n_features: int, store: str, private: bool = False) -> None:
        self.slots = slots
        self.n_features = n_features
        self.slot_bytes = layout.slot_bytes(n_features)
        self._map = _mapped(path, slots * self.slot_bytes, store, private)

    @cached_property
    def words(self) -> npt.NDArray[np.uint64]:
        """The slots as 64-bit words: hash, id, y, ..."""
        return _unwritable(np.frombuffer(self._map, np.uint64)).reshape(self.slots, self.slot_bytes // 8)

    @cached_property
    def floats(self) -> npt.NDArray[np.float32]:
        """The slots as 32-bit floats; the features begin at the seventh."""
        return _unwritable(np.frombuffer(self._map, np.float32)).reshape(self.slots, self.slot_bytes // 4)

    @cached_property
    def multipliers(self) -> npt.NDArray[np.uint64]:
        """Those of the row hash."""
        return layout.row_multipliers(self.n_features)

    def try_rows(self, slots: layout.Array, rows: layout.Array) -> None:
        """Put packed rows into a private map, and nowhere else."""
        np.frombuffer(self._map, np.uint64).reshape(self.slots, -1)[slots] = rows

    def row(self, slot: int, id: int) -> bytes | None:
        """A copy of one slot's bytes, or None if they do not carry their hash and the id that is expected of them."""
        start = slot * self.slot_bytes
        row = bytes(self._map[start : start + self.slot_bytes])
        if slot >= self.slots or _HEAD.unpack_from(row) != (layout.row_hash(slot, row), id):
            return None
        return row

    def bad(self, slots: layout.Array, ids: layout.Array) -> npt.NDArray[np.int64]:
        """Positions in `slots` whose row does not carry its hash and the id that is expected of it."""
        rows = self.words[slots]
        wrong = (rows[:, 0] != layout.row_hashes(slots, rows, self.multipliers)) | (rows[:, 1] != ids)
        return np.flatnonzero(wrong)


class RowWriter:
    """Writes, zeroes and extends rows.bin; used under the writer lock only."""

    def __init__(self, path: Path, n_features: int, create: bool = False) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        try:
            self._descriptor = os.open(path, flags, 0o600)
        except PermissionError as error:
            raise ReadOnly(f"'{path}' may only be read by this user; change its permissions") from error
        self.n_features = n_features
        self.slot_bytes = layout.slot_bytes(n_features)
        self._multipliers = layout.row_multipliers(n_features)

    def write(self, slots: layout.Array, ids: layout.Array, ys: layout.Array, x: layout.Array) -> None:
        """Write rows with their hashes; a map of the file shows them at once."""
        rows = self.packed(slots, ids, ys, x)
        order = np.argsort(slots, kind="stable")
        at = 0
        for start, count in ranges_of(slots[order]):
            block = np.ascontiguousarray(rows[order[at : at + count]])
            write_at(self._descriptor, block.data, start * self.slot_bytes)
            at += count

    def zero(self, start: int, count: int) -> None:
        """Overwrite `count` slots with zeros."""
        offset, left = start * self.slot_bytes, count * self.slot_bytes
        while left:
            step = min(left, _ZERO_AT_ONCE)
            write_at(self._descriptor, bytes(step), offset)
            offset, left = offset + step, left - step

    def grow(self, slots: int) -> None:
        """Make the file hold `slots` slots, the new ones zero."""
        grow_file(self._descriptor, slots * self.slot_bytes)

    def sync(self) -> None:
        """Make all rows written so far durable."""
        sync_data(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def packed(self, slots: layout.Array, ids: layout.Array, ys: layout.Array, x: layout.Array) -> layout.Array:
        """Rows as 64-bit words, with their hashes."""
        if x.shape != (len(slots), self.n_features):
            raise ValueError(f"rows have shape {x.shape}, expected ({len(slots)}, {self.n_features})")
        rows = np.zeros((len(slots), self.slot_bytes // 8), "<u8")
        rows[:, 1] = ids
        rows[:, 2] = np.asarray(ys, np.int64).view(np.uint64)
        rows.view("<f4")[:, 6 : 6 + self.n_features] = x
        rows[:, 0] = layout.row_hashes(slots, rows, self._multipliers)
        return rows


def ranges_of(slots: layout.Array) -> list[Range]:
    """Sorted slots as (start, count) of their runs."""
    if len(slots) < 2:
        return [(slot, 1) for slot in slots.tolist()]
    slots = np.asarray(slots, np.int64)
    breaks = np.flatnonzero(np.diff(slots) != 1) + 1
    starts = np.concatenate(([0], breaks))
    counts = np.diff(np.concatenate((starts, [len(slots)])))
    return list(zip(slots[starts].tolist(), counts.tolist(), strict=True))


def _unwritable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Kernels take arrays that cannot be written, of a private map too: others would be another type to them."""
    array.flags.writeable = False
    return array


def _mapped(path: Path, size: int, store: str, private: bool) -> mmap.mmap | bytes:
    if not size:
        return b""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise CorruptStore(f"'{store}' has lost its file '{path.name}'; restore the store from a backup") from error
    try:
        if os.fstat(descriptor).st_size < size:
            raise CorruptStore(f"the file '{path.name}' of '{store}' is cut short; restore the store from a backup")
        if private:
            return mmap.mmap(descriptor, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        return mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ)
    finally:
        os.close(descriptor)
