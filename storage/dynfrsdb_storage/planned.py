"""A commit, worked out: everything that one LMDB transaction needs, so that it can be run as often as it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lmdb

from dynfrsdb_storage import layout
from dynfrsdb_storage.slots import Claim, Pending, insert_range

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Ranges = dict[str, list[tuple[bytes, bytes]]]


@dataclass(frozen=True)
class Planned:
    """What a commit takes away, and what it puts."""

    number: int
    cuts: list[tuple[str, bytes, bytes]]
    """Ranges of keys to delete, by database."""
    deletes: list[tuple[str, bytes]]
    puts: dict[str, list[tuple[bytes, bytes]]]
    """Packed records, by database."""
    claim: Claim
    written: npt.NDArray[np.uint32]
    """Slots that go live."""
    cleared: dict[bytes, Pending]
    """Ranges that are free again."""
    removed: dict[bytes, Pending]
    """Ranges that were removed."""
    slots: int
    """How many slots the file had."""
    grown: int
    """How many it has gained at its end."""

    def apply(self, txn: lmdb.Transaction, databases: dict[str, Any]) -> None:
        """Do all of it in a transaction; deletes come before puts."""
        for name, first, last in self.cuts:
            _delete_range(txn, databases[name], first, last)
        for name, key in self.deletes:
            txn.delete(key, db=databases[name])
        for key in self.cleared:
            txn.delete(key, db=databases["pending"])
        self.claim.apply(txn, databases["reserved"], self.written)
        for start, count, _ in self.cleared.values():
            insert_range(txn, databases["reserved"], start, count)
        if self.grown:
            insert_range(txn, databases["reserved"], self.slots, self.grown)
        for name, items in self.puts.items():
            with txn.cursor(db=databases[name]) as cursor:
                cursor.putmulti(items)

    def ranges(self) -> Ranges:
        """Where it writes: (first, last) of keys, by database."""
        touched = counter_ranges()
        for name, first, last in self.cuts:
            touched.setdefault(name, []).append((first, last))
        for name, key in self.deletes:
            touched.setdefault(name, []).append((key, key + b"\0"))
        for name, items in self.puts.items():
            touched.setdefault(name, []).extend((key, key) for key, _ in items)
        return touched


def counter_ranges() -> Ranges:
    """Where every commit writes, also one that only reserves slots."""
    everything = (b"", b"\xff" * 12)
    return {"meta": [(layout.META_STATE, layout.META_STATE)], "reserved": [everything], "pending": [everything]}


def _delete_range(txn: lmdb.Transaction, database: Any, first: bytes, last: bytes) -> None:
    with txn.cursor(db=database) as cursor:
        there = cursor.set_range(first)
        while there and bytes(cursor.key()) <= last:
            cursor.delete()
            there = bool(cursor.key())
