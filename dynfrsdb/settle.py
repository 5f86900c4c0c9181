"""Settling: grow what was left void, and write it.

It changes no answer, because a forest is a function of its samples; it only moves work from queries to quiet moments.
Tags are grown largest first, some hundred thousand samples to a commit, in threads as trees are when a store is built:
a fraction of a second, so that no other writer waits long. The thread takes a few thousand at a time.

A handle with `settle="auto"` does it by itself: a thread waits until transactions pause and then settles step by step,
giving way to whoever wants to write. The same thread takes removals to their next stage, and tries again while a reader
or another process holds them back.

Growing a large tag takes long, so the thread sets it aside: nobody waits while it is grown, and what of it is still
true afterwards is written.

    with the writer lock     which tags, and a copy of their lists of samples
    without                  grow them; a snapshot keeps the rows of those who are removed meanwhile
    with it again            take what fits: tags whose stamps say that they still have these samples; commit"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dynfrsdb.build import Progress, threads, workers
from dynfrsdb.errors import Error
from dynfrsdb.view import in_words, rows_of
from dynfrsdb_engine.forest import Forest
from dynfrsdb_engine.jobs import Growth, Work, grow_work
from dynfrsdb_storage import Snapshot, WriteSession
from dynfrsdb_storage.retire import retire_old

if TYPE_CHECKING:
    from dynfrsdb.database import Database

T = TypeVar("T")
STEP = 300_000
"""Samples below tags that one commit of `settle` grows."""
QUIET = 0.05
"""Seconds without a transaction before the thread begins."""
BACKGROUND_STEP = 4_000
"""Samples that the thread grows while others wait: some milliseconds."""
ASIDE = 100_000
"""Samples of larger tags that it sets aside together: their records are written in one commit."""
PATIENCE = 1.0
"""Seconds for which the thread waits for its turn to write what it has grown aside."""
AGAIN, AGAIN_AT_MOST = 0.5, 30.0
"""Seconds until the thread tries again to erase what somebody holds back: longer each time."""


def settle(db: Database, limit: int | None, timeout: float, progress: Progress | None) -> int:
    """Grow tags and write them until none is left, or about `limit` samples were looked at; returns how many tags."""
    grown = samples = 0
    with workers(threads()) as pool:
        while limit is None or samples < limit:
            step = STEP if limit is None else min(STEP, limit - samples)
            with db._store.write(timeout, "settle") as session:
                tags, size, left = _step(db, session, partial(_grow_first, samples=step, pool=pool))
            grown, samples = grown + tags, samples + size
            if progress is not None:
                progress("tags", grown, grown + left)
            if not left:
                break
    return grown


def _step(db: Database, session: WriteSession, act: Callable[[Forest], T]) -> T:
    """One commit's worth of growing: what `act` does to the forest is written."""
    with db._gate.alone():
        try:
            with db._view.within(session.snapshot) as forest:
                done = act(forest)
            if db._view.has_growth():
                db._view.write_to(session)
                session.commit()
            db._view.committed(session.snapshot, db._cache_bytes)
        except BaseException:
            db._view.roll_back(session.snapshot)
            raise
    return done


def _grow_first(forest: Forest, samples: int, pool: Executor | None = None) -> tuple[int, int, int]:
    """Grow some tags, the largest first; returns (tags grown, samples below them, tags left)."""
    found = forest.tags()
    chosen = _first(found, samples)
    forest.grow_tags(chosen, pool)
    return chosen.size, int(chosen["n"].sum()), found.size - chosen.size


def _first(found: npt.NDArray[np.void], samples: int) -> npt.NDArray[np.void]:
    """The first tags that together reach `samples`, at least one."""
    enough = int(np.searchsorted(np.cumsum(found["n"]), samples)) + 1
    return found[:enough]


class Aside(NamedTuple):
    """Large tags that are to be grown while others go on, and the snapshot that keeps their rows."""

    work: Work
    stored: Snapshot


def set_aside(db: Database, session: WriteSession, small: int = BACKGROUND_STEP) -> Aside | None:
    """The largest tags, or None if all of them are small."""
    with db._gate.alone(), db._view.at(session.snapshot) as forest:
        found = forest.tags()
        large = found[found["n"] > small]
        if not large.size:
            return None
        work = forest.set_aside(_first(large, ASIDE))
    return Aside(work, db._store.snapshot())


def grow_aside(db: Database, aside: Aside) -> Growth:
    """Grow them; nobody has to wait for that."""
    with aside.stored, in_words(db.path):
        return grow_work(db._spec, rows_of(aside.stored), aside.work)


def take_back(db: Database, session: WriteSession, growth: Growth) -> None:
    """Write what of it still fits."""

    def take(forest: Forest) -> None:
        forest.tags()  # brings what is missing on the way to them
        forest.take_what_fits(growth)

    _step(db, session, take)


class Settler:
    """The thread of one handle that settles when nobody writes. Started by the first transaction."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._pid = os.getpid()
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Note that a transaction has ended: there may be something to settle soon."""
        if self._thread is None and self._pid == os.getpid():
            self._thread = threading.Thread(target=self._run, name="dynfrsdb-settle", daemon=True)
            self._thread.start()
        self._wake.set()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None and self._pid == os.getpid():
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        again: float | None = None
        while not self._stopped.is_set():
            woken = self._wake.wait(again)
            self._wake.clear()
            if self._stopped.wait(QUIET):
                return
            if not self._wake.is_set():
                held_back = self._use_the_pause()
                again = (AGAIN if woken or again is None else min(2 * again, AGAIN_AT_MOST)) if held_back else None

    def _use_the_pause(self) -> bool:
        """Erase what can be erased, and settle a little; returns whether something waits to be erased."""
        db = self._db
        if not db._writing.acquire(blocking=False):
            return False
        try:
            erase(db)
            aside = self._settle_a_little()
            held_back = db._store.owes
        except Error:
            return False  # somebody else is writing, or the disk is full: the next transaction wakes us again
        finally:
            db._writing.release()
        if aside is not None:
            self._settle_aside(aside)
        return held_back

    def _settle_a_little(self) -> Aside | None:
        """Grow some small tags; large ones are returned, to be grown when others may go on."""
        db = self._db
        with db._store.snapshot() as snapshot:
            tags = snapshot.state["tags"]
        if not tags:
            return None
        with db._store.write(0.0, "settle") as session:
            aside = set_aside(db, session)
            if aside is not None or _step(db, session, partial(_grow_first, samples=BACKGROUND_STEP))[2]:
                self._wake.set()
        return aside

    def _settle_aside(self, aside: Aside) -> None:
        """Grow large tags without anybody waiting, then take a turn to write them; without one they stay tags."""
        db = self._db
        try:
            growth = grow_aside(db, aside)
            if self._stopped.is_set() or not db._writing.acquire(timeout=PATIENCE):
                return
            try:
                with db._store.write(PATIENCE, "settle") as session:
                    take_back(db, session, growth)
            finally:
                db._writing.release()
        except Error:
            return  # as above; or what was grown is no longer in this generation of the store


def erase(db: Database) -> None:
    """Take removals to their next stage, as far as nobody holds them back, without waiting for other writers."""
    if not db._store.owes:
        return
    retire_old(db.path)
    with db._store.write(0.0, "erase") as session:
        if session.owes:
            with db._gate.alone():
                before = session.snapshot.commit
                session.commit()
                db._view.passed_over(before, session.snapshot)
