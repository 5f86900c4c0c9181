"""Power loss, simulated: record what a process does to its files, then lose what was not synced.

A program runs with shim.c preloaded, which writes down every write, sync, create and rename below a directory. `Disk`
plays that log again and knows, at every instant, what a disk must have and what it may have:

    log                          must be there          may be there
    write rows.bin 512..1023     -                      that sector, old or new
    sync rows.bin                that sector            -
    create CURRENT.new           -                      the name
    sync its directory           the name               -

`Disk.crash` makes one state that a power loss at this instant could leave: each sector (512 bytes) that was written
since its file was synced is old or new on its own; a file's new length is there or not; of the names that changed in a
directory since it was synced, the first few changes are there. A write through an O_DSYNC descriptor (LMDB's for its
meta pages) is durable by itself and brings nothing else along.

Run as a program, this module is the recorded workload: it creates a store and changes it, and tells about each step in
the file `told`, which is recorded like all others. So the log itself says what was acknowledged when.

Not modelled: stores through a memory map. LMDB makes them to lock.mdb only, which is left out: after a power loss
nobody holds a lock.
"""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dynfrsdb
from tests.full_disk import build
from tests.reliability.workload import PEOPLE, Worker, add, label, subject, values

SECTOR = 512
STORE, TOLD = "people.forest", "told"
UNRECORDED = "lock.mdb"
_HEAD = struct.Struct("=QQQQQ")
Entries = dict[str, int]


@dataclass(frozen=True)
class Event:
    """One entry of the log; see shim.c for what its fields mean."""

    kind: str
    inode: int
    offset: int
    other: int
    data: bytes


def build_shim(place: Path) -> Path:
    """Compile shim.c; raises if there is no C compiler, or if it cannot."""
    return build(Path(__file__).with_name("shim.c"), place)


def record(shim: Path, place: Path, seed: int, steps: int) -> list[Event]:
    """Run the workload below `place` with the recorder in it, and read what it did."""
    log = shim.with_name("log")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "LD_PRELOAD": str(shim),
        "RECORD_DIR": str(place),
        "RECORD_LOG": str(log),
        "DYNFRSDB_THREADS": "1",
    }
    command = [sys.executable, "-m", "tests.reliability.replay", str(place), str(seed), str(steps)]
    subprocess.run(command, check=True, env=environment, timeout=300, cwd=Path(__file__).parents[2])
    return list(_events(log.read_bytes()))


def _events(raw: bytes) -> Iterator[Event]:
    at = 0
    while at < len(raw):
        kind, inode, offset, other, length = _HEAD.unpack_from(raw, at)
        at += _HEAD.size
        yield Event(chr(kind), inode, offset, other, raw[at : at + length])
        at += length


