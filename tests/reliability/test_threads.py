"""Threads: they share one working set and one map, see only commits, and are not disturbed when the map is replaced."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import dynfrsdb
from dynfrsdb.errors import ClosedStore
from tests.reliability.workload import (
    EVERYBODY,
    PEOPLE,
    add,
    answer,
    chance,
    elsewhere,
    fresh_answer,
    in_child,
    living,
    new_store,
    values,
)

ROWS = values(range(200_000, 200_020))


def ask_at_once(db: dynfrsdb.Database, threads: int = 8, times: int = 30) -> set[str]:
    """Everything that many threads are told at the same time."""
    with ThreadPoolExecutor(threads) as pool:
        return set(pool.map(lambda _: answer(db), range(threads * times)))


@pytest.mark.parametrize("budget", [512 << 20, 50_000])
def test_many_threads_may_ask_at_once(path: Path, store_dir: Path, budget: int) -> None:
    elsewhere(lambda db: db.remove(range(0, 40, 2)), path)
    expected = fresh_answer(store_dir / "fresh.forest", EVERYBODY - set(range(0, 40, 2)))

    with dynfrsdb.open(path, cache_bytes=budget) as db:
        assert ask_at_once(db, times=10) == {expected}


def test_threads_see_the_last_commit_while_another_one_has_a_transaction_open(path: Path, store_dir: Path) -> None:
    gone = range(0, 60, 3)
    before = fresh_answer(store_dir / "before.forest", EVERYBODY)
    after = fresh_answer(store_dir / "after.forest", EVERYBODY - set(gone))
    with dynfrsdb.open(path, "w") as db:
        with db.transaction() as txn:
            txn.remove(gone)
            assert ask_at_once(db, times=5) == {before}
            assert answer(txn) == after
            assert ask_at_once(db, times=5) == {before}
            db.refresh()
            with db.snapshot() as pinned:
                assert answer(pinned) == before
        assert ask_at_once(db) == {after}
        db.remove([1], dry_run=True)
        assert ask_at_once(db) == {after}


def test_threads_ask_while_others_write_and_see_only_commits_in_order(path: Path) -> None:
    """As across processes: each answer is that of one commit, and no thread sees an older one than before."""
    dice = chance("threads")
    with dynfrsdb.open(path, "w") as db:
        order = [answer(db)]
        done = threading.Event()

        def watch(_: int) -> list[str]:
            seen = []
            while not done.is_set():
                seen.append(answer(db))
            return seen

        with ThreadPoolExecutor(4) as pool:
            watching = [pool.submit(watch, i) for i in range(4)]
            live = sorted(EVERYBODY)
            try:
                for i in range(60):
                    with db.transaction() as txn:
                        txn.remove([live.pop(dice.randrange(len(live)))])
                        if i % 3 == 0:
                            order.append(answer(txn))
                    if i % 3:
                        order.append(answer(db))
                    if i % 10 == 0:
                        db.remove([live[0]], dry_run=True)
            finally:
                done.set()
            lists = [one.result() for one in watching]

        for seen in lists:
            at = 0
            for got in seen:
                assert got in order[at:]
                at = order.index(got, at)
        assert db.check().problems == ()


def test_several_handles_of_one_process_share_a_store(path: Path) -> None:
    one, two = dynfrsdb.open(path), dynfrsdb.open(path)
    writer = dynfrsdb.open(path, "w")
    first = answer(one)
    assert answer(two) == first
    with one.snapshot() as pinned:
        writer.remove([1])
        other = dynfrsdb.open(path, "w")
        other.remove([2])
        writer.remove([3])
        assert answer(pinned) == first
    assert answer(one) == answer(two) == answer(writer) == answer(other)

    writer.close()
    two.close()

    assert living(one) == EVERYBODY - {1, 2, 3}
    other.remove([4])
    assert answer(one) == answer(other)
    with pytest.raises(ClosedStore, match="is closed; open it again"):
        answer(two)
    assert other.check().problems == ()
    other.close()
    assert 4 not in one
    one.close()


def test_opening_for_writing_does_not_disturb_threads_that_read(path: Path) -> None:
    """The first handle that may write makes the process open the files again, under the feet of those who read."""
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            with dynfrsdb.open(path) as db:
                for _ in range(5):
                    assert db.sample(0).id == 0
                    answer(db, ROWS)

    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(ask) for _ in range(3)]
        try:
            for id in range(1000, 1030):
                with dynfrsdb.open(path, "w") as db:
                    add(db, [id])
                time.sleep(0.005)
        finally:
            done.set()
        for task in asking:
            task.result()
    with dynfrsdb.open(path) as db:
        assert living(db) == EVERYBODY | set(range(1000, 1030))


@pytest.fixture
def tight(store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose memory map has to grow soon."""
    monkeypatch.setattr("dynfrsdb_storage.env.FIRST_MAP", 1 << 20)
    return new_store(store_dir / "tight.forest", n_estimators=60)


@pytest.mark.parametrize("where", ["the same process", "another process"])
def test_a_handle_answers_while_the_map_grows(tight: Path, where: str) -> None:
    """Growing the map ends every snapshot of the process; whoever asks does not notice."""
    done = threading.Event()

    def ask(db: dynfrsdb.Database) -> int:
        count = 0
        while not done.is_set():
            answer(db, ROWS)
            assert len(db) >= PEOPLE
            assert 0 in db
            assert db.sample(0).id == 0
            count += 1
        return count

    def grow() -> None:
        with dynfrsdb.open(tight, "w") as writer:
            for i in range(8):
                add(writer, range(1000 * i + 1000, 1000 * i + 1300))

    with dynfrsdb.open(tight) as one, dynfrsdb.open(tight) as two, ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask, db) for db in (one, one, two, two)]
        try:
            if where == "another process":
                assert in_child(grow) == 0
            else:
                grow()
        finally:
            done.set()
        assert min(task.result() for task in asking) > 0
        assert one.info()["map_size"] > 1 << 20
        assert answer(one) == answer(two)


def test_a_call_whose_snapshot_ends_because_the_map_grew_asks_again(
    tight: Path, store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a query another process grows the store, and another handle of ours has to follow at once."""

    def grow() -> None:
        with dynfrsdb.open(tight, "w") as writer:
            add(writer, range(1000, 6000))

    with dynfrsdb.open(tight) as db, dynfrsdb.open(tight) as other:
        shelf: Any = db._view._shelf
        records, asked = shelf.records, []

        def interrupted(places: Any) -> Any:
            asked.append(len(places))
            if len(asked) == 2:
                assert in_child(grow) == 0
                assert answer(other) != ""
                assert other.info()["map_size"] > 1 << 20
            return records(places)

        monkeypatch.setattr(shelf, "records", interrupted)

        assert answer(db) == answer(other)
        assert asked[2] == asked[0]  # from the roots on
