"""Kill -9 at every named instant: what was acknowledged stands, the rest is all or nothing, and no row is left
behind.

A child process does the work and kills itself when it comes by a failpoint; the parent then looks at the store.
Killing a process does not lose what is in the page cache, so these tests show the order of visibility; that each step
is also synced before the next is a matter of the code (and of FORMAT.md), not of these tests.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from dynfrsdb_storage import Store, failpoints, layout
from tests.storage.people import add, in_child, living, new_store, problems, put_people, remove, take_people, traces

PEOPLE = set(range(20))
KILLED = -signal.SIGKILL


def killed_at(point: str, work: Callable[[], object], visits: int = 1) -> int:
    """Run `work` in a child that kills itself when it comes by `point` for the `visits`th time."""
    seen = 0

    def hook(name: str) -> None:
        nonlocal seen
        seen += name == point
        if seen == visits:
            os.kill(os.getpid(), signal.SIGKILL)

    def doomed() -> None:
        failpoints.hook = hook
        work()

    return in_child(doomed)


def change(path: Path, big: bool = False) -> None:
    """Remove persons 3 and 4 and add 100 (or many more, which needs a larger reservation) in one commit."""
    with Store.open(path, writable=True) as store, store.write() as session:
        take_people(session, [3, 4])
        put_people(session, range(100, 2600) if big else [100])
        session.commit()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a closed store of 20 people."""
    return new_store(tmp_path / "people.forest")


BEFORE = ["rows-sync-before", "rows-sync-after", "commit-before"]
AFTER = ["commit-after", "acknowledge-after", "erase-middle"]


@pytest.mark.parametrize("point", BEFORE)
def test_a_change_that_dies_before_its_commit_never_happened(path: Path, point: str) -> None:
    assert killed_at(point, lambda: change(path)) == KILLED

    with Store.open(path, writable=True) as store:
        assert living(store) == PEOPLE
        assert traces(path, 100) == 1
        remove(store, [5])

        assert living(store) == PEOPLE - {5}
        assert [traces(path, i) for i in (100, 5)] == [0, 0]
        assert problems(store) == []


@pytest.mark.parametrize("point", AFTER)
def test_a_change_that_dies_after_its_commit_stands_and_is_erased(path: Path, point: str) -> None:
    assert killed_at(point, lambda: change(path)) == KILLED

    with Store.open(path, writable=True) as store:
        assert living(store) == PEOPLE - {3, 4} | {100}
        assert problems(store) == []
        assert store.erase_pending() == 0
        assert [traces(path, i) for i in (3, 4)] == [0, 0]

        add(store, [101])
        add(store, [102])
        assert living(store) == PEOPLE - {3, 4} | {100, 101, 102}
        assert problems(store) == []


@pytest.mark.parametrize(
    ("point", "visits"),
    [
        ("reservation-grow", 1),
        ("rows-sync-before", 1),
        ("rows-sync-after", 1),
        ("commit-before", 1),
        ("commit-after", 1),
        ("acknowledge-after", 1),
        ("rows-sync-before", 2),
        ("rows-sync-after", 2),
        ("commit-before", 2),
    ],
)
def test_a_batch_that_dies_while_its_reservation_grows_leaves_nothing(path: Path, point: str, visits: int) -> None:
    assert killed_at(point, lambda: change(path, big=True), visits) == KILLED

    with Store.open(path, writable=True) as store:
        assert living(store) == PEOPLE
        remove(store, [5])

        assert [traces(path, i) for i in (100, 1500, 2599, 5)] == [0, 0, 0, 0]
        assert problems(store) == []


def test_a_change_that_dies_while_the_map_grows_never_happened(path: Path) -> None:
    def work() -> None:
        with Store.open(path, writable=True) as store:
            store.current().env.set_mapsize(1 << 20)
            with store.write() as session:
                put_people(session, [100])
                session.put_many("buckets", [(layout.bucket_key(1, 1, i), bytes(3000)) for i in range(1000)])
                session.commit()

    assert killed_at("map-grow", work) == KILLED

    with Store.open(path, writable=True) as store:
        assert living(store) == PEOPLE
        remove(store, [5])
        assert traces(path, 100) == 0
        assert problems(store) == []


def test_a_process_that_has_written_before_cleans_up_after_another_one_that_died(path: Path) -> None:
    """Dirty slots must be found even when the next writer has long done its first transaction."""
    with Store.open(path, writable=True) as store:
        remove(store, [0, 1])
        assert killed_at("commit-before", lambda: change(path)) == KILLED
        assert traces(path, 100) == 1

        add(store, [200])

        assert traces(path, 100) == 0
        assert problems(store) == []


def test_a_forked_child_that_dies_in_a_session_does_not_hurt_its_parent(path: Path) -> None:
    with Store.open(path, writable=True) as store, store.snapshot() as snapshot:

        def work() -> None:
            with store.write() as session:
                put_people(session, [100])
                session.commit()

        assert killed_at("commit-before", work) == KILLED

        assert snapshot.count("samples") == 20
        add(store, [101])
        assert living(store) == PEOPLE | {101}
        assert problems(store) == []


def test_a_reader_that_was_killed_does_not_hold_back_erasure(path: Path) -> None:
    def read() -> None:
        snapshot = Store.open(path, writable=False).snapshot()
        assert snapshot.commit == 1
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(read) == KILLED

    with Store.open(path, writable=True) as store:
        remove(store, [7])
        assert traces(path, 7) == 0


def test_a_store_survives_a_hundred_deaths(path: Path) -> None:
    """Round after round a child dies somewhere else; the store is never wrong and never grows without end."""
    points = [*BEFORE, *AFTER, "reservation-grow"]
    expected = set(PEOPLE)
    for i in range(100):
        point, gone, new = points[i % len(points)], min(expected), 1000 + i

        def work(gone: int = gone, new: int = new) -> None:
            with Store.open(path, writable=True) as store, store.write() as session:
                take_people(session, [gone])
                put_people(session, [new])
                session.commit()

        status = killed_at(point, work)
        with Store.open(path, writable=False) as store:
            now = living(store)
        assert now in (expected, expected - {gone} | {new})
        if point in ("commit-after", "acknowledge-after") or status == 0:
            assert now == expected - {gone} | {new}
        expected = now

    with Store.open(path, writable=True) as store:
        remove(store, [min(expected)])
        assert problems(store) == []
        with store.snapshot() as snapshot:
            assert snapshot.state["slots"] < 20 + 3 * layout.MIN_RESERVED
