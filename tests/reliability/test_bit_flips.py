"""Bits flip, pages get lost, files are cut short: an answer is right or there is an error, never a wrong answer.

    damage                                    a reader
    a bit anywhere, half of them in LMDB's    right, or an error of ours;
    meta, branch and free-list pages          it never dies

What a writer does is in test_damaged_writers.py, what "not found" means in test_damaged_index.py.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

import dynfrsdb
from dynfrsdb_storage import layout, records
from tests.reliability.workload import chance, new_store
from tests.reliability.wounds import DATA, PAGE, ROWS, Wounded, aimed, anywhere, read, wounded

FLIPS = 300
LOST_WRITES = 60


@pytest.fixture(scope="module")
def store() -> Iterator[Wounded]:
    with wounded() as made:
        yield made


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


def test_a_branch_that_has_lost_all_its_records_but_one_kills_no_reader(store: Wounded) -> None:
    """LMDB would stop at an assertion of its own."""
    lower = (16 + 2).to_bytes(2, "little")
    seen: Counter[str] = Counter()

    for page in store.pages["branch"]:
        with store.changed(DATA, page * PAGE + 12, lower):
            seen[read(store, page)] += 1

    assert seen["error"]
    assert set(seen) <= {"error", "right"}, "right is who does not come by there"


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
        identity = {"format": layout.FORMAT + 1, "algorithm": 1, "uuid": bytes(16), "needs": "7.5"}
        session.put("meta", layout.META_FORMAT, records.frame(identity))
        session.commit()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: (path / DATA).write_bytes(b""), "is shorter than it says"),
        (lambda path: (path / DATA).write_bytes(b"SQLite format 3\0" * 1000), "is not an LMDB 0.9 file"),
        (lambda path: (path / DATA).write_bytes(bytes(1 << 20)), "is not an LMDB 0.9 file"),
        (foreign, "is an LMDB file of something else"),
        (newer, "; install dynfrsdb 7.5 or newer"),
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
