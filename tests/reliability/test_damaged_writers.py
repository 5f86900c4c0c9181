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
from tests.reliability.workload import BATCH, Child, Tell, add, chance, living
from tests.reliability.wounds import DATA, Wounded, aimed, anywhere, wounded

WRITES = 40


@pytest.fixture(scope="module")
def store() -> Iterator[Wounded]:
    with wounded() as made:
        yield made


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
