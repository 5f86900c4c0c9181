"""Bits flip, pages get lost, files are cut short: an answer is right or there is an error, never a wrong answer.

A store is made once and stays closed. For each piece of damage a few bytes of its files are changed in place, a forked
reader asks everything it can, and the bytes are put back:

    damage                                    a reader                       a writer
    a bit anywhere, half of them in LMDB's    right, or an error of ours;    the same, or stopped by LMDB's own
    meta, branch and free-list pages          it never dies                  assertion, with nothing touched

Only damage at rest is meant here. LMDB is patched by py-lmdb to look at offsets before it follows them; what that
leaves to us is in dynfrsdb_storage.read and pages.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest

import dynfrsdb
from dynfrsdb_storage import layout, records
from tests.conftest import MEMORY
from tests.reliability.workload import (
    BATCH,
    Child,
    Tell,
    add,
    answer,
    chance,
    label,
    living,
    new_store,
    subject,
    values,
    warm,
)

FLIPS = 300
WRITES = 40
LOST_WRITES = 60
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


def newest_transaction(data: bytes) -> int:
    """The number of the last transaction that LMDB has committed."""
    return max(int.from_bytes(data[at + 144 : at + 152], "little") for at in (0, PAGE))


def make(place: Path) -> Wounded:
    """A store with some history; `older` is a copy of it from a few commits ago."""
    path = new_store(place / "people.forest", PEOPLE)
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


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wounded]:
    """The store that is wounded again and again."""
    warm()
    place = MEMORY / f"dynfrsdb-flips-{os.getpid()}" if MEMORY.is_dir() else tmp_path_factory.mktemp("flips")
    place.mkdir(exist_ok=True)
    yield make(place)
    shutil.rmtree(place)


def anywhere(store: Wounded, dice: random.Random) -> Flip:
    """A bit of either file; of data.mdb one that is in use."""
    if dice.random() < 0.3:
        return ROWS, dice.randrange(len(store.raw[ROWS])), 1 << dice.randrange(8)
    page = dice.choice(store.pages["leaf"] + store.pages["branch"])
    return DATA, page * PAGE + dice.randrange(PAGE), 1 << dice.randrange(8)


def aimed(store: Wounded, dice: random.Random) -> Flip:
    """A bit of a meta page, or one that says how a branch, free-list or leaf page is built."""
    kind = dice.choice(["meta", "branch", "branch", "free", "leaf"])
    if kind == "meta":
        return DATA, dice.randrange(2) * PAGE + dice.randrange(160), 1 << dice.randrange(8)
    number = dice.choice(store.pages[kind])
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


def ask_everything(store: Wounded, dice: random.Random) -> str:
    """Ask a store everything, and hold the answers against the truth; what comes back is the first that is wrong."""
    with dynfrsdb.open(store.path) as db:
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


def read(store: Wounded, seed: int) -> str:
    """What a reading process says of a damaged store: "right", "error", or what went wrong."""

    def work(tell: Tell) -> None:
        signal.alarm(60)
        try:
            wrong = ask_everything(store, random.Random(seed))
            tell({"outcome": f"a wrong answer: {wrong}" if wrong else "right"})
        except dynfrsdb.SampleNotFound as error:
            tell({"outcome": f"a wrong answer: {error}"})
        except dynfrsdb.Error as error:
            tell({"outcome": "error" if str(error) else "an error without words"})

    with Child(work) as child:
        said = child.hear()
        code = child.end()
    return said["outcome"] if said and code == 0 else f"a dead reader: status {code}"


def test_no_flipped_bit_gives_a_wrong_answer_or_kills_a_reader(store: Wounded) -> None:
    dice = chance("bit flips")
    seen: Counter[str] = Counter()
    bad = []

    for i in range(FLIPS):
        flip = (anywhere, aimed)[i % 2](store, dice)
        with store.changed(*flip[:2], store.flipped(flip)):
            outcome = read(store, i)
        seen[outcome] += 1
        if outcome not in ("right", "error"):
            bad.append((flip, outcome))

    print(dict(seen))
    assert not bad
    assert seen["error"] > FLIPS // 10, "the flips did not hit anything"
    assert read(store, 0) == "right"


def test_a_page_whose_last_write_was_lost_gives_no_wrong_answer(store: Wounded) -> None:
    """Old pages have valid checksums: stamps, counts and the commit number in LOCK give them away."""
    dice = chance("lost writes")
    old = (store.older / DATA).read_bytes()
    changed = [
        page
        for page in [0, 1, *store.pages["leaf"], *store.pages["branch"]]
        if old[page * PAGE : (page + 1) * PAGE] != store.raw[DATA][page * PAGE : (page + 1) * PAGE]
        and len(old) >= (page + 1) * PAGE
    ]
    dice.shuffle(changed)
    seen: Counter[str] = Counter()
    bad = []

    for i, page in enumerate(changed[:LOST_WRITES]):
        with store.changed(DATA, page * PAGE, old[page * PAGE : (page + 1) * PAGE]):
            outcome = read(store, i)
        seen[outcome] += 1
        if outcome not in ("right", "error"):
            bad.append((page, outcome))

    print(dict(seen))
    assert not bad
    assert seen["error"]


def test_a_meta_page_that_hides_the_newest_commit_is_a_roll_back(store: Wounded) -> None:
    """LMDB then opens the commit before without a word; LOCK knows better."""
    at = store.newer * PAGE + 16 + 128

    with (
        store.changed(DATA, at, bytes(8)),
        pytest.raises(dynfrsdb.CorruptStore, match=r"was rolled back: it is at commit \d+, but commit \d+"),
    ):
        dynfrsdb.open(store.path)


@pytest.mark.parametrize("name", [DATA, ROWS])
def test_a_file_that_is_cut_short_is_refused(store: Wounded, name: str) -> None:
    dice = chance(f"cuts of {name}")
    used = (max(max(pages) for pages in store.pages.values()) + 1) * PAGE if name == DATA else len(store.raw[name])
    file = store.path / name

    for size in [0, 1, PAGE, *(dice.randrange(used) for _ in range(12)), used - 1]:
        os.truncate(file, size)
        try:
            assert read(store, size) == "error"
            assert file.stat().st_size == size
        finally:
            file.write_bytes(store.raw[name])


def foreign(path: Path) -> None:
    """An LMDB file, but of another program."""
    os.unlink(path / DATA)
    with lmdb.open(str(path / "gen-0001"), max_dbs=3, lib_version=0) as env:
        env.open_db(b"songs")


def newer(path: Path) -> None:
    """A store of the format after this one."""
    with dynfrsdb.open(path, "w") as db, db._store.write() as session:
        identity = {"format": layout.FORMAT + 1, "algorithm": 1, "uuid": bytes(16)}
        session.put("meta", layout.META_FORMAT, records.frame(identity))
        session.commit()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: (path / DATA).write_bytes(b""), "is shorter than it says"),
        (lambda path: (path / DATA).write_bytes(b"SQLite format 3\0" * 1000), "is not an LMDB 0.9 file"),
        (lambda path: (path / DATA).write_bytes(bytes(1 << 20)), "is not an LMDB 0.9 file"),
        (foreign, "is an LMDB file of something else"),
        (newer, "has format 2 and algorithm 1, we read 1 and 1; upgrade dynfrsdb"),
        (lambda path: (path / ROWS).write_bytes(b""), "is cut short"),
        (lambda path: (path / "CURRENT").write_bytes(b""), "names no generation"),
    ],
)
@pytest.mark.parametrize("mode", ["r", "w"])
def test_a_file_that_is_not_ours_is_refused_and_not_touched(
    store_dir: Path, mode: str, damage: Callable[[Path], Any], words: str
) -> None:
    path = new_store(store_dir / "people.forest", 30)
    damage(path)
    before = {name: (path / name).read_bytes() for name in (DATA, ROWS, "CURRENT")}

    with pytest.raises(dynfrsdb.Error) as caught:
        dynfrsdb.open(path, mode)

    assert words in str(caught.value)
    assert {name: (path / name).read_bytes() for name in before} == before


def hide_the_last_of_each_page(store: Wounded, path: Path, database: str) -> list[bytes]:
    """Make every leaf page of a database forget its last record; returns the keys of those."""
    hidden = []
    with open(path / DATA, "r+b", buffering=0) as file:
        for number in store.pages[database]:
            page = store.raw[DATA][number * PAGE : (number + 1) * PAGE]
            nodes = offsets(page)
            size = int.from_bytes(page[nodes[-1] + 6 : nodes[-1] + 8], "little")
            os.pwrite(file.fileno(), (14 + 2 * len(nodes)).to_bytes(2, "little"), number * PAGE + 12)
            hidden.append(page[nodes[-1] + 8 : nodes[-1] + 8 + size])
    return hidden


def test_a_sample_that_the_index_has_lost_is_not_said_to_be_unknown(store: Wounded, store_dir: Path) -> None:
    """A removal must never be answered with "not found" while the sample is still in the forest."""
    path = Path(shutil.copytree(store.path, store_dir / "people.forest"))
    hidden = [int.from_bytes(key, "big") for key in hide_the_last_of_each_page(store, path, "samples")]
    assert set(hidden) <= store.live

    with dynfrsdb.open(path, "w", settle=None) as db:
        with pytest.raises(dynfrsdb.CorruptStore, match=r"'samples' in .* has \d+ records, there should be"):
            db.remove([hidden[0]])
        with pytest.raises(dynfrsdb.CorruptStore, match=r"'samples' in .* has \d+ records, there should be"):
            db.sample(hidden[0])
        assert not db.check()


def test_a_subject_that_the_index_has_lost_is_not_said_to_be_unknown(store: Wounded, store_dir: Path) -> None:
    path = Path(shutil.copytree(store.path, store_dir / "people.forest"))
    hidden = [int.from_bytes(key[16:], "big") for key in hide_the_last_of_each_page(store, path, "subjects")]
    whole = next(id for id in hidden if id in store.live)
    others = [id for id in store.live if subject(id) == subject(whole) and id != whole]

    with dynfrsdb.open(path, "w", settle=None) as db:
        db.remove(others)
        with pytest.raises(dynfrsdb.CorruptStore, match=r"'subjects' in .* has \d+ records, there should be"):
            db.forget(subject(whole))


def test_a_misled_search_is_noticed(store: Wounded) -> None:
    """A flipped bit in a key of a branch page sends searches to the wrong leaf."""
    found: Counter[str] = Counter()
    for number in store.pages["branch"]:
        page = store.raw[DATA][number * PAGE : (number + 1) * PAGE]
        nodes = offsets(page)
        if struct.unpack_from("<H", page, nodes[1] + 6)[0] != 8:
            continue
        for at in nodes[1:]:
            low_byte = number * PAGE + at + 8 + 7
            with (
                store.changed(DATA, low_byte, bytes([store.raw[DATA][low_byte] ^ 0x10])),
                dynfrsdb.open(store.path) as db,
            ):
                for id in sorted(store.live)[::5]:
                    try:
                        assert db.sample(id).x.tobytes() == values([id]).tobytes()
                        found["right"] += 1
                    except dynfrsdb.CorruptStore:
                        found["error"] += 1

    assert found["error"]


def test_a_writer_that_meets_damage_leaves_what_was_committed(store: Wounded, store_dir: Path) -> None:
    """It may be stopped by an error, or by LMDB's own assertion; without the damage the store is then as it was."""
    dice = chance("writers")
    going, coming = sorted(dice.sample(sorted(store.live), 5)), [7001, 7002]
    after = store.live - set(going) | set(coming)
    seen: Counter[str] = Counter()
    for i in range(WRITES):
        path = Path(shutil.copytree(store.path, store_dir / f"{i}.forest"))
        name, at, _ = flip = (anywhere, aimed)[i % 2](store, dice)
        with open(path / name, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), store.flipped(flip), at)

        outcome = write(path, going, coming)
        with open(path / name, "r+b", buffering=0) as file:
            if os.pread(file.fileno(), 1, at) == store.flipped(flip):
                os.pwrite(file.fileno(), store.raw[name][at : at + 1], at)
        if newest_transaction((path / DATA).read_bytes()) > newest_transaction(store.raw[DATA]):
            outcome = "done"  # and the damage may have gone with it into new pages, where an error will name it
        seen[outcome] += 1
        if outcome != "done":
            with dynfrsdb.open(path) as db:
                assert not db.check().problems, flip
                assert living(db) in (store.live, after), flip
        shutil.rmtree(path)

    print(dict(seen))
    assert set(seen) <= {"done", "error", "stopped"}


def write(path: Path, going: list[int], coming: list[int]) -> str:
    """What becomes of a transaction in a process of its own."""

    def work(tell: Tell) -> None:
        signal.alarm(60)
        try:
            with dynfrsdb.open(path, "w", settle=None) as db, db.transaction() as txn:
                txn.remove(going)
                add(txn, coming)
                txn.predict(BATCH[:4])
            tell({"outcome": "done"})
        except dynfrsdb.Error:
            tell({"outcome": "error"})

    with Child(work) as child:
        said = child.hear()
        code = child.end()
    if said:
        return str(said["outcome"])
    return "stopped" if code == -signal.SIGABRT else f"a dead writer: status {code}"
