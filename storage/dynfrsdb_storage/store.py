"""The handle: a store opened by path.

    store = Store.open("patients.forest", writable=True)
    with store.snapshot() as snapshot: ...
    with store.write(purpose="add") as session: ...

A handle is cheap and forgiving. It follows the store from generation to generation by itself; it works after a fork,
in the child as in the parent; it can be pickled, as its path. Several handles of one process share the files
underneath.

Opening looks at a constant number of bytes, however large the store is: CURRENT, LOCK, LMDB's meta pages, three
records.
"""

import os
import threading
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any

from dynfrsdb_storage import ages, formats, layout
from dynfrsdb_storage.directory import current_mark, open_current, read_current
from dynfrsdb_storage.errors import ClosedStore, CorruptStore, Error, ReadOnly, Unrestored
from dynfrsdb_storage.generation import Generation
from dynfrsdb_storage.locks import LockFiles, read_holder
from dynfrsdb_storage.read import Snapshot
from dynfrsdb_storage.retire import old_generations, retire_old
from dynfrsdb_storage.slots import pending_ranges
from dynfrsdb_storage.stages import is_vacuumed
from dynfrsdb_storage.write import WriteSession, rolled_back


class Store:
    """A store opened for reading, or for reading and writing; a context manager."""

    def __init__(self, path: Path, writable: bool, restoring: bool = False, migrating: bool = False) -> None:
        self.path = path
        self.writable = writable
        self._restoring = restoring
        self._migrating = migrating
        self._current_file = str(path / layout.CURRENT_FILE)
        self.loads: dict[str, int] = dict.fromkeys(layout.DATABASES, 0)
        """How many records of each database were loaded through this handle."""
        self.lock_files = LockFiles(path)
        self._generation: Generation | None = None
        self._moving = threading.RLock()
        """Held while the handle goes from one generation to another, and while a snapshot is taken."""
        self._open()
        _stores.add(self)

    @classmethod
    def open(cls, path: Path | str, writable: bool, restoring: bool = False, migrating: bool = False) -> "Store":
        """Open the store at `path`; only who is `restoring` it may open one that is not restored yet, and only who is
        `migrating` it may write one of an older format."""
        return cls(Path(path), writable, restoring, migrating)

    def snapshot(self) -> Snapshot:
        """The newest commit, fixed until the snapshot is closed."""
        with self._moving:  # another thread must not let go of the generation before the snapshot holds it
            return Snapshot(self.current(), self.loads)

    def write(self, timeout: float = 30.0, purpose: str = "write") -> WriteSession:
        """A session that holds the writer lock; waits up to `timeout` seconds for it, when it is entered."""
        if not self.writable:
            raise ReadOnly(f"'{self.path}' is open for reading; open it for writing to change it")
        self._alive()
        return WriteSession(self, timeout, purpose)

    def newest(self) -> int:
        """The `place` of the newest commit, of which a snapshot that begins now may still show the one before: LMDB
        publishes a commit for readers a moment after it has written its meta page. About a microsecond."""
        with self._moving:
            generation = self._alive()
            if generation.pid != os.getpid():
                generation = self.current()
            return generation.number << 48 | generation.newest()

    def moved(self) -> bool:
        """Whether another generation has become the live one; the next snapshot will be of it."""
        try:
            return current_mark(self._current_file) != self._mark
        except FileNotFoundError as error:
            raise CorruptStore(f"'{self.path}' has lost its file CURRENT, or was removed") from error

    def current(self, writable: bool = False) -> Generation:
        """The live generation, reopened if it changed or if this is a child of the process that opened it."""
        with self._moving:
            generation = self._alive()
            if generation.pid != os.getpid() or self.moved():
                self._open()
                generation = self._alive()
            if writable and not generation.writable:
                generation.make_writable()
            return generation

    def erase_pending(self, timeout: float = 0.0) -> int:
        """Take removals to their next stage, if nothing holds them back, and note it in the ledger: overwrite rows that
        no reader needs any more, and generations that no process has open; returns how many rows have to wait."""
        if not self.owes:
            return 0
        retire_old(self.path)
        with self.write(timeout, "erase") as session:
            if session.owes:
                session.commit()
            return session.unerased

    @property
    def owes(self) -> bool:
        """Whether removed rows, or an old generation, wait to be erased or to be noted as erased."""
        with self.snapshot() as snapshot:
            noted = bool(snapshot.state["pending"]) or is_vacuumed(snapshot.state)
        return noted or bool(old_generations(self.path))

    def info(self) -> dict[str, Any]:
        """Sizes, readers, and what is waiting, for people."""
        with self.snapshot() as snapshot:
            generation = snapshot.generation
            lmdb_info = generation.lmdb_info()
            return {
                "path": str(self.path),
                "uuid": generation.identity["uuid"].hex(),
                "format": generation.identity["format"],
                "algorithm": generation.identity["algorithm"],
                "generation": generation.number,
                "commit": snapshot.commit,
                "map_size": int(lmdb_info["map_size"]),
                "files": _file_sizes(generation.directory),
                "free_pages": generation.free_pages(),
                "readers": _readers(snapshot),
                "slots": snapshot.state["slots"],
                "reserved": snapshot.state["reserved"],
                "pending_erasures": _unerased(snapshot),
            }

    def close(self) -> None:
        """Close the handle; a handle for writing first erases what can be erased without waiting."""
        if self._generation is None:
            return
        try:
            if self.writable and not self._migrating and self._generation.pid == os.getpid():
                self.erase_pending()
        except Error:
            pass  # the next session will do it
        finally:
            self.lock_files.close()
            with self._moving:
                generation, self._generation = self._generation, None
            if generation is not None:
                generation.release()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Store.open, (str(self.path), self.writable)

    def __repr__(self) -> str:
        return f"Store.open({str(self.path)!r}, writable={self.writable})"

    def _open(self) -> None:
        read_current(self.path)
        acknowledged = read_holder(self.path).acknowledged
        generation, mark = open_current(self.path, self.writable)
        try:
            if not self._migrating:
                formats.refuse_older(str(self.path), generation.identity, self.writable)
            self._refuse_damaged(generation, acknowledged)
        except BaseException:
            generation.release()
            raise
        before, self._generation, self._mark = self._generation, generation, mark
        self.lock_files.close()
        if before is not None:
            before.release()

    def _refuse_damaged(self, generation: Generation, acknowledged: int) -> None:
        """Raise if the store is older than what was acknowledged when we began to open it, is not restored yet, or if
        rows.bin is cut short."""
        with Snapshot(generation, self.loads) as snapshot:
            if snapshot.commit < acknowledged:
                raise rolled_back(str(self.path), snapshot.commit, acknowledged)
            if layout.RESTORING in snapshot.state and not self._restoring:
                raise Unrestored(
                    f"'{self.path}' is a backup that is being restored: removals that came after it are not applied "
                    f"yet; run 'dynfrsdb restore {self.path} --replay LEDGER' again"
                )
            _ = snapshot.rows

    def _alive(self) -> Generation:
        if self._generation is None:
            raise ClosedStore(f"'{self.path}' is closed; open it again")
        return self._generation


def _unerased(snapshot: Snapshot) -> int:
    """Slots on `pending` that do not read as zero yet."""
    if not snapshot.state["pending"]:
        return 0
    words = snapshot.rows.words
    return sum(int(words[a : a + count, 0].astype(bool).sum()) for a, count, _ in pending_ranges(snapshot).values())


def _readers(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Who has a snapshot open, this one included: how many commits behind, and for how many seconds at least."""
    ahead = snapshot.commit - snapshot.transaction
    times, now = snapshot.state.get("times", b""), time.time()
    return [
        {"pid": pid, "age": ages.age(times, number + ahead, now), "lag": max(0, snapshot.transaction - number)}
        for pid, number in snapshot.generation.readers()
    ]


def _file_sizes(directory: Path) -> dict[str, int]:
    return {name: (directory / name).stat().st_size for name in (layout.DATA_FILE, layout.ROWS_FILE)}


_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _born_by_fork() -> None:
    for store in _stores:
        store._moving = threading.RLock()


os.register_at_fork(after_in_child=_born_by_fork)
