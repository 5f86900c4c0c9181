"""The data sets: real ones where their files are there, generated ones of the same shape where not.

The figures of the paper's C++ belong to two of them. They were measured relative to scikit-learn's retrain on the
machine they ran on, and the targets build on them. On another machine that share is another: `measure_cpp.py` measures
the program itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
MB = 1_000_000


class Cpp(NamedTuple):
    """The paper's C++ in memory: times relative to the same-budget retrain, memory in bytes."""

    build: float
    lazy: float
    eager: float
    hundred: float
    percent: float
    memory: float


@dataclass(frozen=True)
class Aims:
    """Targets that are set for one data set, relative to the retrain unless said."""

    build: float
    removal: float
    hundred: float
    percent: float
    settled: float
    query: float
    """Of scikit-learn's one-row query."""
    mixed_query: float
    size: float
    """Of the C++'s memory."""


@dataclass(frozen=True)
class DataSet:
    """Rows to train on and rows to ask about, with the settings of the forest."""

    name: str
    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    X_test: npt.NDArray[np.float32]
    y_test: npt.NDArray[np.int64]
    settings: dict[str, Any]
    generated: bool
    cpp: Cpp | None = None
    aims: Aims | None = None

    @property
    def occupancy(self) -> int:
        """The number of trees that a sample lives in."""
        q, trees = float(self.settings["q"]), int(self.settings["n_estimators"])
        return math.ceil(q * trees - 1e-9)

    @property
    def words(self) -> str:
        """Shape and settings as a person would say them."""
        short = {"n_estimators": "T", "max_depth": "depth", "n_thresholds": "s", "q": "q"}
        chosen = " ".join(f"{short[key]}={self.settings[key]}" for key in short)
        return f"{len(self.X):,} x {self.X.shape[1]}, {chosen}{', generated' if self.generated else ''}"


class Shape(NamedTuple):
    """What a generated set looks like: numbers, groups of one-hot columns, classes and how noisy their borders are."""

    rows: int
    test: int
    numbers: int
    one_hot: tuple[int, ...]
    classes: int
    noise: float
    rare: float = 0.0
    """How much the first class is preferred."""


class Plan(NamedTuple):
    """A set before it is loaded."""

    shape: Shape
    settings: dict[str, Any]
    cpp: Cpp | None = None
    aims: Aims | None = None


def _settings(trees: int, depth: int, s: int, q: float) -> dict[str, Any]:
    return {"n_estimators": trees, "max_depth": depth, "n_thresholds": s, "q": q, "min_samples_split": 10}


PLANS = {
    "purchase": Plan(
        Shape(9_864, 2_466, 17, (), 2, 1.0, rare=2.5),
        _settings(250, 10, 30, 0.1),
        Cpp(0.65, 0.00037, 0.0014, 0.026, 0.025, 88 * MB),
        Aims(0.45, 0.00037, 0.04, 0.04, 0.15, 0.003, 0.0012, 0.15),
    ),
    "heart": Plan(
        Shape(56_000, 14_000, 12, (), 2, 1.0),
        _settings(150, 15, 5, 0.1),
        Cpp(1.66, 0.00022, 0.0009, 0.017, 0.074, 259 * MB),
        Aims(1.0, 0.00022, 0.04, 0.12, 0.5, 0.005, 0.0012, 0.12),
    ),
    "adult": Plan(Shape(32_561, 16_281, 6, (9, 16, 7, 15, 6, 5, 2, 41), 2, 1.0, rare=1.5), _settings(100, 20, 30, 0.1)),
    "letter": Plan(Shape(15_000, 5_000, 16, (), 26, 0.1), _settings(100, 20, 20, 0.5)),
    "covertype": Plan(Shape(464_809, 116_203, 10, (4, 40), 7, 0.3), _settings(100, 20, 20, 0.1)),
    "tiny": Plan(Shape(600, 100, 4, (3,), 2, 0.5), _settings(8, 6, 5, 0.25)),
}
"""`heart` is a stand-in for the paper's second set, 56,000 patients with 12 features; its file is not to be had. `tiny`
only tries the benchmark itself."""
USUAL = tuple(name for name in PLANS if name != "tiny")


