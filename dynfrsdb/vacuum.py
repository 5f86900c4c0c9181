"""Vacuum: the store rebuilt from its live samples, and nothing of the old one left.

What was removed is unlearned at once, but its bytes stay: LMDB keeps freed pages, and even a compacting copy carries
slack along. So a vacuum copies nothing of the trees. It makes the next generation as `create` would make it of the
survivors, in a process that never saw the old pages (storage's scribe.py):

    1. settle                            what is void is grown in the old generation, so that its size tells the room
    2. the writer lock; is there room?   writers wait from here on, readers do not
    3. rows, in the order of ids; index; trees grown anew; ledger and all other records as they are
    4. look at it: every record what F says, every row that of the old generation, every other byte zero
    5. CURRENT names the new generation  the moment of truth: one rename
    6. the lock is given back            whoever waited goes on in the new generation; readers move at their next call
    7. the old generation is overwritten and unlinked, when no process has it open any more

Died before 5: nothing has happened; the next session removes what was written. Died after 5: the vacuum stands, and
whoever writes next does 7. Only after 7 does the ledger call the removals erased.

The proof of absence (4) needs no needle. `Proof.problems` holds against the new generation that all bytes of data.mdb
outside live records are zero, that rows.bin is exactly the live rows in the order of their ids, and that every tree
record is, byte for byte, the one that a store built from the survivors has."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dynfrsdb.build import Progress, grown, occupants, tree_jobs, write_trees
from dynfrsdb.errors import CorruptStore, Error
from dynfrsdb.secrets import MODULUS, Secrets
from dynfrsdb.settle import settle
from dynfrsdb.shelf import Payloads, growth_records
from dynfrsdb.view import rows_of, spec_of
from dynfrsdb_engine.spec import Spec
from dynfrsdb_storage import Snapshot, Successor, check_storage, layout
from dynfrsdb_storage.ages import noted
from dynfrsdb_storage.directory import other_generations, read_current
from dynfrsdb_storage.extents import Extents, leftovers
from dynfrsdb_storage.failpoints import failpoint
from dynfrsdb_storage.living import Live, checked_rows, features, live_samples
from dynfrsdb_storage.records import sample_payload
from dynfrsdb_storage.retire import holders
from dynfrsdb_storage.stages import reached, vacuumed
from dynfrsdb_storage.successor import Room, refuse_without, room

if TYPE_CHECKING:
    from dynfrsdb.database import Database

PATIENCE = 2.0
"""Seconds that a vacuum waits for other processes to let go of the old generation."""
CARRIED = ("meta", "ledger", "requests", "holds", "queue", "suppression")
"""Databases whose records stay as they are."""


@dataclass(frozen=True)
class VacuumReport:
    """What a vacuum did; true if nothing of the old generation is left."""

    generation: int
    samples: int
    needed: int
    """Bytes that the new generation was expected to take at most, beside the old one."""
    free: int
    bytes_before: int
    bytes_after: int
    erased: int
    """Ledger entries up to this one: what they removed is erased."""
    held_by: tuple[int, ...]
    """Processes that still have the old generation open; it is erased after them."""
    done: bool

    def __bool__(self) -> bool:
        return self.done

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return {**self.__dict__, "held_by": list(self.held_by)}


def vacuum(db: Database, timeout: float, progress: Progress | None, dry_run: bool) -> VacuumReport:
    """Rebuild the store without freed bytes; with `dry_run`, only say how much room that takes."""
    report = progress or (lambda stage, done, total: None)
    if dry_run:
        return db._newest(lambda stored: _report(db, stored, _room(stored), _used(db)))
    settle(db, None, timeout, progress)
    before = _used(db)
    with db._store.write(timeout, "vacuum") as session:
        if session.owes:
            session.commit()
        space = _room(session.snapshot)
        refuse_without(space, db.path, "vacuum")
        with Successor(session) as new:
            _Rebuild(db, session.snapshot, new, report).run()
            new.take_over()
    _let_go(db)
    return db._newest(lambda stored: _report(db, stored, space, before))


def _room(snapshot: Snapshot) -> Room:
    return room(snapshot, int(snapshot.state["samples"]))


def _used(db: Database) -> int:
    """Bytes that all files of the store have."""
    return sum(file.stat().st_size for file in db.path.rglob("*") if file.is_file())


def _let_go(db: Database) -> None:
    """Erase the old generation, if everybody leaves it within a short while; otherwise somebody does it later.

    There is no use in waiting for other handles of this very process: they move when they are called."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with suppress(Error):  # another writer has the lock, or the disk is full: nothing is lost, only late
            db._store.erase_pending(max(0.0, deadline - time.monotonic()))
        if not db._store.owes or time.monotonic() > deadline or _old_holders(db) == {os.getpid()}:
            return
        time.sleep(0.05)


