"""Asking: one row, many rows, and asking while the forest changes."""

from __future__ import annotations

import itertools

import numpy as np

import dynfrsdb
from benchmark.figures import Stopwatch, in_turns, seconds
from benchmark.measure_removal import POLICIES
from benchmark.trial import Trial

PREDICTED = 20_000
"""Rows of one batch prediction, at least."""
MIXES = {"1:1:2": 2, "1:1:200": 200}
UNCOUNTED = 3
"""Rounds of a stream that are not counted."""


def query(trial: Trial) -> None:
    """One row, hot, no tags met, beside scikit-learn."""
    rows, peer = trial.questions, trial.peer
    with dynfrsdb.open(trial.base) as db:
        trial.heat(db)
        for row in rows:
            db.predict_proba(row)
        blocks = max(1, trial.effort.partner_queries // 3)
        each = -(-trial.effort.queries // blocks)
        ours, theirs = Stopwatch(), Stopwatch()
        asked = itertools.cycle(rows)
        for _ in range(blocks):
            ours.time_each(db.predict_proba, itertools.islice(asked, each))
            theirs.time_each(peer.predict_proba, itertools.islice(asked, 3))
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
        ours, theirs = in_turns(
            trial.effort.predictions, lambda i: db.predict_proba(rows), lambda i: trial.peer.predict_proba(rows)
        )
    trial.note("prediction", [len(rows) / took for took in ours.seconds], "rows/s", ours.cpu)
    trial.note("prediction: scikit-learn", [len(rows) / took for took in theirs.seconds], "rows/s", theirs.cpu)


def mixed(trial: Trial) -> None:
    """The paper's streams: add, remove, ask, over and over, each change its own durable transaction."""
    _ = trial.budget
    for name, policy in POLICIES.items():
        with trial.warm(policy) as db:
            trial.note(
                f"addition, {name}: alone", _stream(trial, db, trial.effort.mixed, removing=False, asking=0)["add"]
            )
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
    data = trial.data
    times: dict[str, list[float]] = {"add": [], "remove": [], "query": []}
    ids, rows = trial.ids(rounds + UNCOUNTED, seed=5), itertools.cycle(trial.questions)
    for turn, id in enumerate(ids):
        new = slice(turn % len(data.X_test), turn % len(data.X_test) + 1)
        if adding:
            times["add"].append(seconds(db.add, data.X_test[new], data.y_test[new]))
        if removing:
            times["remove"].append(seconds(db.remove, [id]))
        times["query"] += [seconds(db.predict_proba, row) for row in itertools.islice(rows, asking)]
    skipped = {"add": UNCOUNTED, "remove": UNCOUNTED, "query": UNCOUNTED * asking}
    return {what: found[skipped[what] :] for what, found in times.items() if found}
