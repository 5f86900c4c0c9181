"""What a place in a file of a store is: somebody who lives, evidence, a row that waits, or a leftover.

    rows.bin    a slot is live, pending, or belongs to nobody
    data.mdb    a byte is part of a live record of some database, or is free (extents.py)
    others      CURRENT, LOCK, LEASE and lock.mdb hold no samples; an old generation holds nothing but leftovers

A free page often still is what it was: LMDB writes a changed page elsewhere and leaves the old one as it is. A record
there passes its checksum, so it can be named. If it is a ledger entry that is in the ledger as well, then the page is
an older copy of evidence, and no leftover: every commit that adds to the ledger leaves one.

The answer is that of one commit: look while nobody writes, or look again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dynfrsdb_storage import layout, records
from dynfrsdb_storage.extents import Extents
from dynfrsdb_storage.pages import NODE, leaf_records
from dynfrsdb_storage.read import Snapshot
from dynfrsdb_storage.slots import pending_ranges

LIVE, RECEIPT, WAITING, LEFTOVER = "live", "receipt", "waiting", "leftover"
_EVIDENCE = ("ledger", "requests", "holds", "queue", "suppression")


class Place(NamedTuple):
    """A kind, and in words what is there."""

    kind: str
    words: str


class Places:
    """The files of a store at one commit."""

    def __init__(self, snapshot: Snapshot) -> None:
        generation = snapshot.generation
        self._slot_bytes = layout.slot_bytes(generation.n_features)
        self._rows = f"{generation.directory.name}/{layout.ROWS_FILE}"
        self._data = f"{generation.directory.name}/{layout.DATA_FILE}"
        self._live = {
            records.parse_sample(payload)[0]: layout.parse_id_key(key) for key, payload in snapshot.scan("samples")
        }
        self._pending = list(pending_ranges(snapshot).values()) if snapshot.state["pending"] else []
        self._file = generation.directory / layout.DATA_FILE
        self._extents = Extents(self._file)
        self._ledger = dict(snapshot.scan("ledger"))

    def of(self, file: str, offset: int, size: int) -> Place:
        """What the `size` bytes at `offset` of a file, named from the store's directory on, are."""
        if file == self._rows:
            return self._in_rows(offset, size)
        if file == self._data:
            return self._in_data(offset, size)
        return Place(LEFTOVER, f"'{file}'")

    def _in_rows(self, offset: int, size: int) -> Place:
        slots = range(offset // self._slot_bytes, (offset + size - 1) // self._slot_bytes + 1)
        if all(slot in self._live for slot in slots):
            return Place(LIVE, f"the row of sample {self._live[slots[0]]}")
        for start, count, sequence in self._pending:
            if any(start <= slot < start + count for slot in slots):
                return Place(WAITING, f"a row that entry {sequence} of the ledger removed")
        return Place(LEFTOVER, f"slot {slots[0]}, which belongs to nobody")

    def _in_data(self, offset: int, size: int) -> Place:
        first, last = self._extents.at(offset), self._extents.at(offset + size - 1)
        if first in self._extents.strays:
            return Place(LEFTOVER, f"a key in page {offset // layout.PAGE_BYTES} whose record is gone")
        if first is None or first != last:
            return self._in_free_page(offset, size)
        if not first.database:
            return Place(LIVE, f"LMDB's own bytes in page {offset // layout.PAGE_BYTES}")
        kind = RECEIPT if first.database in _EVIDENCE else LIVE
        return Place(kind, records.describe(first.database, first.key))

    def _in_free_page(self, offset: int, size: int) -> Place:
        number = offset // layout.PAGE_BYTES
        for database, key, payload in _former_records(self._file, offset, size):
            if database == "ledger" and self._ledger.get(key) == payload:
                return Place(RECEIPT, f"an older copy of {records.describe(database, key)}")
            return Place(LEFTOVER, f"page {number}, which is free: once {records.describe(database, key)}")
        return Place(LEFTOVER, f"free bytes of page {number}")


def _former_records(file: Path, offset: int, size: int) -> Iterator[tuple[str, bytes, bytes]]:
    """The (database, key, payload) around a place in a free page, if that still is a page of records."""
    with open(file, "rb") as source:
        source.seek(offset // layout.PAGE_BYTES * layout.PAGE_BYTES)
        page = source.read(layout.PAGE_BYTES)
    inside = offset % layout.PAGE_BYTES
    for at, key, value in leaf_records(page):
        if at <= inside and inside + size <= at + NODE.size + len(key) + len(value):
            for database in layout.DATABASES:
                payload = records.unpack(database, key, value)
                if payload is not None:
                    yield database, key, payload
