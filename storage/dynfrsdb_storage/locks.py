"""The writer lock and the lease: who may write, and who still reads.

**LOCK** is one 512-byte block in the store's directory. Whoever writes holds an exclusive `flock` on it for the whole
transaction, and puts into the block who it is and, after each durable commit, the number of that commit:

    5f0c1a2b {"acknowledged": 17, "free_at": 18, "free_sum": 911, "host": "a", "pid": 4711, "purpose": "add", ...}

The number outlives the lock. A store whose newest commit is older than it was rolled back (an old copy of the data
put in place of the newer one) and is refused. Pid 0 means that the last holder left in good order; any other pid in a
block nobody holds means that it died, and that the next writer has to clean up after it.

Who waits asks again and again, and so does who has just let go; the latter would win nearly always. So writers take
turns: only who has a `flock` on CURRENT asks for LOCK, and gives it back with LOCK in hand. While one waits with the
turn, the one that lets go cannot have it. (A vacuum replaces CURRENT: who waits with the old one open loses its place,
once.)

**LEASE** is an empty file in each generation; every process that has the generation open holds a shared `flock` on
it. Only who gets it exclusively may delete the generation.

A `flock` belongs to the open file, which a forked child shares. If the child unlocked it, the parent would go on
writing without its lock; if it merely kept it open, the lock would outlive the parent. So a child closes these
descriptors at once, which touches nothing of the parent's, and never unlocks them.
"""

import fcntl
import json
import os
import random
import socket
import threading
import time
import zlib
from functools import cache
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from typing import NamedTuple

from dynfrsdb_storage.errors import CorruptStore, Locked, ReadOnly
from dynfrsdb_storage.layout import CURRENT_FILE, LOCK_BYTES, LOCK_FILE

_BODY = '{"acknowledged": %d, "free_at": %d, "free_sum": %d, "host": %s, "pid": %d, "purpose": %s, "since": %r}'
"""A holder as JSON, its texts as JSON already: LOCK is written three times with every commit."""
_POLL = 0.0005
_POLL_MOST = 0.01
_CHANGING_HANDS = 0.1
"""Seconds for which who is refused waits to hear by whom: one holder has left, and the next has not signed yet."""
_held: set[int] = set()
_noting = threading.RLock()
"""Held while lock files are opened or closed and `_held` does not tell the truth: a fork by another thread waits for
that, so that the child knows every descriptor it has to close."""


class Holder(NamedTuple):
    """What the lock block says: the last acknowledged commit, the checksums of LMDB's free list, added up, and as of
    when, and who holds (or last held) the lock."""

    acknowledged: int = 0
    free_at: int = 0
    free_sum: int = -1
    """-1: unknown."""
    host: str = ""
    pid: int = 0
    purpose: str = ""
    since: float = 0.0


Noted = tuple[bytes, Holder]
"""A block as it was left in LOCK, and what it says."""
NOTHING_NOTED: Noted = b"", Holder()


