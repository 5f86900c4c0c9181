"""A writer that meets damage: done, an error, or stopped by LMDB's own assertion, with nothing committed touched."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import dynfrsdb
from tests.reliability.workload import BATCH, Child, Tell, add, chance
from tests.reliability.wounds import DATA, PAGE, Flip, Wounded, aimed, anywhere, offsets, read, wounded

WRITES = 40


@pytest.fixture(scope="module")
def store() -> Iterator[Wounded]:
    with wounded() as made:
        yield made


def test_a_writer_that_meets_damage_leaves_what_was_committed(store: Wounded, store_dir: Path) -> None:
    """If it did not commit, the store is as it was as soon as the damage is undone. If it did, the damage may have gone
    along into new pages: then every answer is that of the new commit, or an error."""
    dice = chance("writers")
    going, coming = sorted(dice.sample(sorted(store.live), 5)), [7001, 7002]
    clean = Path(shutil.copytree(store.path, store_dir / "clean.forest"))
    assert write(clean, going, coming) == "done"
    after = Wounded(clean, store.older)
    seen: Counter[str] = Counter()
    bad = []

    for i in range(WRITES):
        flip = (anywhere, aimed)[i % 2](store, dice)
        path = copy_with(store, flip, store_dir / f"{i}.forest")
        metas = (path / DATA).read_bytes()[: 2 * PAGE]
        outcome = write(path, going, coming)
        committed = (path / DATA).read_bytes()[: 2 * PAGE] != metas
        found = judge(store, after, path, flip, committed, i)
        seen[f"{outcome}, {'committed' if committed else 'not committed'}: {found}"] += 1
        if outcome not in ("done", "error", "stopped") or found not in (
            ("right", "error") if committed else ("right",)
        ):
            bad.append((flip, outcome, committed, found))
        shutil.rmtree(path)

    print(dict(seen))
    assert not bad


def copy_with(store: Wounded, flip: Flip, path: Path) -> Path:
    """A copy of the store with one damaged byte."""
    shutil.copytree(store.path, path)
    with open(path / flip[0], "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), store.flipped(flip), flip[1])
    return path


def judge(store: Wounded, after: Wounded, path: Path, flip: Flip, committed: bool, seed: int) -> str:
    """What a reader says of the store that a writer has left."""
    if committed:
        return read(after, seed, path)
    name, at, _ = flip
    with open(path / name, "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), store.raw[name][at : at + 1], at)
    found = read(store, seed, path)
    with dynfrsdb.open(path) as db:
        return found if db.check() else f"{db.check().problems[0]}"


def test_a_damaged_free_list_is_refused_before_anything_is_overwritten(store: Wounded, store_dir: Path) -> None:
    """LMDB writes to the pages that its free list names, whoever they belong to."""
    number = store.pages["free"][0]
    page = store.raw[DATA][number * PAGE : (number + 1) * PAGE]
    first = offsets(page)[0]
    path = copy_with(store, (DATA, number * PAGE + first + 8 + 8 + 8, 1), store_dir / "people.forest")
    before = (path / DATA).read_bytes()

    with dynfrsdb.open(path, "w", settle=None) as db:
        with pytest.raises(dynfrsdb.CorruptStore, match=r"the list of free pages .*; nothing was changed\. .* backup"):
            db.remove([min(store.live)])
        assert db.check()
    with dynfrsdb.open(path) as db:
        assert db.backup(store_dir / "copy.forest")

    assert (path / DATA).read_bytes() == before
    with dynfrsdb.open(store_dir / "copy.forest", "w") as copy:
        copy.remove([min(store.live)])
        assert copy.check()


def test_a_last_page_that_cannot_be_the_last_is_refused_before_anything_is_written(
    store: Wounded, store_dir: Path
) -> None:
    """LMDB would write its next pages on some that are in use; or make the file as long as it is told, up to 70 TB."""
    at, size = store.newer * PAGE + 16 + 120, len(store.raw[DATA])
    last = int.from_bytes(store.raw[DATA][at : at + 8], "little")
    seen: Counter[str] = Counter()
    for bit in range(64):
        told = last ^ 1 << bit
        path = copy_with(store, (DATA, at + bit // 8, 1 << bit % 8), store_dir / "people.forest")
        before = (path / DATA).read_bytes()

        outcome = write(path, sorted(store.live)[:5], [7001])

        if told < last or told * PAGE >= size:
            assert (outcome, (path / DATA).read_bytes() == before) == ("error", True), f"bit {bit}"
        seen[outcome] += 1
        shutil.rmtree(path)

    assert seen["error"] > 40
    assert set(seen) <= {"error", "done"}, "done is who was told of pages behind the last one that are in the file"


def test_a_page_with_one_more_flag_is_not_written_on(store: Wounded, store_dir: Path) -> None:
    """LMDB would take it for a value of many pages and write its memory over whatever lies behind it."""
    going = sorted(store.live)[:40]
    for number in dict.fromkeys([store.pages["samples"][0], *store.pages["branch"][:3]]):
        for bits in (4, 8):
            path = copy_with(store, (DATA, number * PAGE + 10, bits), store_dir / "people.forest")
            before = (path / DATA).read_bytes()[2 * PAGE :]

            assert write(path, going, []) in ("error", "done")

            with dynfrsdb.open(store.path) as whole, open(path / DATA, "r+b", buffering=0) as file:
                assert len(whole) == len(store.live)
                if os.pread(file.fileno(), 2 * PAGE, 0) == store.raw[DATA][: 2 * PAGE]:
                    assert (path / DATA).read_bytes()[2 * PAGE :] == before
            shutil.rmtree(path)


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
