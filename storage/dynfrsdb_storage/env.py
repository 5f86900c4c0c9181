"""LMDB, with the rules that keep it safe.

Each rule was seen to go wrong without it.

    problem                                          rule
    a missing file becomes an empty database         never create on open; pages.py looks first
    a new LMDB writes files an old one cannot read   lib_version=0, always
    a full map poisons the transaction               abort, grow the map, run the whole transaction again
    another process grew the map                     MapResizedError: set_mapsize(0), begin again
    a reader killed with -9 pins its pages           reader_check() before each commit
    a child of fork writes through its parent's env  a child opens its own env and never touches the inherited one
    opening a database takes LMDB's write lock       handles that only read open the env read-only
    lock.mdb is written through a map: a hole in it  its blocks are allocated before LMDB maps it
      is SIGBUS on a full disk
    closing any descriptor of lock.mdb drops locks   nobody opens it while this process has the env open

Growing the map replaces it, and py-lmdb ends every transaction of the process on the way; the generation, which knows
its snapshots, prepares for that (generation.py). This module only knows LMDB.
"""

import ctypes
import errno
import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import lmdb

from dynfrsdb_storage import layout
from dynfrsdb_storage.disk import disk_error, is_full, is_read_only
from dynfrsdb_storage.errors import (
    CorruptStore,
    Error,
    Locked,
    ReadOnly,
    StoreFull,
    UnsupportedFormat,
    UnsupportedPlace,
)

FIRST_MAP = 1 << 30

Databases = dict[str, Any]


def open_env(path: Path, writable: bool, store: str, inherited: bool = False) -> lmdb.Environment:
    """Open the LMDB environment in the directory `path`, which pages.py has checked, with the map size it records.

    `inherited` says that a parent process had it open when it forked us.
    """
    options: dict[str, Any] = {
        "map_size": 0,
        "readonly": not writable,
        "create": False,
        "mode": 0o700,
        "max_readers": layout.MAX_READERS,
        "max_dbs": len(layout.DATABASES) + 3,
        "max_spare_txns": 1,
        "lib_version": 0,
        "readahead": False,  # a path down a tree lies anywhere; some systems read megabytes around every page
        # Where nothing can be written there is no table of readers, and no writer here to read it. (LMDB does the same
        # by itself, but only for a user who may write lock.mdb.)
        "lock": writable or not is_read_only(path),
    }
    allocate_reader_table(path)
    try:
        with _unguarded() if inherited else nullcontext():
            return lmdb.open(str(path), **options)
    except lmdb.Error as error:
        raise translate(error, store) from error


def create_env(path: Path, map_size: int) -> lmdb.Environment:
    """Make a new environment in the directory `path`, unsynced: nobody sees it before it is complete and synced."""
    allocate_reader_table(path)
    return lmdb.open(
        str(path),
        map_size=map_size,
        mode=0o700,
        sync=False,
        metasync=False,
        max_readers=layout.MAX_READERS,
        max_dbs=len(layout.DATABASES) + 3,
        lib_version=0,
    )


def open_databases(env: lmdb.Environment, store: str, names: Iterable[str], create: bool = False) -> Databases:
    """Handles of sub-databases.

    Each is opened in a transaction of its own: py-lmdb drops handles that were opened in an explicit read transaction.
    """
    try:
        return {name: env.open_db(name.encode(), create=create) for name in names}
    except lmdb.NotFoundError as error:
        raise UnsupportedFormat(f"'{store}' is not a dynfrsdb store: it is an LMDB file of something else") from error
    except lmdb.Error as error:
        raise translate(error, store) from error


def open_those_there(env: lmdb.Environment, store: str, names: Iterable[str]) -> Databases:
    """Handles of those sub-databases that there are: a store of an older format may not have all."""
    found: Databases = {}
    for name in names:
        with suppress(UnsupportedFormat):
            found |= open_databases(env, store, (name,))
    return found


