"""Creating a store: all of it, or nothing.

A store is built in a temporary directory beside its place, unsynced and therefore fast, then synced as a whole, and
then renamed. Whoever looks sees no store, or a complete one:

    .patients.forest.creating-4711-9c2e/    built here, under a flock on this directory
    patients.forest/                        appears by one rename

Any exception removes the temporary directory. A killed process leaves it behind, but not its flock: the next create
of the same path finds a directory that nobody holds, and removes it.

A generation is built by `build_generation`, which knows nothing of CURRENT: a vacuum uses it as well.
"""

import fcntl
import glob
import os
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

from dynfrsdb_storage import ages, layout, ledger, records, stages
from dynfrsdb_storage import env as lmdb_env
from dynfrsdb_storage.directory import switch_current
from dynfrsdb_storage.disk import disk_error, lengthen, place_error, refuse_network, sync_data, sync_directory
from dynfrsdb_storage.errors import Error, StoreExists, StoreNotFound
from dynfrsdb_storage.failpoints import failpoint
from dynfrsdb_storage.formats import Identity
from dynfrsdb_storage.locks import first_block
from dynfrsdb_storage.rows import Range, RowFile, RowWriter

_PUT_AT_ONCE = 20_000
_FIRST_COMMIT = 1

Fill = Callable[["Builder"], None]


