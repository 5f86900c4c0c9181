"""Who is held stays, whoever tries to remove them and in whatever way, until the hold is over."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import dynfrsdb
from dynfrsdb_storage import WriteSession
from tests.clock import advance
from tests.people import X, Y, changer
from tests.reliability.workload import KILLED, die_at, in_child

REASON = "court case 17 about the invoice"


@pytest.mark.parametrize(
    "act",
    [
        lambda db: db.forget("person 5"),
        lambda db: db.forget("person 5", dry_run=True),
        lambda db: db.remove([5]),
        lambda db: db.remove([4, 205]),
        lambda db: db.forget_later("person 5", "7d"),
    ],
)
def test_nothing_of_a_held_subject_is_removed_and_the_refusal_says_why(
    path: Path, act: Callable[[dynfrsdb.Database], object]
) -> None:
    with changer(path) as db:
        number = db.hold("person 5", REASON).sequence
        before = db.digest(), db.ledger_head()

        with pytest.raises(dynfrsdb.Held, match=f"{REASON}.*hold release .* {number}'") as refused:
            act(db)

        assert isinstance(refused.value, PermissionError)
        assert (db.digest(), db.ledger_head(), db.waiting()) == (*before, [])


def test_a_transaction_that_meets_a_hold_changes_nothing_at_all(path: Path) -> None:
    with changer(path) as db:
        db.hold("person 5", REASON)

        def forget_both() -> None:
            with db.transaction() as txn:
                txn.forget("person 6")
                txn.forget("person 5")

        with pytest.raises(dynfrsdb.Held):
            forget_both()

        assert len(db) == 300


def test_others_are_forgotten_as_ever(path: Path) -> None:
    with changer(path) as db:
        db.hold("person 5", REASON)

        assert db.forget("person 50").removed == 3


def test_a_released_subject_can_be_forgotten(path: Path) -> None:
    with changer(path) as db:
        first, second = db.hold("person 5", REASON).sequence, db.hold("person 5", "and another").sequence
        db.release(first)
        with pytest.raises(dynfrsdb.Held, match="and another"):
            db.forget("person 5")
        db.release(second)

        assert db.forget("person 5").removed == 3
        assert db.holds() == []


@pytest.mark.parametrize("until", ["2999-01-31", date(2999, 1, 31), datetime(2999, 1, 31, 1, tzinfo=UTC)])
def test_a_hold_lists_its_reason_and_its_end(path: Path, until: Any) -> None:
    with changer(path) as db:
        receipt = db.hold("person 5", f"  {REASON}\n", until=until)
        (hold,) = db.holds()

    assert (hold.number, hold.reason, hold.in_force) == (receipt.sequence, REASON, True)
    assert hold.until is not None
    assert hold.until.startswith("2999-01-31T0")
    assert hold.subject == receipt.subjects[0]


def test_a_hold_ends_at_its_date_and_goes_with_its_subject(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with changer(path) as db:
        db.hold("person 5", REASON, until=datetime.now(UTC) + timedelta(days=2))
        with pytest.raises(dynfrsdb.Held):
            db.forget("person 5")

        advance(monkeypatch, days=3)

        assert [hold.in_force for hold in db.holds()] == [False]
        assert db.forget("person 5").removed == 3
        assert db.holds() == []
        assert db.check().problems == ()


def test_a_hold_outlives_the_process_once_it_is_acknowledged(path: Path) -> None:
    """Killed right after the commit: the hold stands. Killed right before: there is none."""

    def hold_and_die_at(point: str) -> None:
        with changer(path) as db:
            die_at(point)
            db.hold("person 5", REASON)

    assert in_child(lambda: hold_and_die_at("commit-before")) == KILLED
    with changer(path) as db:
        assert db.holds() == []

    assert in_child(lambda: hold_and_die_at("commit-after")) == KILLED
    with changer(path) as db, pytest.raises(dynfrsdb.Held):
        db.forget("person 5")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("nobody", REASON), dynfrsdb.SampleNotFound),
        (("", REASON), dynfrsdb.InvalidInput),
        (("person 5", ""), dynfrsdb.InvalidInput),
        (("person 5", None), dynfrsdb.InvalidInput),
        (("person 5", "x" * 1001), dynfrsdb.InvalidInput),
        (("person 5", "\ud800"), dynfrsdb.InvalidInput),
        (("person 5", REASON, "tomorrow"), dynfrsdb.InvalidInput),
        (("person 5", REASON, "2001-01-01"), dynfrsdb.InvalidInput),
        (("person 5", REASON, 7), dynfrsdb.InvalidInput),
    ],
)
def test_a_hold_that_makes_no_sense_is_refused(path: Path, arguments: Any, error: type[Exception]) -> None:
    with changer(path) as db:
        head = db.ledger_head()

        with pytest.raises(error):
            db.hold(*arguments)

        assert (db.holds(), db.ledger_head()) == ([], head)


def test_releasing_what_is_not_there_says_so(path: Path) -> None:
    with changer(path) as db, pytest.raises(dynfrsdb.EntryNotFound, match="there is no hold 1 in"):
        db.release(1)


def test_holds_are_placed_by_handles_for_writing_outside_transactions(path: Path) -> None:
    with dynfrsdb.open(path) as reader, pytest.raises(dynfrsdb.ReadOnly):
        reader.hold("person 5", REASON)
    with changer(path) as db, db.transaction() as txn:
        txn.add(X[:1], Y[:1])
        with pytest.raises(dynfrsdb.TransactionMisuse):
            db.hold("person 5", REASON)


def _lose_holds(session: WriteSession) -> None:
    session.delete_range("holds", b"", b"\xff" * 24)


def _invent_hold(session: WriteSession) -> None:
    ((key, payload),) = session.snapshot.scan("holds")
    session.put("holds", key[:-1] + b"\x63", payload)


def _other_reason(session: WriteSession) -> None:
    ((key, payload),) = session.snapshot.scan("holds")
    session.put("holds", key, payload.replace(b"invoice", b"payment"))


def _lose_request(session: WriteSession) -> None:
    session.delete_range("queue", b"", b"\xff" * 16)


def _forget_to_suppress(session: WriteSession) -> None:
    session.state["suppression"] = "off"


@pytest.mark.parametrize(
    ("meddle", "words"),
    [
        (_lose_holds, "hold 2 is missing"),
        (_invent_hold, "hold 99 is not in the ledger"),
        (_other_reason, "hold 2 is not what the ledger says"),
        (_lose_request, "waiting request 3 is missing"),
        (_forget_to_suppress, "the suppression is off, but the ledger says skip"),
    ],
)
def test_what_stands_behind_the_ledgers_back_is_found(
    path: Path, meddle: Callable[[WriteSession], None], words: str
) -> None:
    with changer(path) as db:
        db.hold("person 5", REASON)
        db.forget_later("person 6", "7d")
        db.suppress("skip")
        assert db.check().problems == ()

        with db._store.write() as session:
            meddle(session)
            session.commit()

        assert words in db.check().problems
