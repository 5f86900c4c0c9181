"""A request that waits is carried out once, when it is due, whatever happens meanwhile."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import dynfrsdb
from tests.clock import advance
from tests.people import SHAPE, X, Y, changer
from tests.reliability.workload import KILLED, die_at, in_child


def test_nothing_is_forgotten_before_its_time(path: Path) -> None:
    with changer(path) as db:
        receipt = db.forget_later("person 5", "7d")

        assert db.run_due() == []
        (waiting,) = db.waiting()
        assert (waiting.number, waiting.subjects, waiting.is_due) == (receipt.sequence, receipt.subjects, False)
        assert (receipt.kind, receipt.removed, len(db)) == ("queue", 0, 300)


def test_what_is_due_is_forgotten_after_a_restart(path: Path, store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with changer(path) as db:
        first = db.forget_later("person 5", "12h").sequence
        second = db.forget_later("person 6", timedelta(hours=1)).sequence
        db.forget_later("person 7", 8 * 86_400)
    advance(monkeypatch, days=1)

    with changer(path) as db:
        outcomes = db.run_due()

        assert [(each.number, each.receipt and each.receipt.removed) for each in outcomes] == [(second, 3), (first, 3)]
        assert [each.receipt and each.receipt.details for each in outcomes] == [{"queued": second}, {"queued": first}]
        assert (len(db), len(db.waiting()), db.run_due()) == (294, 1, [])
        kept = [row for row in range(300) if row % 100 not in (5, 6)]
        with dynfrsdb.create(store_dir / "fresh.forest", X[kept], Y[kept], ids=kept, **SHAPE) as fresh:
            assert db.digest() == fresh.digest()
        assert db.check().problems == ()


def test_samples_that_come_while_a_request_waits_go_with_the_others(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with changer(path) as db:
        db.forget_later("person 5", "1d")
        db.add(X[:2], Y[:2], subjects=["person 5"] * 2)
        advance(monkeypatch, days=2)

        (outcome,) = db.run_due()

        assert outcome.receipt is not None
        assert outcome.receipt.removed == 5


def test_a_cancelled_request_is_not_carried_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with changer(path) as db:
        number = db.forget_later("person 5", "1d").sequence

        cancelled = db.cancel(number)

        advance(monkeypatch, days=2)
        assert (db.run_due(), len(db), cancelled.details) == ([], 300, {"queued": number})
        with pytest.raises(dynfrsdb.EntryNotFound, match="carried out or cancelled"):
            db.cancel(number)


def test_a_subject_that_is_held_meanwhile_waits_and_keeps_nobody_else_waiting(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with changer(path) as db:
        held, free = db.forget_later("person 5", "1d").sequence, db.forget_later("person 6", "1d").sequence
        hold = db.hold("person 5", "a reason").sequence
        advance(monkeypatch, days=2)

        first = db.run_due()
        db.release(hold)
        second = db.run_due()

        assert [(each.number, bool(each.held)) for each in first] == [(held, True), (free, False)]
        assert "a reason" in (first[0].held or "")
        assert [(each.number, each.held) for each in second] == [(held, None)]
        assert len(db) == 294


def test_a_subject_without_samples_by_then_is_no_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with changer(path) as db:
        db.forget_later("person 5", "1d")
        db.forget("person 5")
        advance(monkeypatch, days=2)

        (outcome,) = db.run_due()

        assert outcome.receipt is not None
        assert (outcome.receipt.removed, db.waiting()) == (0, [])


def test_asking_twice_queues_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with changer(path) as db:
        first = db.forget_later("person 5", "7d", request_id="ticket 1")

        assert db.forget_later("person 5", "7d", request_id="ticket 1") == first
        with pytest.raises(dynfrsdb.RequestConflict):
            db.forget_later("person 6", "7d", request_id="ticket 1")
        with pytest.raises(dynfrsdb.RequestConflict):
            db.forget("person 5", request_id="ticket 1")
        assert len(db.waiting()) == 1

        advance(monkeypatch, days=8)
        (outcome,) = db.run_due()
        assert outcome.receipt is not None
        assert outcome.receipt.request == first.request
        assert db.forget_later("person 5", "7d", request_id="ticket 1") == first
        assert db.waiting() == []


@pytest.mark.parametrize(("point", "done"), [("commit-before", False), ("commit-after", True)])
def test_a_request_is_carried_out_once_however_its_process_dies(
    path: Path, point: str, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The samples and the place in the queue go together, or stay together."""
    with changer(path) as db:
        db.forget_later("person 5", "1d")
    advance(monkeypatch, days=2)

    def run_and_die() -> None:
        with changer(path) as db:
            die_at(point)
            db.run_due()

    assert in_child(run_and_die) == KILLED

    with changer(path) as db:
        assert (len(db), len(db.waiting())) == ((297, 0) if done else (300, 1))
        assert len(db.run_due()) == (0 if done else 1)
        assert (len(db), db.check().problems) == (297, ())


@pytest.mark.parametrize("after", ["", "7", "soon", "-1d", -1, True, None, float("nan"), float("inf"), "9" * 400 + "d"])
def test_a_delay_is_a_number_with_a_unit(path: Path, after: Any) -> None:
    with changer(path) as db:
        if after == "7":
            assert db.forget_later("person 5", after).kind == "queue"
            return
        with pytest.raises(dynfrsdb.InvalidInput):
            db.forget_later("person 5", after)


def test_nobody_we_know_is_not_queued(path: Path) -> None:
    with changer(path) as db, pytest.raises(dynfrsdb.SampleNotFound):
        db.forget_later("nobody", "7d")
