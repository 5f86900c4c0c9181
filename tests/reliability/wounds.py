"""A closed store that is damaged again and again, and what is true of it.

For each piece of damage a few bytes of its files are changed in place, a forked reader asks everything it can, and the
bytes are put back. Only damage at rest is meant here. LMDB is patched by py-lmdb to look at offsets before it follows
them; what that leaves to us is in dynfrsdb_storage.guard, read and pages.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dynfrsdb
from dynfrsdb_storage import layout
from tests.conftest import MEMORY
from tests.reliability.workload import Child, Tell, add, answer, label, living, new_store, values, warm

PEOPLE = 1500
PAGE = layout.PAGE_BYTES
DATA, ROWS = "gen-0001/data.mdb", "gen-0001/rows.bin"
NO_PAGE = (1 << 64) - 1
Flip = tuple[str, int, int]
"""A file, the place of a byte in it, and the bits to flip."""


class Wounded:
    """A closed store, what is true of it, and a map of its pages."""

    def __init__(self, path: Path, older: Path) -> None:
        self.path, self.older = path, older
        self.raw = {name: (path / name).read_bytes() for name in (DATA, ROWS)}
        self.pages: dict[str, list[int]] = {"branch": [], "leaf": [], "free": [], "samples": [], "subjects": []}
        with dynfrsdb.open(path) as db:
            self.answer, self.digest, self.live = answer(db), db.digest(), living(db)
            self.ledger = len(db.ledger())
            assert db.check()
        data = self.raw[DATA]
        metas = [struct.unpack_from("<48s48sQQ", data, at + 40) for at in (0, PAGE)]
        self.newer = max((0, 1), key=lambda i: metas[i][3])
        free, main = (int.from_bytes(tree[40:48], "little") for tree in metas[self.newer][:2])
        self._walk(free, "free")
        self._walk(main, "")

    def _walk(self, number: int, kind: str) -> None:
        if number == NO_PAGE:
            return
        page = self.raw[DATA][number * PAGE : (number + 1) * PAGE]
        branch = page[10] & 1
        self.pages["free" if kind == "free" else "branch" if branch else "leaf"].append(number)
        if kind in ("samples", "subjects") and not branch:
            self.pages[kind].append(number)
        for at in offsets(page):
            low, high, flags, size = struct.unpack_from("<HHHH", page, at)
            content = at + 8 + size
            if branch:
                self._walk(low | high << 16 | flags << 32, kind)
            elif flags & 2:
                self._walk(int.from_bytes(page[content + 40 : content + 48], "little"), page[at + 8 : content].decode())
            elif flags & 1 and kind == "free":
                self.pages["free"].append(int.from_bytes(page[content : content + 8], "little"))

    @contextmanager
    def changed(self, name: str, at: int, new: bytes) -> Iterator[None]:
        """The store with other bytes at one place; without them again afterwards."""
        place = self.path / name
        with open(place, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), new, at)
        try:
            yield
        finally:
            with open(place, "r+b", buffering=0) as file:
                os.pwrite(file.fileno(), self.raw[name][at : at + len(new)], at)

    def flipped(self, flip: Flip) -> bytes:
        name, at, bits = flip
        return bytes([self.raw[name][at] ^ bits])


def offsets(page: bytes) -> list[int]:
    """Where the nodes of an LMDB tree page begin."""
    lower = int.from_bytes(page[12:14], "little")
    return [int.from_bytes(page[at : at + 2], "little") for at in range(16, lower, 2)]


def make(place: Path, **settings: Any) -> Wounded:
    """A store with some history; `older` is a copy of it from a few commits ago."""
    path = new_store(place / "people.forest", PEOPLE, **settings)
    with dynfrsdb.open(path, "w") as db:
        for i in range(4):
            db.remove(range(30 * i, 30 * i + 9))
            add(db, range(5000 + 10 * i, 5003 + 10 * i))
    shutil.copytree(path, place / "older.forest")
    with dynfrsdb.open(path, "w") as db:
        for i in range(4, 8):
            db.remove(range(30 * i, 30 * i + 9))
            add(db, range(5000 + 10 * i, 5003 + 10 * i))
    return Wounded(path, place / "older.forest")


@contextmanager
def wounded(**settings: Any) -> Iterator[Wounded]:
    """A store to wound, in memory where that is possible."""
    warm()
    with tempfile.TemporaryDirectory(prefix="dynfrsdb-", dir=MEMORY if MEMORY.is_dir() else None) as place:
        yield make(Path(place), **settings)


def anywhere(store: Wounded, dice: random.Random) -> Flip:
    """A bit of either file; of data.mdb one that is in use, or one that says how a leaf is built."""
    where = dice.random()
    if where < 0.3:
        return ROWS, dice.randrange(len(store.raw[ROWS])), 1 << dice.randrange(8)
    if where < 0.5:
        return _in_the_build_of(store, dice.choice(store.pages["leaf"]), dice)
    page = dice.choice(store.pages["leaf"] + store.pages["branch"])
    return DATA, page * PAGE + dice.randrange(PAGE), 1 << dice.randrange(8)


def aimed(store: Wounded, dice: random.Random) -> Flip:
    """A bit of a meta page, or one that says how a branch or a free-list page is built."""
    kind = dice.choice(["meta", "branch", "branch", "free"])
    if kind == "meta":
        return DATA, dice.randrange(2) * PAGE + dice.randrange(160), 1 << dice.randrange(8)
    return _in_the_build_of(store, dice.choice(store.pages[kind]), dice)


def _in_the_build_of(store: Wounded, number: int, dice: random.Random) -> Flip:
    """A bit of a page's header, of its offsets, or of what stands before a record."""
    page = store.raw[DATA][number * PAGE : (number + 1) * PAGE]
    nodes = offsets(page) if page[10] & 3 else []
    part = dice.random()
    if part < 0.25 or not nodes:
        at = dice.randrange(16) if nodes else dice.randrange(PAGE)
    elif part < 0.5:
        at = 16 + dice.randrange(2 * len(nodes))
    else:
        at = min(dice.choice(nodes) + dice.randrange(18), PAGE - 1)
    return DATA, number * PAGE + at, 1 << dice.randrange(8)


def ask_everything(store: Wounded, path: Path, dice: random.Random) -> str:
    """Ask a store everything, and hold the answers against the truth; what comes back is the first that is wrong."""
    with dynfrsdb.open(path) as db:
        if answer(db) != store.answer:
            return "an answer"
        if len(db) != len(store.live):
            return "the number of samples"
        for id in dice.sample(sorted(store.live), 60):
            sample = db.sample(id)
            if sample.x.tobytes() != values([id]).tobytes() or sample.y != label(id):
                return f"sample {id}"
        if db.digest() != store.digest:
            return "the digest"
        if len(db.ledger()) != store.ledger:
            return "the ledger"
        if dice.random() < 0.3:
            db.check()
    return ""


def read(store: Wounded, seed: int, path: Path | None = None) -> str:
    """What a reading process says of a damaged store, or of the one at `path`: "right", "error", or what went wrong."""

    def work(tell: Tell) -> None:
        signal.alarm(60)
        try:
            wrong = ask_everything(store, path or store.path, random.Random(seed))
            tell({"outcome": f"a wrong answer: {wrong}" if wrong else "right"})
        except dynfrsdb.SampleNotFound as error:
            tell({"outcome": f"a wrong answer: {error}"})
        except dynfrsdb.Error as error:
            tell({"outcome": "error" if str(error) else "an error without words"})

    with Child(work) as child:
        said = child.hear()
        code = child.end()
    return said["outcome"] if said and code == 0 else f"a dead reader: status {code}"