def _report(db: Database, snapshot: Snapshot, space: Room, before: int) -> VacuumReport:
    return VacuumReport(
        generation=snapshot.generation.number,
        samples=int(snapshot.state["samples"]),
        needed=space.needed,
        free=space.free,
        bytes_before=before,
        bytes_after=_used(db),
        erased=int(snapshot.state.get("erased", 0)),
        held_by=tuple(sorted(_old_holders(db))),
        done=not other_generations(db.path, snapshot.generation.directory.name),
    )


def _old_holders(db: Database) -> set[int]:
    """Processes that have a generation open which is not the live one."""
    return {pid for name in other_generations(db.path, read_current(db.path)) for pid in holders(db.path / name)}


class _Rebuild:
    """One snapshot on its way into a new generation."""

    def __init__(self, db: Database, snapshot: Snapshot, new: Successor, report: Progress) -> None:
        self._db, self._snapshot, self._new, self._report = db, snapshot, new, report
        self._live = live_samples(snapshot)

    def run(self) -> None:
        """Write everything, and look at it."""
        new, state = self._new, self._new.state
        self._write_rows()
        self._write_index()
        failpoint("vacuum-rows")
        for database in CARRIED:
            new.put_sorted(database, _carried(self._snapshot, database))
        write_trees(new, self._db._spec, occupants(self._db._spec, self._live.ids), self._report)
        entry = new.append_ledger(vacuumed(state, new.number))
        state.update(reached(state, entry), tags=0, times=noted(state.get("times", b""), state["commit"], time.time()))
        new.finish()
        with new.snapshot() as fresh:
            problems = Proof(self._db, self._snapshot, fresh, self._live, self._report).problems()
        if problems:
            place = self._db.path
            raise CorruptStore(
                f"the new generation of '{place}' is not what it should be ({problems[0]}); the store was not changed. "
                f"Run 'dynfrsdb check {place}'"
            )

    def _write_rows(self) -> None:
        total = self._live.ids.size
        for first, words in checked_rows(self._snapshot, self._live.ids, self._live.slots):
            slots = np.arange(first, first + len(words), dtype=np.uint32)
            x = features(self._snapshot, words)
            self._new.write_rows(slots, words[:, 1], words[:, 2].view(np.int64), x)
            self._report("rows", first + len(words), total)

    def _write_index(self) -> None:
        live = self._live
        records = (sample_payload(slot, subject) for slot, subject in enumerate(live.subjects))
        self._new.put_sorted("samples", zip(layout.id_keys(live.ids), records, strict=True))
        owned = zip(live.ids.tolist(), live.subjects, strict=True)
        keys = sorted(layout.subject_key(subject, id) for id, subject in owned if subject)
        self._new.put_sorted("subjects", ((key, b"") for key in keys))


