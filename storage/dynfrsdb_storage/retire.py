"""Retiring generations: overwritten with zeros, then unlinked.

Unlinking alone would leave a person's bytes on the disk, in blocks that belong to nobody. So every block of every file
is overwritten and synced first. This needs the exclusive lease: nobody may be looking at what turns to zero. While any
process still has the generation open, it stays; whoever closes a handle for writing, has an idle moment, or vacuums,
tries again. A process that dies half way leaves a directory that is not live and that nobody holds: the next one
begins again.

A generation that a vacuum was still writing when it died is retired in the same way: it holds people too.

Not done here: blocks that the file system moved elsewhere (copy-on-write, SSDs, snapshots) are out of reach.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dynfrsdb_storage import layout
from dynfrsdb_storage.directory import other_generations, read_current, retire
from dynfrsdb_storage.disk import sync_data, sync_directory, write_at
from dynfrsdb_storage.failpoints import failpoint

_AT_ONCE = 1 << 20
_LOCKS = Path("/proc/locks")


def old_generations(store: Path) -> list[str]:
    """The names of generations that are older than the live one."""
    current = read_current(store)
    return [name for name in other_generations(store, current) if not _is_newer(name, current)]


def retire_old(store: Path) -> list[str]:
    """Retire every generation older than the live one; returns those that are still held, or could not be erased."""
    return [name for name in old_generations(store) if not _try(store, name)]


def retire_unfinished(store: Path) -> None:
    """Retire what a vacuum that died has left of a generation it was writing; only under the writer lock."""
    current = read_current(store)
    for name in other_generations(store, current):
        if _is_newer(name, current):
            _try(store, name)


def overwrite_and_remove(directory: Path) -> None:
    """Overwrite all files of a generation, durably, and then remove it; LEASE, which says whose it is, goes last."""
    files = sorted(directory.iterdir(), key=lambda file: (file.name == layout.LEASE_FILE, file.name))
    for file in files:
        _overwrite(file)
        failpoint("retire-zeroed")
    for file in files:
        file.unlink()
        failpoint("retire-unlinked")
    directory.rmdir()
    sync_directory(directory.parent)


def holders(directory: Path) -> list[int]:
    """The pids of processes that have a generation open, as far as the system tells."""
    try:
        stat = os.stat(directory / layout.LEASE_FILE)
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return []
    place = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
    return sorted({int(words[4]) for words in map(str.split, lines) if len(words) > 5 and words[5] == place})


def _try(store: Path, name: str) -> bool:
    try:
        return retire(store, name, overwrite_and_remove)
    except FileNotFoundError:
        if (store / name / layout.LEASE_FILE).exists():
            return False  # another process is removing it as well
        with suppress(FileNotFoundError):
            overwrite_and_remove(store / name)
        return True
    except OSError:
        return False  # a full or failing disk, or not ours to write: somebody tries again later


def _overwrite(file: Path) -> None:
    descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        for start, end in _data(descriptor):
            for at in range(start, end, _AT_ONCE):
                write_at(descriptor, bytes(min(_AT_ONCE, end - at)), at)
        sync_data(descriptor)
    finally:
        os.close(descriptor)


def _data(descriptor: int) -> Iterator[tuple[int, int]]:
    """The parts of a file that have blocks; the holes between them read as zeros, and need room to be written."""
    size = os.fstat(descriptor).st_size
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # nothing but a hole is left
            start = end
        end = min(os.lseek(descriptor, start, os.SEEK_HOLE), size)
        yield start, end


def _is_newer(name: str, current: str) -> bool:
    return layout.generation_number(name) > layout.generation_number(current)
