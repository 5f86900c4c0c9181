"""Transactions: samples come and go together, or not at all.

    with db.transaction() as txn:
        txn.remove([17, 18])
        txn.add(X, y)
    txn.receipt

A transaction holds the writer lock. Its calls check their input against the store and note what is wanted; the forest
is changed when somebody looks (`txn.predict`) or at the end, all samples in one walk. Then everything becomes durable
in one commit: rows, trees, index, counters and the ledger entry.

What the forest becomes depends only on which samples live in the end. So a sample that is added and removed again in
one transaction leaves no trace but its numbers in the ledger, and replacing a sample is removing and adding its id.

    wanted          in the store       becomes
    remove 5        5 in slot 9        slot 9 goes, 9 to `pending`
    add 5           -                  5 in a reserved slot
    remove 5 again  (not yet)          the new row goes as well

If the process dies anywhere before the LMDB commit, nothing happened: rows written into reserved slots are zeroed by
the next session. An exception inside the block rolls back: rows are zeroed, and the working set lets go of everything
it changed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dynfrsdb import holds, inputs, request, suppression
from dynfrsdb.errors import InvalidInput, RequestConflict, SampleExists, SampleNotFound, TransactionMisuse
from dynfrsdb.receipt import Plan, Receipt, now, receipt_of
from dynfrsdb.secrets import MODULUS
from dynfrsdb.shelf import changed_records
from dynfrsdb.snapshot import confirm_index
from dynfrsdb.view import gathered_rows, in_words, read_rows
from dynfrsdb_engine.forest import Effect, Samples
from dynfrsdb_storage import WriteSession, layout

if TYPE_CHECKING:
    from dynfrsdb.database import Database

COMMIT_SECONDS, RECORD_SECONDS = 5e-4, 1e-5
"""What a durable commit takes, and each record in it, on the disks that were measured (for the estimate of a plan)."""


@dataclass
class Live:
    """A sample that lives, as this transaction sees it: where, and whose."""

    slot: int
    subject: bytes


@dataclass
class Wanted:
    """Samples that must go, and slots of those that must come, before the forest can be looked at."""

    gone: list[Samples] = field(default_factory=list)
    come: dict[int, None] = field(default_factory=dict)


def together(changes: list[Samples]) -> Samples | None:
    """The samples of several calls as those of one."""
    if len(changes) < 2:
        return changes[0] if changes else None
    return Samples(*(np.concatenate(columns) for columns in zip(*changes, strict=True)))


class Transaction:
    """One open transaction; made by `Database.transaction`."""

    def __init__(self, db: Database, request_id: Any, timeout: float, purpose: str, rehearses: bool = False) -> None:
        self._db, self._rehearses = db, rehearses
        self._timeout, self._purpose = inputs.seconds(timeout, "timeout"), purpose
        self._request = None if request_id is None else request.request_bytes(request_id)
        self._session: WriteSession | None = None
        self._begun = False
        self._known: request.Known | None = None
        self._asked = request.Asked()
        self._assigned: list[list[int]] = []
        self._changed: dict[int, Live | None] = {}
        self._wanted = Wanted()
        self._added = self._removed = 0
        self._removed_hashes: list[bytes] = []
        self._subjects: list[bytes] = []
        self._ids: list[int] = []
        self._entry: dict[str, Any] = {}
        """What the ledger entry has besides, or instead of, its usual fields."""
        self._heeds_holds = True
        self.skipped = 0
        """Samples that `add` left out because their subjects are on the suppression list."""
        self._effect = Effect(0, 0, 0, 0, 0)
        self.receipt: Receipt | None = None

    @property
    def replayed(self) -> bool:
        """Whether this request was carried out before; then calls are only compared with the first time."""
        return self._known is not None

    def __enter__(self) -> Transaction:
        if self._begun and self._session is None:
            raise TransactionMisuse("this transaction is over; begin a new one")
        self._db._begin(self)
        try:
            session = self._db._store.write(self._timeout, self._purpose)
            self._session = session.__enter__()
            if self._rehearses:
                session.rehearse()
            if self._request is not None:
                self._request_key = self._db._secrets.request(self._request)
                self._known = request.find(session.snapshot, self._request_key)
            self._before = int.from_bytes(session.state["digest"], "little")
            self._samples_digest = self._before
            self._begun = True
        except BaseException:
            self._leave(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        except BaseException as failure:
            self._let_go(type(failure), failure, failure.__traceback__)
            raise
        else:
            # After a commit there is nothing to let go of; a transaction that only looked must not stay ahead.
            self._let_go(kind, error, trace)

    def add(self, X: Any, y: Any, ids: Any = None, subjects: Any = None) -> npt.NDArray[np.uint64]:
        """Add samples; returns their ids, assigned in sequence if none are given.

        Samples of forgotten subjects may be left out, and have no id then: see `Database.suppress`."""
        session, settings = self._open(), self._db._settings
        rows = inputs.features(X, settings.n_features, settings.feature_names)
        targets = inputs.targets(y, len(rows), settings)
        names = inputs.subjects(subjects, len(rows))
        given = None if ids is None else inputs.ids(ids, len(rows))
        self._ask("add", rows, targets, names, given)
        hashes = [self._db._secrets.subject(name) if name else b"" for name in names] if names else [b""] * len(rows)
        kept = self._welcome(hashes) if names else None
        if kept is not None:
            rows, targets, hashes = rows[kept], targets[kept], [hashes[row] for row in kept]
            given = None if given is None else given[kept]
        if self._known is not None:
            return self._replay_ids(len(rows)) if given is None else given
        chosen = self._assign(len(rows)) if given is None else given
        self._refuse_living(chosen)
        state = session.state
        inputs.refuse_too_much(settings, state["samples"] + len(rows), state["targets"] + int(np.abs(targets).sum()))
        if not len(rows):
            return chosen
        slots = session.reserve(len(rows))
        session.write_rows(slots, chosen, targets, rows)
        for id, slot, subject in zip(chosen.tolist(), slots.tolist(), hashes, strict=True):
            self._changed[id] = Live(slot, subject)
            self._wanted.come[slot] = None
        self._added += len(rows)
        self._ids.extend(chosen.tolist())
        session.state["next_id"] = max(session.state["next_id"], min(int(chosen.max()) + 1, inputs.LAST_ID))
        self._samples_digest = (self._samples_digest + self._db._secrets.samples(chosen, targets, rows)) % MODULUS
        self._count(len(rows), targets)
        return chosen

    def remove(self, ids: Any) -> int:
        """Remove samples by id; returns how many. An unknown id raises SampleNotFound and changes nothing."""
        self._open()
        numbers = inputs.ids(ids)
        self._ask("remove", numbers)
        if self._known is not None:
            return len(numbers)
        found = self._find(numbers.tolist())
        for id, live in found.items():
            if live is None:
                confirm_index(self._open().snapshot)
                raise SampleNotFound(f"sample {id} is not in '{self._db.path}'")
        mine = {id: live for id, live in found.items() if live is not None}
        subjects = {live.subject for live in mine.values() if live.subject}
        if subjects:
            self._refuse_held(subjects)
        self._take_away(mine)
        return len(numbers)

    def forget(self, subject: Any) -> int:
        """Remove all samples of one subject; returns how many. A subject without samples raises SampleNotFound."""
        session = self._open()
        name = inputs.one_subject(subject)
        self._ask("forget", name)
        if self._known is not None:
            return 0
        removed = self._forget(self._db._secrets.subject(name))
        if not removed:
            session.snapshot.confirm("subjects")
            confirm_index(session.snapshot)
            raise SampleNotFound(f"no sample of this subject is in '{self._db.path}'")
        return removed

    def _forget(self, hashed: bytes) -> int:
        """Remove all samples of the subject with this hash, if there are any; returns how many."""
        session = self._open()
        self._refuse_held({hashed})
        session.snapshot.confirm_pages("subjects")  # or a page that lost records would have us forget only some of them
        first, last = layout.subject_range(hashed)
        stored = [layout.parse_subject_key(key)[1] for key, _ in session.snapshot.scan("subjects", first, last)]
        changed = self._changed.items() if self._added else ()  # else all of them are gone: a long list stays linear
        own = [id for id, live in changed if live is not None and live.subject == hashed]
        candidates = self._find(sorted({*stored, *own}))
        mine = {id: live for id, live in candidates.items() if live is not None and live.subject == hashed}
        if mine:
            self._take_away(mine)
        self._subjects.append(hashed)
        holds.drop(session, hashed)
        return len(mine)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Class frequencies as they would be after a commit."""
        return self._db._proba(self._answer, X)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predictions as they would be after a commit."""
        return self._db._decide(self._answer, X)

    def _answer(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        session = self._open()
        with self._db._gate.alone():
            self._apply()
            with self._db._view.within(session.snapshot):
                return self._db._view.predict(rows)

    # What is wanted

    def _ask(self, verb: str, *parts: Any) -> None:
        """Note a call, if somebody may ask for the same again."""
        if self._request is not None:
            self._asked.note(verb, *parts)

    def _find(self, ids: list[int]) -> dict[int, Live | None]:
        """Where samples live, as this transaction sees it."""
        unseen = [id for id in ids if id not in self._changed]
        stored = self._open().snapshot.get("samples", map(layout.id_key, unseen))
        fresh = {
            id: None if payload is None else Live(int.from_bytes(payload[:4], "little"), payload[4:20])
            for id, payload in zip(unseen, stored, strict=True)
        }
        return {id: fresh[id] if id in fresh else self._changed[id] for id in ids}

    def _welcome(self, hashes: list[bytes]) -> list[int] | None:
        """Rows that are left when those of forgotten subjects are taken out, or None for all; raises if the store
        refuses such rows."""
        session = self._open()
        rows = suppression.unwelcome(session.snapshot, session.state, hashes, self._subjects)
        if not rows:
            return None
        if self._known is None:
            if suppression.mode(session.state) == suppression.REFUSE:
                raise suppression.refusal(self._db.path, f"row {rows[0]}")
            self.skipped += len(rows)
            self._entry["skipped"] = self.skipped
        return sorted(set(range(len(hashes))).difference(rows))

    def _refuse_held(self, subjects: set[bytes]) -> None:
        if self._heeds_holds:
            holds.refuse_held(self._open().snapshot, subjects)

    def _take_away(self, found: dict[int, Live]) -> None:
        session = self._open()
        slots = np.array([live.slot for live in found.values()], np.uint32)
        ids = np.array(list(found), np.uint64)
        with in_words(self._db.path):
            X, y = read_rows(session.snapshot, slots, ids, self._db._settings.n_features)
        self._wanted.gone.append(self._known_to_trees(Samples(ids, X, y, slots, np.full(slots.size, -1, np.int8))))
        for id, live in found.items():
            session.delete("samples", layout.id_key(id))
            if live.subject:
                session.delete("subjects", layout.subject_key(live.subject, id))
            self._wanted.come.pop(live.slot, None)
            self._changed[id] = None
            self._removed_hashes.append(self._db._secrets.id(id))
        session.release(slots)
        self._removed += len(found)
        self._samples_digest = (self._samples_digest - self._db._secrets.samples(ids, y, X)) % MODULUS
        self._count(-len(found), y)

    def _known_to_trees(self, gone: Samples) -> Samples:
        """Those of these samples that do not still wait to come."""
        come = self._wanted.come
        if not come:
            return gone
        known = np.array([slot not in come for slot in gone.slots.tolist()], bool)
        return Samples(*(column[known] for column in gone))

    def _assign(self, count: int) -> npt.NDArray[np.uint64]:
        first = int(self._open().state["next_id"])
        if first + count > inputs.LAST_ID:
            raise InvalidInput("there are no ids left to assign behind the largest one; pass ids=")
        self._assigned.append([first, count])
        return np.arange(first, first + count, dtype=np.uint64) if count else np.empty(0, np.uint64)

    def _replay_ids(self, count: int) -> npt.NDArray[np.uint64]:
        assert self._known is not None
        place = len(self._assigned)
        first, size = self._known.assigned[place] if place < len(self._known.assigned) else (0, count)
        self._assigned.append([first, size])
        return np.arange(first, first + size, dtype=np.uint64)

    def _refuse_living(self, ids: npt.NDArray[np.uint64]) -> None:
        for row, (id, live) in enumerate(self._find(ids.tolist()).items()):
            if live is not None:
                raise SampleExists(
                    f"row {row}: sample {id} is already in '{self._db.path}'; remove it first or choose another id"
                )

    def _count(self, samples: int, targets: npt.NDArray[np.int64]) -> None:
        """Note that there are so many samples more, with these targets, or less."""
        state = self._open().state
        state["samples"] += samples
        if self._db._settings.n_classes == 0:
            sum_of = int(np.abs(targets).sum())
            state["targets"] += sum_of if samples > 0 else -sum_of

    # What becomes of it

    def _apply(self) -> None:
        """Bring the forest in memory up to date with what is wanted so far."""
        wanted, self._wanted = self._wanted, Wanted()
        session, view = self._open(), self._db._view
        with view.within(
            session.snapshot
        ) as forest:  # also if nothing changes: the commit is noted on top of this snapshot
            changes = wanted.gone
            if wanted.come:
                slots = np.array(list(wanted.come), np.uint32)
                X, y, ids = gathered_rows(session.snapshot, slots, self._db._settings.n_features)
                changes.append(Samples(ids, X, y, slots, np.ones(slots.size, np.int8)))
            samples = together(changes)
            if samples is None or not samples.ids.size:
                return
            effect = forest.change(samples, session.number)
        before = self._effect
        self._effect = Effect(
            max(before.trees, effect.trees),
            before.visited + effect.visited,
            before.voided + effect.voided,
            before.tagged + effect.tagged,
            before.resplit + effect.resplit,
        )

    def _finish(self) -> None:
        session = self._open()
        if self._known is not None:
            if self._known.asked != self._db._secrets.request(self._asked.digest()):
                raise RequestConflict("this request id was used before for something else; use a new one")
            entry = request.entry_at(session.snapshot, self._known.sequence)
            self.receipt = receipt_of(
                entry, tuple(id for first, size in self._assigned for id in range(first, first + size))
            )
            return
        if not self._added and not self._removed and self._request is None and not self._entry:
            return
        with self._db._gate.alone():
            self._apply()
            self._db._settle_small(session)
            entry = self._note()
            self._db._view.write_to(session)
            session.commit()
            self._db._view.committed(session.snapshot, self._db._cache_bytes)
        self.receipt = receipt_of(entry, tuple(self._ids))

    def _note(self) -> dict[str, Any]:
        """Prepare everything but the trees."""
        session, state = self._open(), self._open().state
        for id, live in self._changed.items():
            if live is not None:
                session.put("samples", layout.id_key(id), live.slot.to_bytes(4, "little") + live.subject)
                if live.subject:
                    session.put("subjects", layout.subject_key(live.subject, id), b"")
        after = self._samples_digest.to_bytes(16, "little")
        state["digest"] = after
        entry = session.append_ledger(
            {
                "time": now(),
                "kind": "change",
                "added": self._added,
                "removed": self._removed,
                "samples": state["samples"],
                "trees": self._effect.trees,
                "nodes": self._effect.visited,
                "tagged": self._effect.tagged,
                "digest_before": self._before.to_bytes(16, "little"),
                "digest_after": after,
                "removed_ids": self._removed_hashes,
                "subjects": self._subjects,
                "request": None if self._request is None else self._request_key,
                **self._entry,
            }
        )
        if suppression.mode(state) != suppression.OFF:
            for subject in self._subjects:
                suppression.put(session, subject)
        if self._request is not None:
            known = request.Known(entry["sequence"], self._asked.digest(), self._assigned)
            session.put("requests", self._request_key, request.note(known, self._db._secrets))
        return entry

    def _plan(self) -> Plan:
        """What the commit would be; the caller rolls back."""
        begun = time.perf_counter()
        with self._db._gate.alone():
            self._apply()
            self._db._settle_small(self._open())
            changed = changed_records(self._db._view.forest)
            written = changed.nodes.ends.size + changed.buckets.ends.size
            return Plan(
                added=self._added,
                removed=self._removed,
                trees=self._effect.trees,
                nodes=self._effect.visited,
                tagged=self._effect.tagged,
                resplit=self._effect.resplit,
                voided=self._effect.voided,
                records=written,
                bytes=changed.nodes.values.size + changed.buckets.values.size,
                seconds=round(time.perf_counter() - begun + COMMIT_SECONDS + RECORD_SECONDS * written, 4),
            )

    def _roll_back(self) -> None:
        if self._session is not None and self._db._view.changing:
            with self._db._gate.alone():
                self._db._view.roll_back(self._session.snapshot)

    def _let_go(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Roll back, and leave; interrupted, without a working set, because what is in it is nobody's."""
        try:
            self._roll_back()
        except BaseException:
            with self._db._gate.alone():
                self._db._view.forget()
            self._leave(kind, error, trace)
            raise
        self._leave(kind, error, trace)

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        try:
            if session is not None:
                session.__exit__(kind, error, trace)
        finally:
            self._db._end(self)

    def _open(self) -> WriteSession:
        if self._session is None:
            raise TransactionMisuse("this transaction is not open; use it inside its 'with' block")
        return self._session
