"""An accuracy guard: on scikit-learn's bundled sets a forest is about as good as a RandomForest of the same size.

Exactness alone would not notice a forest that is exactly bad: a score with the wrong sign, thresholds that never
separate anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import dynfrsdb

SEEDS = (1, 2, 3)
TREES, DEPTH = 60, 20
Array = npt.NDArray[Any]


def thirds(load: Any, seed: int) -> tuple[Array, Array, Array, Array]:
    """Two thirds to train on, one third to ask about."""
    X, y = load(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(X))
    cut = 2 * len(X) // 3
    return X[order[:cut]], y[order[:cut]], X[order[cut:]], y[order[cut:]]


def ours(folder: Path, parts: tuple[Array, Array, Array, Array], seed: int, **settings: Any) -> Array:
    train, labels, test, _ = parts
    shape = {"n_estimators": TREES, "q": 0.5, "max_depth": DEPTH, "min_samples_split": 2, "seed": seed}
    with dynfrsdb.create(folder / str(seed), train, labels, **(shape | settings)) as db:
        return db.predict(test)


@pytest.mark.parametrize("criterion", ["gini", "entropy"])
@pytest.mark.parametrize(("load", "least", "margin"), [(load_digits, 0.94, 0.02), (load_breast_cancer, 0.93, 0.02)])
def test_classes_are_told_apart_as_well_as_by_a_random_forest(
    store_dir: Path, load: Any, least: float, margin: float, criterion: str
) -> None:
    mine, theirs = [], []

    for seed in SEEDS:
        parts = thirds(load, seed)
        mine.append(np.mean(ours(store_dir, parts, seed, criterion=criterion) == parts[3]))
        peer = RandomForestClassifier(TREES, criterion=criterion, max_depth=DEPTH, random_state=seed).fit(
            parts[0], parts[1]
        )
        theirs.append(peer.score(parts[2], parts[3]))

    assert np.mean(mine) >= least
    assert np.mean(mine) >= np.mean(theirs) - margin


def test_targets_are_met_as_well_as_by_a_random_forest(store_dir: Path) -> None:
    mine, theirs = [], []

    for seed in SEEDS:
        parts = thirds(load_diabetes, seed)
        said = ours(store_dir, parts, seed, task="regression", min_samples_split=10, n_thresholds=5)
        peer = RandomForestRegressor(TREES, max_depth=DEPTH, min_samples_split=10, random_state=seed).fit(
            parts[0], parts[1]
        )
        mine.append(np.mean((said - parts[3]) ** 2))
        theirs.append(np.mean((peer.predict(parts[2]) - parts[3]) ** 2))

    assert np.mean(mine) <= 1.1 * np.mean(theirs)


def test_forgetting_half_of_the_people_costs_what_never_having_them_costs(store_dir: Path) -> None:
    train, labels, test, truth = thirds(load_digits, 1)
    shape: dict[str, Any] = {
        "n_estimators": 30,
        "q": 0.5,
        "min_samples_split": 2,
        "seed": 1,
        "classes": list(range(10)),
    }
    half = len(train) // 2

    with dynfrsdb.create(store_dir / "all", train, labels, **shape) as db:
        db.remove(range(half, len(train)))
        after = db.predict(test)
    with dynfrsdb.create(store_dir / "half", train[:half], labels[:half], **shape) as db:
        never = db.predict(test)

    assert after.tolist() == never.tolist()
    assert np.mean(after == truth) >= 0.9
