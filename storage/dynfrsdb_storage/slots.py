"""Slots: who may write where in rows.bin, and when a place is free again.

Every slot of the file is in exactly one of three states, and LMDB says in which:

    reserved --- a commit that adds ---> live --- a commit that removes ---> pending
        ^                                                                       |
        `------ the commit after the slot was zeroed and synced (erased) -------'

`reserved` holds ranges (start -> count), and so does `pending` (commit, start -> count, ledger entry); a live slot is
one that a record of `samples` names. A row is written only into a reserved slot, before the commit that makes it
live: if the process dies in between, the slot is still reserved and nobody looks at it.

Such a slot is then dirty and has to be zeroed. To know where to look without reading the whole list, a session always
takes the *lowest* reserved slots, and never more of them than the counter `window` allows (1,024 unless a commit has
raised it first). Whoever comes after a crash looks at the lowest `window` slots and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import lmdb

from dynfrsdb_storage import layout, records
from dynfrsdb_storage.errors import CorruptStore
from dynfrsdb_storage.read import Snapshot
from dynfrsdb_storage.rows import Range, RowWriter, ranges_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    from dynfrsdb_storage import lazynumpy as np


class Pending(NamedTuple):
    """A range of slots whose samples were removed, and the ledger entry of the removal."""

    start: int
    size: int
    sequence: int


class Claim:
    """The reserved slots that one session has taken, lowest first."""

    def __init__(self) -> None:
        self._begun: list[Range] = []
        self._used_of_last = 0
        self.count = 0

    def take(self, snapshot: Snapshot, n: int) -> npt.NDArray[np.uint32]:
        """The next `n` reserved slots; the caller has made sure that there are as many."""
        parts, left = [np.empty(0, np.uint32)], n
        for start, count in self._open_ranges(snapshot) if n else ():
            step = min(left, count - self._used_of_last)
            at = start + self._used_of_last
            parts.append(np.arange(at, at + step, dtype=np.uint32))
            self._used_of_last += step
            left -= step
            if not left:
                break
        if left:
            raise CorruptStore(f"'{snapshot.generation.store}' has fewer reserved slots than its counters say")
        self.count += n
        return np.concatenate(parts)

    def holds(self, slots: layout.Array) -> bool:
        """Whether all of `slots` were taken here."""
        starts = np.array([start for start, _ in self._begun], np.int64)
        ends = np.array([start + used for start, used, _ in self._uses()], np.int64)
        at = np.searchsorted(starts, slots, side="right") - 1
        return bool(((at >= 0) & (slots < ends[at])).all()) if len(starts) else not len(slots)

    def follow(self, snapshot: Snapshot) -> None:
        """Note that the list has grown at its end: the range we are in may have become longer."""
        if self._begun:
            start = self._begun[-1][0]
            payload = snapshot.get("reserved", [layout.reserved_key(start)])[0]
            self._begun[-1] = (start, records.parse_count(payload or bytes(4)))

    def apply(self, txn: lmdb.Transaction, database: Any, written: layout.Array) -> None:
        """Take the `written` slots off the list of reserved ones; the others that we took stay on it."""
        if not self._begun:
            return
        unwritten, left = [np.empty(0, np.uint32)], list[Range]()
        for start, used, count in self._uses():
            txn.delete(layout.reserved_key(start), db=database)
            unwritten.append(np.arange(start, start + used, dtype=np.uint32))
            if used < count:
                left.append((start + used, count - used))
        left += ranges_of(np.setdiff1d(np.concatenate(unwritten), written))
        insert_ranges(txn, database, left)

    def _uses(self) -> Iterator[tuple[int, int, int]]:
        """The (start, slots used, slots in it) of each range we have begun; all but the last are used up."""
        for i, (start, count) in enumerate(self._begun):
            yield start, self._used_of_last if i == len(self._begun) - 1 else count, count

    def _open_ranges(self, snapshot: Snapshot) -> Iterator[Range]:
        """The range we are in, as it is on the list, and then those behind it, which are noted as begun."""
        first = None
        if self._begun:
            yield self._begun[-1]
            first = layout.reserved_key(self._begun[-1][0] + 1)
        for start, count in reserved_ranges(snapshot, first):
            self._begun.append((start, count))
            self._used_of_last = 0
            yield start, count


def reserved_ranges(snapshot: Snapshot, first: bytes | None = None) -> Iterator[Range]:
    """The reserved ranges in order."""
    for key, payload in snapshot.scan("reserved", first):
        yield int.from_bytes(key, "big"), records.parse_count(payload)


def pending_ranges(snapshot: Snapshot) -> dict[bytes, Pending]:
    """The ranges that wait to be erased or to be cleared, by their keys."""
    return {
        key: Pending(layout.parse_pending_key(key)[1], *records.parse_pending(payload))
        for key, payload in snapshot.scan("pending")
    }


def insert_ranges(txn: lmdb.Transaction, database: Any, ranges: Iterable[Range]) -> None:
    """Put ranges onto the list of reserved ones, joining them with their neighbours so that the list stays short."""
    with txn.cursor(db=database) as cursor:
        for start, count in ranges:
            _insert_range(cursor, start, count)


def _insert_range(cursor: lmdb.Cursor, start: int, count: int) -> None:
    behind = cursor.set_range(layout.reserved_key(start))
    if behind and cursor.key() == layout.reserved_key(start + count):
        count += _count_at(cursor)
        cursor.delete()
        behind = bool(cursor.key())
    before = cursor.prev() if behind else cursor.last()
    if before:
        previous, length = int.from_bytes(cursor.key(), "big"), _count_at(cursor)
        if previous + length == start:
            start, count = previous, count + length
    key = layout.reserved_key(start)
    cursor.put(key, records.pack("reserved", key, records.count_payload(count)))


def _count_at(cursor: lmdb.Cursor) -> int:
    """How many slots the range under a cursor of `reserved` holds."""
    return records.parse_count(bytes(cursor.value())[layout.CHECKSUM_BYTES :])


def clean_window(snapshot: Snapshot, rows: RowWriter) -> int:
    """Zero what a dead session left in reserved slots; returns how many slots were dirty."""
    left, words, dirty = int(snapshot.state["window"]), snapshot.rows.words, 0
    for start, count in reserved_ranges(snapshot):
        if left <= 0:
            break
        step = min(left, count)
        bad = np.flatnonzero(words[start : start + step].any(axis=1)) + start
        for first, length in ranges_of(bad):
            rows.zero(first, length)
        dirty += len(bad)
        left -= step
    if dirty:
        rows.sync()
    return dirty
