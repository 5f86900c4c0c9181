"""One generation, open in this process.

LMDB may be open only once per process and file. So everything that wants a generation goes through `attach`, which
hands out one shared `Generation` per inode and counts its users; the last `release` closes it.

    Store a --.                       .-- lmdb env, 13 database handles
    Store b ---+--> Generation (inode) +-- lease
    Snapshot --'                      `-- map of rows.bin, settings

Two things end every transaction of the env: growing its map, and turning a read-only env into a writable one. A
generation knows its snapshots, pauses them, and lets each go on if the commit it stands for is still the newest; the
others are over, and say so when they are next used.

After a fork, the child's registry is empty. The parent's env is kept for ever and not touched: its reader table is
shared memory, and a child that closed it would take away its parent's protection.

Not done here: deciding which generation is the live one (directory.py).
"""

import collections
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import lmdb

from dynfrsdb_storage import env as lmdb_env
from dynfrsdb_storage import formats, layout, records
from dynfrsdb_storage.before_writing import BeforeWriting, Places
from dynfrsdb_storage.erasing import Erasing
from dynfrsdb_storage.errors import CorruptStore
from dynfrsdb_storage.failpoints import failpoint
from dynfrsdb_storage.freelist import FreeList, FreeListReader
from dynfrsdb_storage.guard import Guard, Keys, Known
from dynfrsdb_storage.locks import Lease
from dynfrsdb_storage.pages import check_length
from dynfrsdb_storage.rows import RowFile, RowWriter
from dynfrsdb_storage.space import Space
from dynfrsdb_storage.treepages import Unsound

_TRIES = 100
_COUNTED = ("nodes", "buckets")
_registry: dict[tuple[int, int], "Generation"] = {}
_registry_lock = threading.RLock()
_inherited: set[tuple[int, int]] = set()


