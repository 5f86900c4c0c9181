"""Handles: children by fork and by spawn, and pickles.

A handle is cheap and forgiving. A forked child opens files of its own by itself and keeps what its parent had in
memory; a pickled handle is its path.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import pickle
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from numba.core.compiler_lock import global_compiler_lock

import dynfrsdb
from dynfrsdb.errors import ClosedStore
from dynfrsdb.gate import Gate
from tests.reliability.workload import (
    EVERYBODY,
    answer,
    in_child,
    living,
    traces,
)


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
