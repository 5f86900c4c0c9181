"""How far each removal has come, and what holds it back.

The ledger tells when a removal reached which stage (storage's stages.py). What holds one back is somebody who looks:

    unlearned      a reader with a snapshot older than the removal, which may still see its rows
    rows erased    nobody; its bytes are in free pages until a vacuum
                   after a vacuum: a process that still has the old generation open

Nothing here needs the engine, so the command line answers in a blink."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from dynfrsdb_storage import Snapshot, Store
from dynfrsdb_storage.directory import other_generations
from dynfrsdb_storage.layout import parse_pending_key
from dynfrsdb_storage.ledger import Entry
from dynfrsdb_storage.records import unframe
from dynfrsdb_storage.retire import holders
from dynfrsdb_storage.slots import pending_ranges
from dynfrsdb_storage.stages import ERASED, ROWS_ERASED, VACUUM, of_these_files

UNLEARNED = "unlearned"


@dataclass(frozen=True)
class Holder:
    """A process that holds removals back: what it has open, and for how many seconds at least that has been old."""

    pid: int
    age: float
    has: str


@dataclass(frozen=True)
class Erasure:
    """One change that removed samples: its stage, when it reached which, and what holds it back."""

    sequence: int
    removed: int
    request: str | None
    stage: str
    unlearned: str
    rows_erased: str | None
    erased: str | None
    held_by: tuple[Holder, ...]
    remedy: str | None
    """What takes it to the next stage, if nobody holds it back."""

    def as_dict(self) -> dict[str, Any]:
        """The erasure as plain values."""
        return {**asdict(self), "held_by": [asdict(holder) for holder in self.held_by]}


def erasures(store: Store, snapshot: Snapshot) -> list[Erasure]:
    """All changes that removed samples, oldest first."""
    entries = [unframe(payload) for _, payload in snapshot.scan("ledger")]
    return list(_Status(store, snapshot, entries).run())


class Stages:
    """When removals reached which stage, as the entries of a ledger tell."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        own = of_these_files(entries)
        self._marks: dict[str, list[tuple[int, str]]] = {
            kind: [(entry["through"], entry["time"]) for entry in own if entry["kind"] == kind]
            for kind in (ROWS_ERASED, VACUUM, ERASED)
        }

    def reached(self, kind: str, sequence: int) -> str | None:
        """When the removal of an entry reached a stage: the time of the first entry that covers it."""
        marks = self._marks[kind]
        place = bisect_left(marks, sequence, key=lambda mark: mark[0])
        return marks[place][1] if place < len(marks) else None

    def of(self, sequence: int) -> tuple[str, str | None, str | None]:
        """The stage of a removal, and when its rows were erased, and everything."""
        erased = self.reached(ERASED, sequence)
        rows = self.reached(ROWS_ERASED, sequence) or erased
        return ERASED if erased else ROWS_ERASED if rows else UNLEARNED, rows, erased


class _Status:
    def __init__(self, store: Store, snapshot: Snapshot, entries: list[Entry]) -> None:
        self._store, self._snapshot, self._entries = store, snapshot, entries
        self._stages = Stages(entries)

    def run(self) -> Iterator[Erasure]:
        for entry in self._entries:
            if entry.get("removed", 0):
                yield self._of(entry)

    def _of(self, entry: Entry) -> Erasure:
        sequence = entry["sequence"]
        (stage, rows, erased), vacuumed = self._stages.of(sequence), self._stages.reached(VACUUM, sequence)
        held: tuple[Holder, ...] = ()
        if stage != ERASED:
            held = self._generation_holders(vacuumed) if vacuumed else self._row_holders(sequence) if not rows else ()
        request = entry.get("request")
        return Erasure(
            sequence=sequence,
            removed=entry["removed"],
            request=request.hex() if request else None,
            stage=stage,
            unlearned=entry["time"],
            rows_erased=rows,
            erased=erased,
            held_by=held,
            remedy=None if stage == ERASED or held else self._remedy(stage, vacuumed),
        )

    def _remedy(self, stage: str, vacuumed: str | None) -> str:
        if vacuumed or stage == UNLEARNED:
            return "the next change, or closing a handle for writing"
        return f"dynfrsdb vacuum {self._store.path}"

    def _row_holders(self, sequence: int) -> tuple[Holder, ...]:
        """Readers whose snapshot is older than the removal."""
        if sequence not in self._commits:
            return ()
        lag = self._snapshot.commit - self._commits[sequence]
        readers = [reader for reader in self._readers if reader["lag"] > lag]
        return tuple(Holder(reader["pid"], reader["age"], "an older snapshot") for reader in readers)

    @cached_property
    def _commits(self) -> dict[int, int]:
        """The commits of removals whose rows are not known to be erased, by their ledger entries."""
        ranges = pending_ranges(self._snapshot)
        return {there.sequence: parse_pending_key(key)[0] for key, there in ranges.items()}

    @cached_property
    def _readers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._store.info()["readers"]
        return found

    def _generation_holders(self, vacuumed: str) -> tuple[Holder, ...]:
        """Processes that have an old generation open."""
        live = self._snapshot.generation.directory.name
        age = max(0.0, time.time() - datetime.fromisoformat(vacuumed).timestamp())
        return tuple(
            Holder(pid, age, f"generation {name}")
            for name in other_generations(self._store.path, live)
            for pid in holders(self._store.path / name)
        )
