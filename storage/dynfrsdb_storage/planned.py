"""A commit, worked out: everything that one LMDB transaction needs, so that it can be run as often as it takes."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lmdb

from dynfrsdb_storage import layout
from dynfrsdb_storage.before_writing import Places
from dynfrsdb_storage.room import ask_for
from dynfrsdb_storage.slots import Claim, Pending, insert_ranges

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Cuts = dict[str, list[tuple[bytes, bytes]]]
"""Ranges of keys to delete, (first, last), by database."""
_EVERYTHING = b"", b"\xff" * 12


@dataclass(frozen=True)
class Planned:
    """What a commit takes away, and what it puts."""

    state: dict[str, Any]
    """The counters, as they will be."""
    cuts: Cuts
    puts: dict[str, tuple[list[bytes], dict[bytes, bytes]]]
    """Keys in their order, and packed records by key, by database."""
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

    @property
    def writes(self) -> int:
        """Up to how many leaves of LMDB's it changes, or about that: whole ranges count as one."""
        return sum(len(keys) for keys, _ in self.puts.values()) + sum(map(len, self.cuts.values()))

    def apply(self, txn: lmdb.Transaction, databases: dict[str, Any], room: int = 0) -> None:
        """Do all of it in a transaction, after `room` free pages in a row were asked for; deletes come before puts."""
        if room:
            ask_for(txn, databases["meta"], room)
        for name, ranges in self.cuts.items():
            _delete(txn, databases[name], sorted(ranges), self.puts[name][1] if name in self.puts else ())
        for key in self.cleared:
            txn.delete(key, db=databases["pending"])
        self.claim.apply(txn, databases["reserved"], self.written)
        free = [(start, count) for start, count, _ in self.cleared.values()]
        if self.grown:
            free.append((self.slots, self.grown))
        if free:
            insert_ranges(txn, databases["reserved"], free)
        for name, (keys, values) in self.puts.items():
            with txn.cursor(db=databases[name]) as cursor:
                cursor.putmulti(zip(keys, map(values.__getitem__, keys), strict=True))

    def places(self) -> Places:
        """Where it writes."""
        places = counter_places()
        for name, ranges in self.cuts.items():
            places.setdefault(name, ([], []))[1].extend(ranges)
        for name, (keys, _) in self.puts.items():  # the counters are among them
            places[name] = keys, places.get(name, ([], []))[1]
        return places


def counter_places() -> Places:
    """Where every commit writes, also one that only reserves slots."""
    return {"meta": ([layout.META_STATE], []), "reserved": ([], [_EVERYTHING]), "pending": ([], [_EVERYTHING])}


def _delete(txn: lmdb.Transaction, database: Any, ranges: list[tuple[bytes, bytes]], again: Container[bytes]) -> None:
    """Delete what lies in sorted ranges, but for keys that are put `again`: LMDB replaces those where they are."""
    with txn.cursor(db=database) as cursor:
        for first, last in ranges:
            key: Any = cursor.key() if cursor.set_range(first) else b""
            while key and key <= last:
                if key in again:
                    key = cursor.key() if cursor.next() else b""
                else:
                    cursor.delete()
                    key = cursor.key()  # of what is behind it, if anything is
