"""The forest is a function of its samples: not of order, threads, buckets or history."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import dynfrsdb
from dynfrsdb_storage import layout
from tests.people import SHAPE, X, Y, changer


def test_adding_an_id_again_gives_the_same_forest(path: Path) -> None:
    with changer(path) as db:
        digest, sample_digest = db.digest(), db.info()["sample_digest"]

        db.remove([17, 230])
        assert db.digest() != digest
        db.add(X[[230, 17]], Y[[230, 17]], ids=[230, 17], subjects=["somebody", None])

        assert (db.digest(), db.info()["sample_digest"]) == (digest, sample_digest)


def test_insertion_order_does_not_matter(store_dir: Path, path: Path) -> None:
    order = np.random.default_rng(1).permutation(len(X))
    with dynfrsdb.create(store_dir / "s", n_features=4, classes=[0, 1], **SHAPE) as db, dynfrsdb.open(path) as whole:
        for part in np.array_split(order, 7):
            db.add(X[part], Y[part], ids=part)

        assert db.digest() == whole.digest()
        assert db.predict_proba(X).tobytes() == whole.predict_proba(X).tobytes()
    with dynfrsdb.create(store_dir / "t", X[order], Y[order], ids=order, **SHAPE) as db, dynfrsdb.open(path) as whole:
        assert db.digest() == whole.digest()


def test_the_number_of_threads_does_not_matter(store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    for threads in ("1", "2", "7"):
        monkeypatch.setenv("DYNFRSDB_THREADS", threads)
        with dynfrsdb.create(store_dir / threads, X, Y, **SHAPE) as db:
            db.remove(range(40, 80))
            db.settle()
            seen.add((db.digest(), db.predict_proba(X).tobytes()))
            assert db.check()

    assert len(seen) == 1


def test_the_size_of_buckets_does_not_matter(store_dir: Path) -> None:
    digests = set()
    for bucket in (1, 2, 8, 128):
        with dynfrsdb.create(store_dir / str(bucket), X, Y, **{**SHAPE, "_bucket": bucket}) as db:
            db.remove(range(40, 80))
            digests.add(db.digest())

    assert len(digests) == 1


def test_settled_records_depend_on_the_live_samples_only(store_dir: Path) -> None:
    """Records of a store with a history are those of a fresh one, byte for byte, but for stamps and slots."""
    with dynfrsdb.create(store_dir / "s", X, Y, **SHAPE) as db:
        for first in range(0, 60, 10):
            db.remove(range(first, first + 10))
            db.predict(X[:50])
        db.settle()

        with dynfrsdb.create(store_dir / "fresh", X[60:], Y[60:], ids=range(60, 300), **SHAPE) as fresh:
            assert shapes(db) == shapes(fresh)


def shapes(db: dynfrsdb.Database) -> dict[bytes, bytes]:
    """What nodes hold apart from stamps, and how many samples each bucket has."""
    with db._store.snapshot() as snapshot:
        nodes = dict(snapshot.scan("nodes"))
        buckets = {key: data[:4] for key, data in snapshot.scan("buckets") if key[: layout.NODE_KEY_BYTES] not in nodes}
    return buckets | {key: data[:8] + (data[32:] if data[0] == 1 else data[16:]) for key, data in nodes.items()}


SPECIALISATIONS = """
import importlib, pkgutil, sys, tempfile
import numpy as np
import dynfrsdb, dynfrsdb_engine

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 5))
labels = {"classification": rng.integers(0, 3, 400), "regression": rng.normal(size=400)}
for task, criterion in (("classification", "gini"), ("classification", "entropy"), ("regression", None)):
    path = tempfile.mkdtemp(dir=sys.argv[1]) + "/s"
    y = labels[task]
    shape = {"n_estimators": 4, "q": 0.5, "min_samples_split": 2, "_bucket": 8}
    with dynfrsdb.create(path, X, y, task=task, criterion=criterion, **shape) as db:
        db.remove(range(0, 40))
        db.add(X[:40], y[:40], ids=range(1000, 1040))
        db.predict(X), db.settle(), db.check(), db.verify(), db.digest(), db.sample(50)
    with dynfrsdb.open(path) as db:
        db.predict(X)
for module in pkgutil.iter_modules(dynfrsdb_engine.__path__, "dynfrsdb_engine."):
    for name, value in vars(importlib.import_module(module.name)).items():
        signatures = getattr(value, "nopython_signatures", ())
        takes_arrays = any("array" in str(signature.args).lower() for signature in signatures)
        if len(signatures) > 1 and takes_arrays and value.__module__ == module.name:
            print(module.name, name, len(signatures), *signatures, sep="\\n    ")
"""


def test_every_kernel_that_takes_arrays_has_one_specialisation(store_dir: Path) -> None:
    """Whatever the task: arrays cross into kernels with one type each, or everything is compiled twice."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SPECIALISATIONS), str(store_dir)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == ""
