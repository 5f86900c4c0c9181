"""A small store of people that many tests begin with, and how they look at it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import dynfrsdb

SHAPE: dict[str, Any] = {
    "n_estimators": 6,
    "q": 0.5,
    "min_samples_split": 2,
    "n_thresholds": 5,
    "seed": 7,
    "_bucket": 8,
}
Matrix = npt.NDArray[np.float64]


def people(n: int = 300, d: int = 4, seed: int = 0) -> tuple[Matrix, npt.NDArray[np.int64]]:
    """Rows whose first feature tells the class most of the time."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, ((X[:, 0] + 0.3 * rng.normal(size=n)) > 0).astype(np.int64)


X, Y = people()


def new_store(path: Path) -> Path:
    """A store of 300 samples, each of one of 100 subjects."""
    dynfrsdb.create(path, X, Y, subjects=[f"person {i % 100}" for i in range(len(X))], **SHAPE).close()
    return path


def changer(path: Path, settle: str | None = None) -> dynfrsdb.Database:
    """A handle that may write, and leaves tags alone unless told otherwise."""
    return dynfrsdb.open(path, "w", settle=settle)


def receipt_of(change: dynfrsdb.Receipt | dynfrsdb.Plan) -> dynfrsdb.Receipt:
    """What a one-call form gives, unless it was a dry run."""
    assert isinstance(change, dynfrsdb.Receipt)
    return change


def files(path: Path) -> dict[str, str]:
    """The hash of every file of a store but its lock files."""
    found = [file for file in path.rglob("*") if file.is_file() and file.name not in ("LOCK", "lock.mdb")]
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in found}
