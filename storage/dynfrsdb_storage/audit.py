"""The audit: does everything in a store fit together?

`check_storage` reads every byte that counts and says in words what does not fit. It trusts nothing, so it does not
stop at the first bad record. It looks at

    every record     its checksum
    samples          each has its row, with its hash and its id; no two share a slot
    subjects         exactly those that the samples name
    slots            each is live, reserved or pending, and only one of these; what is none of them is zero
    rows.bin         as long as it must be; nothing but zeros behind its last slot
    ledger           the chain is whole and ends where the counters say
    counters         samples, reserved, pending; the stages that the ledger tells of

Not done here: whether the trees are right. That needs to know what a tree is.
"""

import os
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dynfrsdb_storage import layout, ledger, records, stages
from dynfrsdb_storage.errors import CorruptStore
from dynfrsdb_storage.read import Snapshot

_ROWS_AT_ONCE = 65_536
_MOST = 20

Progress = Callable[[str, int], None]
Pairs = Iterator[tuple[bytes, bytes]]


def check_storage(snapshot: Snapshot, progress: Progress | None = None) -> list[str]:
    """Everything that is wrong with the store, in words; empty if all is well.

    `progress(database, records)` is called now and then with what was looked at so far.
    """
    return _Audit(snapshot, progress or (lambda database, done: None)).run()


