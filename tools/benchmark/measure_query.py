"""Asking: one row, many rows, and asking while the forest changes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import dynfrsdb
from benchmark.figures import in_turns, seconds
from benchmark.measure_removal import POLICIES
from benchmark.trial import Trial

PREDICTED = 20_000
"""Rows of one batch prediction, at least."""
MIXES = {"1:1:2": 2, "1:1:200": 200}


def query(trial: Trial) -> None:
    """One row, hot, no tags met, beside scikit-learn."""
    rows, peer = trial.questions, trial.peer
    with dynfrsdb.open(trial.base) as db:
        trial.heat(db)
        for row in rows:
            db.predict_proba(row)
        blocks = max(1, trial.effort.partner_queries // 3)
        each = -(-trial.effort.queries // blocks)
        ours, theirs = [], []
        for block in range(blocks):
            ours += [
                seconds(lambda i=i: db.predict_proba(rows[i % len(rows)]))
                for i in range(block * each, (block + 1) * each)
            ]
            theirs += [seconds(lambda i=i: peer.predict_proba(rows[i % len(rows)])) for i in range(3)]
    trial.note("query", ours)
    trial.note("query: scikit-learn", theirs)


def predict(trial: Trial) -> None:
    """Many rows at once, hot, beside scikit-learn."""
    rows = np.ascontiguousarray(
        np.resize(trial.data.X_test, (max(PREDICTED, len(trial.data.X_test)), trial.data.X.shape[1]))
    )
    with dynfrsdb.open(trial.base) as db:
        trial.heat(db)
        db.predict_proba(rows)
        turns = in_turns(
            trial.effort.predictions, lambda i: db.predict_proba(rows), lambda i: trial.peer.predict_proba(rows)
        )
    trial.note("prediction", [len(rows) / took for took in turns.ours], "rows/s")
    trial.note("prediction: scikit-learn", [len(rows) / took for took in turns.partner], "rows/s")


def mixed(trial: Trial) -> None:
    """The paper's streams: add, remove, ask, over and over, each change its own durable transaction."""
    _ = trial.budget
    for name, policy in POLICIES.items():
        with trial.warm(policy) as db:
            trial.note(f"addition, {name}", _stream(trial, db, trial.effort.mixed, removing=False, asking=0)["add"])
        with trial.warm(policy) as db:
            times = _stream(trial, db, trial.effort.mixed, adding=False, asking=0)
            trial.note(f"removal, {name}: alone", times["remove"])
        for mix, asking in MIXES.items():
            rounds = trial.effort.mixed if asking == 2 else trial.effort.mixed_long
            with trial.warm(policy, background=True) as db:
                times = _stream(trial, db, rounds, asking=asking)
            for what, found in times.items():
                trial.note(f"stream {mix}, {name}: {what}", found)


def _stream(
    trial: Trial, db: dynfrsdb.Database, rounds: int, adding: bool = True, removing: bool = True, asking: int = 2
) -> dict[str, list[float]]:
    """Seconds of each addition, removal and query; the first rounds are not counted."""
    data, times = trial.data, {"add": [], "remove": [], "query": []}
    ids, rows = iter(trial.ids(rounds + 3, seed=5)), itertools.cycle(trial.questions)
    fresh = itertools.cycle(range(len(data.X_test)))

    def note(what: str, act: Callable[[], Any]) -> None:
        started = time.perf_counter()
        act()
        times[what].append(time.perf_counter() - started)

    for _ in range(rounds + 3):
        i = next(fresh)
        if adding:
            X, y = data.X_test[i : i + 1], data.y_test[i : i + 1]
            note("add", lambda X=X, y=y: db.add(X, y))
        if removing:
            one = [next(ids)]
            note("remove", lambda one=one: db.remove(one))
        for _ in range(asking):
            row = next(rows)
            note("query", lambda row=row: db.predict_proba(row))
    skipped = {"add": 3, "remove": 3, "query": 3 * asking}
    return {what: found[skipped[what] :] for what, found in times.items() if found}
