"""Building, and what the built store takes on disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import dynfrsdb
from benchmark.figures import in_turns, seconds
from benchmark.trial import Trial, store_size
from dynfrsdb.build import occupants, tree_jobs
from dynfrsdb.view import rows_of, spec_of
from dynfrsdb_engine.jobs import Growth, at_once, grow_jobs, in_groups


def build(trial: Trial) -> None:
    """Everything durable on disk, with one thread and with two, beside the same-budget retrain."""

    def create(threads: int) -> None:
        path = trial.place()
        trial.create(path, threads)
        paths.append(path)

    paths: list[Path] = []
    rounds = trial.effort.builds
    one, retrain, two = in_turns(rounds, lambda i: create(1), lambda i: trial.retrain(), lambda i: create(2))
    trial.note("build", one)
    trial.note("retrain", retrain)
    trial.note("build, two threads", two)
    for path in paths:
        shutil.rmtree(path)
    _growing(trial)
    if len(trial.data.X) <= 100_000:
        trial.note("random forest, training", seconds(trial.random_forest))


def _growing(trial: Trial) -> None:
    """Growing the same trees in memory, with nothing to write, in one thread and in two: as much as two processors of
    this machine do."""
    with dynfrsdb.open(trial.base) as db, db._store.snapshot() as snapshot, ThreadPoolExecutor(2) as pool:
        spec, rows = spec_of(db._settings), rows_of(snapshot)
        jobs = tree_jobs(spec, *occupants(spec, np.arange(len(trial.data.X), dtype=np.uint64)))
        groups = list(in_groups(jobs, at_once(spec)))

        def grow(each: Callable[..., Iterator[Growth]]) -> None:
            for _ in each(lambda group: grow_jobs(spec, rows, group), groups):
                pass

        one, two = in_turns(trial.effort.builds, lambda i: grow(map), lambda i: grow(pool.map))
    trial.note("growing alone", one)
    trial.note("growing alone, two threads", two)


def size(trial: Trial) -> None:
    """Bytes of the store's files."""
    trial.note("store size", store_size(trial.base), "B")
    blocks = [file.stat().st_blocks for file in trial.base.rglob("*") if file.is_file()]
    trial.note("store size with what is kept allocated", 512 * sum(blocks), "B")
    rows = next(trial.base.glob("gen-*/rows.bin"))
    trial.note("store size, rows", rows.stat().st_size, "B")
