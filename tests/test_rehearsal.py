"""A dry run tries a change in memory: no byte of the store changes, however large the change is."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import dynfrsdb
from dynfrsdb_storage import Store, failpoints
from tests import naive
from tests.people import Matrix, X, Y, changer, files, people, receipt_of
from tests.storage.people import in_child
from tests.survivors import Nursery

MANY = 3000
"""More than a session may write without a larger reservation."""


@pytest.fixture(scope="module")
def more() -> tuple[Matrix, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    return people(MANY, seed=5)


def test_a_dry_run_of_a_large_add_changes_no_byte_and_makes_no_commit(
    path: Path, more: tuple[Matrix, Matrix], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(path)
    passed: list[str] = []
    with changer(path) as db:
        commit = db.refresh()
        monkeypatch.setattr(failpoints, "hook", passed.append)

        plan = db.add(*more, dry_run=True)

        assert isinstance(plan, dynfrsdb.Plan)
        assert (plan.added, db.refresh(), passed) == (MANY, commit, [])
        assert files(path) == before
        assert db.check().problems == ()


def test_a_plan_says_what_the_change_then_does(path: Path, more: tuple[Matrix, Matrix]) -> None:
    with changer(path) as db:
        plan = db.add(*more, dry_run=True)
        done = receipt_of(db.add(*more))

        assert isinstance(plan, dynfrsdb.Plan)
        assert (plan.added, plan.trees, plan.nodes, plan.tagged) == (done.added, done.trees, done.nodes, done.tagged)
        assert db.check().problems == ()
        assert db.verify()


def test_a_plan_counts_the_nodes_whose_best_split_would_be_another(path: Path) -> None:
    """Held against the definition: trees with and without a sample, compared along its way down."""
    everybody = [
        naive.Sample(id, naive.as_row(row), int(label)) for id, (row, label) in enumerate(zip(X, Y, strict=True))
    ]
    counts = []
    with changer(path) as db:
        nursery = Nursery(db._settings)
        before = nursery.twin(everybody).trees
        for id in range(0, 60, 2):
            after = nursery.twin(sample for sample in everybody if sample.id != id).trees
            pairs = zip(before, after, strict=True)
            expected = sum(resplit(old, new, everybody[id], db._settings.bucket) for old, new in pairs)

            plan = db.remove([id], dry_run=True)

            assert isinstance(plan, dynfrsdb.Plan)
            assert plan.resplit == expected
            counts.append((plan.resplit, plan.voided))

    assert sum(resplits for resplits, _ in counts) > 10
    assert any(resplits < voided for resplits, voided in counts)


def resplit(old: naive.Node, new: naive.Node, gone: naive.Sample, bucket: int) -> int:
    """How many nodes split otherwise, from here down to where everything is another."""
    if isinstance(old, naive.Leaf) or isinstance(new, naive.Leaf) or old.n == new.n or new.n <= bucket:
        return 0
    same = (old.feature, old.threshold) == (new.feature, new.threshold)
    left = gone.x[old.feature] <= old.threshold
    if old.feature != new.feature or old.left.n - left != new.left.n:
        return 1
    children = (old.left, new.left) if left else (old.right, new.right)
    return (not same) + resplit(*children, gone, bucket)


def test_what_is_tried_never_reaches_the_file(path: Path, more: tuple[Matrix, Matrix]) -> None:
    rows, y = more
    with changer(path) as db, db._store.write() as session:
        session.rehearse()
        first, second = session.reserve(2), session.reserve(1)
        session.write_rows(first, np.array([901, 902]), y[:2], rows[:2])
        session.write_rows(second, np.array([903]), y[2:3], rows[2:3])

        tried = session.snapshot.rows

        assert tried.words[[*first, *second], 1].tolist() == [901, 902, 903]
        assert len(tried.bad(np.array([*first, *second]), np.array([901, 902, 903]))) == 0
        assert rows[0].astype(np.float32).tobytes() not in (path / "gen-0001" / "rows.bin").read_bytes()
        with pytest.raises(ValueError, match="a rehearsal cannot be committed"):
            session.commit()


def test_a_death_in_a_dry_run_leaves_a_good_store(path: Path, more: tuple[Matrix, Matrix]) -> None:
    rows, y = more

    def die() -> None:
        with Store.open(path, writable=True) as store, store.write() as session:
            session.rehearse()
            session.write_rows(session.reserve(MANY), np.arange(MANY) + 900, y, rows)
            os._exit(7)

    size = (path / "gen-0001" / "rows.bin").stat().st_size
    assert in_child(die) == 7
    assert (path / "gen-0001" / "rows.bin").stat().st_size > size

    with changer(path) as db:
        assert (len(db), db.check().problems) == (300, ())
        db.add(rows, y)
        assert (len(db), db.check().problems) == (300 + MANY, ())
