"""Snapshots: one committed state of a store, fixed, for as long as it is held.

A snapshot is an LMDB read transaction. It costs well under a microsecond to begin, it never waits for the writer, and
the writer never waits for it. What it does cost is paid by others: LMDB cannot reuse pages, and the writer cannot
erase removed rows, as long as an older snapshot might look at them. So hold one briefly.

Every record is copied out of the map and its checksum checked before anyone sees it, but for `near` and `scan_raw`,
whose callers check for themselves; no memory of LMDB leaves this module.

"Not there" is an answer, too, and LMDB's own pages have no checksum: a flipped bit in a branch page sends a search to
the wrong leaf, where it finds nothing. So a key counts as missing only between two good records that bracket it:

    ... 68 69 | 71 72 ...    70 is not there: 69 < 70 < 71, and both pass their checksums
    ... 98 99 | 100 ...      a search for 70 that ends up here was misled

A scan, likewise, must come in ascending order, and begin and end at a good record. What this cannot see is a page that
lost records at its end; `confirm` counts.

A snapshot is for one thread at a time.
"""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Any

import lmdb

from dynfrsdb_storage import layout, records
from dynfrsdb_storage.before_writing import Places
from dynfrsdb_storage.env import translate
from dynfrsdb_storage.errors import ClosedStore, CorruptStore, Error
from dynfrsdb_storage.generation import Generation, share
from dynfrsdb_storage.rehearsal import Rehearsal
from dynfrsdb_storage.rows import RowFile

if TYPE_CHECKING:
    import numpy as np
else:
    from dynfrsdb_storage import lazynumpy as np

_SCANNED_AT_ONCE = 256
_LONGEST_KEY = 511
"""Of any LMDB record."""


