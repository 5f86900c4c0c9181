"""A migration that dies, by kill -9 or Ctrl-C, at any named instant: a store of the old format or of the new one."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import dynfrsdb
from dynfrsdb_migrations.store.step import Step
from dynfrsdb_storage import failpoints
from dynfrsdb_storage.retire import holders
from tests.migrations.steps import NEXT, format_of, generations, in_place, kept, know, rewrite, said, worn
from tests.storage.test_crash import KILLED, killed_at

STEPS: dict[str, Step] = {"in place": in_place(), "rewrite": rewrite()}
INSTANTS: dict[str, dict[str, int]] = {
    "in place": {"migrate-alone": 1, "commit-before": 1, "commit-after": 1, "acknowledge-after": 1},
    "rewrite": {
        "vacuum-begin": 1,
        "vacuum-built": 1,
        "vacuum-checked": 1,
        "current-switch": 1,
        "vacuum-switched": 1,
        "retire-zeroed": 4,
        "retire-unlinked": 4,
    },
}
"""What a migration comes by, and how often."""
BEFORE = {"migrate-alone", "commit-before", "vacuum-begin", "vacuum-built", "vacuum-checked", "current-switch"}
EACH = [
    (kind, point, visits) for kind, points in INSTANTS.items() for point, most in points.items() for visits in {1, most}
]


@pytest.fixture
def old(path: Path) -> Path:
    """A store of the real format, that has lived."""
    return worn(path)


def whole(path: Path, kind: str, point: str, before: object) -> None:
    """The store is of one format, the migration can be made or finished, and nothing is left behind."""
    migrated = point not in BEFORE
    assert format_of(path) == NEXT - (not migrated)
    assert kept(path) == (b"in place" if migrated and kind == "in place" else None)
    assert said(path) == before

    assert dynfrsdb.migrate(path).done

    assert format_of(path) == NEXT
    assert generations(path) == ["gen-0001" if kind == "in place" else "gen-0002"]
    assert said(path) == before
    with dynfrsdb.open(path, "w") as db:
        db.remove([200])
        assert db.check().problems == ()


@pytest.mark.parametrize("kind", STEPS)
def test_these_are_all_instants_that_a_migration_comes_by(
    old: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, STEPS[kind])
    seen: Counter[str] = Counter()
    monkeypatch.setattr(failpoints, "hook", lambda name: seen.update([name]))

    dynfrsdb.migrate(old)

    assert seen == INSTANTS[kind]


@pytest.mark.parametrize(("kind", "point", "visits"), EACH)
def test_a_kill_leaves_an_old_or_a_new_store(
    old: Path, kind: str, point: str, visits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = said(old)
    know(monkeypatch, STEPS[kind])

    assert killed_at(point, lambda: dynfrsdb.migrate(old), visits) == KILLED

    whole(old, kind, point, before)


@pytest.mark.parametrize(("kind", "point", "visits"), EACH)
def test_ctrl_c_leaves_an_old_or_a_new_store(
    old: Path, kind: str, point: str, visits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = said(old)
    know(monkeypatch, STEPS[kind])
    monkeypatch.setattr(failpoints, "hook", interrupting(point, visits))

    with pytest.raises(KeyboardInterrupt):
        dynfrsdb.migrate(old)
    monkeypatch.setattr(failpoints, "hook", None)

    if point in BEFORE:
        assert generations(old) == ["gen-0001"]
    whole(old, kind, point, before)


def interrupting(point: str, visits: int) -> Callable[[str], None]:
    left = visits

    def hook(name: str) -> None:
        nonlocal left
        left -= name == point
        if not left:
            left = -1
            raise KeyboardInterrupt

    return hook


def test_a_kill_between_two_steps_leaves_a_store_of_the_first(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = said(old)
    know(monkeypatch, in_place(), rewrite(NEXT + 1))

    assert killed_at("vacuum-built", lambda: dynfrsdb.migrate(old)) == KILLED

    assert (format_of(old), kept(old), said(old)) == (NEXT, b"in place", before)
    assert dynfrsdb.migrate(old).steps == (f"format {NEXT + 1}: another record",)
    assert (format_of(old), kept(old), said(old)) == (NEXT + 1, b"in place, rewritten", before)


def test_the_next_writer_removes_what_a_migration_that_died_has_left(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as future:
        know(future, rewrite())
        assert killed_at("vacuum-built", lambda: dynfrsdb.migrate(old)) == KILLED
    assert generations(old) == ["gen-0001", "gen-0002"]
    while holders(old / "gen-0002"):
        time.sleep(0.01)  # the scribe of the dead notices soon that nobody talks to it

    with dynfrsdb.open(old, "w") as db:
        db.remove([200])

    assert generations(old) == ["gen-0001"]


def test_the_next_writer_erases_an_old_generation_that_was_left(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, rewrite())
    assert killed_at("vacuum-switched", lambda: dynfrsdb.migrate(old)) == KILLED
    assert generations(old) == ["gen-0001", "gen-0002"]

    dynfrsdb.open(old, "w").close()

    assert generations(old) == ["gen-0002"]
    assert os.listdir(old / "gen-0002")
