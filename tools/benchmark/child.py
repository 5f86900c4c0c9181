"""What has to happen in a process of its own: memory, start-up, and readers beside a writer.

    python -m benchmark.child WHAT ARGUMENTS...     prints one JSON object

Imports stand in the functions, so that a process has in memory only what it needs.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmark.figures import memory

PAUSE = 0.002
"""Seconds between two queries of a reader, so that two readers and a writer fit on two cores."""

SETTLING_IN = 0.3
"""Seconds that a reader and a writer run side by side, at least, before anything is noted."""


def numba_only() -> dict[str, Any]:
    """An interpreter with numba loaded: what memory is counted from."""
    import numba

    return {"numba": numba.__version__, "peak": memory()}


def work(path: str, rows: str, ids: str, patience: str = "inf", asks: str = "asks") -> dict[str, Any]:
    """Open a store, make removals and, if it `asks`, as many queries, for so many seconds at most; how much memory did
    that take?"""
    import numpy as np

    import dynfrsdb
    from benchmark.parts import Parts

    X, removals, queries, spent = np.load(rows), [], [], []
    end = time.perf_counter() + float(patience)
    with dynfrsdb.open(path, "w") as db, Parts() as parts:
        for turn, id in enumerate(np.load(ids).tolist()):
            started = time.perf_counter()
            if started > end:
                break
            parts.take()
            db.remove([id])
            removed = time.perf_counter()
            spent.append(parts.take())
            removals.append(removed - started)
            if asks == "asks":
                db.predict_proba(X[turn % len(X)][None])
                queries.append(time.perf_counter() - removed)
        found = {"peak": memory(), "anonymous": memory("RssAnon")}
        return {**found, "removals": removals, "queries": queries, "spent": spent}


def first(path: str, rows: str, cold: str, small: str) -> dict[str, Any]:
    """Open a store and ask it one row; "cold": none of its pages is in the page cache.

    What the process needs anyway, imports and compiled kernels, is loaded before by way of a small store, and counted
    apart."""
    import numpy as np

    import dynfrsdb

    with dynfrsdb.open(small) as db:
        row = np.zeros((1, db.info()["settings"]["n_features"]), np.float32)
        started = time.perf_counter()
        db.predict_proba(row)
        kernels = time.perf_counter() - started
    X = np.load(rows)
    if cold == "cold":
        forget_pages(Path(path))
    started = time.perf_counter()
    with dynfrsdb.open(path) as db:
        opened = time.perf_counter()
        db.predict_proba(X[:1])
        return {"open": opened - started, "query": time.perf_counter() - opened, "kernels": kernels}


def forget_pages(path: Path) -> None:
    """Drop a store's files from the page cache; works for pages that are clean and that nobody maps."""
    for file in path.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def remember_pages(path: Path) -> None:
    """Have a store's files in the page cache, as whoever built it leaves them."""
    for file in path.rglob("*"):
        if file.is_file():
            with file.open("rb", buffering=0) as handle:
                while handle.read(1 << 24):
                    pass


def reader(path: str, rows: str, hot: str, busy: str, out: str) -> dict[str, Any]:
    """Ask single rows, first in peace, then, after a line on the standard input, while somebody writes."""
    import numpy as np

    import dynfrsdb

    X = np.load(rows)
    with dynfrsdb.open(path) as db:
        db.predict_proba(X)
        for row in X:
            db.predict_proba(row[None])
        peace = _ask(db, X, float(hot))
        print("ready", flush=True)
        sys.stdin.readline()
        _ask(db, X, SETTLING_IN, least=100)  # the first commits that a reader follows load the kernels for it
        np.savez(out, hot=peace, busy=_ask(db, X, float(busy)))
    return {"peak": memory()}


def _ask(db: Any, X: Any, duration: float, least: int = 1) -> list[float]:
    """Seconds of each query within `duration` seconds, or of `least` queries if that takes longer."""
    times: list[float] = []
    end = time.perf_counter() + duration
    while time.perf_counter() < end or len(times) < least:
        row = X[len(times) % len(X)][None]
        started = time.perf_counter()
        db.predict_proba(row)
        times.append(time.perf_counter() - started)
        time.sleep(PAUSE)
    return times


def build(path: str, source: str, settings: str) -> dict[str, Any]:
    """Build a store from a file of rows, or from so many generated ones; how much memory does that take?"""
    import numpy as np

    import dynfrsdb

    if source.isdigit():
        from benchmark.data import physics

        X, y = physics(int(source), seed=0)
    else:
        with np.load(source) as found:
            X, y = found["X"], found["y"]
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as small:  # loads the kernels
        dynfrsdb.create(Path(small) / "small.forest", X[:200], y[:200], seed=1, n_estimators=2).close()
    started = time.perf_counter()
    dynfrsdb.create(path, X, y, seed=1, **json.loads(settings)).close()
    return {"seconds": time.perf_counter() - started, "peak": memory(), "rows": X.nbytes + y.nbytes}


def retrain(rows: str, settings: str) -> dict[str, Any]:
    """Train the same-budget forest of scikit-learn on so many generated rows."""
    from sklearn.ensemble import ExtraTreesClassifier

    from benchmark.data import physics

    X, y = physics(int(rows), seed=0)
    chosen = json.loads(settings)
    same = {name: chosen[name] for name in ("n_estimators", "max_depth", "min_samples_split")}
    forest = ExtraTreesClassifier(bootstrap=True, max_samples=chosen["q"], n_jobs=1, **same)
    started = time.perf_counter()
    forest.fit(X, y)
    return {"seconds": time.perf_counter() - started, "peak": memory()}


COMMANDS: dict[str, Callable[..., dict[str, Any]]] = {
    "numba-only": numba_only,
    "work": work,
    "first": first,
    "reader": reader,
    "build": build,
    "retrain": retrain,
}

if __name__ == "__main__":
    print(json.dumps(COMMANDS[sys.argv[1]](*sys.argv[2:])))
