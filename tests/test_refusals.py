"""What is accepted, what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import dynfrsdb
from tests.people import SHAPE, X, Y, changer, files


def test_frames_are_taken_and_their_columns_checked(store_dir: Path) -> None:
    frame = pandas.DataFrame(X, columns=["age", "weight", "height", "pulse"])
    with dynfrsdb.create(store_dir / "s", frame, pandas.Series(Y), **SHAPE) as db:
        db.add(frame[:2], pandas.Series(Y[:2]), ids=pandas.Series([900, 901]))
        answers = db.predict_proba(frame)

        assert answers.tobytes() == db.predict_proba(X).tobytes()
        with pytest.raises(dynfrsdb.InvalidInput, match="column 0 of X is 'pulse', this store expects 'age' there"):
            db.predict(frame[["pulse", "weight", "height", "age"]])
        with pytest.raises(dynfrsdb.InvalidInput, match="row 3, column 'weight' is NaN"):
            db.add(frame.assign(weight=np.where(np.arange(300) == 3, np.nan, 1.0)), Y)
        assert len(db) == 302


def refusals(db: dynfrsdb.Database, path: Path) -> list[tuple[type[Exception], str, Any]]:
    nan = X[:3].copy()
    nan[1, 2] = np.nan
    return [
        (KeyError, f"sample 4141 is not in '{path}'", lambda: db.remove([3, 4141])),
        (KeyError, f"no sample of this subject is in '{path}'", lambda: db.forget("nobody")),
        (
            ValueError,
            f"row 1: sample 7 is already in '{path}'; remove it first or choose another id",
            lambda: db.add(X[:2], Y[:2], ids=[999, 7]),
        ),
        (
            ValueError,
            "id 7 is given twice, in rows 0 and 1; give each sample its own id",
            lambda: db.add(X[:2], Y[:2], ids=[7, 7]),
        ),
        (ValueError, "row 1, column 2 is NaN; dynfrsdb stores finite numbers only", lambda: db.add(nan, Y[:3])),
        (ValueError, "row 0, column 1 is too large", lambda: db.add([[0.0, 1e39, 0.0, 0.0]], [0])),
        (ValueError, "row 0 has 3 features, this store takes 4", lambda: db.add(X[:2, :3], Y[:2])),
        (
            ValueError,
            "row 0 of y is 5, which is not a class of this store; its classes are 0, 1",
            lambda: db.add(X[:1], [5]),
        ),
        (ValueError, "y has 1 entries for 2 rows of X; pass one per row", lambda: db.add(X[:2], [1])),
    ]


def test_bad_input_is_refused_in_words_and_nothing_is_changed(path: Path) -> None:
    with changer(path) as db:
        db.remove([0])
        before = files(path)

        for kind, words, act in refusals(db, path):
            with pytest.raises(dynfrsdb.Error) as caught:
                act()
            assert isinstance(caught.value, kind)
            assert words in str(caught.value)
        assert files(path) == before


def test_misuse_is_refused_in_words(path: Path) -> None:
    with changer(path) as db, dynfrsdb.open(path) as reader:
        with pytest.raises(dynfrsdb.ReadOnly, match="is open for reading"):
            reader.remove([1])
        with db.transaction() as txn:
            with pytest.raises(dynfrsdb.TransactionMisuse, match="has a transaction open already"), db.transaction():
                pass
            txn.remove([1])
        with pytest.raises(dynfrsdb.TransactionMisuse, match="use it inside its 'with' block"):
            txn.remove([2])
        with pytest.raises(dynfrsdb.StoreExists):
            dynfrsdb.create(path, X, Y)
    with pytest.raises(dynfrsdb.ClosedStore):
        db.predict(X)
    with pytest.raises(dynfrsdb.StoreNotFound):
        dynfrsdb.open(path.parent / "nowhere")


def test_an_empty_forest_gives_no_answer(path: Path) -> None:
    with changer(path) as db:
        db.remove(range(300))

        with pytest.raises(dynfrsdb.EmptyForest, match="holds no samples; add some first"):
            db.predict(X)
        assert db.check()
        db.add(X, Y, ids=range(300))
        assert db.verify()


def test_no_text_shows_the_seed(path: Path) -> None:
    with changer(path) as db:
        seed = db._settings.seed
        for text in (repr(db), str(db.info()), str(db.ledger()), repr(db._settings)):
            assert seed.hex() not in text
            assert str(seed) not in text