class LockFiles:
    """The two files that a writer locks, kept open by a handle from one transaction to the next."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._spare: list[_Pair] = []
        self._pid = os.getpid()
        self.noted = NOTHING_NOTED
        self.closed = 0
        """How often they were closed."""

    def take(self) -> "_Pair":
        """The files, open. Whoever takes them has them alone: threads that shared an open file would share its lock."""
        if self._pid != os.getpid():  # the parent's, and closed here
            self._pid, self._spare = os.getpid(), []
        try:
            return self._spare.pop()
        except IndexError:
            return _Pair.open(self._store)

    def give_back(self, pair: "_Pair", closed: int) -> None:
        """Keep the files for the next one, if there are none to keep yet, and none were closed since `closed`."""
        if self._spare or self.closed != closed:
            pair.close()
        else:
            self._spare.append(pair)

    def close(self) -> None:
        """Keep nothing that is open, because the handle is closed or CURRENT was replaced."""
        self.closed += 1
        while self._spare and self._pid == os.getpid():
            self.take().close()

    def __del__(self) -> None:
        self.close()


class _Pair(NamedTuple):
    """Descriptors of CURRENT, which gives the turn, and of LOCK."""

    turn: int
    lock: int

    @classmethod
    def open(cls, store: Path) -> "_Pair":
        with _noting:
            turn = _open(store, CURRENT_FILE, os.O_RDONLY)
            _held.add(turn)
            try:
                lock = _open(store, LOCK_FILE, os.O_RDWR)
            except BaseException:
                _let_go(turn)
                raise
            _held.add(lock)
            return cls(turn, lock)

    def close(self) -> None:
        _let_go(self.lock)
        _let_go(self.turn)


class WriterLock:
    """The exclusive right to write a store, from `acquire` to `release`."""

    def __init__(self, files: LockFiles | None, pair: _Pair, holder: Holder, abandoned: bool) -> None:
        self._files = files
        self._closed = 0 if files is None else files.closed
        self._pair: _Pair | None = pair
        self._holder = holder
        self.abandoned = abandoned
        """Whether the process that had the lock before us died with it."""

    @classmethod
    def acquire(cls, store: Path, timeout: float, purpose: str, files: LockFiles | None = None) -> "WriterLock":
        """Take the writer lock of `store`, waiting up to `timeout` seconds, or raise Locked."""
        pair = _wait_for(store, time.monotonic() + timeout, _Pair.open(store) if files is None else files.take())
        try:
            before = _read(pair.lock, store, NOTHING_NOTED if files is None else files.noted)
            here = before._replace(host=_host(), pid=os.getpid(), purpose=_plain(purpose), since=time.time())
            _write(pair.lock, here)
        except BaseException:
            pair.close()
            raise
        return cls(files, pair, here, abandoned=before.pid != 0)

    @property
    def acknowledged(self) -> int:
        """The number of the last commit that was acknowledged."""
        return self._holder.acknowledged

    def acknowledge(self, commit: int, free_at: int = 0, free_sum: int = 0) -> None:
        """Note that `commit` is durable: from now on an older store is a rolled back one. And for the next writer, the
        checksum of LMDB's free list at the place of a snapshot, if it is known."""
        assert self._pair is not None
        self._holder = self._holder._replace(acknowledged=commit, free_at=free_at, free_sum=free_sum)
        _write(self._pair.lock, self._holder)

    def free_sum(self, place: int) -> int | None:
        """The checksum of LMDB's free list at the `place` of a snapshot, if it was noted for that one."""
        known = self._holder.free_at == place and self._holder.free_sum >= 0
        return self._holder.free_sum if known else None

    def release(self, in_order: bool) -> None:
        """Give the lock back; not `in_order` leaves our pid in the block, so that the next writer cleans up."""
        if self._pair is None or self._holder.pid != os.getpid():
            return
        pair, self._pair = self._pair, None
        try:
            if in_order:
                left = self._holder._replace(pid=0)
                noted = _write(pair.lock, left), left
            fcntl.flock(pair.lock, fcntl.LOCK_UN)
        except BaseException:
            pair.close()
            raise
        if self._files is None:
            pair.close()
            return
        if in_order:
            self._files.noted = noted
        self._files.give_back(pair, self._closed)


class Lease:
    """A process's hold on one generation."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pid = os.getpid()

    @classmethod
    def take(cls, path: Path, exclusive: bool = False) -> "Lease | None":
        """The lease on the LEASE file `path`, or None if someone holds it in a way that excludes ours."""
        with _noting:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                return None
            _held.add(descriptor)
        return cls(descriptor)

    def make_exclusive(self) -> bool:
        """Keep everybody else out, if nobody else is in; otherwise the lease stays as it was."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.make_shared()  # who asks for another kind of flock has given up the first
            return False
        return True

    def make_shared(self) -> None:
        """Let others in again."""
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def release(self) -> None:
        """Give the lease back (in a forked child there is nothing to give)."""
        if self._descriptor >= 0 and self._pid == os.getpid():
            descriptor, self._descriptor = self._descriptor, -1
            _let_go(descriptor)


