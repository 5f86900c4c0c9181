"""Holds, waiting requests, suppression and restored backups as a state machine.

    model       live samples, holds, the queue, the suppression list, and a clock that can be set ahead
    rules       everything that changes one of them, or is refused because of another
    invariant   the store lists what the model lists
    a backup    is restored at any later step, with the ledger of then: it must hold who lived at the backup and was
                not removed since, and everything else as it stands now

The digest is held against that of a fresh store, and `check` must find nothing, whenever a backup is restored and at
the end.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import dynfrsdb
from tests.people import SHAPE, X, Y
from tests.state_machine import MEMORY

PEOPLE = tuple(f"person {i}" for i in range(12))
FIRST = 48
DAY = 86_400

people = st.sampled_from(PEOPLE)
numbers = st.integers(0, 999)
days = st.integers(1, 3)


@dataclass
class Model:
    """What a store should say of itself."""

    live: dict[int, str | None] = field(default_factory=lambda: {i: PEOPLE[i % 12] for i in range(FIRST)})
    holds: dict[int, tuple[str, float | None]] = field(default_factory=dict)
    queue: dict[int, tuple[str, float]] = field(default_factory=dict)
    mode: str = "off"
    listed: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)

    def held(self, person: str | None, now: float) -> bool:
        return any(who == person and (until is None or until > now) for who, until in self.holds.values())

    def forget(self, person: str) -> None:
        self.live = {id: who for id, who in self.live.items() if who != person}
        self.holds = {number: hold for number, hold in self.holds.items() if hold[0] != person}
        self.forgotten.add(person)
        if self.mode != "off":
            self.listed.add(person)


class DutiesMachine(RuleBasedStateMachine):
    """Rules that change a store and a model alike."""

    @initialize()
    def create(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dynfrsdb-", dir=MEMORY if MEMORY.is_dir() else None))
        self.path = self.folder / "people.forest"
        self.ahead = 0.0
        real = time.time
        self.clock = patch("time.time", lambda: real() + self.ahead)
        self.clock.start()
        owners = [PEOPLE[i % 12] for i in range(FIRST)]
        dynfrsdb.create(self.path, X[:FIRST], Y[:FIRST], subjects=owners, **SHAPE).close()
        self.db = dynfrsdb.open(self.path, "w", settle=None)
        self.model = Model()
        self.backup: tuple[Model, set[int]] | None = None
        """What the store was when it was copied, and which ids were removed since."""
        self.rows = {i: i for i in range(FIRST)}
        """Which row of X a sample has."""
        self.next = FIRST

    def teardown(self) -> None:
        if hasattr(self, "db"):
            assert self.db.check().problems == ()
            self.db.close()
            self.clock.stop()
            shutil.rmtree(self.folder)

    def somebody(self, pick: int) -> str | None:
        """A person who has samples; those with the smallest names most often, so that duties meet."""
        there = sorted(set(filter(None, self.model.live.values())))
        return there[pick % min(3, len(there))] if there else None

    def removed(self, before: dict[int, str | None]) -> None:
        if self.backup is not None:
            self.backup[1].update(before.keys() - self.model.live.keys())

    @rule(person=st.one_of(people, st.none()), row=numbers)
    def add(self, person: str | None, row: int) -> None:
        if person in self.model.listed and self.model.mode == "refuse":
            with pytest.raises(dynfrsdb.Suppressed):
                self.db.add(X[row % 300][None], Y[row % 300][None], ids=[self.next], subjects=[person])
            return
        receipt = self.db.add(X[row % 300][None], Y[row % 300][None], ids=[self.next], subjects=[person])
        if person in self.model.listed:
            assert isinstance(receipt, dynfrsdb.Receipt)
            assert (receipt.added, receipt.details["skipped"]) == (0, 1)
        else:
            self.model.live[self.next] = person
        self.rows[self.next] = row % 300
        self.next += 1

    @rule(pick=numbers)
    def remove(self, pick: int) -> None:
        before = dict(self.model.live)
        if not before:
            return
        id = sorted(before)[pick % len(before)]
        if before[id] is not None and self.model.held(before[id], time.time()):
            with pytest.raises(dynfrsdb.Held):
                self.db.remove([id])
            return
        self.db.remove([id])
        del self.model.live[id]
        self.removed(before)

    @rule(person=people)
    def forget(self, person: str) -> None:
        before = dict(self.model.live)
        if self.model.held(person, time.time()):
            with pytest.raises(dynfrsdb.Held):
                self.db.forget(person)
        elif person not in before.values():
            with pytest.raises(dynfrsdb.SampleNotFound):
                self.db.forget(person)
        else:
            self.db.forget(person)
            self.model.forget(person)
            self.removed(before)

    @rule(pick=numbers, ends=st.one_of(st.none(), days))
    def hold(self, pick: int, ends: int | None) -> None:
        if person := self.somebody(pick):
            until = None if ends is None else int(time.time()) + ends * DAY
            date = None if until is None else time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(until))
            self.model.holds[self.db.hold(person, f"about {person}", date).sequence] = (person, until)

    @precondition(lambda self: self.model.holds)
    @rule(pick=numbers)
    def release(self, pick: int) -> None:
        number = sorted(self.model.holds)[pick % len(self.model.holds)]
        self.db.release(number)
        del self.model.holds[number]

    @rule(pick=numbers, wait=days)
    def ask(self, pick: int, wait: int) -> None:
        person = self.somebody(pick)
        if person is not None and self.model.held(person, time.time()):
            with pytest.raises(dynfrsdb.Held):
                self.db.forget_later(person, f"{wait}d")
        elif person is not None:
            receipt = self.db.forget_later(person, f"{wait}d")
            self.model.queue[receipt.sequence] = (person, time.time() + wait * DAY)

    @precondition(lambda self: self.model.queue)
    @rule(pick=numbers)
    def cancel(self, pick: int) -> None:
        number = sorted(self.model.queue)[pick % len(self.model.queue)]
        self.db.cancel(number)
        del self.model.queue[number]

    @rule(passed=days)
    def run_due(self, passed: int) -> None:
        """A little more than whole days, so that nothing is due within the second in which we look."""
        self.ahead += (passed + 0.01) * DAY
        now, before = time.time(), dict(self.model.live)
        due = sorted((at, number, person) for number, (person, at) in self.model.queue.items() if at <= now)

        outcomes = {each.number: each for each in self.db.run_due()}

        assert sorted(outcomes) == sorted(number for _, number, _ in due)
        for _, number, person in due:
            held = self.model.held(person, now)
            assert (outcomes[number].held is not None) == held
            if not held:
                self.model.forget(person)
                del self.model.queue[number]
        self.removed(before)

    @rule(mode=st.sampled_from(["off", "refuse", "skip"]))
    def suppress(self, mode: str) -> None:
        if mode == "off":
            self.model.listed = set()
        elif self.model.mode == "off":
            self.model.listed = self.model.forgotten - set(self.model.live.values())
        self.model.mode = mode
        self.db.suppress(mode)

    @precondition(lambda self: self.model.listed)
    @rule(pick=numbers)
    def lift(self, pick: int) -> None:
        person = sorted(self.model.listed)[pick % len(self.model.listed)]
        self.db.unsuppress(person)
        self.model.listed.discard(person)
        self.model.forgotten.discard(person)

    @rule()
    def reopen(self) -> None:
        self.db.close()
        self.db = dynfrsdb.open(self.path, "w", settle=None)

    @precondition(lambda self: self.backup is None)
    @rule()
    def copy(self) -> None:
        self.db.backup(self.folder / "copy.forest")
        self.backup = deepcopy(self.model), set()

    @precondition(lambda self: self.backup is not None)
    @rule(goes_on=st.booleans())
    def restore(self, goes_on: bool) -> None:
        """Look at the restored copy; now and then it takes the place of the store."""
        assert self.backup is not None
        (then, gone), copy, ledger = self.backup, self.folder / "copy.forest", self.folder / "ledger.jsonl"
        self.backup = None
        self.db.export_ledger(ledger)
        added = len(self.model.live.keys() - then.live.keys())
        expected = deepcopy(self.model)
        expected.live = {id: who for id, who in then.live.items() if id not in gone}

        restored = dynfrsdb.restore(copy, ledger)

        assert (restored.removed, restored.lost) == (len(then.live) - len(expected.live), added)
        with dynfrsdb.open(copy, "w", settle=None) as db:
            self.agree(db, expected)
            kept = sorted(expected.live)
            rows = [self.rows[id] for id in kept]
            if kept:
                fresh = self.folder / "fresh.forest"
                with dynfrsdb.create(fresh, X[rows], Y[rows], ids=kept, classes=[0, 1], **SHAPE) as never:
                    assert db.digest() == never.digest()
                shutil.rmtree(fresh)
            assert db.check().problems == ()
        if goes_on:
            self.db.close()
            shutil.rmtree(self.path)
            copy.rename(self.path)
            self.db, self.model = dynfrsdb.open(self.path, "w", settle=None), expected
        else:
            shutil.rmtree(copy)

    @invariant()
    def the_store_lists_what_the_model_lists(self) -> None:
        if hasattr(self, "db"):
            self.agree(self.db, self.model)

    def agree(self, db: dynfrsdb.Database, model: Model) -> None:
        with db._store.snapshot() as snapshot:
            live = {int.from_bytes(key, "big") for key, _ in snapshot.scan("samples")}
            listed = {key for key, _ in snapshot.scan("suppression")}
        assert live == model.live.keys()
        assert [hold.number for hold in db.holds()] == sorted(model.holds)
        assert {each.number for each in db.waiting()} == model.queue.keys()
        assert listed == {db._secrets.subject(person.encode()) for person in model.listed}


def test_duties_are_kept_whatever_happens(pytestconfig: pytest.Config) -> None:
    effort = settings(
        max_examples=25,
        stateful_step_count=25,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )

    run_state_machine_as_test(seed(pytestconfig.getoption("--machine-seed"))(DutiesMachine), settings=effort)
