"""kill -9, at every named instant and at random ones, while readers are at work.

The worker tells through a pipe what it begins and what it has a receipt for. Whatever it was doing when it died: the
store opens, everything is where it belongs, every acknowledged transaction is there, the one that was under way is
there as a whole or not at all, and what was removed stays removed.

Killing a process loses nothing that is in the page cache; what a power cut loses is another test's business.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

import dynfrsdb
from tests.reliability.workload import (
    BATCH,
    KILLED,
    LENGTH,
    PEOPLE,
    Child,
    Story,
    Tell,
    Worker,
    answer,
    chance,
    die_at,
    fresh_answer,
    in_child,
    living,
    new_store,
    traces,
)

RANDOM_KILLS = 40 * LENGTH
Act = Callable[[Worker], object]


def keep_reading(path: Path, stop: Path, tell: Tell) -> None:
    """Ask again and again, of the newest commit and of pinned ones, until `stop` is there; then tell the answer."""
    with dynfrsdb.open(path) as db:
        tell({"ready": 1})
        while not stop.exists():
            answer(db)
            with db.snapshot() as pinned:
                before = pinned.commit, len(pinned), answer(pinned, BATCH[:8])
                time.sleep(0.02)
                assert before == (pinned.commit, len(pinned), answer(pinned, BATCH[:8]))
                answer(pinned)
        tell({"answer": answer(db)})


@contextmanager
def readers(path: Path, count: int) -> Iterator[Callable[[], list[str]]]:
    """Processes that read all the while; call what this gives to end them and get their last answers."""
    stop = path.parent / "stop"
    with ExitStack() as stack:
        children = [stack.enter_context(Child(partial(keep_reading, path, stop))) for _ in range(count)]
        assert [child.hear() for child in children] == [{"ready": 1}] * count

        def finish() -> list[str]:
            stop.touch()
            said = [list(child.rest()) for child in children]
            assert [child.end() for child in children] == [0] * count
            stop.unlink()
            return [last[-1]["answer"] for last in said]

        yield finish


def recover(path: Path, story: Story, dice: random.Random) -> None:
    """Look at the store as the dead left it, then work on it, then look again."""
    with dynfrsdb.open(path) as db:
        story.settle(living(db))
        assert db.check().problems == ()
    with dynfrsdb.open(path, "w", settle=None) as db:
        worker = Worker(db, story.live, dice, story.hear)
        worker.remove()
        assert db.check().problems == ()
        assert living(db) == story.live


def finish(path: Path, story: Story, dice: random.Random, last_answers: Callable[[], list[str]]) -> None:
    """Everybody agrees, with a store that never held anybody else too, and the rows of the removed are gone."""
    with dynfrsdb.open(path) as db:
        mine = answer(db)
    assert set(last_answers()) == {mine}
    assert mine == fresh_answer(path.parent / "fresh.forest", story.live)
    with dynfrsdb.open(path, "w") as db:
        Worker(db, story.live, dice, story.hear).remove()
        assert db._store.erase_pending(timeout=10) == 0
        assert db.check().problems == ()
    assert traces(path, story.gone) == []


def change(worker: Worker) -> None:
    worker.add(3)
    worker.replace()


def settle(worker: Worker) -> None:
    worker.remove()
    worker.forget()
    worker.look()
    worker.settle()


def erase(worker: Worker) -> None:
    """Remove until rows are erased: the reader's snapshot holds that back at first."""
    for _ in range(200):
        worker.remove()
        time.sleep(0.005)


CHANGE: list[tuple[Act, str, int]] = [
    (change, point, visits)
    for point in ("rows-sync-before", "rows-sync-after", "commit-before", "commit-after", "acknowledge-after")
    for visits in (1, 2)
]
REMOVAL: list[tuple[Act, str, int]] = [
    (Worker.forget, point, 1) for point in ("commit-before", "commit-after", "acknowledge-after")
]
MANY: list[tuple[Act, str, int]] = [
    (Worker.add_many, "reservation-grow", 1),
    (Worker.add_many, "rows-sync-before", 1),
    (Worker.add_many, "commit-before", 1),
    (Worker.add_many, "commit-after", 1),
    (Worker.add_many, "commit-before", 2),
    (Worker.add_many, "commit-after", 2),
]
ERASE: list[tuple[Act, str, int]] = [(erase, "erase-middle", 1), (erase, "erase-middle", 3)]
SETTLE: list[tuple[Act, str, int]] = [
    (settle, point, 3) for point in ("commit-before", "commit-after", "acknowledge-after")
]


