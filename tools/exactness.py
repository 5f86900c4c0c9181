"""Is forgetting exact? The product's claim on real data.

    python tools/exactness.py                     all sets, until a fifth of the samples is gone
    python tools/exactness.py --only letter       one of them
    python tools/exactness.py --quick             a tenth of the rows and of the trees

For each data set a store is built and then lives through a random history: batches of one to a few hundred removals,
additions of new samples, samples that come back, and queries that make it grow what was left void. Half of the history
runs with settling on, half with everything left to queries. When a fifth of the training samples is gone, four stores
must be the same forest:

    history     the store that lived through all of it
    fresh       built at once from the survivors
    shuffled    the same in random order, by one thread
    filled      created empty, then filled in random batches

Same means: equal digests, and equal answers to all test rows, bit for bit. `check` must find nothing wrong with the
first. The table has a line for each set; the script exits with 1 if anything differs.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import dynfrsdb

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
GONE = 0.2
"""The share of the training samples that must be gone in the end."""
ASKED = 20
"""Rows in a query."""
FILLS = 12
"""Batches in which the last store is filled."""
SETTINGS: dict[str, dict[str, Any]] = {
    "purchase": {"n_estimators": 250, "max_depth": 10, "n_thresholds": 30, "q": 0.1},
    "adult": {"n_estimators": 100, "max_depth": 20, "n_thresholds": 30, "q": 0.1},
    "letter": {"n_estimators": 100, "max_depth": 20, "n_thresholds": 1, "q": 0.5},
    "bike": {"n_estimators": 100, "max_depth": 15, "n_thresholds": 5, "q": 0.5, "task": "regression"},
}
Say = Callable[[str, float], None]


class Pool(NamedTuple):
    """All rows of a data set; the id of a sample is its place here. The first `train` are there from the beginning."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[Any]
    train: int


@dataclass
class History:
    """What happened to a store."""

    live: set[int]
    batches: int = 0
    removed: int = 0
    added: int = 0
    queries: int = 0


@dataclass(frozen=True)
class Outcome:
    """One line of the table."""

    name: str
    samples: int
    history: History
    tags: int
    digests: dict[str, str]
    answers: bool
    clean: bool
    seconds: float

    @property
    def good(self) -> bool:
        """Whether all stores are the same forest and the one with a history is sound."""
        return len(set(self.digests.values())) == 1 and self.answers and self.clean


def load(directory: Path, name: str, quick: bool) -> Pool:
    """A data set: its training rows, then its test rows."""
    with np.load(directory / f"{name}.npz") as found:
        step = 10 if quick else 1
        X = [found["X_train"][::step], found["X_test"][::step]]
        y = [found["y_train"][::step], found["y_test"][::step]]
    return Pool(np.concatenate(X), np.concatenate(y), len(y[0]))


def settings_of(name: str, pool: Pool, quick: bool) -> dict[str, Any]:
    """The arguments of `create`; what could be taken from the data is fixed, so that all stores have the same."""
    chosen = dict(SETTINGS[name])
    if quick:
        chosen["n_estimators"] //= 10
    fixed = {"target_step": 2.0**-10} if chosen.get("task") else {"classes": np.unique(pool.y).tolist()}
    return {**chosen, **fixed, "n_features": pool.X.shape[1], "seed": "exactness"}


