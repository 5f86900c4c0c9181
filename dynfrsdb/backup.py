"""Backup: the newest commit, copied record by record into a store of its own, while others read and write.

Copying the files would not do. data.mdb and rows.bin belong together only at one commit, and a writer changes both
while `cp` is between them. LMDB can copy its own file from within a read transaction, but it copies free pages along,
and in those lie bytes of people who were removed. So a backup is written anew, out of one snapshot:

    snapshot                                        new store
    samples, subjects, nodes, buckets, ledger, ...  the same payloads under the same keys, checked on the way
    rows of live samples                            the same slots, checked on the way
    slots without a live sample                     zero, and reserved
    counters, settings, uuid                        the same; so are the commit's number and every stamp

and what is in it is what the forest, the index and the ledger hold at that commit: nothing that was removed before it.
A record or row that is damaged ends the backup with an error that names it; a backup is never a copy of damage.

It is built beside its destination, synced, and renamed: `dest` is not there, or is complete. It has a LOCK of its own
and is a store like any other: two that both go on being written are two stores with one uuid.

The snapshot is held for as long as the copy takes. Nobody waits for it, but rows removed meanwhile are erased only
after it, and data.mdb may grow.

That a copy exists is part of the history of the people in it. So before a store that is open for writing is copied, its
ledger notes it: no copy is made that the ledger does not know. If no copy comes of it, the ledger notes that as well,
if it can; what it says is then too much rather than too little. A handle for reading writes nothing, here too.

Not done here: removals reach no backup. Who must forget somebody must replace the backups too, or restore them with
restoring.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from dynfrsdb.errors import Error, InvalidInput, Locked
from dynfrsdb.living import checked_rows, damaged, features, live_samples
from dynfrsdb.receipt import new_entry
from dynfrsdb_storage import Builder, Snapshot, Store, create, layout
from dynfrsdb_storage.build import refuse_existing
from dynfrsdb_storage.rows import ranges_of

Progress = Callable[[str, int, int], None]
ATTEMPTS = 5
BUILT = ("meta", "roots", "reserved", "pending")
"""Databases that the builder writes by itself."""


def backup(store: Store, dest: Path, progress: Progress | None, timeout: float = 30.0) -> int:
    """Copy the newest commit to `dest`, where nothing may be; returns the number of the commit."""
    # realpath and not Path.resolve, which raises where links lead in circles
    if Path(os.path.realpath(dest)).is_relative_to(os.path.realpath(store.path)):
        raise InvalidInput(f"'{dest}' is inside the store '{store.path}'; choose a place outside it")
    if not store.writable:
        return _copied(store, dest, progress)
    refuse_existing(dest)
    with store.write(timeout, "backup") as session:
        made = session.append_ledger(new_entry("backup", session.state))
        session.commit()
    try:
        return _copied(store, dest, progress)
    except BaseException:
        with suppress(Error), store.write(0.0, "backup") as session:
            session.append_ledger(new_entry("no backup", session.state, backup=made["sequence"]))
            session.commit()
        raise


def _copied(store: Store, dest: Path, progress: Progress | None) -> int:
    for _ in range(ATTEMPTS):
        with store.snapshot() as snapshot:
            try:
                return _Copy(snapshot, progress or (lambda stage, done, total: None)).to(dest)
            except Error:
                if not snapshot.ended:
                    raise
                # A commit of this process had to enlarge LMDB's map, which ends older snapshots. Sizes double, so this
                # cannot go on for long.
    raise Locked(f"'{store.path}' grew each time it was being copied; try again when less is written")


class _Copy:
    """One snapshot on its way into a new store."""

    def __init__(self, snapshot: Snapshot, report: Progress) -> None:
        self._snapshot, self._report = snapshot, report

    def to(self, dest: Path) -> int:
        snapshot = self._snapshot
        state = {name: value for name, value in snapshot.state.items() if name not in layout.ROW_COUNTERS}
        create(dest, snapshot.settings, state, self._fill, store_id=snapshot.generation.identity["uuid"])
        return snapshot.commit

    def _fill(self, builder: Builder) -> None:
        self._copy_rows(builder)
        for database in layout.DATABASES:
            if database not in BUILT:
                builder.put_sorted(database, self._records(database))
        stamps, n, tags = self._snapshot.roots()
        builder.set_roots(np.arange(stamps.size), stamps, n, tags)

    def _records(self, database: str) -> Iterator[tuple[bytes, bytes]]:
        total, done = self._snapshot.count(database), 0
        for done, pair in enumerate(self._snapshot.scan(database), 1):
            yield pair
            if done % 10_000 == 0 or done == total:
                self._report(database, done, total)
        if done != total:
            raise damaged(self._snapshot, f"'{database}' has {done} records, LMDB counted {total}")

    def _copy_rows(self, builder: Builder) -> None:
        live = live_samples(self._snapshot)
        order = np.argsort(live.slots)
        ids, slots = live.ids[order], live.slots[order]
        free_from = 0
        for start, count in ranges_of(slots):
            if start > free_from:
                builder.leave_free(free_from, start - free_from)
            free_from = start + count
        for first, words in checked_rows(self._snapshot, ids, slots):
            done = first + len(words)
            x = features(self._snapshot, words)
            builder.write_rows(slots[first:done], ids[first:done], words[:, 2].view(np.int64), x)
            self._report("rows", done, slots.size)