class Pausable(Protocol):
    """What a generation asks of a snapshot: to give its transaction up, and to try to go on with a new one."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Generation:
    """One open generation; get it with `attach`, give it back with `release`."""

    def __init__(self, store: str, directory: Path, key: tuple[int, int], lease: Lease, writable: bool) -> None:
        self.store = store
        self.directory = directory
        self.number = layout.generation_number(directory.name)
        self.pid = os.getpid()
        self.key = key
        self.users = 1
        self.erasing = Erasing()
        """Keys of `pending` whose slots this process has zeroed: once they are synced, the next commit clears them."""
        self.cleaned = False
        """Whether this process has done what its first transaction owes (write.py)."""
        self.snapshots: weakref.WeakSet[Pausable] = weakref.WeakSet()
        self.gate = threading.RLock()
        """Held while transactions begin and while the map changes; taken before any snapshot's own lock."""
        self.dropped: collections.deque[None] = collections.deque()
        """One entry per user that was collected without being closed; `release` counts them off."""
        self.lease = lease
        self._rows: RowFile | None = None
        self._writer: RowWriter | None = None
        self._guarding = threading.Lock()
        self._known: weakref.WeakValueDictionary[int, Known] = weakref.WeakValueDictionary()
        """By transaction; kept by its snapshots, and the newest one also here."""
        self._newest_known: Known | None = None
        self._guard = Guard(directory / layout.DATA_FILE)
        self._before_writing = BeforeWriting(self._guard)
        self._free_list = FreeListReader(self._guard)
        self.space = Space(directory / layout.DATA_FILE)
        try:
            self._open(writable, ("meta",))
        except BaseException:
            self._guard.close()
            raise
        try:
            self.identity: formats.Identity = self._read_meta(layout.META_FORMAT)
            formats.refuse_unknown(store, self.identity)
            self._open_rest()
            self.settings = self._read_meta(layout.META_SETTINGS)
        except BaseException:
            self.env.close()
            self._guard.close()
            raise
        self.n_features = int(self.settings["n_features"])
        self.n_trees = int(self.settings["n_trees"])

    def begin(self) -> tuple[lmdb.Transaction, Known]:
        """A read transaction on the newest commit, and what is known of its pages."""
        with self.gate:
            for _ in range(_TRIES):
                txn = self._begin()
                known = self._known_of(txn.id())
                if known is not None:
                    return txn, known
                txn.abort()  # two commits came in between: begin again with the newest
        raise CorruptStore(f"LMDB's meta pages in '{self.store}' do not fit; restore the store from a backup")

    def transact(self, apply: Callable[[lmdb.Transaction], None], committing: Callable[[bool], None]) -> int:
        """Run `apply` in a write transaction and commit it durably, growing the map as often as it takes.

        `committing(True)` is called right before the commit: from then on an error or an interrupt leaves it open
        whether the commit happened. `committing(False)` means that it certainly did not. Returns LMDB's number for it.
        """
        while True:
            try:
                with self.translating(lmdb.MapFullError):
                    with self.gate:
                        self.env.reader_check()
                    return self._transact_once(apply, committing)
            except lmdb.MapFullError:
                committing(False)
                failpoint("map-grow")
                self._grow_map()

    def rows(self, slots: int) -> RowFile:
        """A map of rows.bin that reaches at least to `slots`."""
        rows = self._rows
        if rows is None or rows.slots < slots:
            rows = self._rows = RowFile(self.directory / layout.ROWS_FILE, slots, self.n_features, self.store)
        return rows

    def look_ahead(self, known: Known, database: str, first: bytes, last: bytes | None) -> None:
        """Before somebody walks over a range of a database: raise if one of its pages is damaged (guard.py).

        A handle that writes looks less at trees, whose pages every commit replaces: a lost record of theirs is noticed
        by who follows their counts and stamps, and a writer may be stopped by LMDB.
        """
        if database in _COUNTED and self._lets_pass(known, database):
            return
        with self._guarded(database):
            if not (self.writable and database in _COUNTED) or self._guard.has_long(known, database):
                self._guard.look(known, database, first, last)

    def look_for(self, known: Known, database: str, keys: Keys) -> None:
        """Before somebody gets values: raise if the length of a long one is damaged, or a branch on the way. Where none
        is long, a handle that writes looks at nothing: a short value cannot lead out of its page."""
        if self._lets_pass(known, database):
            return
        with self._guarded(database):
            if not self.writable or self._guard.has_long(known, database):
                self._guard.look_for(known, database, keys)

    def look_around(self, known: Known, database: str, keys: Keys) -> None:
        """Like `look_for`, for who may take a neighbour of one of `keys`."""
        if self._lets_pass(known, database):
            return
        with self._guarded(database):
            for key in keys if not self.writable or self._guard.has_long(known, database) else ():
                self._guard.look(known, database, key, key)

    def look_before_writing(self, known: Known, places: Places) -> None:
        """Before a write transaction: raise if what it will change would spread damage (guard.py)."""
        with self._guarding:
            for database in self._before_writing.unsure(known, places):
                try:
                    self._before_writing.look(known, database, *places[database])
                except Unsound as error:
                    raise self._damaged(database, error) from error

    def has_looked(self, known: Known) -> bool:
        """Whether this process has made the commits up to this one, and looked at the pages not long ago."""
        return self._before_writing.looked.is_at(known.transaction)

    def count(self, known: Known, database: str) -> tuple[int, int]:
        """How many records the pages of a database have, and how many LMDB has noted."""
        with self._guarded(database):
            return self._guard.count(known, database)

    def free_list(self, known: Known) -> FreeList:
        """LMDB's list of free pages."""
        with self._guarding:
            try:
                return self._free_list.read(known, trusting=self.has_looked(known))
            except Unsound as error:
                raise damaged_free_list(self.store, str(error)) from error

    def _lets_pass(self, known: Known, database: str) -> bool:
        """Whether a handle that writes is known to need no look at a database, because it has no long values."""
        return self.writable and known.long.get(database) is False

    def _guarded(self, database: str) -> "_Guarded":
        """A block that looks at pages; what is unsound there is raised as damage of a database."""
        return _Guarded(self, database)

    def _damaged(self, database: str, error: Unsound) -> CorruptStore:
        return CorruptStore(
            f"'{database}' in '{self.store}' is damaged ({error}); no answer was given. "
            f"Run 'dynfrsdb check {self.store}'"
        )

    def row_writer(self) -> RowWriter:
        """The writer of rows.bin; only for who holds the writer lock."""
        if self._writer is None:
            self._writer = RowWriter(self.directory / layout.ROWS_FILE, self.n_features)
        return self._writer

    def readers(self) -> list[tuple[int, int]]:
        """The (pid, transaction number) of open read transactions, without those of dead processes."""
        with self.gate, self.translating():
            self.env.reader_check()
            return lmdb_env.readers(self.env)

    def lmdb_info(self) -> dict[str, Any]:
        """What LMDB says of itself; never while another thread replaces the map that this is read from."""
        with self.gate, self.translating():
            return dict(self.env.info())

    def newest(self) -> int:
        """LMDB's number of the newest commit. Every query asks, so this does without `translating`."""
        with self.gate:
            try:
                return int(self.env.info()["last_txnid"])
            except lmdb.Error as error:
                raise lmdb_env.translate(error, self.store) from error

    def free_pages(self) -> int:
        """Pages of data.mdb that hold no tree: the free ones, and those that list them."""
        txn, _ = self.begin()
        with self.gate, txn:
            stats = [self.env.stat(), *(txn.stat(database) for database in self.databases.values())]
            last_page = int(self.env.info()["last_pgno"])
        used = sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
        return int(last_page + 1 - 2 - used)

    def room_for(self, known: Known, writes: int) -> int:
        """How many free pages in a row LMDB should be asked for, before a commit that writes up to `writes` pages."""
        return self.space.room_for(known, self.free_list(known), writes, lambda: self.oldest(known.transaction))

    def oldest(self, transaction: int) -> int:
        """The transaction that the oldest reader looks at; this one, if there is no reader."""
        return min((number for _, number in self.readers()), default=transaction)

    def make_writable(self) -> None:
        """Reopen a read-only env for writing; if that may not be, it stays as it is."""
        with self.gate:
            if self.writable:
                return
            with self._paused():
                self.env.close()
                try:
                    self._open(True, self.databases)
                except BaseException:
                    self._open(False, self.databases)
                    raise

    def release(self) -> None:
        """One user less; the last one closes the generation."""
        if self.pid != os.getpid():
            return
        with _registry_lock:
            self.users -= 1
            while self.dropped:
                self.dropped.pop()
                self.users -= 1
            if self.users:
                return
            _registry.pop(self.key, None)
            self.env.close()
            self.erasing.close()
            if self._writer is not None:
                self._writer.close()
            self._guard.close()
            self.lease.release()

    def translating(self, *but: type[lmdb.Error]) -> lmdb_env.Translating:
        """A block that turns LMDB's errors into ours, `but` those."""
        return lmdb_env.Translating(self.store, but)

    def _open(self, writable: bool, names: Iterable[str]) -> None:
        self._refuse_newer(check_length(self.directory / layout.DATA_FILE, self.store).transaction)
        self.env = lmdb_env.open_env(self.directory, writable, self.store, inherited=self.key in _inherited)
        self.writable = writable
        try:
            self.databases = lmdb_env.open_databases(self.env, self.store, names)
        except BaseException:
            self.env.close()
            raise

    def _refuse_newer(self, transaction: int) -> None:
        """Before anything is mapped: raise if the store has a format that we do not know. Somebody may be writing on
        these pages just now; what makes no sense here is left to who reads it in a transaction."""
        identity: formats.Identity | None = None
        with suppress(Unsound, CorruptStore):
            known = self._guard.begin(transaction)
            value = None if known is None else self._guard.read(known, "meta", layout.META_FORMAT)
            payload = None if value is None else records.unpack("meta", layout.META_FORMAT, value)
            identity = None if payload is None else records.unframe(payload)
        if identity is not None:
            formats.refuse_unknown(self.store, identity)

    def _open_rest(self) -> None:
        """Open the other databases, once the format is known."""
        rest = [name for name in layout.DATABASES if name not in self.databases]
        is_older = self.identity["format"] < layout.FORMAT
        open_them = lmdb_env.open_those_there if is_older else lmdb_env.open_databases
        self.databases |= open_them(self.env, self.store, rest)

    def _read_meta(self, key: bytes) -> dict[str, Any]:
        txn, known = self.begin()
        with self.translating(), txn:
            self.look_for(known, "meta", [key])
            value = txn.get(key, db=self.databases["meta"])
        payload = None if value is None else records.unpack("meta", key, bytes(value))
        if payload is None:
            raise CorruptStore(
                f"{records.describe('meta', key)} in '{self.store}' is missing or fails its checksum; "
                "restore the store from a backup"
            )
        return dict(records.unframe(payload))

    def _transact_once(self, apply: Callable[[lmdb.Transaction], None], committing: Callable[[bool], None]) -> int:
        txn = self._begin_write()
        try:
            apply(txn)
            number = txn.id()
            failpoint("commit-before")
            committing(True)
            txn.commit()
        except BaseException:
            lmdb_env.abort(txn)
            raise
        self._before_writing.looked.committed(number)
        failpoint("commit-after")
        return number

    def _begin(self) -> lmdb.Transaction:
        try:
            return self.env.begin()
        except lmdb.MapResizedError:
            with self.translating():
                self._resize(0)
                return self.env.begin()
        except lmdb.Error as error:
            raise lmdb_env.translate(error, self.store) from error

    def _known_of(self, transaction: int) -> Known | None:
        """What is known of a transaction's pages; None if LMDB's meta pages no longer tell where they begin."""
        with self._guarding:
            known = self._known.get(transaction) or self._guard.begin(transaction)
            if known is not None:
                known.doubt()
                self._known[transaction] = self._newest_known = known
            return known

    def _begin_write(self) -> lmdb.Transaction:
        with self.gate:
            try:
                return self.env.begin(write=True)
            except lmdb.MapResizedError:
                self._resize(0)
                return self.env.begin(write=True)

    def _grow_map(self) -> None:
        with self.gate, self.translating():
            self._resize(2 * int(self.env.info()["map_size"]))

    def _resize(self, size: int) -> None:
        with self._paused():
            self.env.set_mapsize(size)

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """While this lasts no snapshot of this process has a transaction."""
        paused = self._all_snapshots()
        for snapshot in paused:
            snapshot.pause()
        try:
            yield
        finally:
            for snapshot in paused:
                snapshot.resume()

    def _all_snapshots(self) -> list[Pausable]:
        while True:
            try:
                return list(self.snapshots)
            except RuntimeError:
                continue  # one was closed by another thread while we looked


