"""A migration among others: writers it waits for, readers that go on, and processes that must leave first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import dynfrsdb
from dynfrsdb_migrations.store.step import Step
from dynfrsdb_storage import Store, layout
from dynfrsdb_storage.stages import ROWS_ERASED
from tests.migrations.steps import NEXT, format_of, generations, in_place, kept, know, rewrite, said, worn
from tests.people import X, changer
from tests.reliability.workload import Child, Tell


@pytest.fixture
def old(path: Path) -> Path:
    """A store of the real format, that has lived."""
    return worn(path)


def writing(path: Path, tell: Tell) -> None:
    """Hold the writer lock, as a process of the older version would, until told to stop by a file."""
    with Store.open(path, writable=True, migrating=True) as store, store.write(purpose="a long change"):
        tell({"ready": 1})
        wait_until((path.parent / "stop").exists)


def reading(path: Path, tell: Tell) -> None:
    """Have the store open for reading until told to stop."""
    with dynfrsdb.open(path) as db:
        tell({"answer": db.predict_proba(X[:5]).tolist()})
        wait_until((path.parent / "stop").exists)
        tell({"answer": db.predict_proba(X[:5]).tolist(), "format": db.info()["format"]})


def wait_until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_it_waits_for_the_writer_lock_and_says_who_has_it(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, rewrite())
    with Child(lambda tell: writing(old, tell)) as child:
        child.hear()
        with pytest.raises(dynfrsdb.Locked, match=rf"is being written by process {child.pid} .*a long change"):
            dynfrsdb.migrate(old, timeout=0.2)
        assert format_of(old) == NEXT - 1

        threading.Timer(0.3, (old.parent / "stop").touch).start()
        assert dynfrsdb.migrate(old, timeout=20).done

    assert format_of(old) == NEXT


@pytest.mark.parametrize("step", [in_place(), rewrite()], ids=["in place", "rewrite"])
def test_two_at_once_make_one_migration(old: Path, step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    before = said(old)
    know(monkeypatch, step)

    def work(tell: Tell) -> None:
        tell({"done": dynfrsdb.migrate(old, timeout=20).done})

    with Child(work) as one, Child(work) as two:
        assert (one.hear(), two.hear()) == ({"done": True}, {"done": True})
        assert (one.end(), two.end()) == (0, 0)

    assert format_of(old) == NEXT
    assert len(generations(old)) == 1
    assert said(old) == before


def test_a_step_in_place_waits_until_nobody_else_has_the_store_open(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, in_place())
    with Child(lambda tell: reading(old, tell)) as child:
        child.hear()
        with pytest.raises(
            dynfrsdb.Locked,
            match=rf"is open in process {child.pid}, and its format can be changed only .*; nothing was changed",
        ):
            dynfrsdb.migrate(old, timeout=0.2)
        assert (format_of(old), kept(old)) == (NEXT - 1, None)

        threading.Timer(0.3, (old.parent / "stop").touch).start()
        assert dynfrsdb.migrate(old, timeout=20).done

    assert kept(old) == b"in place"


def test_a_step_in_place_refuses_while_this_process_has_the_store_open(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, in_place())

    with dynfrsdb.open(old), pytest.raises(dynfrsdb.Locked, match="is open in another handle of this process"):
        dynfrsdb.migrate(old, timeout=0.2)

    assert dynfrsdb.migrate(old).done


def test_who_opens_the_store_during_a_step_in_place_waits_a_moment(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, in_place())

    def work(tell: Tell) -> None:
        from dynfrsdb_storage import failpoints

        def hook(name: str) -> None:
            if name == "commit-before":
                tell({"alone": 1})
                time.sleep(0.3)

        failpoints.hook = hook
        dynfrsdb.migrate(old)

    with Child(work) as child:
        assert child.hear() == {"alone": 1}
        with dynfrsdb.open(old) as db:
            assert db.info()["format"] == NEXT
        assert child.end() == 0


def test_readers_go_on_while_a_store_is_rewritten_and_move_to_the_new_format(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, rewrite())
    with Child(lambda tell: reading(old, tell)) as child:
        first = child.hear()

        done = dynfrsdb.migrate(old)

        assert done.held_by == (child.pid,)
        (old.parent / "stop").touch()
        second = child.hear()
        assert child.end() == 0

    assert first is not None
    assert second == {**first, "format": NEXT}
    changer(old).close()
    assert generations(old) == ["gen-0002"]


def test_a_reader_of_the_older_version_is_told_what_to_install(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(tell: Tell) -> None:
        with dynfrsdb.open(old) as db:
            tell({"samples": len(db)})
            wait_until((old.parent / "stop").exists)
            try:
                db.predict(X[:1])
            except dynfrsdb.UnsupportedFormat as error:
                tell({"error": str(error)})

    with Child(work) as child:
        child.hear()
        know(monkeypatch, rewrite())
        dynfrsdb.migrate(old)
        (old.parent / "stop").touch()
        told = child.hear()

    assert told is not None
    assert f"install dynfrsdb {NEXT}.0 or newer" in told["error"]


def test_rows_that_somebody_looks_at_are_erased_before_a_rewrite(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(old, writable=False) as reader, reader.snapshot():
        with changer(old) as db:
            db.remove([200])
        know(monkeypatch, rewrite())
        with pytest.raises(dynfrsdb.Locked, match=r"somebody still looks at rows of .* that were removed"):
            dynfrsdb.migrate(old, timeout=0.1)

    dynfrsdb.migrate(old)

    with dynfrsdb.open(old) as db:
        assert (db.ledger()[-1].kind, db.erasure_status()[-1].stage) == (ROWS_ERASED, ROWS_ERASED)
        assert db.check().problems == ()
    assert all(X[200].astype("f4").tobytes() not in file.read_bytes() for file in old.rglob("*") if file.is_file())


def test_a_backup_that_is_being_restored_stays_one(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(old, writable=True) as store, store.write() as session:
        session.state[layout.RESTORING] = [1, 2]
        session.commit()
    know(monkeypatch, rewrite())

    dynfrsdb.migrate(old)

    assert format_of_unrestored(old) == NEXT
    with pytest.raises(dynfrsdb.Unrestored):
        dynfrsdb.open(old)


def format_of_unrestored(path: Path) -> int:
    with Store.open(path, writable=False, restoring=True) as store, store.snapshot() as snapshot:
        return int(snapshot.generation.identity["format"])
