"""The forest of the survivors, grown in memory: what a store must be equal to, whatever happened to it before.

No store is involved: samples go into a table of rows, the engine grows every tree of them from nothing, and digest and
answers are read off. The twin does the same from the definition; it is slower and shares no line with the engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from dynfrsdb.settings import Settings
from dynfrsdb_engine.forest import Forest
from dynfrsdb_engine.jobs import Job, grow_jobs
from tests import naive
from tests.engine.shelf import RowTable, Shelf, spec_of


def twin_settings(settings: Settings) -> naive.Settings:
    """A store's settings, as the twin takes them."""
    criterion: naive.Criterion = settings.criterion  # type: ignore[assignment]
    return naive.Settings(
        seed=settings.seed,
        n_trees=settings.n_trees,
        k=settings.k,
        p=settings.p,
        s=settings.s,
        max_depth=settings.max_depth,
        min_samples_split=settings.min_samples_split,
        criterion=criterion,
        n_features=settings.n_features,
        n_classes=settings.n_classes,
        target_offset=settings.target_offset,
        target_step=settings.target_step,
    )


def forest_digest(settings: Settings, trees: Iterable[bytes]) -> str:
    """sha256(settings, digest of tree 0, ..., T-1)."""
    return hashlib.sha256(settings.canonical() + b"".join(trees)).hexdigest()


class Grown:
    """A forest that was grown in memory."""

    def __init__(self, settings: Settings, forest: Forest) -> None:
        self.settings, self._forest = settings, forest

    def digest(self) -> str:
        """The digest that a store of these samples must have."""
        trees = range(self.settings.n_trees)
        return forest_digest(self.settings, (hashlib.sha256(self._forest.tree_bytes(t)).digest() for t in trees))

    def means(self, X: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """One column per class, or one."""
        return self._forest.predict(np.ascontiguousarray(X, np.float32) + np.float32(0.0))

    def answers(self, X: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        """What `predict` must say."""
        means = self.means(X)
        if not self.settings.classes:
            return means[:, 0]
        labels: npt.NDArray[Any] = np.array(self.settings.classes)
        return labels[[list(row).index(max(row)) for row in means]]


class Nursery:
    """Grows forests with one store's settings; remembers rows that it has seen."""

    def __init__(self, settings: Settings, capacity: int = 4096) -> None:
        self.settings, self._twin = settings, twin_settings(settings)
        self._spec = spec_of(self._twin, settings.bucket)
        self._table = RowTable(settings.n_features, capacity)
        self._slots: dict[naive.Sample, int] = {}
        self._homes: dict[int, set[int]] = {}

    def grow(self, samples: Iterable[naive.Sample]) -> Grown:
        """The forest of these samples."""
        live = [(self._slot(sample), self._home(sample.id)) for sample in samples]
        rows = self._table.rows
        forest = Forest(self._spec, Shelf(self.settings.n_trees), rows, changeable=False)
        for tree in range(self.settings.n_trees):
            mine = np.array(sorted(slot for slot, home in live if tree in home), np.uint32)
            forest.plant(tree, grow_jobs(self._spec, rows, [Job(tree, 1, 0, mine)]))
        return Grown(self.settings, forest)

    def twin(self, samples: Iterable[naive.Sample]) -> naive.Forest:
        """The same forest by the definition."""
        return naive.Forest(self._twin, samples)

    def twin_digest(self, samples: Iterable[naive.Sample]) -> str:
        """The digest of the same forest by the definition."""
        return self.twin(samples).digest(self.settings.canonical()).hex()

    def _slot(self, sample: naive.Sample) -> int:
        if sample not in self._slots:
            self._slots[sample] = len(self._slots)
            self._table.put(self._slots[sample], sample)
        return self._slots[sample]

    def _home(self, id: int) -> set[int]:
        if id not in self._homes:
            self._homes[id] = naive.occupancy(self._twin, id)
        return self._homes[id]
