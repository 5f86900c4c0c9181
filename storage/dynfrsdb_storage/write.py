"""The write session: one writer, everything or nothing.

    with store.write(purpose="remove") as session:
        session.snapshot ...            the newest commit, nobody can change it now
        session.put(...); session.delete(...); session.release(slots)
        number = session.commit()

Changes are collected in memory. `commit` makes them durable in this order, and each step may be the last one that
happens:

    1. rows.bin is synced         rows of new samples lie in reserved slots: nobody looks at them yet
    2. one LMDB transaction       the moment of truth: everything becomes visible and durable at once
    3. LOCK notes the number      from here on an older store is refused as rolled back
    4. removed rows are zeroed    if no reader could still look at them; else a later session does it (erasing.py)

Died before 2: the reserved slots are dirty, the next session zeroes them. Died after 2: the change stands. Died in 4:
the slots are still on `pending`, the next session zeroes them again.

If LMDB's map is full, the transaction is run again as a whole with a larger one; it can be, because all its input is
here.

Not done here: which records to write. That is the business of the layers above.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

import lmdb

from dynfrsdb_storage import ages, formats, layout, ledger, records, stages
from dynfrsdb_storage.directory import other_generations, switch_current
from dynfrsdb_storage.errors import ClosedStore, CorruptStore
from dynfrsdb_storage.failpoints import failpoint
from dynfrsdb_storage.generation import damaged_free_list
from dynfrsdb_storage.locks import WriterLock
from dynfrsdb_storage.planned import Cuts, Planned, counter_places
from dynfrsdb_storage.read import Snapshot
from dynfrsdb_storage.rehearsal import Rehearsal
from dynfrsdb_storage.retire import retire_unfinished
from dynfrsdb_storage.rows import ranges_of
from dynfrsdb_storage.slots import Claim, Pending, clean_window, insert_ranges, pending_ranges

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dynfrsdb_storage.store import Store
else:
    from dynfrsdb_storage import lazynumpy as np


class WriteSession:
    """The writer lock of a store and the changes that are being prepared under it; a context manager."""

    def __init__(self, store: Store, timeout: float, purpose: str) -> None:
        self._store = store
        self._timeout = timeout
        self._purpose = purpose
        self._lock: WriterLock | None = None
        self._pid = os.getpid()
        self._in_doubt = False
        self._broken = ""

    def __enter__(self) -> WriteSession:
        self._lock = WriterLock.acquire(self._store.path, self._timeout, self._purpose, self._store.lock_files)
        try:
            self._generation = self._store.current(writable=True)
            self.snapshot = Snapshot(self._generation, self._store.loads)
            if self.snapshot.commit < self._lock.acknowledged:
                raise rolled_back(str(self._store.path), self.snapshot.commit, self._lock.acknowledged)
            self._refuse_damaged_free_list(self._lock.free_sum(self.snapshot.place))
            self._rows = self._generation.row_writer()
            self._generation.space.keep(self.snapshot.end)
            self._pending: dict[bytes, Pending] = {}
            if formats.is_read(self._generation.identity):
                self._clean_up()
                self._pending = self._still_pending()
            self._start_over()
            self._erase()
        except BaseException:
            self._leave(in_order=not self._lock.abandoned)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is None or self._pid != os.getpid():
            return
        in_order = not self._in_doubt
        try:
            if in_order and self._written:
                in_order = False
                self._take_back_rows()
                in_order = True
        finally:
            self._leave(in_order)

    @property
    def number(self) -> int:
        """The number that the next `commit` will have (`reserve` may have to commit, and raise it, before that)."""
        return self.snapshot.commit + 1

    @property
    def unerased(self) -> int:
        """How many removed rows are not overwritten yet, because a reader might still look at them."""
        self._generation.erasing.wait()
        done = self._generation.erasing.done()
        return sum(there.size for key, there in self._pending.items() if key not in done)

    @property
    def owes(self) -> bool:
        """Whether removals have reached a stage that the ledger does not tell yet; any commit adds it."""
        return self.has_erased or stages.erased(self.state, self._old_generations()) is not None

    @property
    def has_erased(self) -> bool:
        """Whether removed rows were overwritten and no commit has noted it; waits until the disk has them."""
        self._generation.erasing.wait()
        return not self._generation.erasing.done().isdisjoint(self._pending)

    def rehearse(self) -> None:
        """From here on write no row to the disk: nothing can be committed, only tried."""
        self._check()
        generation, slots = self._generation, int(self.snapshot.state["slots"])
        file = generation.directory / layout.ROWS_FILE
        self.snapshot.rehearsal = Rehearsal(file, generation.store, slots, self._rows)

    def reserve(self, n: int) -> npt.NDArray[np.uint32]:
        """`n` slots to write rows into; those that get no row by the next commit stay reserved."""
        self._check()
        if self.snapshot.rehearsal is not None:
            return self.snapshot.rehearsal.reserve(n)
        state, total = self.snapshot.state, self._claim.count + n
        if total > state["window"] or total > state["reserved"]:
            self._enlarge_reservation(total)
        return self._claim.take(self.snapshot, n)

    def write_rows(self, slots: layout.Array, ids: layout.Array, ys: layout.Array, x: layout.Array) -> None:
        """Write rows into slots that `reserve` gave; a map of the file shows them at once."""
        self._check()
        slots = np.asarray(slots, np.uint32)
        columns = slots, np.asarray(ids, np.uint64), np.asarray(ys, np.int64), np.asarray(x, np.float32)
        if self.snapshot.rehearsal is not None:
            self.snapshot.rehearsal.write(*columns)
            return
        if not self._claim.holds(slots):
            raise ValueError("rows may be written only into slots that this session has reserved")
        self._written.append(slots)
        self._rows.write(*columns)

    def put(self, database: str, key: bytes, payload: bytes) -> None:
        """Write one record with the next commit."""
        self._puts[database][key] = records.pack(database, key, payload)

    def put_many(self, database: str, pairs: Iterable[tuple[bytes, records.Payload]]) -> None:
        """Write many (key, payload) with the next commit; payloads are copied."""
        self._puts[database].update(records.pack_many(database, pairs))

    def put_sealed(self, database: str, sealed: records.Sealed) -> None:
        """Write many records with the next commit that were packed elsewhere, byte for byte as by `records.pack`."""
        self._puts[database].update(zip(*records.cut_apart(sealed), strict=True))

    def delete(self, database: str, key: bytes) -> None:
        """Delete one record, if it is there, with the next commit; deletes come before puts."""
        self.delete_range(database, key, key)

    def delete_range(self, database: str, first: bytes, last: bytes) -> None:
        """Delete all records with first <= key <= last with the next commit; deletes come before puts."""
        self.delete_ranges(database, [(first, last)])

    def delete_ranges(self, database: str, ranges: Sequence[tuple[bytes, bytes]]) -> None:
        """The same for many (first, last)."""
        self._cuts.setdefault(database, []).extend(ranges)

    def put_roots(self, chunk: int, stamps: layout.Array, n: layout.Array, tags: layout.Array) -> None:
        """Set stamp, n and the flag "tags below" of the roots of trees 128*chunk and up with the next commit."""
        self.put("roots", layout.roots_key(chunk), records.roots_payload(stamps, n, tags))

    def release(self, slots: layout.Array) -> None:
        """Give up the slots of removed samples with the next commit; their rows are overwritten after it."""
        self._released.append(np.asarray(slots, np.uint32))

    def append_ledger(self, entry: ledger.Entry) -> ledger.Entry:
        """Add an entry to the ledger with the next commit; returns it with its sequence, prev and hash."""
        return self._append_ledger(self.state, entry)

    def _append_ledger(self, state: dict[str, Any], entry: ledger.Entry) -> ledger.Entry:
        linked = ledger.link(entry, state["sequence"] + 1, state["head"])
        state.update(sequence=linked["sequence"], head=linked["hash"])
        self.put("ledger", layout.sequence_key(linked["sequence"]), records.frame(linked))
        return linked

    def commit(self) -> int:
        """Make everything durable and visible at once; returns the number of the commit."""
        self._check()
        if self.snapshot.rehearsal is not None:
            raise ValueError("a rehearsal cannot be committed")
        plan = self._plan()
        self.snapshot.look_before_writing(plan.places())
        if len(plan.written) or plan.grown:
            self._sync_rows()
        room = self.snapshot.room_for(plan.writes)
        self._make_durable(lambda txn: plan.apply(txn, self._generation.databases, room), plan.state, rows_go_live=True)
        for key in plan.cleared:
            del self._pending[key]
        self._generation.erasing.forget(plan.cleared)
        self._pending.update(plan.removed)
        self.snapshot.kept["pending"] = dict(self._pending)
        self._start_over()
        self._broken = ""
        self._erase()
        return self.snapshot.commit

    def move_to(self, generation: str, number: int) -> None:
        """Make another generation the live one: it is complete, synced, and begins with commit `number`. The session is
        over then."""
        self._check()
        assert self._lock is not None
        switch_current(self._store.path, generation)
        failpoint("vacuum-switched")
        self._lock.acknowledge(number)
        self._broken = "another generation is live"

    def _start_over(self) -> None:
        """Empty buffers on top of the newest commit."""
        self._puts: dict[str, dict[bytes, bytes]] = {name: {} for name in layout.DATABASES}
        """Packed records, by database and key."""
        self._cuts: Cuts = {}
        self._written: list[npt.NDArray[np.uint32]] = []
        self._released: list[npt.NDArray[np.uint32]] = []
        self._claim = Claim()
        self.state: dict[str, Any] = dict(self.snapshot.state)

    def _plan(self) -> Planned:
        """Everything the LMDB transaction needs, so that it can be run as often as it takes. The session's own state
        stays as it is: if the transaction fails, the next attempt makes the same plan."""
        number, before, state = self.number, self.snapshot.state, dict(self.state)
        written, released = _union(self._written), _union(self._released)
        done = self._generation.erasing.done()
        cleared = {key: there for key, there in self._pending.items() if key in done}
        change = int(state["sequence"])
        removed = {layout.pending_key(number, at): Pending(at, count, change) for at, count in ranges_of(released)}
        self._note_stages(state, cleared, removed)
        back = sum(there.size for there in cleared.values())
        left = before["reserved"] - len(written) + back
        grown = self._top_up(left)
        kept = {
            "commit": number,
            "slots": before["slots"] + grown,
            "reserved": left + grown,
            "pending": before["pending"] - back + len(released),
            "window": layout.MIN_RESERVED,
            "times": ages.noted(before.get("times", b""), number, time.time()),
        }
        state.update(kept)
        self.put("meta", layout.META_STATE, records.frame(state))
        noted = [(key, records.pending_payload(there.size, there.sequence)) for key, there in removed.items()]
        self.put_many("pending", noted)
        puts = {name: (sorted(values), values) for name, values in self._puts.items() if values}
        slots = int(before["slots"])
        return Planned(state, self._cuts, puts, self._claim, written, cleared, removed, slots, grown)

    def _note_stages(self, state: dict[str, Any], cleared: dict[bytes, Pending], removed: dict[bytes, Pending]) -> None:
        """Add to the ledger what removals have reached since the last commit (stages.py)."""
        left = [there for key, there in self._pending.items() if key not in cleared]
        entries = (
            stages.rows_erased(state, [there.sequence for there in (*left, *removed.values())]) if cleared else None,
            stages.erased(state, self._old_generations()),
        )
        for entry in entries:
            if entry is not None:
                self._append_ledger(state, entry)
                state.update(stages.reached(state, entry))

    def _old_generations(self) -> list[str]:
        """Generations that are there beside the live one; only looked for if a vacuum was made."""
        if not stages.is_vacuumed(self.state):
            return []
        return other_generations(self._store.path, self._generation.directory.name)

    def _top_up(self, left: int) -> int:
        """Extend rows.bin if a commit would leave too few reserved slots; returns by how many slots."""
        if left >= layout.MIN_RESERVED:
            return 0
        grown = 2 * layout.MIN_RESERVED - left
        failpoint("reservation-grow")
        self._rows.grow(self.snapshot.state["slots"] + grown)
        return grown

    def _enlarge_reservation(self, total: int) -> None:
        """Commit a reservation of which this session may use `total` slots; its own changes wait."""
        before = self.snapshot.state
        grown = max(0, total - before["reserved"])
        failpoint("reservation-grow")
        if grown:
            self._rows.grow(before["slots"] + grown)
            self._sync_rows()
        self.snapshot.look_before_writing(counter_places())
        kept = {
            "commit": self.number,
            "slots": before["slots"] + grown,
            "reserved": before["reserved"] + grown,
            "window": max(layout.MIN_RESERVED, total),
            "times": ages.noted(before.get("times", b""), self.number, time.time()),
        }
        after = {**before, **kept}

        def apply(txn: lmdb.Transaction) -> None:
            if grown:
                insert_ranges(txn, self._generation.databases["reserved"], [(before["slots"], grown)])
            value = records.pack("meta", layout.META_STATE, records.frame(after))
            txn.put(layout.META_STATE, value, db=self._generation.databases["meta"])

        self._make_durable(apply, after, rows_go_live=False)
        self.state.update(kept)
        self._claim.follow(self.snapshot)
        self._broken = ""

    def _make_durable(
        self, apply: Callable[[lmdb.Transaction], None], state: dict[str, Any], rows_go_live: bool
    ) -> None:
        """Commit a transaction that leaves the counters at `state`."""
        self._broken = "a commit of it failed"
        try:
            self._generation.transact(apply, self._doubt)
        except BaseException:
            if not self._in_doubt:
                self._broken = ""  # certainly nothing happened: the session may go on or try again
            raise
        # The rows are the store's from here on. Until that is noted we stay in doubt: a roll-back must not zero them.
        if rows_go_live:
            self._written = []
        self._in_doubt = False
        self._acknowledge(state)
        failpoint("acknowledge-after")
        self._generation.space.keep(self.snapshot.end)

    def _acknowledge(self, state: dict[str, Any]) -> None:
        """Move to the commit that was just made, and note in LOCK that it is durable, whatever else goes wrong."""
        assert self._lock is not None
        free_at = free_sum = 0
        try:
            self.snapshot.renew(state)
            with suppress(CorruptStore):  # the change stands; the next session says what is wrong
                free_at, free_sum = self.snapshot.place, self.snapshot.free_sum()
        finally:
            self._lock.acknowledge(state["commit"], free_at, free_sum)

    def _doubt(self, committing: bool) -> None:
        self._in_doubt = committing

    def _refuse_damaged_free_list(self, noted: int | None) -> None:
        """Raise if LMDB's list of free pages is not as the last writer left it: LMDB would overwrite what is on it."""
        if not self.snapshot.has_looked and self.snapshot.free_sum() != noted and noted is not None:
            raise damaged_free_list(str(self._store.path), "it is not as the last writer left it")

    def _sync_rows(self) -> None:
        failpoint("rows-sync-before")
        self._rows.sync()
        failpoint("rows-sync-after")

    def _clean_up(self) -> None:
        """What the first session of a process owes, and the session after one that died: no dirty reserved slot."""
        assert self._lock is not None
        if self._lock.abandoned or not self._generation.cleaned:
            clean_window(self.snapshot, self._rows)
            retire_unfinished(self._store.path)
            self._generation.cleaned = True

    def _still_pending(self) -> dict[bytes, Pending]:
        """The slots on `pending`; who has just made the newest commit knows them."""
        if not self.snapshot.state["pending"]:
            return {}
        known: dict[bytes, Pending] | None = self.snapshot.kept.get("pending")
        return pending_ranges(self.snapshot) if known is None else dict(known)

    def _erase(self) -> None:
        """Zero the rows of removed samples that no reader can look at any more. A disk error leaves them for later."""
        if not self._pending:
            return
        begun = self._generation.erasing.begun()
        waiting = {key: there for key, there in self._pending.items() if key not in begun}
        if not waiting:
            return
        oldest = self._generation.oldest(self.snapshot.transaction)
        behind = self.snapshot.commit - self.snapshot.transaction
        ripe = {key: there for key, there in waiting.items() if layout.parse_pending_key(key)[0] - behind <= oldest}
        try:
            for start, count, _ in ripe.values():
                self._rows.zero(start, count)
                failpoint("erase-middle")
        except OSError:
            return
        if ripe:
            self._generation.erasing.sync(ripe, self._rows.sync)

    def _take_back_rows(self) -> None:
        for slots in self._written:
            for start, count in ranges_of(np.sort(slots)):
                self._rows.zero(start, count)

    def _leave(self, in_order: bool) -> None:
        lock, self._lock = self._lock, None
        try:
            if hasattr(self, "snapshot"):
                if self.snapshot.rehearsal is not None:
                    self.snapshot.rehearsal.close()
                self.snapshot.close()
        finally:
            if lock is not None:
                lock.release(in_order)

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ClosedStore(f"this session on '{self._store.path}' belongs to the parent process; begin a new one")
        if self._lock is None:
            raise ClosedStore(f"this session on '{self._store.path}' is over; begin a new one")
        if self._broken:
            raise ClosedStore(f"this session on '{self._store.path}' cannot go on ({self._broken}); begin a new one")


def _union(parts: list[npt.NDArray[np.uint32]]) -> npt.NDArray[np.uint32]:
    """All slots of some lists, ascending."""
    slots = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0, np.uint32)
    return np.unique(slots) if slots.size > 1 else slots


def rolled_back(store: str, commit: int, acknowledged: int) -> CorruptStore:
    """The error for a store that is older than what was acknowledged."""
    return CorruptStore(
        f"'{store}' was rolled back: it is at commit {commit}, but commit {acknowledged} was acknowledged. Put the "
        "newest data back; if this old copy is what you want, empty the file LOCK in it"
    )
