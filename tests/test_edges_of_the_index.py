"""The index at its edges: no samples at all, the largest id, a request with very many calls."""

from pathlib import Path

import numpy as np
import pytest

import dynfrsdb

LARGEST = 2**64 - 1


def empty_store(path: Path) -> dynfrsdb.Database:
    return dynfrsdb.create(path, n_features=2, classes=["no", "yes"], n_estimators=3, q=1.0, seed=1)


def test_a_store_may_begin_empty_and_takes_samples_later(tmp_path: Path) -> None:
    with empty_store(tmp_path / "people.forest") as db:
        assert len(db) == 0

        db.add([[0.0, 1.0], [1.0, 0.0]], ["no", "yes"])

        assert len(db) == 2
        assert db.check()


def test_the_largest_id_can_be_used(tmp_path: Path) -> None:
    rows, labels = np.eye(2), ["no", "yes"]

    with dynfrsdb.create(tmp_path / "people.forest", rows, labels, ids=[3, LARGEST], n_estimators=3, seed=1) as db:
        db.remove([LARGEST])
        db.add(rows[1:], labels[1:], ids=[LARGEST])

        assert LARGEST in db
        assert db.check()


def test_a_request_with_hundreds_of_calls_can_be_asked_again(tmp_path: Path) -> None:
    with empty_store(tmp_path / "people.forest") as db:

        def ask() -> dynfrsdb.Transaction:
            with db.transaction(request_id="import 7") as txn:
                for _ in range(700):
                    txn.add([[0.0, 1.0]], ["no"])
            return txn

        first, second = ask(), ask()

        assert second.replayed
        assert second.receipt == first.receipt
        assert len(db) == 700


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_handle_that_removed_everybody_gives_no_answer(tmp_path: Path, task: str) -> None:
    """Everything is in memory then, so nothing has to be loaded that could notice."""
    rows = np.eye(6)

    with dynfrsdb.create(tmp_path / "people.forest", rows, range(6), task=task, n_estimators=3, seed=1) as db:
        db.predict(rows)
        db.remove(range(6))

        for _ in range(2):
            with pytest.raises(dynfrsdb.EmptyForest):
                db.predict(rows)