class Builder:
    """What `fill` is given: the files of a generation nobody else can see yet."""

    def __init__(self, directory: Path, settings: dict[str, Any], state: dict[str, Any]) -> None:
        self.settings = settings
        self.state: dict[str, Any] = {
            "sequence": 0,
            "head": ledger.FIRST_PREV,
            "samples": 0,
            **dict.fromkeys(stages.COUNTERS, 0),
            **state,
        }
        self.commit = int(self.state.setdefault("commit", _FIRST_COMMIT))
        """The number of the commit that this generation begins with, which is the stamp of all its records."""
        self.state.setdefault("times", ages.noted(b"", self.commit, time.time()))
        self._directory = directory
        self._slots = 0
        self._highest = -1
        self._free: list[Range] = []
        self._roots = _empty_roots(int(settings["n_trees"]))
        self._map: RowFile | None = None
        self._writer = RowWriter(directory / layout.ROWS_FILE, int(settings["n_features"]), create=True)
        self._env = lmdb_env.create_env(directory, lmdb_env.FIRST_MAP)
        self._databases = lmdb_env.open_databases(self._env, str(directory), layout.DATABASES, create=True)

    @property
    def rows(self) -> RowFile:
        """The rows written so far, to read them back."""
        slots = self._highest + 1
        if self._map is None or self._map.slots < slots:
            path = self._directory / layout.ROWS_FILE
            self._map = RowFile(path, slots, int(self.settings["n_features"]), str(self._directory))
        return self._map

    def write_rows(self, slots: layout.Array, ids: layout.Array, ys: layout.Array, x: layout.Array) -> None:
        """Write rows; over all calls the slots must be 0, 1, 2, ..., each once, in any order, or be left free."""
        slots = np.asarray(slots, np.uint32)
        if len(slots):
            self._slots += len(slots)
            self._highest = max(self._highest, int(slots.max()))
            self._writer.write(slots, np.asarray(ids, np.uint64), np.asarray(ys, np.int64), np.asarray(x, np.float32))

    def sync_rows(self) -> None:
        """Make the rows written so far durable, while other things are done; `finish` has less to wait for then."""
        self._writer.sync()

    def sync_records(self) -> None:
        """The same for records."""
        try:
            self._env.sync(True)
        except lmdb.Error as error:
            raise lmdb_env.translate(error, str(self._directory)) from error

    def leave_free(self, start: int, count: int) -> None:
        """Leave slots without a row below one that has one: they are zero, and reserved for samples to come."""
        self._slots += count
        self._free.append((start, count))
        self._writer.zero(start, count)

    def put_sorted(self, database: str, pairs: Iterable[tuple[bytes, records.Payload]]) -> None:
        """Append many (key, payload) in ascending key order, behind all keys that are there; memory stays bounded."""
        pending = iter(pairs)
        while chunk := list(islice(pending, _PUT_AT_ONCE)):
            items = records.pack_many(database, chunk)
            if len(items) < len(chunk):
                raise ValueError(f"a key for '{database}' came twice")
            self._append(database, items.keys(), items.values())

    def put_sealed(self, database: str, sealed: records.Sealed) -> None:
        """Append records that were packed elsewhere, byte for byte as by `records.pack`; otherwise as `put_sorted`."""
        for part in records.portions(sealed, _PUT_AT_ONCE):
            self._append(database, *records.cut_apart(part))

    def put(self, database: str, key: bytes, payload: bytes) -> None:
        """Write one record."""
        value = records.pack(database, key, payload)
        self._transact(lambda txn: txn.put(key, value, db=self._databases[database]))

    def set_roots(self, trees: layout.Array, stamps: layout.Array, n: layout.Array, tags: layout.Array) -> None:
        """Set stamp, n and the flag "tags below" of some trees' roots (all zero otherwise)."""
        records.set_roots(self._roots, trees, stamps, n, tags)

    def append_ledger(self, entry: ledger.Entry) -> ledger.Entry:
        """Add an entry to the ledger; returns it with its sequence, prev and hash."""
        linked = ledger.link(entry, self.state["sequence"] + 1, self.state["head"])
        self.state.update(sequence=linked["sequence"], head=linked["hash"])
        self.put("ledger", layout.sequence_key(linked["sequence"]), records.frame(linked))
        return linked

    def finish(self, identity: Identity) -> None:
        """Write what every generation has, and make all of it durable."""
        if self._slots != self._highest + 1:
            raise ValueError(f"{self._slots} rows were written, but the highest slot is {self._highest}")
        self._put_roots()
        self._put_reservation()
        self.put("meta", layout.META_FORMAT, records.frame(identity))
        self.put("meta", layout.META_SETTINGS, records.frame(self.settings))
        self.put("meta", layout.META_STATE, records.frame(self.state))
        lengthen(self._directory / layout.DATA_FILE, (int(self._env.info()["last_pgno"]) + 1) * layout.PAGE_BYTES)
        failpoint("build-sync")
        self._writer.sync()
        self.sync_records()

    def close(self) -> None:
        """Close the files."""
        self._env.close()
        self._writer.close()

    def _put_roots(self) -> None:
        size = layout.ROOTS_PER_RECORD
        for chunk in range(-(-len(self._roots[0]) // size)):
            part = slice(chunk * size, (chunk + 1) * size)
            self.put("roots", layout.roots_key(chunk), records.roots_payload(*(c[part] for c in self._roots)))

    def _put_reservation(self) -> None:
        first, count = self._highest + 1, 2 * layout.MIN_RESERVED
        self._writer.grow(first + count)
        for start, size in (*self._free, (first, count)):
            self.put("reserved", layout.reserved_key(start), records.count_payload(size))
        reserved = count + sum(size for _, size in self._free)
        self.state.update(slots=first + count, reserved=reserved, pending=0, window=layout.MIN_RESERVED)

    def _append(self, database: str, keys: Collection[bytes], values: Collection[bytes]) -> None:
        def put(txn: lmdb.Transaction) -> None:
            with txn.cursor(db=self._databases[database]) as cursor:
                _, added = cursor.putmulti(zip(keys, values, strict=True), append=True)
            if added != len(keys):
                raise ValueError(f"keys for '{database}' did not come in ascending order")

        self._transact(put)

    def _transact(self, apply: Callable[[lmdb.Transaction], object]) -> None:
        while True:
            try:
                with self._env.begin(write=True) as txn:
                    apply(txn)
                return
            except lmdb.MapFullError:
                self._env.set_mapsize(2 * int(self._env.info()["map_size"]))
            except lmdb.Error as error:
                raise lmdb_env.translate(error, str(self._directory)) from error


def create(
    path: Path | str, settings: dict[str, Any], state: dict[str, Any], fill: Fill, identity: Identity | None = None
) -> None:
    """Create a store at `path` with what `fill` puts into it; raises StoreExists if anything is there.

    A copy of another store has its `identity`, and a `commit` in its `state`.
    """
    path = Path(path)
    with _temporary(path) as directory:
        name = layout.generation_name(1)
        build_generation(directory / name, identity or _identity(), settings, state, fill)
        _write_file(directory / layout.LOCK_FILE, first_block(int(state.get("commit", _FIRST_COMMIT))))
        switch_current(directory, name)
        failpoint("build-rename")
        with _holding(path.absolute().parent):
            refuse_existing(path)
            os.rename(directory, path)
        sync_directory(path.absolute().parent)


def _identity() -> Identity:
    numbers = {"format": layout.FORMAT, "algorithm": layout.ALGORITHM}
    return {**numbers, "uuid": uuid.uuid4().bytes, "needs": layout.NEEDS}


def refuse_place(path: Path) -> None:
    """Raise unless a store could be created at `path` as things are; creating it looks again."""
    parent = path.absolute().parent
    if not parent.is_dir():
        raise StoreNotFound(f"there is no directory '{parent}' to create the store '{path}' in; create it first")
    refuse_network(parent)
    refuse_existing(path)


def build_generation(
    directory: Path, identity: Identity, settings: dict[str, Any], state: dict[str, Any], fill: Fill
) -> None:
    """Build a complete, synced generation in the new directory `directory`."""
    os.mkdir(directory, 0o700)
    _write_file(directory / layout.LEASE_FILE, b"")
    builder = Builder(directory, settings, state)
    try:
        fill(builder)
        failpoint("build-fill")
        builder.finish(identity)
    finally:
        builder.close()
    sync_directory(directory)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """A locked temporary directory beside `path`, which is gone afterwards unless it was renamed."""
    refuse_place(path)
    parent = path.absolute().parent
    directory = parent / f"{_prefix(path)}{os.getpid()}-{os.urandom(4).hex()}"
    try:
        with _holding(parent):
            refuse_existing(path)
            _remove_stale(path)
            os.mkdir(directory, 0o700)
            descriptor = _flock(directory)
    except OSError as error:
        raise place_error(error, path) from error
    try:
        yield directory
    except OSError as error:
        raise (error if isinstance(error, Error) else disk_error(error)) from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def _remove_stale(path: Path) -> None:
    for found in path.absolute().parent.glob(f"{glob.escape(_prefix(path))}*"):
        descriptor = _flock(found)
        if descriptor is not None:
            shutil.rmtree(found, ignore_errors=True)
            os.close(descriptor)


def _prefix(path: Path) -> str:
    return f".{path.name}.creating-"


@contextmanager
def _holding(directory: Path) -> Iterator[None]:
    """Keep other creators out of `directory` for a moment."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _flock(directory: Path) -> int | None:
    """A descriptor with an exclusive flock on a directory, or None if someone else has it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def refuse_existing(path: Path) -> None:
    """Raise if there is anything at `path`."""
    if os.path.lexists(path):
        raise StoreExists(f"'{path}' exists already; choose another path, or remove it first")


def _write_file(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, content)
        sync_data(descriptor)
    finally:
        os.close(descriptor)


def _empty_roots(trees: int) -> records.Roots:
    return np.zeros(trees, np.uint64), np.zeros(trees, np.uint32), np.zeros(trees, np.uint8)