class _Guarded:
    """See `Generation._guarded`. Every change goes through several of these, so they are no generators."""

    __slots__ = ("_database", "_generation")

    def __init__(self, generation: Generation, database: str) -> None:
        self._generation, self._database = generation, database

    def __enter__(self) -> None:
        self._generation._guarding.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._generation._guarding.release()
        if isinstance(error, Unsound):
            raise self._generation._damaged(self._database, error) from error


def attach(store: str, directory: Path, lease: Lease, writable: bool) -> Generation:
    """The generation in `directory`, opened or shared. The lease becomes the generation's, or is given back."""
    with _registry_lock:
        try:
            stat = os.stat(directory / layout.DATA_FILE)
        except FileNotFoundError as error:
            raise CorruptStore(f"'{store}' has lost its file '{layout.DATA_FILE}'; restore it from a backup") from error
        key = (stat.st_dev, stat.st_ino)
        found = _registry.get(key)
        if found is None:
            found = _registry[key] = Generation(store, directory, key, lease, writable)
            return found
        found.users += 1
        lease.release()
    # Not under the registry's lock: whoever takes a snapshot holds the gate first and then wants the registry.
    if writable:
        try:
            found.make_writable()
        except BaseException:
            found.release()
            raise
    return found


def damaged_free_list(store: str, why: str) -> CorruptStore:
    """The error for a list of free pages that LMDB must not write by."""
    return CorruptStore(
        f"the list of free pages in '{store}' is damaged ({why}); nothing was changed. The store can be read: make a "
        f"copy with 'dynfrsdb backup --unrecorded {store} DEST' and put it in its place"
    )


def share(generation: Generation) -> Generation:
    """The same generation with one more user."""
    with _registry_lock:
        generation.users += 1
    return generation


def _forget_in_child() -> None:
    global _registry_lock
    _registry_lock = threading.RLock()
    for key, generation in _registry.items():
        lmdb_env.keep_for_ever(generation.env)
        lmdb_env.keep_for_ever(generation)
        _inherited.add(key)
    _registry.clear()


os.register_at_fork(after_in_child=_forget_in_child)
