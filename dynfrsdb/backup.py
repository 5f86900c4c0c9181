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
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dynfrsdb.errors import CorruptStore, Error, InvalidInput, Locked
from dynfrsdb.receipt import new_entry
from dynfrsdb_storage import Builder, Snapshot, Store, create, layout
from dynfrsdb_storage.build import refuse_existing
from dynfrsdb_storage.rows import ranges_of

Progress = Callable[[str, int, int], None]
ATTEMPTS = 5
ROWS_AT_ONCE = 65_536
OWN = ("slots", "reserved", "pending", "window")
"""Counters that describe rows.bin: the copy has its own."""
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
        state = {name: value for name, value in snapshot.state.items() if name not in OWN}
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
            raise self._corrupt(f"'{database}' has {done} records, LMDB counted {total}")

    def _copy_rows(self, builder: Builder) -> None:
        ids, slots = self._live()
        free_from = 0
        for start, count in ranges_of(slots):
            if start > free_from:
                builder.leave_free(free_from, start - free_from)
            free_from = start + count
        for first in range(0, slots.size, ROWS_AT_ONCE):
            part = slice(first, min(first + ROWS_AT_ONCE, slots.size))
            self._copy_some(builder, ids[part], slots[part])
            self._report("rows", part.stop, slots.size)

    def _copy_some(self, builder: Builder, ids: npt.NDArray[np.uint64], slots: npt.NDArray[np.uint32]) -> None:
        rows = self._snapshot.rows
        words = rows.words[slots]  # a copy: what is checked is what is written
        wrong = (words[:, 0] != layout.row_hashes(slots, words, rows.multipliers)) | (words[:, 1] != ids)
        if wrong.any():
            raise self._corrupt(f"the row of sample {ids[wrong.argmax()]} fails its hash")
        x = words.view(np.float32)[:, 6 : 6 + rows.n_features]
        builder.write_rows(slots, ids, words[:, 2].view(np.int64), x)

    def _live(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
        """Ids and slots of all live samples, in the order of their slots."""
        ids, slots = array("Q"), array("L")
        for key, payload in self._snapshot.scan("samples"):
            ids.append(layout.parse_id_key(key))
            slots.append(int.from_bytes(payload[:4], "little"))
        stated = self._snapshot.state["samples"]
        if len(ids) != stated:
            raise self._corrupt(f"the index has {len(ids)} samples, the counters say {stated}")
        places = np.array(slots, np.uint32)
        order = np.argsort(places)
        return np.array(ids, np.uint64)[order], places[order]

    def _corrupt(self, what: str) -> CorruptStore:
        place = self._snapshot.generation.store
        return CorruptStore(f"'{place}' is damaged: {what}; no backup was made. Run 'dynfrsdb check {place}'")
