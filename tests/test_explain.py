"""Explanations add up: what the roots say and what each feature moved is the prediction, and nothing is left over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynfrsdb
from tests.people import SHAPE, Matrix, people

TASKS = ("two classes", "five classes", "regression")


def make(path: Path, task: str) -> tuple[dynfrsdb.Database, Matrix]:
    """A store with buckets, nodes and long leaves, opened so that tags stay."""
    X, y = people(600, 5, seed=4)
    X[:, 4] = 1.0
    if task == "five classes":
        y = (np.abs(X[:, 0] * 10) % 5).astype(np.int64)
    kind: dict[str, Any] = {"task": "regression", "target_step": 0.001} if task == "regression" else {}
    targets = X[:, 0] * 3 + X[:, 1] if task == "regression" else y
    dynfrsdb.create(path, X, targets, **SHAPE, **kind).close()
    return dynfrsdb.open(path, "w", settle=None), X


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("tagged", [False, True])
def test_the_parts_add_up_to_the_prediction(store_dir: Path, task: str, tagged: bool) -> None:
    db, X = make(store_dir / "own.forest", task)
    with db:
        if tagged:
            db.remove(list(range(0, 600, 3)))
            assert db.info()["tags"] > 0

        found = db.explain(X[:40])

        means = db.predict(X[:40])[:, None] if task == "regression" else db.predict_proba(X[:40])
        assert [each.prediction for each in found] == db.predict(X[:40]).tolist()
        assert [list(each.answer) for each in found] == means.tolist()
        for each in found:
            assert each.base + sum(each.moved.values()) == pytest.approx(each.value, abs=1e-9)


def test_the_base_is_what_the_roots_say(store_dir: Path) -> None:
    """A sample lives in k trees, so over all roots every sample counts; here each tree holds all of them."""
    X, y = people(200, 3, seed=1)
    with dynfrsdb.create(store_dir / "own.forest", X, y, **{**SHAPE, "q": 1.0}) as db:
        found = db.explain(X[:20])

    share = {0: float(np.mean(y == 0)), 1: float(np.mean(y == 1))}
    assert [each.base for each in found] == pytest.approx([share[each.prediction] for each in found], abs=1e-12)


def test_a_feature_that_decides_alone_moved_it_alone(store_dir: Path) -> None:
    X = np.zeros((100, 3))
    X[:, 1] = np.arange(100) >= 50
    with dynfrsdb.create(store_dir / "own.forest", X, X[:, 1].astype(int), **SHAPE) as db:
        found = db.explain(X[[0, 99]])

    assert [list(each.moved) for each in found] == [["x1"], ["x1"]]
    assert [each.value for each in found] == [1.0, 1.0]


def test_explaining_changes_nothing_and_sees_the_newest_commit(store_dir: Path) -> None:
    db, X = make(store_dir / "own.forest", "two classes")
    with db:
        before = db.explain(X[:5])
        db.remove(list(range(100, 300)))

        after = db.explain(X[:5])

        assert before != after
        assert db.digest() == dynfrsdb.open(store_dir / "own.forest").digest()
        assert db.check()


def test_an_empty_forest_explains_nothing(store_dir: Path) -> None:
    with (
        dynfrsdb.create(store_dir / "own.forest", n_features=2, classes=[0, 1]) as db,
        pytest.raises(dynfrsdb.EmptyForest),
    ):
        db.explain([[0.0, 1.0]])