def batch(pool: Pool, history: History, random: np.random.Generator) -> tuple[list[int], list[int]]:
    """What goes and what comes next, a third as many: mostly small batches, now and then a few hundred samples."""
    size = min(int(np.exp(random.uniform(0.0, np.log(pool.train / 40)))), len(history.live))
    gone = random.choice(sorted(history.live), size, replace=False).tolist()
    outside = sorted((set(range(len(pool.y))) - history.live).union(gone))
    come = random.choice(outside, size // 3, replace=False).tolist()
    return gone, come


def live_through(
    db: dynfrsdb.Database, pool: Pool, history: History, random: np.random.Generator, until: float, say: Say
) -> None:
    """Change and ask until that share of the training samples is gone."""
    while (share := 1 - sum(id < pool.train for id in history.live) / pool.train) < until:
        gone, come = batch(pool, history, random)
        with db.transaction() as txn:
            txn.remove(gone)
            if come:
                txn.add(pool.X[come], pool.y[come], ids=come)
            if random.random() < 0.2:
                txn.predict(pool.X[random.integers(len(pool.y), size=ASKED)])
        db.predict(pool.X[random.integers(len(pool.y), size=ASKED)])
        history.live.difference_update(gone)
        history.live.update(come)
        history.batches += 1
        history.removed += len(gone)
        history.added += len(come)
        history.queries += ASKED
        say("history", share / GONE)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Grow trees with that many threads."""
    before = os.environ.get("DYNFRSDB_THREADS")
    os.environ["DYNFRSDB_THREADS"] = str(count)
    try:
        yield
    finally:
        os.environ.pop("DYNFRSDB_THREADS")
        if before is not None:
            os.environ["DYNFRSDB_THREADS"] = before


def aged(path: Path, pool: Pool, settings: dict[str, Any], say: Say) -> tuple[History, dynfrsdb.Database]:
    """The store with a history; the first half with settling, the second without."""
    random = np.random.default_rng(7)
    history = History(set(range(pool.train)))
    first = slice(0, pool.train)
    with dynfrsdb.create(path, pool.X[first], pool.y[first], ids=np.arange(pool.train), **settings) as db:
        live_through(db, pool, history, random, GONE / 2, say)
    db = dynfrsdb.open(path, "w", settle=None)
    live_through(db, pool, history, random, GONE, say)
    return history, db


def fresh(path: Path, pool: Pool, ids: npt.NDArray[np.int64], settings: dict[str, Any]) -> dynfrsdb.Database:
    """A store built at once."""
    return dynfrsdb.create(path, pool.X[ids], pool.y[ids], ids=ids, **settings)


def filled(path: Path, pool: Pool, ids: npt.NDArray[np.int64], settings: dict[str, Any], say: Say) -> dynfrsdb.Database:
    """A store that began empty."""
    db = dynfrsdb.create(path, **settings)
    for done, part in enumerate(np.array_split(ids, FILLS)):
        say("filling", done / FILLS)
        db.add(pool.X[part], pool.y[part], ids=part)
    return db


def answers(db: dynfrsdb.Database, X: npt.NDArray[np.float32]) -> bytes:
    """All answers, as bytes."""
    return (db.predict_proba(X) if db.classes else db.predict(X)).tobytes()


def rivals(
    directory: Path, pool: Pool, live: set[int], settings: dict[str, Any], say: Say
) -> Iterator[tuple[str, dynfrsdb.Database]]:
    """The stores that never saw who is gone."""
    ids = np.array(sorted(live))
    shuffled = np.random.default_rng(8).permutation(ids)
    say("fresh", 0.0)
    with threads(4), fresh(directory / "fresh.forest", pool, ids, settings) as db:
        yield "fresh", db
    say("shuffled", 0.3)
    with threads(1), fresh(directory / "shuffled.forest", pool, shuffled, settings) as db:
        yield "shuffled", db
    with filled(directory / "filled.forest", pool, shuffled, settings, say) as db:
        yield "filled", db


def run(name: str, data: Path, quick: bool, say: Say) -> Outcome:
    """One data set."""
    started = time.perf_counter()
    pool = load(data, name, quick)
    settings = settings_of(name, pool, quick)
    test = pool.X[pool.train :]
    with tempfile.TemporaryDirectory() as directory:
        history, db = aged(Path(directory) / "history.forest", pool, settings, say)
        with db:
            tags = int(db.info()["tags"])
            digests, expected = {"history": db.digest()}, answers(db, test)
            say("check", 0.5)
            clean = bool(db.check())
        same = True
        for kind, rival in rivals(Path(directory), pool, history.live, settings, say):
            digests[kind] = rival.digest()
            same = same and answers(rival, test) == expected
    return Outcome(name, pool.train, history, tags, digests, same, clean, time.perf_counter() - started)


def table(found: list[Outcome]) -> Table:
    """A line for each set."""
    columns = ["set", "built of", "batches", "removed", "added", "queries", "survivors", "tags left"]
    out = Table(*columns, "digest", "fresh", "shuffled", "filled", "answers", "check", "s", box=None, pad_edge=False)
    for one in found:
        numbers = (one.samples, one.history.batches, one.history.removed, one.history.added, one.history.queries)
        same = [
            "equal" if one.digests[kind] == one.digests["history"] else "NO" for kind in ("fresh", "shuffled", "filled")
        ]
        out.add_row(
            one.name,
            *(f"{number:,}" for number in (*numbers, len(one.history.live), one.tags)),
            one.digests["history"][:8],
            *same,
            "equal" if one.answers else "NO",
            "clean" if one.clean else "NO",
            f"{one.seconds:.0f}",
        )
    return out


@click.command()
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), default=DATA)
@click.option("--only", type=click.Choice(list(SETTINGS)), help="One data set.")
@click.option("--quick", is_flag=True, help="A tenth of the rows and of the trees.")
def main(data: Path, only: str | None, quick: bool) -> None:
    """Forget a fifth of real data sets, and compare with stores that never saw it."""
    found = []
    with Progress(console=Console(stderr=True), transient=True) as bar:
        for name in [only] if only else SETTINGS:
            task = bar.add_task(name, total=1.0)

            def say(stage: str, share: float, name: str = name, task: Any = task) -> None:
                bar.update(task, description=f"{name}: {stage}", completed=share)

            found.append(run(name, data, quick, say))
    Console(width=150).print(table(found))
    sys.exit(0 if all(one.good for one in found) else 1)


if __name__ == "__main__":
    main()
