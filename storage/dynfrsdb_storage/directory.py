"""The store's directory: which generation is live, and may it be opened at all?

    patients.forest/
      CURRENT      one line: gen-0002
      LOCK         see locks.py
      gen-0002/    LEASE data.mdb lock.mdb rows.bin

A vacuum builds gen-0003 beside gen-0002 and then replaces CURRENT by rename, so that a reader sees either the old
name or the new one. Between reading CURRENT and having the generation open, the generation could be retired; so an
opener reads CURRENT, takes the shared lease, and reads CURRENT again. If the name changed, it starts over. Once it
holds the lease, the generation stays until it lets go.
"""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from dynfrsdb_storage import layout
from dynfrsdb_storage.disk import place_error, refuse_network, sync_directory
from dynfrsdb_storage.errors import CorruptStore, Locked, ReadOnly, StoreNotFound, UnsupportedFormat
from dynfrsdb_storage.failpoints import failpoint
from dynfrsdb_storage.generation import Generation, attach
from dynfrsdb_storage.locks import Lease

_NAME = re.compile(r"gen-\d{4,}")
_ATTEMPTS = 100
_PAUSE = 0.02
"""Seconds between attempts to get a lease: somebody is alone with the generation for a moment, or removes it."""

Mark = tuple[int, int, int]


def current_mark(current: str) -> Mark:
    """What changes whenever the file CURRENT at this path is replaced; one stat, without a Path: it is asked often."""
    stat = os.stat(current)
    return stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns


def read_current(store: Path) -> str:
    """The name of the live generation."""
    try:
        text = (store / layout.CURRENT_FILE).read_text("utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _no_store(store) from error
    except PermissionError as error:
        raise ReadOnly(f"'{store}' may not be read by this user; change its permissions") from error
    except OSError as error:
        raise place_error(error, store) from error
    name = text.removesuffix("\n")
    if not _NAME.fullmatch(name):
        raise CorruptStore(f"the file CURRENT of '{store}' names no generation; restore the store from a backup")
    return name


def other_generations(store: Path, live: str) -> list[str]:
    """The names of all generations that are there beside the live one, oldest first."""
    found = [entry.name for entry in os.scandir(store) if _NAME.fullmatch(entry.name) and entry.name != live]
    return sorted(found, key=layout.generation_number)


def open_current(store: Path, writable: bool) -> tuple[Generation, Mark]:
    """Open the live generation, holding its lease."""
    refuse_network(store)
    current = str(store / layout.CURRENT_FILE)
    for _ in range(_ATTEMPTS):
        mark, name = current_mark(current), read_current(store)
        lease = _lease(store, name)
        if lease is None:
            time.sleep(_PAUSE)
            continue
        try:
            if read_current(store) == name and current_mark(current) == mark:
                return attach(str(store), store / name, lease, writable), mark
        except BaseException:
            lease.release()
            raise
        lease.release()
    raise Locked(f"'{store}' keeps changing its generation, or is being migrated; try again")


def switch_current(store: Path, name: str) -> None:
    """Make generation `name`, complete and synced, the live one; only under the writer lock."""
    new = store / (layout.CURRENT_FILE + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, f"{name}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    failpoint("current-switch")
    os.replace(new, store / layout.CURRENT_FILE)
    sync_directory(store)


def retire(store: Path, name: str, erase: Callable[[Path], None]) -> bool:
    """Run `erase` on a generation that is not live, under its exclusive lease; False if someone has it open.

    A generation that is not live never becomes it again, except one that is being built, under the writer lock.
    """
    if read_current(store) == name:
        raise ValueError(f"generation '{name}' of '{store}' is the live one")
    lease = Lease.take(store / name / layout.LEASE_FILE, exclusive=True)
    if lease is None:
        return False
    try:
        erase(store / name)
    finally:
        lease.release()
    return True


def _lease(store: Path, name: str) -> Lease | None:
    """The shared lease of a generation, or None if somebody has it for himself, or if it vanished while we looked
    (CURRENT then says something else)."""
    try:
        return Lease.take(store / name / layout.LEASE_FILE)
    except FileNotFoundError as error:
        if read_current(store) == name:
            raise CorruptStore(
                f"'{store}' has lost its generation '{name}'; restore the store from a backup"
            ) from error
        return None


def _no_store(store: Path) -> Exception:
    if not store.exists():
        return StoreNotFound(f"there is no store at '{store}'; create one with dynfrsdb.create")
    return UnsupportedFormat(f"'{store}' is not a dynfrsdb store: it has no file CURRENT")
