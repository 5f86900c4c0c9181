"""One small store, two samples to a person, for a module's tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dynfrsdb

SAMPLES = 60


def make_store(path: Path) -> Path:
    """A store of 60 samples of 30 people."""
    x = np.random.default_rng(7).normal(size=(SAMPLES, 3)).astype(np.float32)
    people = [f"person {row // 2}" for row in range(SAMPLES)]
    names = ["age", "[red]weight", "height"]
    labels = np.where(x[:, 0] + x[:, 1] > 0, "yes", "no")
    dynfrsdb.create(
        path, x, labels, subjects=people, feature_names=names, n_estimators=7, q=0.5, seed="cli", _bucket=4
    ).close()
    return path


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Kernels are compiled before any command runs, so that none has a reason to speak of it on stderr."""
    path = make_store(tmp_path_factory.mktemp("warm") / "warm.forest")
    with dynfrsdb.open(path, "w") as db:
        db.forget("person 0")
        db.predict_proba(np.zeros((1, 3)))
        assert db.check()
        assert db.verify()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("cli") / "small.forest")
