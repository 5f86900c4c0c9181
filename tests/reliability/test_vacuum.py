"""Vacuum among others: killed at any instant, while readers ask and writers wait, it loses nothing and keeps nothing.

The moment of truth is one rename. Before it the old generation is the store, and what was written of the new one is
removed by whoever comes next. After it the new one is, and the old one is overwritten by whoever comes next.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

import dynfrsdb
from dynfrsdb_storage import failpoints
from tests.reliability.test_kill import finish, readers, recover
from tests.reliability.test_linearisable import Note, Writer, every_commit, fit, read
from tests.reliability.workload import (
    BATCH,
    EVERYBODY,
    KILLED,
    LENGTH,
    Child,
    Story,
    Tell,
    Worker,
    add,
    answer,
    chance,
    die_at,
    fresh_answer,
    living,
    subject,
    traces,
)

RANDOM_KILLS = 8 * LENGTH
SECONDS = 10.0 * LENGTH
INSTANTS = [
    ("vacuum-begin", 1),
    ("vacuum-rows", 1),
    ("vacuum-built", 1),
    ("vacuum-checked", 1),
    ("current-switch", 1),
    ("vacuum-switched", 1),
    ("retire-zeroed", 1),
    ("retire-zeroed", 3),
    ("retire-unlinked", 1),
    ("retire-unlinked", 4),
]


def generations(path: Path) -> list[str]:
    return sorted(each.name for each in path.glob("gen-*"))


def scribe() -> int:
    """The pid of the child that writes the new generation; other tests may have left us other children."""
    ours, deadline = f"main({os.getpid()})".encode(), time.monotonic() + 10
    while time.monotonic() < deadline:
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it has ended
                if ours in file.read_bytes():
                    return int(file.parent.name)
    raise AssertionError("there is no scribe")


@pytest.mark.parametrize(("point", "visits"), INSTANTS)
def test_a_death_at_a_named_instant_of_a_vacuum_loses_nothing_and_leaves_nothing(
    path: Path, point: str, visits: int
) -> None:
    story, dice = Story(EVERYBODY), chance("vacuum")

    def doomed(tell: Tell) -> None:
        db = dynfrsdb.open(path, "w", settle=None)
        worker = Worker(db, story.live, dice, tell)
        worker.forget()
        die_at(point, visits)
        db.vacuum()

    with readers(path, 1) as last_answers:
        with Child(doomed) as child:
            for said in child.rest():
                story.hear(said)
            assert child.end() == KILLED
        recover(path, story, dice)
        finish(path, story, dice, last_answers)

    with dynfrsdb.open(path, "w") as db:
        assert db.vacuum()
        assert living(db) == story.live
        assert {each.stage for each in db.erasure_status()} == {"erased"}
        assert db.check().problems == ()
    assert len(generations(path)) == 1
    assert traces(path, story.gone) == []


def test_deaths_at_random_moments_of_vacuums_lose_nothing(path: Path) -> None:
    story, dice = Story(EVERYBODY), chance("random vacuum kills")

    def doomed(seed: int, tell: Tell) -> None:
        own = random.Random(seed)
        db = dynfrsdb.open(path, "w", settle=own.choice(["auto", None]))
        worker = Worker(db, story.live, own, tell)
        tell({"ready": 1})
        while True:
            worker.step()
            db.vacuum()

    with readers(path, 1) as last_answers:
        for _ in range(RANDOM_KILLS):
            with Child(partial(doomed, dice.getrandbits(32))) as child:
                assert child.hear() == {"ready": 1}
                time.sleep(dice.uniform(0, 3))
                child.kill()
                for said in child.rest():
                    story.hear(said)
                assert child.end() == KILLED
            recover(path, story, dice)
        finish(path, story, dice, last_answers)
    with dynfrsdb.open(path, "w") as db:
        print(f"generation {db.info()['generation']} after {RANDOM_KILLS} kills")
        assert db.vacuum()
    assert len(generations(path)) == 1
    assert traces(path, story.gone) == []


def test_a_scribe_that_dies_ends_the_vacuum_with_an_error_and_nothing_is_changed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(name: str) -> None:
        if name == "vacuum-rows":
            os.kill(scribe(), signal.SIGKILL)

    monkeypatch.setattr(failpoints, "hook", kill)
    with dynfrsdb.open(path, "w") as db:
        before = answer(db), db.refresh()
        with pytest.raises(dynfrsdb.Error, match=r"could not write a new generation.*; nothing was changed"):
            db.vacuum()
        monkeypatch.setattr(failpoints, "hook", None)

        assert (answer(db), db.refresh(), generations(path)) == (*before, ["gen-0001"])
        assert db.vacuum()
        assert answer(db) == before[0]


@pytest.mark.parametrize("point", ["vacuum-rows", "vacuum-built", "current-switch", "vacuum-switched"])
def test_an_interrupt_leaves_the_store_before_or_after_the_vacuum(
    path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    monkeypatch.setattr(failpoints, "hook", interrupt)
    with dynfrsdb.open(path, "w", settle=None) as db:
        before = answer(db)
        with pytest.raises(KeyboardInterrupt):
            db.vacuum()
        monkeypatch.setattr(failpoints, "hook", None)

        assert answer(db) == before
        db.remove([1])
        assert living(db) == EVERYBODY - {1}
        assert db.check().problems == ()
    assert generations(path) == ["gen-0002" if point == "vacuum-switched" else "gen-0001"]


def test_the_scribe_has_no_file_of_the_store_open_but_its_own(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def look(name: str) -> None:
        if name == "vacuum-rows":
            process, deadline = Path("/proc", str(scribe())), time.monotonic() + 30
            while not {"data.mdb", "rows.bin"} <= set(map(os.path.basename, seen)) and time.monotonic() < deadline:
                for each in (process / "fd").iterdir():
                    with suppress(FileNotFoundError):  # closed while we look
                        seen.append(os.readlink(each))
                seen.extend(line.split()[-1] for line in (process / "maps").read_text().splitlines())

    monkeypatch.setattr(failpoints, "hook", look)
    with dynfrsdb.open(path, "w") as db:
        db.vacuum()

    own = {each for each in seen if str(path) in each}
    assert {Path(each).parent.name for each in own} == {"gen-0002"}
    assert {"data.mdb", "rows.bin"} <= {Path(each).name for each in own}


def test_two_writers_that_waited_for_a_vacuum_go_on_in_the_new_generation(path: Path, store_dir: Path) -> None:
    waiting = store_dir / "waiting"

    def write(ids: list[int], tell: Tell) -> None:
        with dynfrsdb.open(path, "w", settle=None) as db:
            answer(db)
            tell({"ready": 1})
            while not waiting.exists():
                time.sleep(0.001)
            for id in ids:
                add(db, [1000 + id])
                db.remove([id])
            tell({"generation": db.info()["generation"]})

    def release_the_writers(name: str) -> None:
        if name == "vacuum-rows":
            waiting.touch()
            time.sleep(0.2)

    with ExitStack() as stack:
        writers = [stack.enter_context(Child(partial(write, [i, i + 10]))) for i in range(2)]
        assert [writer.hear() for writer in writers] == [{"ready": 1}] * 2
        with dynfrsdb.open(path, "w", settle=None) as db, pytest.MonkeyPatch.context() as patch:
            patch.setattr(failpoints, "hook", release_the_writers)
            db.vacuum()
        assert [writer.hear() for writer in writers] == [{"generation": 2}] * 2
        assert [writer.end() for writer in writers] == [0, 0]

    expected = EVERYBODY - {0, 1, 10, 11} | {1000, 1001, 1010, 1011}
    with dynfrsdb.open(path, "w") as db:
        assert living(db) == expected
        assert answer(db) == fresh_answer(store_dir / "fresh.forest", expected)
        assert db.check().problems == ()
    assert generations(path) == ["gen-0002"]


def test_threads_that_share_a_handle_move_to_the_new_generation_together(path: Path) -> None:
    done, failures, counts = threading.Event(), list[BaseException](), [0] * 4

    def ask(which: int) -> None:
        try:
            while not done.is_set():
                assert answer(db) == before
                with db.snapshot() as pinned:
                    assert answer(pinned, BATCH[:4]) == short
                counts[which] += 1
        except BaseException as error:
            failures.append(error)

    with dynfrsdb.open(path) as db, dynfrsdb.open(path, "w") as writer:
        before, short = answer(db), answer(db, BATCH[:4])
        threads = [threading.Thread(target=ask, args=[which]) for which in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            writer.vacuum()
        done.set()
        for thread in threads:
            thread.join()

        assert failures == []
        assert min(counts) > 5
        assert db.info()["generation"] == 6
        assert writer.check().problems == ()


def vacuum_for_a_while(path: Path, seconds: float, tell: Tell) -> None:
    """One vacuum after the other."""
    deadline, count = time.monotonic() + seconds, 0
    with dynfrsdb.open(path, "w", settle=None) as db:
        while time.monotonic() < deadline:
            db.vacuum()
            count += 1
            time.sleep(0.2)
    tell({"vacuums": count})


def test_every_answer_is_that_of_one_commit_across_changes_of_generation(path: Path) -> None:
    dice = chance("linearisable vacuum")
    seed = dice.getrandbits(32)

    with ExitStack() as stack:
        writer = stack.enter_context(Child(lambda tell: Writer(path, "auto", seed, tell).run(SECONDS)))
        first = writer.hear()  # nobody may see a commit before the first one that it has noted
        assert first is not None
        cleaner = stack.enter_context(Child(partial(vacuum_for_a_while, path, SECONDS - 1)))
        asking = [stack.enter_context(Child(partial(read, path, budget, SECONDS))) for budget in (512 << 20, 0)]
        noted: dict[int, str] = {said["commit"]: said["answer"] for said in (first, *writer.rest())}
        vacuums = cleaner.hear()
        said = [reader.hear() for reader in asking]
        assert [child.end() for child in (writer, cleaner, *asking)] == [0] * 4

    notes: list[list[Note]] = [one["notes"] for one in said if one is not None]
    answers = every_commit(noted, max(after for one in notes for _, _, after in one))
    print(f"{vacuums} while {len(noted)} changes were made and {sum(map(len, notes))} answers given")
    assert vacuums is not None
    assert vacuums["vacuums"] >= 3
    for one in notes:
        wrong, seen = fit(one, answers)
        assert wrong == ""
        assert len(seen) > 5


def test_the_subjects_of_the_survivors_are_still_known(path: Path) -> None:
    with dynfrsdb.open(path, "w") as db:
        db.forget(subject(9))
        db.vacuum()

        db.forget(subject(12))

        assert living(db) == EVERYBODY - {9, 10, 11, 12, 13, 14}
