"""Linearisability: every answer is that of exactly one committed state, and time never runs backwards.

One writer changes the store without pause and notes, for every commit, the answers for a fixed batch. Several readers
ask for the same batch all the while and note what they got, with the number of the newest commit before and after:

    writer    commit 41: answer c3..   commit 42: answer 9f..   commit 43 (settled): 9f..
    reader              newest was 41, answer 9f.., newest is 42      -> it was commit 42
                        newest was 42, answer c3..                    -> an older state than seen before: wrong

Afterwards each reader's notes must fit commits that never go back. A commit that nobody noted (a reservation, a settled
tag) must answer as the change before it.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dynfrsdb
from tests.reliability.workload import (
    BATCH,
    LENGTH,
    PEOPLE,
    Child,
    Tell,
    add,
    answer,
    chance,
    living,
    new_store,
    subject,
)

SECONDS = 15.0 * LENGTH
READERS = 3
Note = tuple[int, str, int]


class Writer:
    """Changes the store without pause and tells each commit's number and answers."""

    def __init__(self, path: Path, settle: str | None, seed: int, tell: Tell) -> None:
        self._db = dynfrsdb.open(path, "w", settle=settle)
        self._dice, self._tell = random.Random(seed), tell
        self._live, self._next = list(range(PEOPLE)), 1000

    def run(self, seconds: float) -> None:
        """Work for a while."""
        deadline = time.monotonic() + seconds
        self._note(self._db.refresh())
        while time.monotonic() < deadline:
            self._change()
            if self._dice.random() < 0.1:
                self._db.settle(limit=100)
            time.sleep(self._dice.choice([0, 0, 0.005, 0.1]))
        assert sorted(living(self._db)) == sorted(self._live)
        assert self._db.check().problems == ()
        self._db.close()

    def _change(self) -> None:
        with self._db.transaction() as txn:
            size = self._dice.randint(-3, 3) if 150 < len(self._live) < 350 else 60 if len(self._live) < 250 else -60
            if self._dice.random() < 0.3:
                gone = subject(self._dice.choice(self._live))
                txn.forget(gone)
                self._live = [id for id in self._live if subject(id) != gone]
            for id in self._dice.sample(self._live, max(1, -size)):
                txn.remove([id])
                self._live.remove(id)
            if size > 0:
                new = list(range(self._next, self._next + size))
                self._next += size
                add(txn, new)
                self._live += new
            number = txn._open().number
        self._note(number)

    def _note(self, commit: int) -> None:
        """Nobody else changes anything, so the newest answers are still this commit's."""
        self._tell({"commit": commit, "answer": answer(self._db)})


def newest(db: dynfrsdb.Database) -> int:
    """The number of the newest commit; unlike `refresh`, this does not move the handle there."""
    with db.snapshot() as pinned:
        return pinned.commit


def read(path: Path, cache_bytes: int, seconds: float, tell: Tell) -> None:
    """Ask for a while, in every way there is; tell (newest before, answer, newest after)."""
    deadline = time.monotonic() + seconds
    with dynfrsdb.open(path, cache_bytes=cache_bytes) as db:
        notes: list[Note] = []
        while time.monotonic() < deadline:
            notes.append((newest(db), answer(db), newest(db)))
            with db.snapshot() as pinned:
                notes.append((pinned.commit, answer(pinned), pinned.commit))
            answer(db, BATCH[:3])
            time.sleep(0.001)
        tell({"notes": notes})


def fit(notes: list[Note], answers: dict[int, str]) -> tuple[str, set[int]]:
    """What is wrong with a reader's notes ("" if nothing), and the commits that it saw."""
    newest = 0
    seen: set[int] = set()
    for before, got, after in notes:
        first = max(before, newest)
        fitting = [commit for commit in range(first, after + 1) if answers[commit] == got]
        if not fitting:
            older = [commit for commit, said in answers.items() if said == got]
            return f"between commits {first} and {after} an answer was that of {older or 'no commit'}", seen
        newest = fitting[0]
        seen.add(newest)
    return "", seen


def every_commit(noted: dict[int, str], last: int) -> dict[int, str]:
    """The answers of all commits: those that nobody noted changed no sample."""
    answers: dict[int, str] = {}
    for commit in range(min(noted), last + 1):
        answers[commit] = noted[commit] if commit in noted else answers[commit - 1]
    return answers


@pytest.mark.parametrize("settle", ["auto", None])
def test_every_answer_is_that_of_one_commit_and_never_of_an_older_one(
    store_dir: Path, settle: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dynfrsdb.database.SMALL", 20)  # larger tags are left to readers and to the settling thread
    seconds = SECONDS / 2
    dice = chance("linearisable")
    path = new_store(store_dir / "people.forest")
    write = partial(Writer.run, seconds=seconds)

    with ExitStack() as stack:
        seed = dice.getrandbits(32)
        writer = stack.enter_context(Child(lambda tell: write(Writer(path, settle, seed, tell))))
        budgets = [512 << 20, 200_000, 0][:READERS]
        readers = [stack.enter_context(Child(partial(read, path, budget, seconds))) for budget in budgets]
        noted: dict[int, str] = {said["commit"]: said["answer"] for said in writer.rest()}
        said: list[dict[str, Any] | None] = [reader.hear() for reader in readers]
        assert [child.end() for child in (writer, *readers)] == [0] * (1 + READERS)

    notes: list[list[Note]] = [one["notes"] for one in said if one is not None]
    answers = every_commit(noted, max(after for one in notes for _, _, after in one))
    assert len(set(answers.values())) > 0.9 * len(noted), "most changes must show in the answers, or nothing is tested"
    for one in notes:
        wrong, seen = fit(one, answers)
        print(f"{len(answers)} commits ({len(noted)} changes), {len(one)} answers, {len(seen)} states seen")
        assert wrong == ""
        assert len(seen) > 10
