"""Settling: grow what was left void, and write it.

It changes no answer, because a forest is a function of its samples; it only moves work from queries to quiet moments.
Tags are grown largest first, some hundred thousand samples to a commit, in threads as trees are when a store is built:
a fraction of a second, so that no other writer waits long. The thread takes a few thousand at a time.

A handle with `settle="auto"` does it by itself: a thread waits until transactions pause and then settles step by step,
giving way to whoever wants to write. The same thread takes removals to their next stage, and tries again while a reader
or another process holds them back."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Executor
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dynfrsdb.build import Progress, threads, workers
from dynfrsdb.errors import Error
from dynfrsdb_storage import WriteSession
from dynfrsdb_storage.retire import retire_old

if TYPE_CHECKING:
    from dynfrsdb.database import Database

STEP = 300_000
"""Samples below tags that one commit of `settle` grows."""
QUIET = 0.05
"""Seconds without a transaction before the thread begins."""
BACKGROUND_STEP = 4_000
AGAIN, AGAIN_AT_MOST = 0.5, 30.0
"""Seconds until the thread tries again to erase what somebody holds back: longer each time."""


def settle(db: Database, limit: int | None, timeout: float, progress: Progress | None) -> int:
    """Grow tags and write them until none is left, or about `limit` samples were looked at; returns how many tags."""
    grown = samples = 0
    with workers(threads()) as pool:
        while limit is None or samples < limit:
            step = STEP if limit is None else min(STEP, limit - samples)
            with db._store.write(timeout, "settle") as session:
                tags, size, left = _step(db, session, step, pool)
            grown, samples = grown + tags, samples + size
            if progress is not None:
                progress("tags", grown, grown + left)
            if not left:
                break
    return grown


def _step(db: Database, session: WriteSession, samples: int, pool: Executor | None = None) -> tuple[int, int, int]:
    """One commit's worth: returns (tags grown, samples below them, tags left)."""
    with db._gate.alone():
        try:
            with db._view.within(session.snapshot) as forest:
                found = forest.tags()
                chosen = _first(found, samples)
                forest.grow_tags(chosen, pool)
            if db._view.has_growth():
                db._view.write_to(session)
                session.commit()
            db._view.committed(session.snapshot, db._cache_bytes)
        except BaseException:
            db._view.roll_back(session.snapshot)
            raise
    return chosen.size, int(chosen["n"].sum()), found.size - chosen.size


def _first(found: npt.NDArray[np.void], samples: int) -> npt.NDArray[np.void]:
    """The first tags that together reach `samples`, at least one."""
    enough = int(np.searchsorted(np.cumsum(found["n"]), samples)) + 1
    return found[:enough]


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
            with db._store.snapshot() as snapshot:
                tags = snapshot.state["tags"]
            if tags:
                with db._store.write(0.0, "settle") as session:
                    _, _, left = _step(db, session, BACKGROUND_STEP)
                if left:
                    self._wake.set()
            return db._store.owes
        except Error:
            return False  # somebody else is writing, or the disk is full: the next transaction wakes us again
        finally:
            db._writing.release()


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
