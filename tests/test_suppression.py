"""Who was forgotten does not come back unnoticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dynfrsdb
from tests.people import X, Y, changer, receipt_of

THREE = ["person 5", "person 6", None]


def test_by_default_a_forgotten_subject_may_come_back(path: Path) -> None:
    with changer(path) as db:
        db.forget("person 5")

        assert receipt_of(db.add(X[:3], Y[:3], subjects=THREE)).added == 3


def test_refusing_names_the_row_and_adds_nothing(path: Path) -> None:
    with changer(path) as db:
        db.suppress("refuse")
        db.forget("person 6")

        with pytest.raises(dynfrsdb.Suppressed, match="row 1: its subject was forgotten"):
            db.add(X[:3], Y[:3], subjects=THREE)

        assert len(db) == 297
        assert receipt_of(db.add(X[[0, 2]], Y[[0, 2]], subjects=["person 5", None])).added == 2


def test_skipping_adds_the_others_and_counts(path: Path) -> None:
    with changer(path) as db:
        db.suppress("skip")
        db.forget("person 6")

        receipt = receipt_of(db.add(X[:3], Y[:3], subjects=THREE))

        assert (receipt.added, receipt.details, receipt.ids) == (2, {"skipped": 1}, (300, 301))
        assert np.array_equal(db.sample(301).x, X[2].astype(np.float32))
        assert (len(db), db.check().problems) == (299, ())


def test_ids_that_were_given_stay_with_their_rows(path: Path) -> None:
    with changer(path) as db:
        db.suppress("skip")
        db.forget("person 6")

        with db.transaction() as txn:
            ids = txn.add(X[:3], Y[:3], ids=[1000, 1001, 1002], subjects=THREE)

        assert (ids.tolist(), txn.skipped, 1001 in db) == ([1000, 1002], 1, False)
        assert np.array_equal(db.sample(1002).x, X[2].astype(np.float32))


def test_a_request_that_skipped_gives_the_same_ids_again(path: Path) -> None:
    with changer(path) as db:
        db.suppress("skip")
        db.forget("person 6")
        first = receipt_of(db.add(X[:3], Y[:3], subjects=THREE, request_id="r"))

        again = receipt_of(db.add(X[:3], Y[:3], subjects=THREE, request_id="r"))

        assert (again, again.ids, len(db)) == (first, first.ids, 299)


def test_a_call_of_which_everything_is_skipped_is_in_the_ledger(path: Path) -> None:
    with changer(path) as db:
        db.suppress("skip")
        db.forget("person 6")

        receipt = receipt_of(db.add(X[:1], Y[:1], subjects=["person 6"]))

        assert (receipt.added, receipt.details) == (0, {"skipped": 1})


def test_forgetting_and_adding_in_one_transaction_counts_too(path: Path) -> None:
    with changer(path) as db:
        db.suppress("refuse")

        def replace() -> None:
            with db.transaction() as txn:
                txn.forget("person 6")
                txn.add(X[:1], Y[:1], subjects=["person 6"])

        with pytest.raises(dynfrsdb.Suppressed):
            replace()

        assert len(db) == 300


def test_turning_it_on_covers_who_was_forgotten_before_and_is_away(path: Path) -> None:
    with changer(path) as db:
        db.forget("person 5")
        db.forget("person 6")
        db.add(X[:1], Y[:1], subjects=["person 5"])  # came back, while that was allowed

        db.suppress("refuse")

        db.add(X[:1], Y[:1], subjects=["person 5"])
        with pytest.raises(dynfrsdb.Suppressed):
            db.add(X[:1], Y[:1], subjects=["person 6"])


def test_turning_it_off_empties_the_list(path: Path) -> None:
    with changer(path) as db:
        db.suppress("refuse")
        db.forget("person 6")

        db.suppress("off")

        db.add(X[:1], Y[:1], subjects=["person 6"])
        assert db.check().problems == ()


def test_a_subject_taken_off_the_list_may_come_back(path: Path) -> None:
    with changer(path) as db:
        db.suppress("refuse")
        db.forget("person 6")

        db.unsuppress("person 6")

        db.add(X[:1], Y[:1], subjects=["person 6"])
        with pytest.raises(dynfrsdb.SampleNotFound, match="not on the suppression list"):
            db.unsuppress("person 6")


def test_the_list_is_in_a_backup(path: Path, store_dir: Path) -> None:
    with changer(path) as db:
        db.suppress("refuse")
        db.forget("person 6")
        db.backup(store_dir / "copy.forest")

    with changer(store_dir / "copy.forest") as copy, pytest.raises(dynfrsdb.Suppressed):
        copy.add(X[:1], Y[:1], subjects=["person 6"])


def test_an_unknown_mode_is_refused(path: Path) -> None:
    with changer(path) as db, pytest.raises(dynfrsdb.InvalidInput, match="'off', 'refuse' or 'skip'"):
        db.suppress("on")
