"""How costs grow with the number of samples: the same forest over ten, a hundred times as many generated rows.

Rows have the shape of the Higgs set: 28 floats, two classes. A removal should grow with the depth of the trees, opening
not at all. Every step runs in a process of its own, so that memory can be told apart. Building may use every core;
everything else runs on one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.child import forget_pages, remember_pages
from benchmark.confined import confined
from benchmark.data import physics
from benchmark.figures import Figure
from benchmark.measure_process import child
from benchmark.parts import PARTS
from benchmark.trial import small_store, store_size

ROWS = (88_000, 880_000, 8_800_000)
QUICK_ROWS = (2_000, 8_000)
SETTINGS = {"n_estimators": 100, "max_depth": 30, "n_thresholds": 20, "q": 0.1, "min_samples_split": 10}
CHANGES = 1_000
ALONE = 400
"""Removals that are made one after the other."""
RETRAINED = 1_000_000
"""scikit-learn trains on up to this many rows; beyond, it would take longer than everything else together."""
LIMIT = 3 << 29
"""Bytes that one process is held to: 1.5 GiB, where the system lets us make a control group."""
PATIENCE = 180
"""Seconds after which the process that is held to a limit makes no further removal: it may wait for the disk most of
the time."""
SETTLED_IN = 10
"""Removals and queries that are not counted: they load the kernels."""


def measure(rows: int, directory: Path, quick: bool, say: Callable[[str], None]) -> dict[str, Figure]:
    """All figures of one size."""
    store, found = directory / f"scale-{rows}.forest", {}

    def note(name: str, samples: list[float], unit: str = "s") -> None:
        found[name] = Figure.of(samples, unit)

    say(f"{rows:,} rows: build")
    built = child("build", str(store), str(rows), json.dumps(SETTINGS), threads=0)
    note("build", [built["seconds"]])
    note("build: memory", [built["peak"]], "B")
    note("build: memory of the rows that were given", [built["rows"]], "B")
    note("store size", [store_size(store)], "B")
    if rows <= RETRAINED:
        say(f"{rows:,} rows: retrain")
        note("retrain", [child("retrain", str(rows), json.dumps(SETTINGS))["seconds"]])
    say(f"{rows:,} rows: open, query")
    np.save(questions := directory / "scale-questions.npy", physics(CHANGES, seed=1)[0])
    for state in ("cached", "cold"):
        arguments = ("first", str(store), str(questions), state, str(small_store(directory)))
        times = [child(*arguments) for _ in range(1 if quick else 5)]
        note(f"open, {state}", [one["open"] for one in times])
        note(f"first query, {state}", [one["query"] for one in times])
    say(f"{rows:,} rows: removals")
    _work(store, rows, questions, directory, note)
    shutil.rmtree(store)
    return found


def _work(store: Path, rows: int, questions: Path, directory: Path, note: Callable[..., Any]) -> None:
    """A process that only removes, and one that makes removals and queries in turn, with the store's files in memory,
    as after a build; then another one of these that begins cold, and that the system holds to a limit."""
    count = min(CHANGES, rows // 10) + SETTLED_IN
    ids = np.random.default_rng(rows).permutation(rows)
    np.save(chosen := directory / "scale-ids.npy", ids[2 * count : 2 * count + min(ALONE, count)])
    remember_pages(store)
    done = child("work", str(store), str(questions), str(chosen), "inf", "asks nothing")
    note("removal, no query in between", done["removals"][SETTLED_IN:])
    np.save(chosen, ids[:count])
    done = child("work", str(store), str(questions), str(chosen))
    note("removal", done["removals"][SETTLED_IN:])
    for part in PARTS:
        note(f"removal: {part}", [one[part] for one in done["spent"][SETTLED_IN:]])
    note("query after a removal", done["queries"][SETTLED_IN:])
    note("store size after that", [store_size(store)], "B")
    note("memory", [done["peak"]], "B")
    note("memory without mapped files", [done["anonymous"]], "B")
    np.save(chosen, ids[count : 2 * count])
    forget_pages(store)
    with confined(LIMIT) as group:
        if group is None:
            return
        done = child("work", str(store), str(questions), str(chosen), str(PATIENCE), group=group)
        note("removal, in 1.5 GiB", done["removals"][SETTLED_IN:])
        note("query after a removal, in 1.5 GiB", done["queries"][SETTLED_IN:])
        note("memory and page cache, in 1.5 GiB", [group.peak()], "B")
