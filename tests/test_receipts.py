"""Requests and receipts: asking twice changes nothing, and every change leaves evidence."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import dynfrsdb
from tests.people import SHAPE, X, Y, changer, files, receipt_of


def test_asking_twice_changes_nothing_and_gives_the_first_receipt(path: Path) -> None:
    with changer(path) as db:
        first = db.remove([5, 6], request_id="request 1")
        added = receipt_of(db.add(X[:2], Y[:2], request_id="request 2"))
        before = files(path)

        again = db.remove([5, 6], request_id="request 1")
        added_again = receipt_of(db.add(X[:2], Y[:2], request_id="request 2"))

        assert again == first
        assert (added_again, added_again.ids) == (added, added.ids)
        assert added.ids == (300, 301)
        assert files(path) == before


def test_a_request_is_known_in_another_process_of_the_same_store(path: Path) -> None:
    with changer(path) as db:
        first = db.forget("person 9", request_id=b"\xff\x00")
    with changer(path) as db, db.transaction(request_id=b"\xff\x00") as txn:
        assert txn.replayed
        txn.forget("person 9")

    assert txn.receipt == first


def test_a_request_id_that_is_used_for_something_else_is_a_conflict(path: Path) -> None:
    with changer(path) as db:
        db.remove([5, 6], request_id="request 1")
        others: list[Callable[[], object]] = [
            lambda: db.remove([5], request_id="request 1"),
            lambda: db.remove([6, 5], request_id="request 1"),
            lambda: db.forget("person 5", request_id="request 1"),
            lambda: db.add(X[:1], Y[:1], request_id="request 1"),
        ]
        for act in others:
            with pytest.raises(dynfrsdb.RequestConflict, match="used before for something else"):
                act()

        assert len(db) == 298


def test_a_request_that_failed_is_not_known(path: Path) -> None:
    with changer(path) as db:
        with pytest.raises(dynfrsdb.SampleNotFound):
            db.remove([5, 5555], request_id="request 1")

        receipt = db.remove([5], request_id="request 1")

        assert receipt.removed == 1


def test_receipts_form_a_chain(path: Path) -> None:
    with changer(path) as db:
        start = db.info()["sample_digest"]
        given = [
            receipt_of(db.remove([1, 2])),
            receipt_of(db.add(X[:3], Y[:3])),
            receipt_of(db.forget("person 50")),
            receipt_of(db.add(X[[1, 2]], Y[[1, 2]], ids=[1, 2])),
        ]
        entries = db.ledger()
        ledger = [entry for entry in entries if entry.kind in ("create", "change")]

        assert ledger[1:] == given
        assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
        assert all(after.prev == before.hash for before, after in pairwise(entries))
        assert all(after.digest_before == before.digest_after for before, after in pairwise(ledger))
        assert (ledger[0].digest_after, ledger[-1].digest_after) == (start, db.info()["sample_digest"])
        assert [(r.added, r.removed, r.samples) for r in given] == [(0, 2, 298), (3, 0, 301), (0, 3, 298), (2, 0, 300)]
        assert all(0 < r.trees <= 6 and r.nodes >= r.trees for r in given)


def test_the_digest_of_the_samples_is_that_of_a_fresh_store(store_dir: Path, path: Path) -> None:
    with changer(path) as db, dynfrsdb.create(store_dir / "s", X[10:], Y[10:], ids=range(10, 300), **SHAPE) as fresh:
        db.remove(range(10))

        assert db.info()["sample_digest"] == fresh.info()["sample_digest"]


def test_a_receipt_holds_no_raw_identifier(path: Path) -> None:
    with changer(path) as db:
        receipt = receipt_of(db.forget("person 50"))

    text = str(receipt.as_dict())
    assert "person" not in text
    assert len(receipt.removed_ids) == 3
    assert all(len(value) == 32 for value in (*receipt.removed_ids, *receipt.subjects))
