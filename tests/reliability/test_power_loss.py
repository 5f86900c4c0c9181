"""The machine loses power at any instant: what was acknowledged is there, the rest is all or nothing.

A workload (create, adds, removals, forgetting, settling, a reservation that grows) is recorded once; then 150 states
that a power loss could have left are made from the record, each with unsynced writes lost or torn, and opened. See
replay.py for what a disk may lose.
"""

from __future__ import annotations

import copy
import random
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import dynfrsdb
from tests.reliability.replay import STORE, Disk, Event, build_shim, record, told
from tests.reliability.workload import PEOPLE, Story, add, chance, living, new_store, traces, warm

STATES = 150
VACUUM_STATES = 60
STEPS = 30


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    """The recorder, compiled."""
    try:
        return build_shim(tmp_path)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the recorder needs a C compiler for Linux ({error})")


def instants(events: list[Event], count: int, dice: random.Random) -> list[int]:
    """How many events happen before each power loss: any number, half of them next to a sync or a rename."""
    near = [i + after for i, event in enumerate(events) if event.kind in "SRD" or event.other == 1 for after in (0, 1)]
    chosen = [dice.choice(near) for _ in range(count // 2)]
    return sorted(chosen + [dice.randint(1, len(events)) for _ in range(count - len(chosen))])


def states(
    events: list[Event], losses: Iterable[int], place: Path, dice: random.Random
) -> Iterator[tuple[Path, Story | None]]:
    """The directory that each power loss leaves, and what had been told until then (None: not even a created store)."""
    said, story = list(told(events)), Story(range(PEOPLE))
    disk, created, at = Disk(root=events[0].inode), False, 0
    for number, loss in enumerate(losses):
        for event, words in zip(events[at:loss], said[at:loss], strict=True):
            disk.play(event)
            if words is not None:
                story.hear(words)
                created |= "created" in words
        at = loss
        left = place / str(number)
        disk.crash(left, dice)
        yield left, copy.deepcopy(story) if created else None
        shutil.rmtree(left)


def recovers(path: Path, story: Story, mentioned: set[int]) -> None:
    """The store is sound, holds what it must, and goes on."""
    with dynfrsdb.open(path) as reader:
        assert not reader.check().problems
        story.settle(living(reader))

    with dynfrsdb.open(path, "w", settle=None) as writer:
        add(writer, [50_000])
        writer.remove([50_000])
        assert not writer.check().problems
        assert len(writer) == len(story.live)
    assert traces(path, mentioned - story.live) == []
    assert len(list(path.glob("gen-*"))) == 1


def has_no_store(path: Path) -> None:
    """A create that was cut off left nothing that looks like a store, and is not in the way of the next one."""
    with pytest.raises(dynfrsdb.StoreNotFound):
        dynfrsdb.open(path)

    with dynfrsdb.open(new_store(path, 20)) as db:
        assert len(db) == 20
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_power_loss_at_any_instant_loses_nothing_that_was_acknowledged(shim: Path, store_dir: Path) -> None:
    dice = chance("power loss")
    warm()
    disk = store_dir / "disk"
    disk.mkdir()
    events = record(shim, disk, dice.randrange(1 << 30), STEPS)
    assert sum(event.kind == "W" for event in events) > 100, "the recorder saw next to nothing"
    mentioned = {id for words in told(events) if words and "begin" in words for ids in words["begin"] for id in ids}
    mentioned |= {50_000}

    seen = {"no store": 0, "recovered": 0}
    for left, story in states(events, instants(events, STATES, dice), store_dir, dice):
        path = left / STORE
        if story is None and not path.exists():
            has_no_store(path)
            seen["no store"] += 1
        else:
            recovers(path, story or Story(range(PEOPLE)), mentioned)
            seen["recovered"] += 1

    print(f"{len(events)} events recorded; {seen}")
    assert sum(seen.values()) == STATES


def test_a_power_loss_in_a_vacuum_leaves_the_store_before_or_after_it(shim: Path, store_dir: Path) -> None:
    """The new generation, the switch, and the overwriting of the old generation, whose rows include a later removal."""
    dice = chance("power loss in a vacuum")
    warm()
    disk = store_dir / "disk"
    disk.mkdir()
    events = record(shim, disk, dice.randrange(1 << 30), 5)
    begin = next(i for i, words in enumerate(told(events)) if words and "vacuum" in words)
    losses = sorted(begin + loss for loss in instants(events[begin:], VACUUM_STATES, dice))

    generations = set()
    for left, story in states(events, losses, store_dir, dice):
        assert story is not None
        recovers(left / STORE, story, {9_999, 50_000})
        generations |= {each.name for each in (left / STORE).glob("gen-*")}

    print(f"{len(events) - begin} events of a vacuum recorded; {VACUUM_STATES} states")
    assert generations == {"gen-0001", "gen-0002"}


def test_a_disk_that_forgets_what_was_synced_is_noticed(shim: Path, store_dir: Path) -> None:
    """The simulation can fail: without its syncs, the same record does lose acknowledged transactions."""
    dice = chance("power loss without syncs")
    warm()
    disk = store_dir / "disk"
    disk.mkdir()
    events = record(shim, disk, dice.randrange(1 << 30), 10)
    first = next(i for i, words in enumerate(told(events)) if words and "created" in words)
    forgetful = events[: first + 1] + [event for event in events[first + 1 :] if event.kind != "S" and event.other != 1]

    violations = 0
    for left, story in states(forgetful, [len(forgetful)] * 10, store_dir, dice):
        assert story is not None
        try:
            recovers(left / STORE, story, set())
        except (AssertionError, dynfrsdb.Error):
            violations += 1

    assert violations