def allocate_reader_table(directory: Path) -> None:
    """Give lock.mdb all its blocks; only while this process does not have the environment open."""
    try:
        descriptor = os.open(directory / layout.READERS_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return  # not ours to write: LMDB will say what it thinks of that
    try:
        os.posix_fallocate(descriptor, 0, os.fstat(descriptor).st_size or layout.READERS_FILE_BYTES)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_error(error) from error
    finally:
        os.close(descriptor)


def readers(env: lmdb.Environment) -> list[tuple[int, int]]:
    """The (pid, transaction number) of every read transaction that is open now, in any process."""
    found = []
    for line in env.readers().splitlines():
        words = line.split()
        if len(words) == 3 and words[0].isdigit() and words[2].isdigit():
            found.append((int(words[0]), int(words[2])))
    return found


def abort(txn: lmdb.Transaction) -> None:
    """End a write transaction that failed, whatever state it is in."""
    with suppress(lmdb.Error):  # a failed commit has ended it already
        txn.abort()


def keep_for_ever(thing: object) -> None:
    """Make sure that `thing` is never deallocated: a child's garbage collector must not close its parent's env."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class Translating:
    """A block that turns LMDB's errors into ours, `but` those. Every change goes through several, so it is no
    generator."""

    __slots__ = ("_but", "_store")

    def __init__(self, store: str, but: tuple[type[lmdb.Error], ...]) -> None:
        self._store, self._but = store, but

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, self._but):
            return
        # py-lmdb makes a SystemError of an error that it meets while it puts a cursor back after a deletion.
        found = error.__cause__ if isinstance(error, SystemError) else error
        if isinstance(found, lmdb.Error):
            raise translate(found, self._store) from error


def translate(error: lmdb.Error, store: str) -> Error:
    """The error of ours that an LMDB error means."""
    text = str(error)
    if (
        isinstance(error, lmdb.MapFullError)
        or _means(text, errno.ENOSPC)
        or _means(text, errno.EDQUOT)
        or (
            _means(text, errno.EIO) and is_full(Path(store))  # a write that was cut short is EIO to LMDB
        )
    ):
        return StoreFull(f"there is no room left for '{store}'; nothing was changed. Make room and try again")
    if isinstance(error, lmdb.LockError) and _means(text, errno.EAGAIN):
        return UnsupportedPlace(
            f"'{store}' is open in another container by a process with the same pid as this one, and LMDB tells "
            "readers apart by pid; let the containers share one pid namespace, or run each with an init, so that their "
            "pids differ"
        )
    if isinstance(error, lmdb.ReadersFullError):
        return Locked(
            f"'{store}' has {layout.MAX_READERS} open snapshots, which is the limit; close some and try again"
        )
    if isinstance(error, lmdb.ReadonlyError) or _means(text, errno.EACCES) or _means(text, errno.EROFS):
        return ReadOnly(f"'{store}' may not be written by this user (reading needs write permission to lock.mdb only)")
    if isinstance(error, lmdb.VersionMismatchError | lmdb.IncompatibleError):
        return UnsupportedFormat(f"'{store}' was written by another version of LMDB ({text})")
    if _means(text, errno.EIO):
        return CorruptStore(f"the disk failed under '{store}'; the change was not acknowledged. Check the disk")
    if isinstance(error, lmdb.PanicError):
        return CorruptStore(f"LMDB cannot go on with '{store}' after a failed write; close it and open it again")
    return CorruptStore(f"LMDB cannot read '{store}' ({text}); run 'dynfrsdb check {store}'")


def _means(text: str, number: int) -> bool:
    return os.strerror(number) in text


@contextmanager
def _unguarded() -> Iterator[None]:
    """Lift py-lmdb's "already open in this process" check, for a child of fork.

    The check is right about a second env in one process, but its list is inherited through fork, where the env on it is
    the parent's. Closing that one instead would clear the parent's reader slots, which live in shared memory.
    """
    try:
        module: Any = importlib.import_module("lmdb._envid")
    except ImportError:
        yield
        return
    real: Callable[[Any, Any], Any] = module.env_keys
    module.env_keys = lambda path, subdir: ()
    try:
        yield
    finally:
        module.env_keys = real
