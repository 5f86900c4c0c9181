"""Building, and what the built store takes on disk."""

from __future__ import annotations

import shutil

from benchmark.figures import in_turns, seconds
from benchmark.trial import Trial, store_size


def build(trial: Trial) -> None:
    """Everything durable on disk, with one thread and with two, beside the same-budget retrain."""
    places = [trial.place() for _ in range(trial.effort.builds)]
    ours, retrains = in_turns(trial.effort.builds, lambda i: trial.create(places[i]), lambda i: trial.retrain())
    trial.note("build", ours)
    trial.note("retrain", retrains)
    for path in places:
        shutil.rmtree(path)
    doubles = [trial.place() for _ in range(trial.effort.builds)]
    trial.note("build, two threads", [seconds(trial.create, path, 2) for path in doubles])
    for path in doubles:
        shutil.rmtree(path)
    if len(trial.data.X) <= 100_000:
        trial.note("random forest, training", seconds(trial.random_forest))


def size(trial: Trial) -> None:
    """Bytes of the store's files."""
    trial.note("store size", store_size(trial.base), "B")
    blocks = [file.stat().st_blocks for file in trial.base.rglob("*") if file.is_file()]
    trial.note("store size with what is kept allocated", 512 * sum(blocks), "B")
    rows = next(trial.base.glob("gen-*/rows.bin"))
    trial.note("store size, rows", rows.stat().st_size, "B")
