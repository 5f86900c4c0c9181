"""Carrying steps out: one after the other, each under the writer lock, each whole or not at all.

While it waits for the lock it does not have the store open. Otherwise two migrations would wait for each other: the one
with the lock for the other to leave, and the other for the lock. Who gets the lock looks at the format again: the work
may have been done meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynfrsdb_migrations.store.step import InPlace, Rewrite, Step
from dynfrsdb_migrations.store.steps import steps_from
from dynfrsdb_storage import Store, Successor, WriteSession, check_storage, layout, records, stages
from dynfrsdb_storage.ages import noted
from dynfrsdb_storage.alone import alone
from dynfrsdb_storage.copying import Progress, copy
from dynfrsdb_storage.errors import CorruptStore, Locked
from dynfrsdb_storage.failpoints import failpoint
from dynfrsdb_storage.retire import holders, old_generations, retire_old
from dynfrsdb_storage.successor import refuse_without, room

PATIENCE = 2.0
"""Seconds to wait for other processes to let go of an old generation."""
_PAUSE = 0.05


@dataclass(frozen=True)
class Migration:
    """What a migration would do, or what it did."""

    before: int
    """The format that the store had."""
    after: int
    """The format that it will have, or has."""
    steps: tuple[str, ...]
    needed: int
    """Bytes that it takes at most, beside the store, until the old files are gone."""
    free: int
    held_by: tuple[int, ...] = ()
    """Processes that still have the old files open; these are erased after them."""
    done: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**self.__dict__, "steps": list(self.steps), "held_by": list(self.held_by)}


def look(path: Path) -> Migration:
    """What a migration of the store at `path` would do; changes nothing."""
    with Store.open(path, writable=False, restoring=True, migrating=True) as store, store.snapshot() as snapshot:
        before = int(snapshot.generation.identity["format"])
        steps = steps_from(before)
        copies = sum(isinstance(step, Rewrite) for step in steps)
        space = room(snapshot, int(snapshot.state["slots"])) if copies else room(snapshot, 0)
        said = tuple(f"format {step.to}: {step.about}" for step in steps)
        return Migration(before, layout.FORMAT, said, copies * space.needed, space.free, done=not steps)


def migrate(path: Path, timeout: float, report: Progress) -> Migration:
    """Bring the store at `path` to the format that this version writes; waits up to `timeout` seconds for others."""
    planned = look(path)
    for _ in planned.steps:
        deadline = time.monotonic() + timeout
        with _begun(path, deadline) as session:
            step = next(iter(steps_from(int(session.snapshot.generation.identity["format"]))), None)
            if isinstance(step, InPlace):
                _change(session, step, deadline)
            elif isinstance(step, Rewrite):
                _rewrite(session, step, report)
        retire_old(path)
    held = _let_go(path)
    return Migration(**{**planned.__dict__, "held_by": tuple(sorted(held)), "done": True})


@contextmanager
def _begun(path: Path, deadline: float) -> Iterator[WriteSession]:
    """A session on the store, which is not open while others have the lock, or look at rows that were removed."""
    while True:
        with ExitStack() as stack:
            try:
                store = stack.enter_context(Store.open(path, writable=True, restoring=True, migrating=True))
                session = stack.enter_context(store.write(0.0, "migrate"))
                if session.unerased:
                    raise Locked(
                        f"somebody still looks at rows of '{path}' that were removed (see 'dynfrsdb readers {path}'); "
                        "nothing was changed. Try again or pass timeout="
                    )
            except Locked:
                if time.monotonic() >= deadline:
                    raise
            else:
                yield session
                return
        time.sleep(_PAUSE)


def _change(session: WriteSession, step: InPlace, deadline: float) -> None:
    with alone(session, deadline):
        failpoint("migrate-alone")
        step.apply(session)
        session.put("meta", layout.META_FORMAT, records.frame(_identity(session, step)))
        session.commit()


def _rewrite(session: WriteSession, step: Rewrite, report: Progress) -> None:
    old = session.snapshot
    path = Path(old.generation.store)
    refuse_without(room(old, int(old.state["slots"])), path, "migration")
    new = Successor(session, "migration")
    new.identity, new.settings = _identity(session, step), dict(step.settings(new.settings))
    with new:
        copy(old, new, report, step.record)
        if session.has_erased:
            _note_erased_rows(new)
        new.state["times"] = noted(new.state.get("times", b""), new.state["commit"], time.time())
        new.finish()
        with new.snapshot() as fresh:
            slots = int(fresh.state["slots"])
            problems = check_storage(fresh, lambda part, done: report("checking " + part, done, slots))
        if problems:
            raise CorruptStore(
                f"'{path}' in format {step.to} would not be what it should be ({problems[0]}); the store was not "
                f"changed. Run 'dynfrsdb check {path}'"
            )
        new.take_over()


def _identity(session: WriteSession, step: Step) -> dict[str, Any]:
    return {**session.snapshot.generation.identity, "format": step.to, "needs": step.needs}


def _note_erased_rows(new: Successor) -> None:
    """Note what the next commit in the old generation would have noted; the copy has no rows that could wait."""
    entry = stages.rows_erased(new.state, ())
    if entry is not None:
        new.state.update(stages.reached(new.state, new.append_ledger(entry)))


def _let_go(path: Path) -> set[int]:
    """Erase old generations, if everybody leaves them within a short while; returns who has not."""
    deadline = time.monotonic() + PATIENCE
    while retire_old(path) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    return {pid for name in old_generations(path) for pid in holders(path / name)}
