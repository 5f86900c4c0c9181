"""Compile every kernel ahead of time.

The first use of a kernel compiles it and keeps the result on disk; all of them together take about a minute of a
processor. numba compiles one at a time in a process, so `warm` lets a second process compile those that change a
forest, which are half of the work, while it makes use of all others on a small store that it throws away. Then the
first query or removal of an installation, or of a container made from it, is as fast as any other."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from dynfrsdb.api import create
from dynfrsdb.api import open as open_store
from dynfrsdb.database import Database
from dynfrsdb.settings import Settings
from dynfrsdb.shelf import changed_records
from dynfrsdb.view import spec_of
from dynfrsdb_engine.forest import Forest, Samples
from dynfrsdb_engine.kernel import CACHED
from dynfrsdb_engine.rows import Rows


def warm() -> None:
    """Compile what is not compiled yet; with no cache on disk, for this process only."""
    helper = subprocess.Popen([sys.executable, "-m", "dynfrsdb.warm"]) if CACHED else None
    try:
        with tempfile.TemporaryDirectory(prefix="dynfrsdb-") as directory:
            for samples in (600, 12):  # more than a bucket holds, and less
                path = Path(directory) / str(samples)
                _create(path, samples)
                with open_store(path, mode="w", settle=None) as db, open_store(path) as reader:
                    _ask(db, reader)
                    if helper is not None:
                        helper.wait()
                    _change(db, reader)
    finally:
        if helper is not None:
            helper.kill()
            helper.wait()


def _create(path: Path, samples: int) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(samples, 4)), rng.integers(0, 2, samples)
    create(path, X, y, classes=[0, 1], n_estimators=3, q=0.7, max_depth=4, criterion="entropy", _bucket=16).close()


def _ask(db: Database, reader: Database) -> None:
    X = np.zeros((99, 4))
    for handle in (db, reader):
        handle.predict_proba(X)
        handle.predict_proba(X[:1])
    db.verify()
    db.sample(0)
    with open_store(db.path, cache_bytes=1) as small:
        for shift in range(3):
            small.predict(X + shift)


def _change(db: Database, reader: Database) -> None:
    X = np.zeros((9, 4))
    for ids in ([0], list(range(1, len(db) // 2))):
        db.remove(ids)
        reader.predict(X)
    db.predict(X[:1])
    db.add(X, np.ones(9))
    db.settle()
    with open_store(db.path, mode="w") as settling:
        settling.add(X, np.zeros(9))
    db.remove([len(db)], dry_run=True)
    reader.predict(X)
    db.check()


def _compile_change() -> None:
    """Change a forest by nothing: what is compiled depends on the types of arrays, not on what is in them."""
    settings = Settings.make(n_features=1, classes=[0, 1])
    words, floats = np.zeros((0, 4), np.uint64), np.zeros((0, 8), np.float32)
    words.flags.writeable = floats.flags.writeable = False  # as the mapped rows are
    rows = Rows(words, floats, np.zeros(8, np.uint64))
    forest = Forest(spec_of(settings), None, rows, changeable=True)  # type: ignore[arg-type]
    X, y = np.zeros((0, 1), np.float32), np.zeros(0, np.int64)
    forest.change(Samples(np.zeros(0, np.uint64), X, y, np.zeros(0, np.uint32), np.zeros(0, np.int8)), 1)
    forest.dirty_tags(1, 0)
    forest.edits()
    changed_records(forest)
    forest.mark_clean()
    forest.drop_changes()


if __name__ == "__main__":
    _compile_change()