def load(name: str, directory: Path, seed: int = 0) -> DataSet:
    """A set by name, from its file in `directory` if there is one."""
    plan = PLANS[name]
    file = directory / f"{name}.npz"
    if file.is_file():
        with np.load(file) as found:
            X, y, X_test, y_test = (found[part] for part in ("X_train", "y_train", "X_test", "y_test"))
    else:
        rows = plan.shape.rows
        X, y = patients(plan.shape, seed) if name == "heart" else generate(plan.shape, seed)
        X, y, X_test, y_test = X[:rows], y[:rows], X[rows:], y[rows:]
    return DataSet(name, X, y, X_test, y_test, plan.settings, not file.is_file(), plan.cpp, plan.aims)


def generate(shape: Shape, seed: int) -> tuple[Array, Array]:
    """Numbers of unlike kinds and one-hot groups; the class is the largest of noisy scores of them."""
    rng = np.random.default_rng([seed, shape.rows])
    n = shape.rows + shape.test
    numbers = rng.normal(size=(n, shape.numbers))
    numbers[:, ::3] = np.maximum(0.0, np.round(4.0 * numbers[:, ::3]))
    numbers[:, 1::3] = np.round(8.0 * numbers[:, 1::3])
    groups = [np.eye(size)[np.minimum(rng.geometric(0.35, n) - 1, size - 1)] for size in shape.one_hot]
    X = np.hstack([numbers, *groups])
    scaled = (X - X.mean(0)) / (X.std(0) + 1e-9)
    scores = np.tanh(scaled @ rng.normal(size=(X.shape[1], 8)) / 2) @ rng.normal(size=(8, shape.classes))
    scores += shape.noise * rng.gumbel(size=scores.shape)
    scores[:, 0] += shape.rare
    return X.astype(np.float32), scores.argmax(1).astype(np.int64)


def patients(shape: Shape, seed: int) -> tuple[Array, Array]:
    """Made-up patients: age, sex, height, weight, blood pressure, and what the doctor asks; half of them ill."""
    rng = np.random.default_rng([seed, shape.rows])
    n = shape.rows + shape.test
    age = rng.integers(10_798, 23_714, n)
    sex = rng.random(n) < 0.35
    height = np.round(rng.normal(161 + 9 * sex, 6.5))
    weight = np.round(rng.normal(0.9 * height - 71, 13), 1)
    high = np.round(rng.normal(90 + age / 500, 15, n), -1)
    low = np.round(0.6 * high + rng.normal(5, 6, n), -1)
    fat, sugar = (rng.choice(3, n, p=p) for p in ((0.75, 0.14, 0.11), (0.85, 0.07, 0.08)))
    smokes, drinks, moves = (rng.random(n) < p for p in (0.09, 0.05, 0.8))
    X = np.column_stack([age, sex, height, weight, high, low, fat, sugar, smokes, drinks, moves, rng.permutation(n)])
    ill = (high - 127) / 11 + (age - 19_500) / 3_500 + 0.8 * fat + (weight - 74) / 30 - 0.2 * moves
    y = rng.random(n) < 1 / (1 + np.exp(-ill + 0.2))
    return X.astype(np.float32), y.astype(np.int64)


def physics(rows: int, seed: int, at_once: int = 1_000_000) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Rows of Higgs' shape: 28 floats, two classes. Made in pieces, so that only the result takes memory."""
    X, y = np.empty((rows, 28), np.float32), np.empty(rows, np.int64)
    for start in range(0, rows, at_once):
        part = X[start : start + at_once]
        rng = np.random.default_rng([seed, start])
        rng.standard_normal(part.shape, np.float32, out=part)
        signal = part[:, 0] * part[:, 1] + np.abs(part[:, 2]) - 0.8 + 0.5 * part[:, 3]
        y[start : start + at_once] = rng.random(len(part)) < 1 / (1 + np.exp(-signal))
    return X, y
