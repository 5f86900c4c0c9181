"""Backup: the newest commit, copied record by record into a store of its own, while others read and write.

Copying the files would not do. data.mdb and rows.bin belong together only at one commit, and a writer changes both
while `cp` is between them. LMDB can copy its own file from within a read transaction, but it copies free pages along,
and in those lie bytes of people who were removed. So a backup is written anew, out of one snapshot (storage's
copying.py): what is in it is what the forest, the index and the ledger hold at that commit, with the same uuid, commit
number and stamps, and nothing that was removed before it. A backup is never a copy of damage: that ends it.

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
from contextlib import suppress
from functools import partial
from pathlib import Path

from dynfrsdb.errors import Error, InvalidInput, Locked
from dynfrsdb.receipt import new_entry
from dynfrsdb_storage import Snapshot, Store, create, layout
from dynfrsdb_storage.build import refuse_existing
from dynfrsdb_storage.copying import Progress, copy

ATTEMPTS = 5


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
                return _copy(snapshot, dest, progress or (lambda stage, done, total: None))
            except Error:
                if not snapshot.ended:
                    raise
                # A commit of this process had to enlarge LMDB's map, which ends older snapshots. Sizes double, so this
                # cannot go on for long.
    raise Locked(f"'{store.path}' grew each time it was being copied; try again when less is written")


def _copy(snapshot: Snapshot, dest: Path, report: Progress) -> int:
    """One snapshot, as a store of its own."""
    state = {name: value for name, value in snapshot.state.items() if name not in layout.ROW_COUNTERS}
    fill = partial(copy, snapshot, report=report)
    create(dest, snapshot.settings, state, fill, snapshot.generation.identity)
    return snapshot.commit
