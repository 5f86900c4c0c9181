"""One data set on its way through the measures: its stores, its scikit-learn forests, its figures.

The base store is built once and closed; every measure that changes something works on a copy of it, so that no measure
finds what another one left.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

import dynfrsdb
from benchmark.bare import Bare
from benchmark.data import DataSet, load
from benchmark.figures import Figure, Stopwatch
from dynfrsdb.warm import warm
from dynfrsdb_storage import layout
from dynfrsdb_storage.disk import keep_allocated

WARM_ROWS = 20_000
CACHE_BYTES = 4 << 30
LARGE = 200_000
"""Samples from which on every single step takes long."""
SMALL = "small"
SEED = 20_250_701


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    builds: int = 9
    removals: int = 200
    tail: int = 1_000
    open_rounds: int = 10
    batches: int = 5
    queries: int = 2_000
    partner_queries: int = 60
    predictions: int = 5
    mixed: int = 150
    mixed_long: int = 15
    readers: int = 2
    beside: float = 10.0
    """Seconds that readers ask beside a writer."""
    children: int = 7

    @classmethod
    def suited(cls, samples: int, quick: bool) -> Effort:
        """Just enough to see that everything runs, if it must be quick; less of what takes long in a large store."""
        if quick:
            return cls(1, 12, 30, 2, 1, 200, 6, 2, 10, 2, 1, 0.5, 1)
        return cls(builds=1, removals=50, batches=1) if samples > LARGE else cls()


@dataclass
class Trial:
    """A set, where its stores lie, and what was measured so far."""

    data: DataSet
    directory: Path
    effort: Effort
    figures: dict[str, Figure] = field(default_factory=dict)
    curves: dict[str, list[float]] = field(default_factory=dict)
    program: Path | None = None
    """The paper's own program, if somebody gave it."""
    _numbers: Iterator[int] = field(default_factory=count)

    def note(
        self, name: str, samples: Stopwatch | Sequence[float] | float, unit: str = "s", cpu: Sequence[float] = ()
    ) -> None:
        """Keep a figure."""
        if isinstance(samples, Stopwatch):
            self.figures[name] = Figure.of(samples.seconds, unit, samples.cpu)
        else:
            self.figures[name] = Figure.of([samples] if isinstance(samples, int | float) else samples, unit, cpu)

    def place(self) -> Path:
        """A path where nothing is yet."""
        return self.directory / f"{self.data.name}-{next(self._numbers)}.forest"

    def create(self, path: Path, threads: int = 1) -> None:
        """Build the store and close it."""
        os.environ["DYNFRSDB_THREADS"] = str(threads)
        try:
            dynfrsdb.create(path, self.data.X, self.data.y, seed=SEED, **self.data.settings).close()
        finally:
            os.environ["DYNFRSDB_THREADS"] = "1"

    @cached_property
    def base(self) -> Path:
        """The store that others are copied from."""
        path = self.place()
        self.create(path, threads=2)
        return path

    @contextmanager
    def copy(self) -> Iterator[Path]:
        """A copy of the base store, on the disk as one that was there for a while, deleted afterwards."""
        path = self.place()
        shutil.copytree(self.base, path, ignore=shutil.ignore_patterns("lock.mdb"))
        for file in path.rglob("*.*"):
            if file.name == layout.DATA_FILE:
                keep_allocated(file, file.stat().st_size, layout.KEEP_ALLOCATED)
            with file.open("r+b") as handle:
                os.fsync(handle.fileno())
        try:
            yield path
        finally:
            shutil.rmtree(path)

    @contextmanager
    def warm(self, policy: str | None, background: bool = False) -> Iterator[dynfrsdb.Database]:
        """A copy, open for writing, with its working set in memory.

        Without `background` large tags are left to `settle`, so that two runs of the same changes write the same.
        """
        with self.copy() as path, self.writer(path, policy, background) as db:
            self.heat(db)
            yield db

    @contextmanager
    def writer(self, path: Path, policy: str | None, background: bool = False) -> Iterator[dynfrsdb.Database]:
        """A store open for writing."""
        with dynfrsdb.open(path, "w", settle=policy, cache_bytes=CACHE_BYTES) as db:
            if not background and db._settler is not None:
                db._settler.stop()
            yield db

    @contextmanager
    def bare(self) -> Iterator[Bare]:
        """Plain LMDB on a copy of the base store's file, deleted afterwards."""
        path = self.place()
        with Bare(self.base, path) as found:
            yield found
        shutil.rmtree(path)

    def heat(self, db: dynfrsdb.Database) -> None:
        """Bring the forest into memory."""
        db.predict_proba(self.data.X[self.ids(WARM_ROWS)])

    def fill(self, db: dynfrsdb.Database) -> None:
        """Bring everything into memory: trees that are not, and the long lists of samples, which no query needs."""
        with db._store.snapshot() as snapshot, db._view.at(snapshot) as forest:
            forest.load_below([(tree, 1) for tree in range(self.data.settings["n_estimators"])])

    def ids(self, n: int, seed: int = 0) -> list[int]:
        """`n` samples, drawn without looking."""
        return [int(id) for id in np.random.default_rng([SEED, seed]).permutation(len(self.data.X))[:n]]

    @cached_property
    def questions(self) -> list[Any]:
        """Single rows to ask about, in another order than they are stored."""
        rows = np.random.default_rng(SEED).permutation(len(self.data.X_test))[:1_000]
        return [np.ascontiguousarray(self.data.X_test[i : i + 1]) for i in rows]

    def discard(self) -> None:
        """Delete the base store."""
        shutil.rmtree(self.__dict__.pop("base", ""), ignore_errors=True)

    def _forest_settings(self) -> dict[str, Any]:
        chosen = self.data.settings
        return {name: chosen[name] for name in ("n_estimators", "max_depth", "min_samples_split")} | {
            "n_jobs": 1,
            "random_state": 1,
        }

    def retrain(self) -> ExtraTreesClassifier:
        """Train the same-budget forest of scikit-learn."""
        forest = ExtraTreesClassifier(bootstrap=True, max_samples=self.data.settings["q"], **self._forest_settings())
        return forest.fit(self.data.X, self.data.y)

    def random_forest(self) -> RandomForestClassifier:
        """Train scikit-learn's random forest."""
        return RandomForestClassifier(**self._forest_settings()).fit(self.data.X, self.data.y)

    @cached_property
    def peer(self) -> ExtraTreesClassifier:
        """A trained same-budget forest; notes how long that took, unless `build` has measured it better."""
        watch = Stopwatch()
        forest: ExtraTreesClassifier = watch.time(self.retrain)
        if "retrain" not in self.figures:
            self.note("retrain", watch)
        return forest

    @property
    def budget(self) -> float:
        """Seconds that the same-budget retrain takes: the unit of most targets."""
        if "retrain" not in self.figures:
            _ = self.peer
        return self.figures["retrain"].median


def store_size(path: Path) -> int:
    """Bytes of a store's files, without the table of readers."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file() and file.name != layout.READERS_FILE)


def warm_up(directory: Path) -> None:
    """Compile or load every kernel before anything is timed: those of writers, and those of readers that follow.

    Leaves a small store there, with which other processes load theirs."""
    warm()
    (directory / SMALL).mkdir()
    trial = Trial(load("tiny", directory), directory / SMALL, Effort.suited(0, quick=True))
    with trial.warm("auto") as db:
        db.remove(trial.ids(40))
        db.add(trial.data.X_test, trial.data.y_test)
        db.settle()
        db.predict_proba(trial.data.X)
        with dynfrsdb.open(db.path) as reader:
            for id in trial.ids(80)[60:]:
                db.remove([id])
                reader.predict_proba(trial.data.X)
    trial.base.rename(small_store(directory))


def small_store(directory: Path) -> Path:
    """The store that `warm_up` leaves."""
    return directory / SMALL / "small.forest"
