"""The next generation of a store: being written, looked at, and made the live one.

    with store.write(purpose="vacuum") as session, Successor(session) as new:
        new.write_rows(...); new.put_sorted(...); new.set_roots(...); new.append_ledger(...)
        new.finish()
        with new.snapshot() as snapshot: ...        is it what it should be?
        new.take_over()

It takes what a `Builder` takes, and passes it on to a process that does the writing (scribe.py). Until `take_over`
nothing has happened to the store; whatever ends the block before that, overwrites and removes what was written. If
this process dies, the next session that cleans up after a death does so.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import msgpack
import numpy as np

from dynfrsdb_storage import errors, layout, ledger, records, scribe
from dynfrsdb_storage.directory import other_generations, read_current, retire
from dynfrsdb_storage.disk import disk_error
from dynfrsdb_storage.errors import CorruptStore, Error, StoreFull
from dynfrsdb_storage.failpoints import failpoint
from dynfrsdb_storage.generation import attach
from dynfrsdb_storage.locks import Lease
from dynfrsdb_storage.read import Snapshot
from dynfrsdb_storage.retire import overwrite_and_remove, retire_unfinished
from dynfrsdb_storage.rows import RowFile
from dynfrsdb_storage.write import WriteSession

_SENT_AT_ONCE = 2_000
MARGIN = 1 << 20


class Room(NamedTuple):
    """Bytes that a new generation takes at most, and bytes that are free for it."""

    needed: int
    free: int


def room(snapshot: Snapshot, rows: int) -> Room:
    """Room for a new generation: no more pages than the old one uses, and its rows."""
    generation = snapshot.generation
    pages = int(generation.lmdb_info()["last_pgno"]) + 1 - generation.free_pages()
    slots = (rows + 2 * layout.MIN_RESERVED) * layout.slot_bytes(generation.n_features)
    there = os.statvfs(generation.directory)
    needed = pages * layout.PAGE_BYTES + slots + layout.TAIL_BYTES + layout.READERS_FILE_BYTES + MARGIN
    return Room(needed, there.f_bavail * there.f_frsize)


def refuse_without(space: Room, store: Path, what: str) -> None:
    """Raise unless there is room for a new generation."""
    if space.free < space.needed:
        raise StoreFull(
            f"a {what} of '{store}' needs up to {space.needed:,} bytes beside the store, {space.free:,} are free; "
            "nothing was changed. Make room and try again"
        )


class Successor:
    """A new generation on its way; a context manager. `identity`, `settings` and `state` begin as those of the old one;
    the first two may be changed until it is entered, the last until it is finished."""

    def __init__(self, session: WriteSession, purpose: str = "vacuum") -> None:
        old = session.snapshot.generation
        self._session, self._store, self._purpose = session, Path(old.store), purpose
        self.settings = old.settings
        self.identity = old.identity
        before = session.snapshot.state.items()
        self.state: dict[str, Any] = {name: value for name, value in before if name not in layout.ROW_COUNTERS}
        self.state["commit"] = session.number
        self._rows = 0

    def __enter__(self) -> "Successor":
        retire_unfinished(self._store)
        live = read_current(self._store)
        names = [live, *other_generations(self._store, live)]
        self.number = max(layout.generation_number(name) for name in names) + 1
        self.directory = self._store / layout.generation_name(self.number)
        failpoint("vacuum-begin")
        self._scribe = _start()
        self._answers = msgpack.Unpacker(self._scribe.stdout)
        place = str(self.directory.absolute())
        try:
            self._send({"directory": place, "identity": self.identity, "settings": self.settings, "state": self.state})
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scribe.kill()
        for pipe in (self._scribe.stdin, self._scribe.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._scribe.wait()
        # Asked of the disk and not of ourselves: an interrupt may have come while CURRENT was being replaced.
        if read_current(self._store) != self.directory.name and self.directory.exists():
            with suppress(OSError):
                if not (self.directory / layout.LEASE_FILE).exists():
                    overwrite_and_remove(self.directory)
                else:
                    retire(self._store, self.directory.name, overwrite_and_remove)

    @property
    def rows(self) -> RowFile:
        """The rows written so far, to read them back."""
        self._send(["flush"])
        self._hear("flushed")
        return RowFile(
            self.directory / layout.ROWS_FILE, self._rows, int(self.settings["n_features"]), str(self._store)
        )

    def write_rows(self, slots: layout.Array, ids: layout.Array, ys: layout.Array, x: layout.Array) -> None:
        """Write rows, as `Builder.write_rows` does."""
        self._rows += len(slots)
        columns = ((slots, np.uint32), (ids, np.uint64), (ys, np.int64), (x, np.float32))
        self._send(["rows", *(np.ascontiguousarray(column, kind).tobytes() for column, kind in columns)])

    def leave_free(self, start: int, count: int) -> None:
        """Leave slots free, as `Builder.leave_free` does."""
        self._send(["free", start, count])

    def put_sorted(self, database: str, pairs: Iterable[tuple[bytes, records.Payload]]) -> None:
        """Append many (key, payload) in ascending key order, behind all keys that are there."""
        pending = iter(pairs)
        while part := list(islice(pending, _SENT_AT_ONCE)):
            self._send(["records", database, part])

    def put_sealed(self, database: str, sealed: records.Sealed) -> None:
        """Append records that were packed elsewhere, as `Builder.put_sealed` does."""
        for keys, values, ends in records.portions(sealed, _SENT_AT_ONCE):
            self._send(["sealed", database, keys.tobytes(), values.tobytes(), ends.tobytes()])

    def set_roots(self, trees: layout.Array, stamps: layout.Array, n: layout.Array, tags: layout.Array) -> None:
        """Set stamp, n and the flag "tags below" of all trees' roots."""
        if not np.array_equal(trees, np.arange(int(self.settings["n_trees"]))):
            raise ValueError("the roots of a new generation are set all at once, in order")
        columns = ((stamps, np.uint64), (n, np.uint32), (tags, np.uint8))
        self._send(["roots", *(np.ascontiguousarray(column, kind).tobytes() for column, kind in columns)])

    def append_ledger(self, entry: ledger.Entry) -> ledger.Entry:
        """Add an entry behind all that were put; returns it with its sequence, prev and hash."""
        linked = ledger.link(entry, self.state["sequence"] + 1, self.state["head"])
        self.state.update(sequence=linked["sequence"], head=linked["hash"])
        self.put_sorted("ledger", [(layout.sequence_key(linked["sequence"]), records.frame(linked))])
        return linked

    def finish(self) -> None:
        """Everything was said: let it be made durable."""
        self._send(["finish", self.state])
        self._hear("finished")
        failpoint("vacuum-built")

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """What the new generation holds, once it is finished."""
        lease = Lease.take(self.directory / layout.LEASE_FILE)
        if lease is None:
            raise CorruptStore(f"somebody else uses '{self.directory}', which is not live; find out who")
        try:
            generation = attach(str(self._store), self.directory, lease, writable=False)
        except BaseException:
            lease.release()
            raise
        try:
            with Snapshot(generation, dict.fromkeys(layout.DATABASES, 0)) as snapshot:
                yield snapshot
        finally:
            generation.release()

    def take_over(self) -> None:
        """Make it the live generation."""
        failpoint("vacuum-checked")
        try:
            self._session.move_to(self.directory.name, int(self.state["commit"]))
        except OSError as error:
            raise (error if isinstance(error, Error) else disk_error(error)) from error

    def _send(self, message: Any) -> None:
        assert self._scribe.stdin is not None
        try:
            data = memoryview(msgpack.packb(message))
            while data:
                data = data[self._scribe.stdin.write(data) :]
        except BrokenPipeError:
            self._hear("anything")  # it has ended, and may have said why

    def _hear(self, expected: str) -> None:
        answer: dict[str, Any] | None = next(self._answers, None)
        if answer is not None and answer.get(expected):
            return
        why = f"died with status {self._scribe.wait()}" if answer is None else str(answer.get("message", answer))
        kind = getattr(errors, (answer or {}).get("error", "") or "Error", Error)
        raise kind(
            f"{self._purpose} of '{self._store}' could not write a new generation ({why}); nothing was changed. "
            "Try again"
        )


def _start() -> subprocess.Popen[bytes]:
    """A scribe in a fresh interpreter that finds the packages this one found; Ctrl-C is for us alone."""
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return subprocess.Popen(
        [sys.executable, "-c", f"from {scribe.__name__} import main; main({os.getpid()})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
