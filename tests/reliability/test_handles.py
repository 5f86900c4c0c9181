"""Handles: one store, many threads, several handles in a process, children by fork and by spawn, other users.

A handle is cheap and forgiving. Its threads share one working set; a forked child opens files of its own by itself and
keeps what its parent had in memory; a pickled handle is its path; and whoever only reads needs no more than permission
to read, and to leave its number in lock.mdb.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from numba.core.compiler_lock import global_compiler_lock

import dynfrsdb
from dynfrsdb.errors import ClosedStore, ReadOnly
from dynfrsdb.gate import Gate
from tests.reliability.workload import (
    PEOPLE,
    add,
    answer,
    chance,
    elsewhere,
    fresh_answer,
    in_child,
    living,
    new_store,
    traces,
    values,
    warm,
)

EVERYBODY = set(range(PEOPLE))
NOBODY = 65534
ROWS = values(range(200_000, 200_020))


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    warm()


@pytest.fixture
def path(store_dir: Path) -> Path:
    """The path of a closed store of people."""
    return new_store(store_dir / "people.forest")


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
            add(writer, range(1000, 2500))

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
        assert len(asked) > 3


def test_a_forked_child_uses_what_its_parent_had_in_memory(path: Path) -> None:
    """As with gunicorn --preload: open and warm up once, then fork."""
    with dynfrsdb.open(path) as db:
        expected = answer(db)
        before = dict(db._store.loads)

        def child() -> None:
            assert answer(db) == expected
            loaded = {name: db._store.loads[name] - before[name] for name in ("nodes", "buckets")}
            assert loaded == {"nodes": 0, "buckets": 0}

        assert in_child(child) == 0


def test_a_forked_child_follows_and_writes_through_an_environment_of_its_own(path: Path) -> None:
    with dynfrsdb.open(path, "w") as db:
        before = answer(db)
        env = db._store.current().env

        def child() -> None:
            assert answer(db) == before
            db.remove([1])
            assert db._store.current().env is not env
            assert 1 not in db
            assert in_child(lambda: db.remove([2])) == 0
            assert 2 not in db
            db.close()

        with db.snapshot() as pinned:
            assert in_child(child) == 0
            assert answer(pinned) == before
            assert 1 in pinned
        assert living(db) == EVERYBODY - {1, 2}
        assert db._store.current().env is env
        db.remove([3])
        assert db.check().problems == ()
        assert traces(path, [1, 2, 3]) == []


@contextmanager
def another_thread(inside: AbstractContextManager[object], seconds: float) -> Iterator[None]:
    """While this lasts, or for some seconds, another thread is inside a block."""
    ready, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with inside:
            ready.set()
            leave.wait(seconds)

    thread = threading.Thread(target=stay)
    thread.start()
    ready.wait()
    yield
    leave.set()
    thread.join()


def test_a_child_does_not_wait_for_a_thread_that_only_its_parent_has(path: Path) -> None:
    with dynfrsdb.open(path, "w") as db:
        expected = answer(db)

        def child() -> None:
            faulthandler.dump_traceback_later(20, exit=True)
            assert answer(db) == expected
            db.remove([1], timeout=1)

        with another_thread(db._gate.alone(), 60), another_thread(db._writing, 60):
            assert in_child(child) == 0
        assert 1 not in db


def test_a_fork_waits_for_a_kernel_that_is_being_compiled(path: Path) -> None:
    """Half a compilation is of no use to the child, and numba's lock would stay locked in it for ever."""

    def child() -> None:
        assert global_compiler_lock._lock.acquire(timeout=5)

    with another_thread(global_compiler_lock, 0.3):
        assert in_child(child) == 0


def test_an_interrupt_while_waiting_for_the_working_set_does_not_lock_others_out() -> None:
    gate = Gate()

    def interrupt(*_: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with another_thread(gate.shared(), 60):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(InterruptedError), gate.alone():
                pass

            with another_thread(gate.shared(), 0.0):
                pass
    finally:
        signal.signal(signal.SIGALRM, before)
    with gate.alone(), gate.shared():
        pass


def test_a_snapshot_of_the_parent_is_not_the_childs(path: Path) -> None:
    with dynfrsdb.open(path) as db, db.snapshot() as pinned:

        def child() -> None:
            for use in (lambda: answer(pinned), lambda: pinned.sample(1), lambda: 1 in pinned):
                with pytest.raises(ClosedStore, match="belongs to the parent process; take a new one"):
                    use()
            answer(db)

        assert in_child(child) == 0
        assert pinned.sample(1).id == 1


def test_a_pool_of_forked_processes_may_use_a_handle(path: Path) -> None:
    with dynfrsdb.open(path) as db:
        expected = answer(db)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert set(pool.map(answer, [db] * 6)) == {expected}


def test_a_handle_can_be_pickled_and_reopens_by_path(path: Path) -> None:
    with dynfrsdb.open(path, "w", settle=None, cache_bytes=12_345) as db:
        copy = pickle.loads(pickle.dumps(db))

        copy.remove([1])

        assert (copy.path, copy.mode, copy._settle, copy._cache_bytes) == (path, "w", None, 12_345)
        assert 1 not in db
        copy.close()
        assert answer(db) != ""


def test_a_spawned_process_may_be_given_a_handle(path: Path) -> None:
    with dynfrsdb.open(path) as db, multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(answer, [db]) == answer(db)


def as_nobody(work: Callable[[], object]) -> int:
    """Run `work` in a child that may do nothing but what everybody may."""

    def unprivileged() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        work()

    return in_child(unprivileged)


def open_to_everybody(path: Path) -> Path:
    """Let everybody read a store, and write nothing but lock.mdb."""
    path.parent.chmod(0o755)
    for entry in [path, *path.rglob("*")]:
        entry.chmod(0o755 if entry.is_dir() else 0o666 if entry.name == "lock.mdb" else 0o644)
    return path


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_reader_needs_write_permission_to_nothing_but_lock_mdb(path: Path) -> None:
    with dynfrsdb.open(open_to_everybody(path), "w", settle=None) as db:
        db.remove(range(0, 40, 2))
        expected = answer(db)

        def read() -> None:
            for file in ("CURRENT", "LOCK", "gen-0001/data.mdb", "gen-0001/rows.bin", "gen-0001/LEASE"):
                assert not os.access(path / file, os.W_OK)
            with dynfrsdb.open(path) as reader:
                assert answer(reader) == expected
                assert living(reader) == EVERYBODY - set(range(0, 40, 2))
                assert reader.check().problems == ()
                with pytest.raises(ReadOnly), dynfrsdb.open(path, "w") as writer:
                    writer.remove([1])
                assert answer(reader) == expected

        assert as_nobody(read) == 0
        assert 1 in db
        db.remove([1])
        assert db.check().problems == ()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_reader_that_may_not_write_lock_mdb_is_told_so(path: Path) -> None:
    (open_to_everybody(path) / "gen-0001/lock.mdb").chmod(0o644)

    def read() -> None:
        with pytest.raises(ReadOnly, match=r"write permission to lock\.mdb"):
            dynfrsdb.open(path)

    assert as_nobody(read) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_store_is_private_to_begin_with(path: Path) -> None:
    path.parent.chmod(0o755)

    def read() -> None:
        with pytest.raises(ReadOnly, match="may not be read by this user"):
            dynfrsdb.open(path)

    assert as_nobody(read) == 0