class Proof:
    """A new generation against the live samples of the old one: they are all there, and nothing else is."""

    def __init__(self, db: Database, old: Snapshot, new: Snapshot, live: Live, report: Progress) -> None:
        self._db, self._old, self._new, self._live, self._report = db, old, new, live, report

    def problems(self) -> list[str]:
        """What is wrong, in words; empty if all is well."""
        slots = int(self._new.state["slots"])
        problems = check_storage(self._new, lambda part, done: self._report("checking " + part, done, slots))
        return problems or [*self._rows(), *self._carried(), *self._trees(), *self._free_bytes()]

    def _rows(self) -> Iterator[str]:
        """rows.bin is the live rows in the order of their ids, and then zeros; the index says so."""
        fresh, secrets, total = live_samples(self._new), Secrets(self._db._settings), 0
        if not (np.array_equal(fresh.ids, self._live.ids) and fresh.subjects == self._live.subjects):
            yield "it does not hold the same samples"
            return
        if not np.array_equal(fresh.slots, np.arange(fresh.ids.size)):
            yield "its rows do not lie in the order of their ids"
            return
        for (first, words), (_, before) in zip(
            checked_rows(self._new, fresh.ids, fresh.slots),
            checked_rows(self._old, self._live.ids, self._live.slots),
            strict=True,
        ):
            if not np.array_equal(words[:, 1:], before[:, 1:]):
                yield f"rows {first} to {first + len(words) - 1} are not those of the old generation"
            total += secrets.samples(words[:, 1], words[:, 2].view(np.int64), features(self._new, words))
        if (total % MODULUS).to_bytes(16, "little") != self._new.state["digest"]:
            yield "its samples do not have the digest that the ledger names"
        if self._new.rows.words[fresh.ids.size :].any():
            yield "'rows.bin' holds more than the live rows"

    def _carried(self) -> Iterator[str]:
        for database in CARRIED:
            found = dict(_carried(self._new, database))
            if any(found.get(key) != payload for key, payload in _carried(self._old, database)):
                yield f"records of '{database}' are not those of the old generation"

    def _trees(self) -> Iterator[str]:
        """Every tree record is the one that a store built from the survivors has, and there is no other."""
        spec: Spec = spec_of(self._db._settings)
        stored = {name: self._new.scan(name) for name in ("nodes", "buckets")}
        starts, members = occupants(spec, self._live.ids)
        for tree, growth in enumerate(grown(spec, rows_of(self._new), tree_jobs(spec, starts, members))):
            for name, expected in zip(stored, growth_records(growth), strict=True):
                yield from _differences(tree, expected, stored[name])
            self._report("checking trees", tree + 1, spec.trees)
        for name, rest in stored.items():
            if next(rest, None) is not None:
                yield f"'{name}' has more records than the trees of the live samples"
        stamps, n, tags = self._new.roots()
        if stamps.any() or tags.any() or not np.array_equal(n, np.diff(starts)):
            yield "its roots are not those of the live samples"

    def _free_bytes(self) -> Iterator[str]:
        """Every byte of data.mdb outside live records is zero, and branch pages name only live records."""
        data = self._new.generation.directory / layout.DATA_FILE
        for start, end in leftovers(data):
            yield f"'data.mdb' holds bytes of no record at {start} to {end - 1}"
        for stray in Extents(data).strays:
            yield f"'data.mdb' names a record that is gone at {stray.start}"


def _differences(tree: int, expected: Payloads, stored: Iterator[tuple[bytes, bytes]]) -> Iterator[str]:
    for key, payload in expected.items():
        found = next(stored, (b"", b""))
        # A large payload comes back with the zeros that fill up its pages.
        if found[0] != key or found[1][: len(payload)] != payload or found[1][len(payload) :].strip(b"\0"):
            yield f"tree {tree} is not that of the live samples"
            return


def _carried(snapshot: Snapshot, database: str) -> Iterator[tuple[bytes, bytes]]:
    """All records of a database that stay as they are, after they were counted."""
    snapshot.confirm(database)
    yield from ((key, payload) for key, payload in snapshot.scan(database) if key not in layout.META_KEYS)
