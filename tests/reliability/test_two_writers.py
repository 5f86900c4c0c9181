"""Two writers: they wait for each other, give up, die with the lock in hand, fork with it; nothing is lost.

The lock is a `flock`, which belongs to an open file and not to a process. That makes three things worth trying: it dies
with its holder at once, a forked child neither releases it nor keeps it alive, and two threads exclude each other like
two processes do.
"""

from __future__ import annotations

import faulthandler
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dynfrsdb
from dynfrsdb.errors import ClosedStore, Locked, TransactionMisuse
from tests.reliability.workload import (
    EVERYBODY,
    KILLED,
    LENGTH,
    PATIENCE,
    PEOPLE,
    Child,
    Tell,
    add,
    answer,
    chance,
    fresh_answer,
    in_child,
    living,
    new_store,
    traces,
)

SECONDS = 5.0 * LENGTH


@contextmanager
def holder(path: Path, act: Callable[[dynfrsdb.Transaction], object] = lambda txn: None) -> Iterator[Child]:
    """A process that is in the middle of a transaction and stays there until it is killed."""

    def hold(tell: Tell) -> None:
        with dynfrsdb.open(path, "w").transaction() as txn:
            act(txn)
            tell({"inside": 1})
            time.sleep(600)

    with Child(hold) as child:
        assert child.hear() == {"inside": 1}
        yield child


def test_who_waits_too_long_is_told_which_process_writes_and_since_when(path: Path) -> None:
    before = time.monotonic()
    with holder(path) as other, dynfrsdb.open(path, "w") as db:
        time.sleep(1.1)
        begin = time.monotonic()

        with pytest.raises(Locked, match=rf"is being written by process {other.pid} on '.+' \(since \d+ s") as caught:
            db.remove([1], timeout=0.3)

        since = int(str(caught.value).partition("(since ")[2].partition(" s")[0])
        assert 1 <= since <= time.monotonic() - before + 1
        assert 0.25 < time.monotonic() - begin < PATIENCE
        assert "pass timeout=" in str(caught.value)
        assert db.info()["samples"] == PEOPLE
        with pytest.raises(Locked, match=str(other.pid)):
            db.settle(timeout=0)


def test_who_waits_long_enough_gets_its_turn(path: Path) -> None:
    def write(tell: Tell) -> None:
        with dynfrsdb.open(path, "w") as db, db.transaction() as txn:
            txn.remove([1])
            tell({"inside": 1})
            time.sleep(0.5)

    with Child(write) as other, dynfrsdb.open(path, "w") as db:
        assert other.hear() == {"inside": 1}

        db.remove([2], timeout=30)

        assert other.end() == 0
        assert living(db) == EVERYBODY - {1, 2}
        assert db.check().problems == ()


def test_a_writer_that_dies_in_a_transaction_leaves_nothing_and_blocks_nobody(path: Path, store_dir: Path) -> None:
    def act(txn: dynfrsdb.Transaction) -> None:
        txn.remove([1, 2])
        add(txn, [1000, 1001])

    with holder(path, act) as other, dynfrsdb.open(path, "w") as db:
        assert traces(path, [1000]) == [1000]
        other.kill()
        assert other.end() == KILLED

        db.remove([3], timeout=1)

        assert living(db) == EVERYBODY - {3}
        assert traces(path, [3, 1000, 1001]) == []
        assert db.check().problems == ()
        assert answer(db) == fresh_answer(store_dir / "fresh.forest", EVERYBODY - {3})


def test_a_child_forked_in_a_transaction_cannot_finish_or_release_it(path: Path, store_dir: Path) -> None:
    with dynfrsdb.open(path, "w") as db:
        with db.transaction() as txn:
            txn.remove([1])

            def child() -> None:
                for misuse in (lambda: txn.remove([2]), lambda: add(txn, [1000]), lambda: txn.predict([[1, 1, 1, 1]])):
                    with pytest.raises(ClosedStore, match="belongs to the parent process"):
                        misuse()
                with pytest.raises(ClosedStore, match="belongs to the parent process"):
                    txn.__exit__(None, None, None)
                with pytest.raises(Locked, match=f"process {os.getppid()}"):
                    db.remove([2], timeout=0.1)
                assert living(db) == EVERYBODY
                assert answer(db) == fresh_answer(store_dir / "before.forest", EVERYBODY)
                db.close()

            assert in_child(child) == 0
            with Child(lambda tell: tell(_try_to_write(path))) as stranger:
                assert stranger.hear() == {"refused": True}
            add(txn, [1001])

        assert txn.receipt is not None
        assert living(db) == EVERYBODY - {1} | {1001}
        assert db.check().problems == ()
        assert answer(db) == fresh_answer(store_dir / "after.forest", EVERYBODY - {1} | {1001})


