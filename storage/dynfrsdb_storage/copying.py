"""One commit, copied record by record: into a backup, or into the next generation of a store of another format.

    snapshot                                        copy
    samples, subjects, nodes, buckets, ledger, ...  the same payloads under the same keys, checked on the way
    rows of live samples                            the same slots, checked on the way
    slots without a live sample                     zero, and reserved
    counters and settings                           are for who makes the copy; those of rows.bin are its own

No page and no slack is copied, so nothing comes along that was removed before that commit. A record or row that is
damaged ends the copy with an error that names it.

A migration passes a `change`, which says what becomes of each record; keys may not change their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import numpy as np

from dynfrsdb_storage import layout
from dynfrsdb_storage.living import checked_rows, damaged, features, live_samples
from dynfrsdb_storage.read import Snapshot
from dynfrsdb_storage.rows import ranges_of

_BUILT = ("roots", "reserved", "pending")
"""Databases that whoever takes the copy writes by itself."""
_REPORTED = 10_000

Progress = Callable[[str, int, int], None]
Pair = tuple[bytes, bytes]
Change = Callable[[str, bytes, bytes], Pair]


class Taker(Protocol):
    """What is copied into: a `Builder`, or a `Successor`."""

    def write_rows(self, slots: layout.Array, ids: layout.Array, ys: layout.Array, x: layout.Array) -> None: ...

    def leave_free(self, start: int, count: int) -> None: ...

    def put_sorted(self, database: str, pairs: Iterable[Pair]) -> None: ...

    def set_roots(self, trees: layout.Array, stamps: layout.Array, n: layout.Array, tags: layout.Array) -> None: ...


def copy(snapshot: Snapshot, taker: Taker, report: Progress, change: Change | None = None) -> None:
    """Copy everything that a snapshot holds, but for its counters, settings and identity."""
    _copy_rows(snapshot, taker, report)
    for database in snapshot.generation.databases:
        if database not in _BUILT:
            pairs = _records(snapshot, database, report)
            taker.put_sorted(database, pairs if change is None else (change(database, *pair) for pair in pairs))
    stamps, n, tags = snapshot.roots()
    taker.set_roots(np.arange(stamps.size), stamps, n, tags)


def _records(snapshot: Snapshot, database: str, report: Progress) -> Iterator[Pair]:
    total, done = snapshot.count(database), 0
    for done, pair in enumerate(snapshot.scan(database), 1):
        if database == "meta" and pair[0] in layout.META_KEYS:
            continue
        yield pair
        if done % _REPORTED == 0 or done == total:
            report(database, done, total)
    if done != total:
        raise damaged(snapshot, f"'{database}' has {done} records, LMDB counted {total}")


def _copy_rows(snapshot: Snapshot, taker: Taker, report: Progress) -> None:
    live = live_samples(snapshot)
    order = np.argsort(live.slots)
    ids, slots = live.ids[order], live.slots[order]
    free_from = 0
    for start, count in ranges_of(slots):
        if start > free_from:
            taker.leave_free(free_from, start - free_from)
        free_from = start + count
    for first, words in checked_rows(snapshot, ids, slots):
        done = first + len(words)
        x = features(snapshot, words)
        taker.write_rows(slots[first:done], ids[first:done], words[:, 2].view(np.int64), x)
        report("rows", done, slots.size)