class _Audit:
    def __init__(self, snapshot: Snapshot, progress: Progress) -> None:
        self._snapshot = snapshot
        self._progress = progress
        self._problems: list[str] = []

    def run(self) -> list[str]:
        try:
            self._state = self._snapshot.state
            self._slots = int(self._state["slots"])
        except CorruptStore as error:
            return [str(error)]
        self._read_all()
        if self._check_file():
            self._check_rows()
            self._check_slots()
        self._check_subjects()
        self._problems += ledger.broken_links(self._ledger, self._state["sequence"], self._state["head"])
        self._check_counters()
        return self._problems

    def _say(self, problems: list[str], what: str) -> None:
        """Add problems of one kind, the first few in full."""
        self._problems += problems[:_MOST]
        if len(problems) > _MOST:
            self._problems.append(f"... and {len(problems) - _MOST} more {what}")

    def _read_all(self) -> None:
        for database in layout.DATABASES:
            read: Callable[[Pairs], None] | None = getattr(self, f"_read_{database}", None)
            good = self._good(database)
            if read is not None:
                read(good)
            else:
                for _ in good:
                    pass

    def _good(self, database: str) -> Pairs:
        """The records of a database that pass their checksum; the others become problems."""
        bad: list[str] = []
        done = 0
        try:
            for key, value in self._snapshot.scan_raw(database):
                payload = records.unpack(database, key, value)
                done += 1
                if done % 10_000 == 0:
                    self._progress(database, done)
                if payload is None:
                    bad.append(f"{records.describe(database, key)} fails its checksum")
                else:
                    yield key, payload
            if done != self._snapshot.count(database):
                bad.append(f"'{database}' has {done} records, LMDB counted {self._snapshot.count(database)}")
        except CorruptStore as error:
            bad.append(str(error))
        self._progress(database, done)
        self._say(bad, f"bad records of '{database}'")

    def _read_samples(self, pairs: Pairs) -> None:
        ids, slots = array("Q"), array("Q")
        self._named: set[bytes] = set()
        for key, payload in pairs:
            slot, subject = records.parse_sample(payload)
            ids.append(layout.parse_id_key(key))
            slots.append(slot)
            if subject:
                self._named.add(subject + key)
        self._ids = np.array(ids, np.uint64)
        self._live = np.array(slots, np.int64)

    def _read_subjects(self, pairs: Pairs) -> None:
        self._subjects = {key for key, _ in pairs}

    def _read_reserved(self, pairs: Pairs) -> None:
        self._reserved = [(int.from_bytes(key, "big"), records.parse_count(payload)) for key, payload in pairs]

    def _read_pending(self, pairs: Pairs) -> None:
        self._pending = [
            (layout.parse_pending_key(key)[1], records.parse_pending(payload)[0]) for key, payload in pairs
        ]

    def _read_ledger(self, pairs: Pairs) -> None:
        self._ledger: list[dict[str, Any]] = [records.unframe(payload) for _, payload in pairs]

    def _check_file(self) -> bool:
        """rows.bin is long enough, and holds only zeros behind its last slot."""
        path = self._snapshot.generation.directory / layout.ROWS_FILE
        wanted = self._slots * layout.slot_bytes(self._snapshot.generation.n_features)
        size = path.stat().st_size if path.exists() else 0
        if size < wanted:
            self._problems.append(f"'{layout.ROWS_FILE}' has {size} bytes, {self._slots} slots take {wanted}")
            return False
        if size > wanted and self._is_newest():
            with open(path, "rb") as file:
                file.seek(wanted)
                if any(block.strip(b"\0") for block in iter(lambda: file.read(1 << 20), b"")):
                    self._problems.append(f"'{layout.ROWS_FILE}' holds data behind its last slot")
        return True

    def _check_rows(self) -> None:
        rows, bad = self._snapshot.rows, []
        inside = np.flatnonzero(self._live < self._slots)
        for i in range(0, len(inside), _ROWS_AT_ONCE):
            part = inside[i : i + _ROWS_AT_ONCE]
            wrong = part[rows.bad(self._live[part], self._ids[part])]
            bad += [f"sample {self._ids[j]}: its row (slot {self._live[j]}) fails its hash or its id" for j in wrong]
            self._progress(layout.ROWS_FILE, i + len(part))
        self._say(bad, "bad rows")

    def _check_slots(self) -> None:
        """Each slot has one owner; a slot without one is zero."""
        owners = np.zeros(self._slots, np.uint8)
        outside = self._live[self._live >= self._slots]
        self._say([f"slot {slot} is used but does not exist" for slot in outside.tolist()], "slots that do not exist")
        np.add.at(owners, self._live[self._live < self._slots], 1)
        for kind, ranges in (("reserved", self._reserved), ("pending", self._pending)):
            for start, count in ranges:
                if start + count > self._slots:
                    self._problems.append(f"slots {start} to {start + count - 1} are {kind} but do not all exist")
                owners[start : start + count] += 1
        twice = np.flatnonzero(owners > 1).tolist()
        self._say([f"slot {slot} is used twice" for slot in twice], "slots that are used twice")
        self._check_dead(np.flatnonzero(owners == 0))

    def _check_dead(self, dead: npt.NDArray[np.int64]) -> None:
        words = self._snapshot.rows.words
        self._say([f"slot {slot} belongs to nothing" for slot in dead.tolist()], "slots that belong to nothing")
        idle = np.concatenate([dead, self._idle_reserved()])
        dirty = idle[words[idle].any(axis=1)] if len(idle) else idle
        if len(dirty) and self._is_newest():
            self._say([f"slot {slot} holds data but no sample" for slot in dirty.tolist()], "slots with leftover data")

    def _idle_reserved(self) -> npt.NDArray[np.int64]:
        """Reserved slots that no session can be writing now; the lowest ones may be in use, or dirty after a crash."""
        skip, parts = int(self._state["window"]), [np.empty(0, np.int64)]
        for start, count in self._reserved:
            used = min(skip, count)
            parts.append(np.arange(start + used, min(start + count, self._slots)))
            skip -= used
        return np.concatenate(parts)

    def _check_subjects(self) -> None:
        for keys, text in (
            (self._named - self._subjects, "is missing from its subject's list"),
            (self._subjects - self._named, "is on the list of a subject it does not belong to"),
        ):
            samples = sorted(layout.parse_subject_key(key)[1] for key in keys)
            self._say([f"sample {sample} {text}" for sample in samples], "samples with wrong subjects")

    def _check_counters(self) -> None:
        found = {
            "samples": len(self._ids),
            "reserved": sum(count for _, count in self._reserved),
            "pending": sum(count for _, count in self._pending),
        }
        for name, through in stages.counted(self._ledger).items():
            if self._state.get(name, 0) != through:
                self._problems.append(f"'{name}' is {self._state.get(name, 0)}, the ledger says {through}")
        for name, count in found.items():
            if self._state[name] != count:
                self._problems.append(f"the store has {count} {name}, its counters say {self._state[name]}")

    def _is_newest(self) -> bool:
        """Whether nothing was committed since the snapshot: only then may unowned bytes be held against the store."""
        generation = self._snapshot.generation
        return generation.pid == os.getpid() and generation.lmdb_info()["last_txnid"] == self._snapshot.transaction