@dataclass
class File:
    """What is certainly on the disk, what was written since (in pieces that are whole sectors or less), and how long
    the file has been since the last sync."""

    durable: bytearray = field(default_factory=bytearray)
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        return self.sizes[-1] if self.sizes else len(self.durable)

    def write(self, offset: int, data: bytes, durable: bool) -> None:
        end = offset + len(data)
        if end > self.size:
            self.sizes.append(end)
        if durable:
            self._make_durable(offset, data)
        else:
            self.pieces += _by_sector(offset, data)

    def resize(self, size: int) -> None:
        if size < self.size:
            self.pieces = [(at, data) for at, data in self.pieces if at + len(data) <= size]
        self.sizes.append(size)

    def sync(self) -> None:
        size = self.size
        for at, data in self.pieces:
            _put(self.durable, at, data)
        _set_size(self.durable, size)
        self.pieces, self.sizes = [], []

    def left_by_a_crash(self, dice: random.Random) -> bytes:
        keep = _how_much(dice)
        content = bytearray(self.durable)
        if self.sizes:
            _set_size(content, dice.choice([len(content), *self.sizes]))
        for at, data in self.pieces:
            if keep():
                _put(content, at, data)
        return bytes(content)

    def _make_durable(self, offset: int, data: bytes) -> None:
        covered = {at // SECTOR for at, _ in _by_sector(offset, data)}
        for at, piece in self.pieces:
            if at // SECTOR in covered:  # the cache writes whole sectors: what was written before goes along
                _put(self.durable, at, piece)
        self.pieces = [(at, piece) for at, piece in self.pieces if at // SECTOR not in covered]
        _put(self.durable, offset, data)


@dataclass
class Directory:
    """The names that are certainly on the disk, and the changes to them since, in order."""

    durable: Entries = field(default_factory=dict)
    changes: list[Callable[[Entries], object]] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.changes:
            change(self.durable)
        self.changes = []

    def left_by_a_crash(self, dice: random.Random) -> Entries:
        entries = dict(self.durable)
        for change in self.changes[: dice.choice([0, len(self.changes), dice.randint(0, len(self.changes))])]:
            change(entries)
        return entries


class Disk:
    """A disk that a log is played to, event by event."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._files: dict[int, File] = {}
        self._directories = {root: Directory()}

    def play(self, event: Event) -> None:
        """One thing happens."""
        name = event.data.decode(errors="replace")
        if event.kind == "W":
            self._file(event).write(event.offset, event.data, durable=bool(event.other))
        elif event.kind == "T":
            self._file(event).resize(event.offset)
        elif event.kind == "A":
            self._file(event).resize(max(event.offset, self._file(event).size))
        elif event.kind == "S":
            (self._directories.get(event.inode) or self._file(event)).sync()
        elif event.kind in "CD":
            new: File | Directory = File() if event.kind == "C" else Directory()
            (self._files if event.kind == "C" else self._directories)[event.other] = new  # type: ignore[assignment]
            self._change(event.inode, lambda entries: entries.update({name: event.other}))
        elif event.kind == "U":
            self._change(event.inode, lambda entries: entries.pop(name, None))
        elif event.kind == "R":
            assert event.inode == event.other, "a rename from one directory to another is not modelled"
            old, new_name = name.split("\0")
            self._change(event.inode, lambda entries: _rename(entries, old, new_name))
        else:
            raise AssertionError(f"event {event.kind} is not modelled")

    def crash(self, place: Path, dice: random.Random) -> None:
        """Make below `place` what a power loss now could leave on the disk."""
        self._restore(self._root, place, dice)

    def _restore(self, inode: int, place: Path, dice: random.Random) -> None:
        place.mkdir(0o700)
        for name, there in self._directories[inode].left_by_a_crash(dice).items():
            if there in self._directories:
                self._restore(there, place / name, dice)
            elif name not in (UNRECORDED, TOLD):
                (place / name).write_bytes(self._files[there].left_by_a_crash(dice))

    def _file(self, event: Event) -> File:
        return self._files[event.inode]

    def _change(self, inode: int, change: Callable[[Entries], object]) -> None:
        self._directories[inode].changes.append(change)


def told(events: list[Event]) -> Iterator[dict[str, Any] | None]:
    """For each event what the workload told with it, or None."""
    inode = next(event.other for event in events if event.kind == "C" and event.data == TOLD.encode())
    for event in events:
        yield json.loads(event.data) if event.kind == "W" and event.inode == inode else None


def _by_sector(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    at, end = offset, offset + len(data)
    while at < end:
        stop = min(end, (at // SECTOR + 1) * SECTOR)
        yield at, data[at - offset : stop - offset]
        at = stop


def _put(content: bytearray, at: int, data: bytes) -> None:
    if len(content) < at + len(data):
        _set_size(content, at + len(data))
    content[at : at + len(data)] = data


def _set_size(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


def _rename(entries: Entries, old: str, new: str) -> None:
    entries[new] = entries.pop(old)


def _how_much(dice: random.Random) -> Callable[[], bool]:
    """Nothing of it, all of it, or some of it: each is its own kind of disaster."""
    share = dice.choice([0.0, 1.0, 0.5, 0.05, 0.95])
    return lambda: dice.random() < share


def work(place: Path, seed: int, steps: int) -> None:
    """The recorded workload."""
    descriptor = os.open(place / TOLD, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(said: dict[str, Any]) -> None:
        os.write(descriptor, json.dumps(said).encode())

    dice, ids = random.Random(seed), range(PEOPLE)
    db = dynfrsdb.create(
        place / STORE,
        values(ids),
        [label(i) for i in ids],
        subjects=[subject(i) for i in ids],
        classes=["no", "yes"],
        n_estimators=10,
        q=0.2,
        min_samples_split=3,
        seed=seed,
        _bucket=16,
    )
    tell({"created": 1})
    worker = Worker(db, ids, dice, tell)
    for _ in range(steps):
        worker.step()
    worker.add_many()
    db.close()
    tell({"closed": 1})
    with dynfrsdb.open(place / STORE, "w", settle=None) as again:
        tell({"begin": [[9_999], []]})
        add(again, [9_999])
        tell({"done": 1})
        again.settle()
        tell({"vacuum": 1})
        again.vacuum()
        tell({"begin": [[], [9_999]]})
        again.remove([9_999])
        tell({"done": 2})


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
