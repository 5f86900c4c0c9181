"""Large tags are grown aside: whoever removes or asks meanwhile does not wait, and nothing is kept that was grown from
a sample that is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynfrsdb
from dynfrsdb import settle

SHAPE: dict[str, Any] = {"n_estimators": 2, "q": 1.0, "max_depth": 12, "n_thresholds": 3, "seed": 5}
MANY, GONE = 20_000, 10_050
"""Samples, and how many go at once: more than half, so that whole trees become void, and too many stay to be grown
with the commit."""
rng = np.random.default_rng(7)
X = rng.normal(size=(MANY, 3)).astype(np.float32)
Y = (X[:, 0] + rng.normal(size=MANY) > 0).astype(int)
PATIENCE = 60.0


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("aside") / "people.forest"
    dynfrsdb.create(path, X, Y, **SHAPE).close()
    return path


@pytest.fixture
def path(built: Path, tmp_path: Path) -> Path:
    with dynfrsdb.open(built) as db:
        db.backup(tmp_path / "people.forest")
    return tmp_path / "people.forest"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dynfrsdb.Database]:
    """A store that never had those who go: the first ones, and one more."""
    there = tmp_path_factory.mktemp("fresh") / "people.forest"
    ids = range(GONE + 1, MANY)
    with dynfrsdb.create(there, X[GONE + 1 :], Y[GONE + 1 :], ids=ids, **SHAPE) as db:
        yield db


def put_aside(db: dynfrsdb.Database) -> settle.Aside:
    with db._store.write(purpose="settle") as session:
        aside = settle.set_aside(db, session)
    assert aside is not None
    return aside


def take_back(db: dynfrsdb.Database, aside: settle.Aside) -> None:
    growth = settle.grow_aside(db, aside)
    with db._store.write(purpose="settle") as session:
        settle.take_back(db, session, growth)


def test_small_tags_are_not_set_aside(path: Path) -> None:
    with dynfrsdb.open(path, "w", settle=None) as db:
        db.remove(range(10))
        assert db.info()["tags"] > 0

        with db._store.write(purpose="settle") as session:
            assert settle.set_aside(db, session, small=MANY) is None


def test_a_row_that_is_removed_while_its_tag_grows_stays_readable_until_then(
    path: Path, fresh: dynfrsdb.Database
) -> None:
    """The tag is grown from it, does not fit any more, and stays; the row is erased as soon as it was read."""
    with dynfrsdb.open(path, "w", settle=None) as db:
        db.remove(range(GONE))
        aside = put_aside(db)

        db.remove([GONE])
        assert db._store.info()["pending_erasures"] > 0
        take_back(db, aside)

        assert db.info()["tags"] > 0
        assert db.digest() == fresh.digest()
        assert {each.stage for each in db.erasure_status()} == {"rows erased"}
        assert db.check()


def test_what_was_grown_aside_is_what_settling_would_have_grown(path: Path) -> None:
    with dynfrsdb.open(path, "w", settle=None) as db:
        db.remove(range(GONE))
        digest, answers = db.digest(), db.predict_proba(X[:50])
    with dynfrsdb.open(path, "w", settle=None) as db:
        while db.info()["tags"]:
            take_back(db, put_aside(db))

        assert db.digest() == digest
        assert db.predict_proba(X[:50]).tobytes() == answers.tobytes()
        assert db.check()
        assert db.verify()


def test_what_was_grown_before_a_vacuum_fits_nothing_after_it(path: Path, fresh: dynfrsdb.Database) -> None:
    """Slots are others then, and stamps as well."""
    with dynfrsdb.open(path, "w", settle=None) as db:
        db.remove(range(GONE))
        growth = settle.grow_aside(db, put_aside(db))
        db.vacuum()
        db.remove([GONE])

        with db._store.write(purpose="settle") as session:
            settle.take_back(db, session, growth)

        assert db.digest() == fresh.digest()
        assert db.check()


def test_nobody_waits_for_a_large_tag(path: Path, fresh: dynfrsdb.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal and a query come and go while the handle's thread grows; in the end everything is settled."""
    growing, goes_on = threading.Event(), threading.Event()
    grow: Callable[..., Any] = settle.grow_aside

    def wait_and_grow(db: dynfrsdb.Database, aside: settle.Aside) -> Any:
        growing.set()
        assert goes_on.wait(PATIENCE)
        return grow(db, aside)

    monkeypatch.setattr(settle, "grow_aside", wait_and_grow)
    with dynfrsdb.open(path, "w") as db:
        db.remove(range(GONE))
        assert growing.wait(PATIENCE)

        db.remove([GONE], timeout=5)
        assert db.predict_proba(X[:50]).tobytes() == fresh.predict_proba(X[:50]).tobytes()

        goes_on.set()
        until = time.monotonic() + PATIENCE
        while db.info()["tags"] and time.monotonic() < until:
            time.sleep(0.05)
        assert db.info()["tags"] == 0
        assert db.digest() == fresh.digest()
        assert db.check()


def test_a_handle_that_is_closed_while_it_grows_leaves_the_tag(
    path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written after that, and nothing is left open."""
    growing, grow = threading.Event(), settle.grow_aside

    def grow_and_be_closed(db: dynfrsdb.Database, aside: settle.Aside) -> Any:
        growing.set()
        assert db._settler is not None
        assert db._settler._stopped.wait(PATIENCE)
        return grow(db, aside)

    monkeypatch.setattr(settle, "grow_aside", grow_and_be_closed)
    db = dynfrsdb.open(path, "w")
    db.remove(range(GONE))
    assert growing.wait(PATIENCE)
    db.close()

    with dynfrsdb.open(path) as after, dynfrsdb.open(built) as untouched:
        assert after.info()["tags"] > 0
        assert len(after.info()["readers"]) == len(untouched.info()["readers"])
        assert after.check()
