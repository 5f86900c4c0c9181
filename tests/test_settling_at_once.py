"""Which tags are grown before the commit that made them: all, if they are few; else the smallest; of a large batch
none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dynfrsdb
from dynfrsdb import database

rng = np.random.default_rng(11)
X = rng.normal(size=(3_000, 4)).astype(np.float32)
Y = (X[:, 0] + rng.normal(size=3_000) > 0).astype(int)
GOING = [17, 18, 400, 2_100]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("at-once") / "people.forest"
    dynfrsdb.create(path, X, Y, n_estimators=8, q=0.5, max_depth=10, seed=3).close()
    return path


def tags_after_removing(built: Path, path: Path, settle: str | None) -> list[int]:
    """The sizes of the tags that a removal leaves, ascending, with nothing grown in the background."""
    with dynfrsdb.open(built) as db:
        db.backup(path)
    with dynfrsdb.open(path, "w", settle=settle) as db:
        if db._settler is not None:
            db._settler.stop()
        db.remove(GOING)
        with db._store.snapshot() as snapshot, db._view.at(snapshot) as forest:
            return sorted(forest.tags()["n"].tolist())


def limits(monkeypatch: pytest.MonkeyPatch, at_once: int, tiny: int) -> None:
    monkeypatch.setattr(database, "AT_ONCE", at_once)
    monkeypatch.setattr(database, "TINY", tiny)


@pytest.fixture
def made(built: Path, tmp_path: Path) -> list[int]:
    """The tags that the removal makes."""
    found = tags_after_removing(built, tmp_path / "lazy.forest", None)
    assert len(set(found)) > 2
    return found


def test_tags_that_are_small_together_are_all_grown(
    built: Path, tmp_path: Path, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers never meet the tags of a usual removal."""
    limits(monkeypatch, at_once=sum(made), tiny=0)

    assert tags_after_removing(built, tmp_path / "auto.forest", "auto") == []


def test_of_too_many_samples_the_smallest_tags_are_grown(
    built: Path, tmp_path: Path, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest ones wait for a pause."""
    limits(monkeypatch, at_once=sum(made) - 1, tiny=0)

    assert tags_after_removing(built, tmp_path / "auto.forest", "auto") == made[-1:]


def test_a_batch_with_too_many_tiny_tags_grows_none(
    built: Path, tmp_path: Path, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller would wait for what a pause can do."""
    limits(monkeypatch, at_once=sum(made) - 1, tiny=max(made))

    assert tags_after_removing(built, tmp_path / "auto.forest", "auto") == made
