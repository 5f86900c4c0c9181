"""`info()["readers"]`: who holds an old state, how old it is, and never somebody who is dead."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dynfrsdb
from dynfrsdb_storage import ages
from tests.reliability.workload import Child, Tell, add, new_store

HOUR = 3600.0


@pytest.fixture
def db(store_dir: Path) -> Iterator[dynfrsdb.Database]:
    with dynfrsdb.open(new_store(store_dir / "people.forest", 60), "w", settle=None) as db:
        yield db


def hold(path: Path, tell: Tell) -> None:
    """Hold a snapshot until killed."""
    with dynfrsdb.open(path) as db, db.snapshot() as snapshot:
        tell({"commit": snapshot.commit})
        time.sleep(60)


def readers(db: dynfrsdb.Database, pid: int) -> list[dict[str, Any]]:
    return [reader for reader in db.info()["readers"] if reader["pid"] == pid]


def test_an_old_reader_is_shown_with_its_pid_age_and_lag(
    db: dynfrsdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Child(lambda tell: hold(db.path, tell)) as child:
        child.hear()
        assert readers(db, child.pid) == [{"pid": child.pid, "age": 0.0, "lag": 0}]

        for number in range(5):
            add(db, [1000 + number])
        now = time.time
        monkeypatch.setattr("time.time", lambda: now() + HOUR)
        (found,) = readers(db, child.pid)

    assert found["lag"] == 5
    assert HOUR - 2 <= found["age"] <= HOUR + 60


def test_the_age_counts_from_the_first_commit_that_the_reader_does_not_see(
    db: dynfrsdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, start = time.time, time.time()
    with Child(lambda tell: hold(db.path, tell)) as child:
        child.hear()
        for number in range(200):
            monkeypatch.setattr("time.time", lambda number=number: start + 60 * number)
            add(db, [1000 + number])
        (found,) = readers(db, child.pid)
        monkeypatch.setattr("time.time", now)

    assert found["lag"] == 200
    assert 60 * 199 * 0.7 <= found["age"] <= 60 * 199


def test_readers_of_every_process_and_thread_are_shown(db: dynfrsdb.Database) -> None:
    with Child(lambda tell: hold(db.path, tell)) as first, Child(lambda tell: hold(db.path, tell)) as second:
        first.hear()
        second.hear()
        with db.snapshot():
            add(db, [1000])
            lags = {reader["pid"]: reader["lag"] for reader in db.info()["readers"] if reader["lag"]}

    assert lags == {first.pid: 1, second.pid: 1, os.getpid(): 1}


def test_a_reader_that_was_killed_is_gone_from_the_list_and_holds_nothing_back(db: dynfrsdb.Database) -> None:
    with Child(lambda tell: hold(db.path, tell)) as child:
        child.hear()
        db.remove([1])
        assert (len(readers(db, child.pid)), db.info()["pending_erasures"]) == (1, 1)

        child.kill()
        child.end()

        assert readers(db, child.pid) == []
        db.remove([2])
        assert db.info()["pending_erasures"] == 0


def test_a_process_that_only_asks_now_and_then_is_no_old_reader(db: dynfrsdb.Database) -> None:
    def ask(tell: Tell) -> None:
        with dynfrsdb.open(db.path) as reader:
            tell({"samples": len(reader), "class": reader.predict([[1, 2, 3, 4]]).tolist()})
            time.sleep(60)

    with Child(ask) as child:
        assert child.hear() is not None
        add(db, [1000])
        assert readers(db, child.pid) == []


@pytest.mark.parametrize("pace", [1.0, 60.0])
def test_ages_are_never_more_than_the_truth_and_not_much_less(pace: float) -> None:
    """Against the full list of times, at many lags, after any number of commits; and the list stays short."""
    times, start = b"", 1.7e9
    for newest in range(1, 5000):
        times = ages.noted(times, newest, start + pace * newest)
        if newest % 97 == 0:
            now = start + pace * newest + 5
            for lag in (0, 1, 2, 3, 7, 8, 9, 30, 100, 500, 2000, 4000):
                if lag < newest:
                    truth = 5 + pace * (lag - 1) if lag else 0.0
                    assert 0.7 * truth - 1 <= ages.age(times, newest - lag, now) <= truth

    assert len(times) <= 68 * 12


def test_a_clock_that_was_set_back_gives_no_negative_age() -> None:
    times = ages.noted(ages.noted(b"", 1, 1e9), 2, 1e9)

    assert ages.age(times, 1, 5e8) == 0.0
    assert ages.age(b"", 1, 1e9) == 0.0
    assert ages.age(times + b"torn", 1, 1e9 + 7) == 7.0