def _try_to_write(path: Path) -> dict[str, Any]:
    try:
        with dynfrsdb.open(path, "w") as db:
            db.remove([0], timeout=0)
    except Locked:
        return {"refused": True}
    return {"refused": False}


def test_a_child_that_outlives_a_dead_holder_does_not_keep_its_lock(path: Path) -> None:
    def parent(tell: Tell) -> None:
        with dynfrsdb.open(path, "w").transaction() as txn:
            txn.remove([1])
            pid = os.fork()
            if not pid:
                time.sleep(60)
                os._exit(0)
            tell({"child": pid})
            time.sleep(60)

    with Child(parent) as child, dynfrsdb.open(path, "w") as db:
        said = child.hear()
        assert said is not None
        try:
            with pytest.raises(Locked, match=f"process {child.pid}"):
                db.remove([2], timeout=0.1)
            child.kill()
            assert child.end() == KILLED

            db.remove([2], timeout=1)

            assert living(db) == EVERYBODY - {2}
            assert db.check().problems == ()
        finally:
            os.kill(said["child"], signal.SIGKILL)


def test_children_forked_while_other_threads_write_and_query_work_by_themselves(path: Path) -> None:
    """At the moment of the fork any lock of the handle may be held by a thread that the child does not have."""
    done = threading.Event()
    failures: list[BaseException] = []

    def busy(work: Callable[[], object]) -> None:
        try:
            while not done.is_set():
                work()
                time.sleep(0.001)
        except BaseException as error:
            failures.append(error)

    with dynfrsdb.open(path, "w") as db:
        numbers = iter(range(1000, 10**6))
        jobs = [lambda: add(db, [next(numbers)]), lambda: db.predict([[1, 2, 3, 4]]), lambda: answer(db)]
        threads = [threading.Thread(target=busy, args=[job]) for job in jobs]
        for thread in threads:
            thread.start()

        def child(id: int) -> None:
            faulthandler.dump_traceback_later(20, exit=True)
            with db.snapshot() as pinned:
                assert answer(pinned) != ""
            answer(db)
            add(db, [id])
            assert id in db
            answer(db)
            db.close()

        codes = [in_child(partial(child, 2_000_000 + i)) for i in range(10)]
        done.set()
        for thread in threads:
            thread.join()

        assert codes == [0] * 10
        assert failures == []
        assert set(range(2_000_000, 2_000_010)) <= living(db)
        assert db.check().problems == ()


def test_two_threads_of_one_handle_take_turns(path: Path) -> None:
    with dynfrsdb.open(path, "w") as db:
        inside, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with db.transaction() as txn:
                txn.remove([1])
                inside.set()
                leave.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        inside.wait()
        with pytest.raises(TransactionMisuse, match="another thread has a transaction open"):
            db.remove([2], timeout=0.1)
        with pytest.raises(Locked, match=f"process {os.getpid()}"), dynfrsdb.open(path, "w") as second:
            second.remove([2], timeout=0.1)
        leave.set()

        db.remove([2], timeout=30)

        thread.join()
        assert living(db) == EVERYBODY - {1, 2}
        assert db.check().problems == ()


class ChangedMyMind(Exception):
    """Rolls a transaction back."""


@pytest.mark.parametrize(
    ("at", "error", "seen"),
    [
        ("dynfrsdb_storage.Snapshot.roots", dynfrsdb.CorruptStore("the roots are damaged"), ChangedMyMind),
        ("dynfrsdb_storage.Snapshot.roots", KeyboardInterrupt(), KeyboardInterrupt),
        ("dynfrsdb.transaction.Transaction._roll_back", KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=["damage", "interrupt", "interrupt before it"],
)
def test_a_roll_back_that_fails_gives_the_lock_back_and_keeps_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, at: str, error: BaseException, seen: type[BaseException]
) -> None:
    def fail(*_: object) -> None:
        raise error

    with dynfrsdb.open(path, "w", settle=None) as db, dynfrsdb.open(path, "w", settle=None) as other:
        before = answer(db)

        def change_my_mind() -> None:
            with monkeypatch.context() as patch, db.transaction() as txn:
                txn.remove(range(60))
                assert answer(txn) != before
                patch.setattr(at, fail)
                raise ChangedMyMind

        with pytest.raises(seen):
            change_my_mind()

        assert answer(db) == before
        other.remove([1], timeout=1)
        db.remove([2], timeout=1)
        assert answer(db) == answer(other)
        assert living(db) == EVERYBODY - {1, 2}
        assert db.check().problems == ()


class Rival:
    """One of many that write at once; adds and removes people of its own, and gives up now and then."""

    def __init__(self, first: int, seed: int) -> None:
        self.mine: set[int] = set()
        self._next, self._dice = first, random.Random(seed)
        self.refusals: list[str] = []
        self.acknowledged = 0

    def run(self, handle: Callable[[], dynfrsdb.Database], deadline: float) -> None:
        """Write for a while, through a new handle now and then."""
        while time.monotonic() < deadline:
            with handle() as db:
                for _ in range(self._dice.randint(1, 20)):
                    try:
                        self._change(db)
                        self.acknowledged += 1
                    except ChangedMyMind:
                        continue
                    except Locked as error:
                        self.refusals.append(str(error))

    def _change(self, db: dynfrsdb.Database) -> None:
        gone = set(self._dice.sample(sorted(self.mine), min(len(self.mine), self._dice.randint(0, 2))))
        new = list(range(self._next, self._next + self._dice.randint(1, 3)))
        self._next += len(new)
        with db.transaction(timeout=self._dice.choice([0.0, 0.01, 10.0])) as txn:
            txn.remove(sorted(gone))
            add(txn, new)
            if self._dice.random() < 0.1:
                time.sleep(0.02)
            if self._dice.random() < 0.1:
                raise ChangedMyMind
        self.mine = self.mine - gone | {*new}


def compete(path: Path, first: int, seed: int, tell: Tell) -> None:
    """Two threads, each with its own handle, in one process."""
    deadline = time.monotonic() + SECONDS
    rivals = [Rival(first, seed), Rival(first + 100_000, seed + 1)]
    settle = ["auto", None][seed % 2]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda rival: rival.run(lambda: dynfrsdb.open(path, "w", settle=settle), deadline), rivals))
    tell({"mine": [sorted(rival.mine) for rival in rivals]})
    tell({"numbers": [[rival.acknowledged, len(rival.refusals)] for rival in rivals]})
    for rival in rivals:
        for refusal in rival.refusals:
            assert re.search(r"written by (process \d+ on .*since \d+ s|another process)", refusal)