@pytest.mark.parametrize(("act", "point", "visits"), [*CHANGE, *REMOVAL, *MANY, *ERASE, *SETTLE])
def test_a_death_at_a_named_instant_loses_nothing_and_leaves_nothing(
    store_dir: Path, act: Act, point: str, visits: int
) -> None:
    path, story = new_store(store_dir / "people.forest"), Story(range(PEOPLE))
    dice = chance("named instant")

    def doomed(tell: Tell) -> None:
        die_at(point, visits)
        act(Worker(dynfrsdb.open(path, "w", settle=None), story.live, dice, tell))

    with readers(path, 1) as last_answers:
        with Child(doomed) as child:
            for said in child.rest():
                story.hear(said)
            assert child.end() == KILLED
        recover(path, story, dice)
        finish(path, story, dice, last_answers)


def test_a_death_while_the_map_grows_loses_nothing(store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynfrsdb_storage.env.FIRST_MAP", 1 << 20)
    path, story = new_store(store_dir / "people.forest", n_estimators=60), Story(range(PEOPLE))
    dice = chance("map")

    def doomed(tell: Tell) -> None:
        die_at("map-grow")
        worker = Worker(dynfrsdb.open(path, "w"), story.live, dice, tell)
        while True:
            worker.add(300)

    with readers(path, 1) as last_answers:
        with Child(doomed) as child:
            for said in child.rest():
                story.hear(said)
            assert child.end() == KILLED
        recover(path, story, dice)
        with dynfrsdb.open(path, "w") as db:
            worker = Worker(db, story.live, dice, story.hear)
            for _ in range(10):
                worker.add(600)
            assert db.info()["map_size"] > 1 << 20
            mine = answer(db)
        assert last_answers() == [mine]


@pytest.mark.parametrize("point", ["build-fill", "build-sync", "build-rename"])
def test_a_store_whose_making_is_killed_is_not_there_and_can_be_made_again(store_dir: Path, point: str) -> None:
    path = store_dir / "people.forest"

    def doomed() -> None:
        die_at(point)
        new_store(path)

    assert in_child(doomed) == KILLED
    assert not path.exists()

    new_store(path)
    with dynfrsdb.open(path) as db:
        assert living(db) == set(range(PEOPLE))
        assert db.check().problems == ()
    assert [entry.name for entry in store_dir.iterdir()] == ["people.forest"]


def work_for_ever(path: Path, live: set[int], seed: int, tell: Tell) -> None:
    dice = random.Random(seed)
    worker = Worker(dynfrsdb.open(path, "w", settle=dice.choice(["auto", None])), live, dice, tell)
    tell({"ready": 1})
    while True:
        worker.step()


def hear_of_a_receipt(child: Child, story: Story) -> None:
    """Listen to a worker until it has a receipt for something."""
    for said in child.rest():
        story.hear(said)
        if "done" in said:
            return


def test_deaths_at_random_moments_lose_nothing(store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One store goes through all of them, with the same readers, so damage could also add up."""
    monkeypatch.setattr("dynfrsdb.database.SMALL", 20)  # larger tags are left to readers and to the settling thread
    dice = chance("random kills")
    path, story = new_store(store_dir / "people.forest"), Story(range(PEOPLE))

    ours = theirs = 0
    with readers(path, 2) as last_answers:
        for round in range(RANDOM_KILLS):
            with Child(partial(work_for_ever, path, set(story.live), dice.getrandbits(32))) as child:
                if dice.random() < 0.9:
                    assert child.hear() == {"ready": 1}
                if dice.random() < 0.5:
                    hear_of_a_receipt(child, story)  # however slow this machine is
                time.sleep(dice.uniform(0, 0.25))
                child.kill()
                for said in child.rest():
                    story.hear(said)
                assert child.end() == KILLED, f"round {round}"
            theirs = story.acknowledged - ours
            recover(path, story, dice)
            ours = story.acknowledged - theirs
        finish(path, story, dice, last_answers)

    print(f"{RANDOM_KILLS} kills, {theirs} transactions acknowledged by the dead, {len(story.live)} people in the end")
    assert theirs > RANDOM_KILLS / 4