def read_holder(store: Path) -> Holder:
    """What the lock block of `store` says now."""
    try:
        descriptor = os.open(store / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise _missing(store) from error
    try:
        return _read(descriptor, store)
    finally:
        os.close(descriptor)


def first_block(acknowledged: int) -> bytes:
    """The lock block of a new store that begins with the commit `acknowledged`."""
    return _block(Holder(acknowledged=acknowledged))


def _wait_for(store: Path, deadline: float, pair: _Pair) -> _Pair:
    """The lock files, with an exclusive flock on LOCK."""
    has_turn, pause = False, _POLL
    try:
        while True:
            if not has_turn:
                has_turn, pause = _try(pair.turn), _POLL
            if has_turn and _try(pair.lock):
                if _still_there(pair.lock, store):
                    fcntl.flock(pair.turn, fcntl.LOCK_UN)
                    return pair
                stale, pair, has_turn = pair, _Pair.open(store), False
                stale.close()
            if time.monotonic() >= deadline:
                raise _refusal(store)
            time.sleep(min(pause * random.uniform(0.5, 1.0), max(0.0, deadline - time.monotonic())))
            pause = min(1.1 * pause, _POLL_MOST)
    except BaseException:
        pair.close()
        raise


def _try(descriptor: int) -> bool:
    """Take an exclusive flock on a file, if nobody else has one."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _open(store: Path, name: str, flags: int) -> int:
    try:
        return os.open(os.path.join(store, name), flags | os.O_CLOEXEC)  # Path is slow, and this is done often
    except FileNotFoundError as error:
        if name == LOCK_FILE:
            raise _missing(store) from error
        raise CorruptStore(f"'{store}' has lost its file {name}, or was removed") from error
    except PermissionError as error:
        raise ReadOnly(f"'{store}' may only be read by this user; change the permissions of its files") from error


def _still_there(descriptor: int, store: Path) -> bool:
    """Whether the file we locked is the one that others will lock."""
    try:
        there = os.stat(f"{store}/{LOCK_FILE}")
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(descriptor))


def _let_go(descriptor: int) -> None:
    with _noting:
        _held.discard(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)


def _read(descriptor: int, store: Path, noted: Noted = NOTHING_NOTED) -> Holder:
    """What the block says; who still finds what was `noted` need not read it again."""
    for _ in range(50):
        raw = os.pread(descriptor, LOCK_BYTES, 0)
        if raw == noted[0]:
            return noted[1]
        if not raw.strip(b"\0 \n"):
            return Holder()
        check, _, body = raw.rstrip().partition(b" ")
        if check == b"%08x" % zlib.crc32(body):
            return Holder(**{name: value for name, value in json.loads(body).items() if name in Holder._fields})
        time.sleep(0.001)
    raise CorruptStore(
        f"the file LOCK of '{store}' is damaged; if no process is writing the store and its data is not an old copy, "
        "empty LOCK and try again"
    )


def _write(descriptor: int, holder: Holder) -> bytes:
    """Put a holder into the block; returns it."""
    block = _block(holder)
    os.pwrite(descriptor, block, 0)
    return block


def _block(holder: Holder) -> bytes:
    acknowledged, free_at, free_sum, host, pid, purpose, since = holder
    body = (_BODY % (acknowledged, free_at, free_sum, quoted(host), pid, quoted(purpose), since)).encode()
    return (b"%08x %s" % (zlib.crc32(body), body)).ljust(LOCK_BYTES - 1) + b"\n"


@cache
def _host() -> str:
    """This machine, as the block names it."""
    return _plain(socket.gethostname())


@cache
def _plain(text: str) -> str:
    """Text that keeps the block within its size."""
    return text.encode("ascii", "replace").decode()[:100].replace("\\", "/").replace('"', "'")


def _refusal(store: Path) -> Locked:
    holder, until = read_holder(store), time.monotonic() + _CHANGING_HANDS
    while not holder.pid and time.monotonic() < until:
        time.sleep(_POLL)
        holder = read_holder(store)
    if not holder.pid:
        return Locked(f"'{store}' is being written by another process; try again or pass timeout=")
    seconds = max(0, round(time.time() - holder.since))
    return Locked(
        f"'{store}' is being written by process {holder.pid} on '{holder.host}' "
        f"(since {seconds} s, {holder.purpose}); try again or pass timeout="
    )


def _missing(store: Path) -> CorruptStore:
    return CorruptStore(
        f"'{store}' has lost its file LOCK; if no process is writing the store and its data is not an old copy, "
        "create an empty file of that name"
    )


def _close_in_child() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()
    _noting.release()


os.register_at_fork(before=_noting.acquire, after_in_parent=_noting.release, after_in_child=_close_in_child)