def hold_and_die(path: Path, seed: int, tell: Tell) -> None:
    """Begin a transaction, write rows, and die."""
    dice = random.Random(seed)
    db = dynfrsdb.open(path, "w")
    with db.transaction() as txn:
        txn.remove([dice.randrange(PEOPLE)])
        add(txn, list(range(5_000_000, 5_000_020)))
        txn.predict([[1, 2, 3, 4]])
        time.sleep(dice.uniform(0, 0.02))
        os.kill(os.getpid(), signal.SIGKILL)


def test_processes_and_threads_that_compete_for_the_lock_lose_nothing(path: Path, store_dir: Path) -> None:
    """Whatever was acknowledged is there in the end, and every live row with all its values."""
    dice = chance("rivals")
    with ExitStack() as stack:
        rivals = [
            stack.enter_context(Child(partial(compete, path, 1_000_000 * (i + 1), dice.getrandbits(30))))
            for i in range(2)
        ]
        deaths = 0
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.1)
            with Child(partial(hold_and_die, path, dice.getrandbits(30))) as doomed:
                deaths += doomed.end() == KILLED
        mine = [said["mine"] for said in (rival.hear() for rival in rivals) if said]
        numbers = [said["numbers"] for said in (rival.hear() for rival in rivals) if said]
        assert [rival.end() for rival in rivals] == [0, 0]
    expected = EVERYBODY.union(*(ids for pair in mine for ids in pair))
    print(f"(acknowledged, refused) per thread: {numbers}; {deaths} died with the lock")

    with dynfrsdb.open(path, "w") as db:
        assert living(db) == expected
        assert db.check().problems == ()
        db.remove([0])
        assert db.check().problems == ()
        assert answer(db) == fresh_answer(store_dir / "fresh.forest", expected - {0})
    assert traces(path, range(5_000_000, 5_000_020)) == []
    assert deaths > 1
    assert all(acknowledged > 0 for pair in numbers for acknowledged, _ in pair)


def remove_in_a_loop(path: Path, ids: range, begin: float, tell: Tell) -> None:
    """As many removals as there are turns to be had in three seconds; tells how many, and the longest wait."""
    done, longest = 0, 0.0
    with dynfrsdb.open(path, "w", settle=None) as db:
        time.sleep(max(0.0, begin - time.monotonic()))
        while time.monotonic() < begin + 3.0 and done < len(ids):
            asked = time.monotonic()
            with db.transaction() as txn:
                longest = max(longest, time.monotonic() - asked)
                txn.remove([ids[done]])
            done += 1
    tell({"done": done, "longest": longest})


def test_nobody_starves_while_others_write_in_a_loop(store_dir: Path) -> None:
    path = new_store(store_dir / "people.forest", 4000)
    begin = time.monotonic() + 0.5

    with ExitStack() as stack:
        loops = [partial(remove_in_a_loop, path, range(i, 4000, 4), begin) for i in range(4)]
        told = [child.hear() for child in [stack.enter_context(Child(loop)) for loop in loops]]

    print(told)
    shares = [said["done"] for said in told if said]
    assert len(shares) == 4
    assert min(shares) > sum(shares) / 12, "one of four got less than a third of its share"