class Snapshot:
    """A read transaction on one generation; a context manager."""

    def __init__(self, generation: Generation, loads: dict[str, int]) -> None:
        self._lock = threading.Lock()
        self._loads = loads
        self._ended = ""
        self.rehearsal: Rehearsal | None = None
        """What is tried on top of this snapshot, by the session that it belongs to."""
        with generation.gate:
            self._txn: lmdb.Transaction | None
            self._txn, self._known = generation.begin()
            self.generation = share(generation)
            generation.snapshots.add(self)

    @property
    def commit(self) -> int:
        """The number of the commit that this snapshot shows."""
        return int(self.state["commit"])

    @property
    def state(self) -> dict[str, Any]:
        """The store's counters."""
        state: dict[str, Any] | None = None if self._ended else self._known.kept.get("state")
        if state is None:
            payload = self.get("meta", [layout.META_STATE])[0]
            if payload is None:
                raise CorruptStore(f"'{self.generation.store}' has lost its counters; restore it from a backup")
            state = self.kept["state"] = records.unframe(payload)
        return state

    @property
    def kept(self) -> dict[str, Any]:
        """What is known of this commit to all its snapshots in this process."""
        return self._known.kept

    @property
    def settings(self) -> dict[str, Any]:
        """What was fixed when the store was created."""
        return self.generation.settings

    @property
    def transaction(self) -> int:
        """LMDB's number of this snapshot's commit."""
        return self._known.transaction

    @property
    def place(self) -> int:
        """LMDB's number of this snapshot's commit together with the generation's: unique in the life of a store."""
        return self.generation.number << 48 | self.transaction

    @property
    def end(self) -> int:
        """Where the last page of data.mdb ends."""
        return self._known.end

    @property
    def ended(self) -> bool:
        """Whether this snapshot is over: rows read since may have been erased meanwhile, so ask the newest commit."""
        return bool(self._ended) or self.generation.pid != os.getpid()

    @property
    def rows(self) -> RowFile:
        """The rows, mapped at least as far as this snapshot has slots; look at them only while the snapshot is open."""
        tried = None if self.rehearsal is None else self.rehearsal.rows
        return self.generation.rows(int(self.state["slots"])) if tried is None else tried

    def get(self, database: str, keys: Iterable[bytes]) -> list[bytes | None]:
        """The payloads of `keys`, checked and owned; None for a key that is not there."""
        found: list[bytes | None] = []
        loaded, keys = 0, list(keys)
        self._check_process()
        self.generation.look_for(self._known, database, keys)
        with self._lock:
            get, handle = self._live().get, self.generation.databases[database]
            try:
                for key in keys:
                    value = get(key, db=handle)
                    if value is None:
                        self._prove_missing(database, key)
                        found.append(None)
                        continue
                    payload = records.unpack(database, key, bytes(value))
                    if payload is None:
                        raise self._bad(database, key)
                    found.append(payload)
                    loaded += 1
            except lmdb.Error as error:
                raise translate(error, self.generation.store) from error
        self._loads[database] += loaded
        return found

    def scan(
        self, database: str, first: bytes | None = None, last: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """All (key, payload) with first <= key <= last in key order."""
        begun, unpack = first is None, records.unpack
        for batch in self._batches(database, first, last):
            if not begun:
                begun = True
                self._begins_at(database, first or b"", batch[0][0])
            for key, value in batch:
                payload = unpack(database, key, value)
                if payload is None:
                    raise self._bad(database, key)
                if last is None or key <= last:
                    self._loads[database] += 1
                    yield key, payload
        if not begun:
            self._begins_at(database, first or b"", None)

    def between(self, database: str, ranges: Sequence[tuple[bytes, bytes]]) -> list[dict[bytes, bytes]]:
        """For each (first, last) all payloads with first <= key <= last by their keys, in key order, for who knows how
        many there must be; in one piece."""
        self._check_process()
        for first, last in ranges:
            self.generation.look_ahead(self._known, database, first, last)
        with self._lock:
            try:
                with self._live().cursor(db=self.generation.databases[database]) as cursor:
                    found = [self._between(database, cursor, *ends) for ends in ranges]
            except lmdb.Error as error:
                raise translate(error, self.generation.store) from error
        self._loads[database] += sum(map(len, found))
        return found

    def _between(self, database: str, cursor: lmdb.Cursor, first: bytes, last: bytes) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        item, step, unpack = self._item, cursor.next, records.unpack
        there, before = cursor.set_range(first), b""
        while there:
            key, value = item(database, cursor)
            if key > last:
                break
            if key <= before or key < first:
                raise self._misled(database)
            payload = unpack(database, key, value)
            if payload is None:
                raise self._bad(database, key)
            found[key] = payload
            there, before = step(), key
        return found

    def scan_raw(
        self, database: str, first: bytes | None = None, last: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Like `scan`, but whole values and unchecked: for who reports bad checksums instead of stopping at one."""
        for batch in self._batches(database, first, last):
            for key, value in batch:
                if last is None or key <= last:
                    yield key, value

    def at_or_before(self, database: str, key: bytes) -> tuple[bytes, bytes] | None:
        """The last (key, payload) that is not behind `key`, or None."""
        for there, value in self.near(database, [key])[1].items():
            payload = records.unpack(database, there, value)
            if payload is None:
                raise self._bad(database, there)
            return there, payload
        return None

    def near(self, database: str, keys: Sequence[bytes]) -> tuple[list[bytes | None], dict[bytes, bytes]]:
        """For each of `keys` the key of the last record that is not behind it, or None; and those records, each once,
        by their keys: whole values and unchecked, for who checks many in one go."""
        found: list[bytes | None] = []
        values: dict[bytes, bytes] = {}
        its, behind = b"", b""
        self._check_process()
        self.generation.look_around(self._known, database, keys)
        with self._lock:
            try:
                with self._live().cursor(db=self.generation.databases[database]) as cursor:
                    for key in keys:
                        if its and its <= key < behind:
                            found.append(its)
                            continue
                        behind = bytes(cursor.key()) if cursor.set_range(key) else b""
                        if not (behind == key or (cursor.prev() if behind else cursor.last())):
                            its = b""
                            found.append(None)
                            continue
                        its, value = self._item(database, cursor)
                        values[its] = value
                        found.append(its)
            except lmdb.Error as error:
                raise translate(error, self.generation.store) from error
        self._loads[database] += len(values)
        return found, values

    def count(self, database: str) -> int:
        """How many records a database has; does not look at them."""
        self._check_process()
        with self._lock:
            try:
                return int(self._live().stat(self.generation.databases[database])["entries"])
            except lmdb.Error as error:
                raise translate(error, self.generation.store) from error

    def count_beginnings(self, database: str, size: int) -> int:
        """How many different beginnings of `size` bytes the keys of a database have; walks over all keys."""
        self._check_process()
        self.generation.look_ahead(self._known, database, b"", None)
        return len({key[:size] for key in self._keys(database)})

    def confirm(self, database: str, expected: int | None = None) -> None:
        """Walk over all keys of a database and raise unless there are as many as its own count and `expected` say."""
        self._check_process()
        self.generation.look_ahead(self._known, database, b"", None)
        walked, said = len(self._keys(database)), self.count(database)
        if walked != said or expected not in (None, walked):
            raise self._lost(database, walked, said if expected is None else expected)

    def confirm_pages(self, database: str) -> None:
        """Raise unless the pages of a database have as many records as LMDB has noted; reads no more than headers."""
        self._check_process()
        found, said = self.generation.count(self._known, database)
        if found != said:
            raise self._lost(database, found, said)

    @property
    def has_looked(self) -> bool:
        """Whether this process has made the commits up to this one, and looked at LMDB's pages not long ago."""
        return self.generation.has_looked(self._known)

    def look_before_writing(self, places: Places) -> None:
        """Raise if a write to these places would meet a page that must not be written on."""
        self.generation.look_before_writing(self._known, places)

    def free_sum(self) -> int:
        """The checksum of LMDB's list of free pages."""
        return self.generation.free_list(self._known).check

    def room_for(self, writes: int) -> int:
        """How many free pages in a row LMDB should be asked for, before a commit that writes up to `writes` pages."""
        return self.generation.room_for(self._known, writes)

    def roots(self) -> records.Roots:
        """The (stamps, n, tags) of all trees' roots."""
        trees = self.generation.n_trees
        parts = []
        for i, payload in enumerate(self._roots(range(-(-trees // layout.ROOTS_PER_RECORD)))):
            size = min(layout.ROOTS_PER_RECORD, trees - i * layout.ROOTS_PER_RECORD)
            parts.append(records.parse_roots(payload, size))
        stamps, n, tags = (np.concatenate(column) for column in zip(*parts, strict=True))
        return stamps, n, tags

    def root(self, tree: int) -> tuple[int, int, bool]:
        """The (stamp, n, whether it has tags) of one tree's root."""
        chunk, at = divmod(tree, layout.ROOTS_PER_RECORD)
        size = min(layout.ROOTS_PER_RECORD, self.generation.n_trees - chunk * layout.ROOTS_PER_RECORD)
        return records.parse_root(self._roots([chunk])[0], size, at)

    def _roots(self, chunks: Iterable[int]) -> list[bytes]:
        keys = [layout.roots_key(chunk) for chunk in chunks]
        found = []
        for key, payload in zip(keys, self.get("roots", keys), strict=True):
            if payload is None:
                raise CorruptStore(f"{records.describe('roots', key)} are missing in '{self.generation.store}'")
            found.append(payload)
        return found

    def renew(self, state: dict[str, Any]) -> None:
        """Move to the newest commit, with the counters that it has; only the session that made it does this, and only
        to its own snapshot."""
        with self.generation.gate, self._lock:
            self._live().abort()
            self._txn = None
            self._txn, self._known = self.generation.begin()
            self.kept["state"] = state

    def close(self) -> None:
        """End the snapshot."""
        if self._ended == "closed" or self.generation.pid != os.getpid():
            return
        with self._lock:
            self._ended = "closed"
            self.generation.snapshots.discard(self)
            if self._txn is not None:
                self._txn.abort()
                self._txn = None
        self.generation.release()

    def pause(self) -> None:
        """Give the transaction up while the generation changes its map; `resume` follows and lets go of the lock."""
        self._lock.acquire()
        if self._txn is not None:
            self._txn.abort()
            self._txn = None

    def resume(self) -> None:
        """Go on where we were, if that is still the newest commit; otherwise this snapshot is over."""
        try:
            if self._ended:
                return
            txn, known = self.generation.begin()
            if known is self._known:
                self._txn = txn
            else:
                txn.abort()
                self._ended = "the store's memory map had to grow"
        except Error as error:
            self._ended = str(error)
        finally:
            self._lock.release()

    def __enter__(self) -> "Snapshot":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # A collector may run while this thread or another holds any lock: only note that we are gone. py-lmdb ends the
        # transaction when its object goes, unless a parent process began it.
        if self._ended != "closed" and hasattr(self, "generation"):
            self.generation.dropped.append(None)

    def _check_process(self) -> None:
        """Before any lock is taken: in a child of fork, the lock may be held by a thread that does not exist there."""
        if self.generation.pid != os.getpid():
            raise ClosedStore(
                f"this snapshot of '{self.generation.store}' belongs to the parent process; take a new one"
            )

    def _live(self) -> lmdb.Transaction:
        if self._txn is None or self._ended:
            reason = self._ended or "closed"
            raise ClosedStore(f"this snapshot of '{self.generation.store}' is over ({reason}); take a new one")
        return self._txn

    def _batches(self, database: str, first: bytes | None, last: bytes | None) -> Iterator[list[tuple[bytes, bytes]]]:
        """All records with first <= key <= last, and one behind them if there is one, some at a time."""
        after, inclusive = first or b"", True
        self._check_process()
        self.generation.look_ahead(self._known, database, after, last)
        while batch := self._batch(database, after, inclusive, last):
            yield batch
            after, inclusive = batch[-1][0], False
            if len(batch) < _SCANNED_AT_ONCE or (last is not None and after > last):
                return

    def _batch(self, database: str, after: bytes, inclusive: bool, last: bytes | None) -> list[tuple[bytes, bytes]]:
        """The next records, which must come in ascending order."""
        batch: list[tuple[bytes, bytes]] = []
        self._check_process()
        with self._lock:
            try:
                with self._live().cursor(db=self.generation.databases[database]) as cursor:
                    there = cursor.set_range(after) if after else cursor.first()
                    if there and not inclusive and cursor.key() == after:
                        there = cursor.next()
                    while there:
                        key, value = self._item(database, cursor)
                        if key < after or (key == after and not inclusive):
                            raise self._misled(database)
                        batch.append((key, value))
                        if len(batch) == _SCANNED_AT_ONCE or (last is not None and key > last):
                            break
                        after, inclusive = key, False
                        there = cursor.next()
            except lmdb.Error as error:
                raise translate(error, self.generation.store) from error
        return batch

    def _item(self, database: str, cursor: lmdb.Cursor) -> tuple[bytes, bytes]:
        """The record under a cursor. A place in a damaged page that is no record gives itself away by its key; its
        value must not be asked for, because py-lmdb would touch all of it."""
        key = cursor.key()
        if not 0 < len(key) <= _LONGEST_KEY:
            raise self._misled(database)
        return bytes(key), bytes(cursor.value())

    def _keys(self, database: str) -> list[bytes]:
        """All keys, by walking over them; they must ascend."""
        self._check_process()
        with self._lock:
            try:
                with self._live().cursor(db=self.generation.databases[database]) as cursor:
                    keys = [bytes(key) for key in cursor.iternext(keys=True, values=False)]
            except lmdb.Error as error:
                raise translate(error, self.generation.store) from error
        if any(a >= b for a, b in pairwise(keys)):
            raise self._misled(database)
        return keys

    def _prove_missing(self, database: str, key: bytes) -> None:
        """Raise unless a search for `key` ends between two good records that bracket it; the caller holds the lock."""
        handle = self.generation.databases[database]
        self.generation.look_ahead(self._known, database, key, key)
        with self._live().cursor(db=handle) as cursor:
            behind = self._item(database, cursor) if cursor.set_range(key) else None
            before = self._item(database, cursor) if (cursor.last() if behind is None else cursor.prev()) else None
        if behind is None and before is None and self._live().stat(handle)["entries"]:
            raise self._misled(database)
        for neighbour, fits in ((before, before and before[0] < key), (behind, behind and behind[0] > key)):
            if neighbour is not None:
                if records.unpack(database, *neighbour) is None:
                    raise self._bad(database, neighbour[0])
                if not fits:
                    raise self._misled(database)

    def _begins_at(self, database: str, first: bytes, found: bytes | None) -> None:
        """Raise unless `found` is the first record at or behind `first`."""
        if found != first:
            self._check_process()
            with self._lock:
                try:
                    self._prove_missing(database, first)
                except lmdb.Error as error:
                    raise translate(error, self.generation.store) from error

    def _misled(self, database: str) -> CorruptStore:
        store = self.generation.store
        return CorruptStore(
            f"the pages of '{database}' in '{store}' do not lead where they should; no answer was given. "
            f"Run 'dynfrsdb check {store}'"
        )

    def _lost(self, database: str, found: int, expected: int) -> CorruptStore:
        return CorruptStore(
            f"'{database}' in '{self.generation.store}' has {found} records, there should be {expected}; nothing was "
            f"answered or changed. Run 'dynfrsdb check {self.generation.store}'"
        )

    def _bad(self, database: str, key: bytes) -> CorruptStore:
        store = self.generation.store
        return CorruptStore(
            f"{records.describe(database, key)} in '{store}' fails its checksum; no answer was given. "
            f"Run 'dynfrsdb check {store}'"
        )
