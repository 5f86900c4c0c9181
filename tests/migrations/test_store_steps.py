"""Steps between formats: the same forest before and after, and never anything in between."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

import dynfrsdb
from dynfrsdb_migrations.store.step import Step
from dynfrsdb_migrations.store.steps import STEPS
from dynfrsdb_storage import Store, layout
from dynfrsdb_storage.extents import leftovers
from tests.migrations.steps import (
    NEXT,
    format_of,
    generations,
    in_place,
    kept,
    know,
    rewrite,
    said,
    worn,
)
from tests.people import X, Y, changer, files


@pytest.fixture
def old(path: Path) -> Path:
    """A store of the real format, that has lived."""
    return worn(path)


def test_there_is_a_step_to_every_format_and_the_last_is_the_one_we_write() -> None:
    assert [step.to for step in STEPS] == list(range(2, layout.FORMAT + 1))
    assert all(step.needs == layout.NEEDS for step in STEPS[-1:])


def test_what_is_read_without_migrating_is_what_the_steps_say() -> None:
    unread = [step.to for step in STEPS if not step.is_read]

    assert max(unread, default=1) == layout.OLDEST_READ


def test_the_version_that_stores_ask_for_is_not_newer_than_this_one() -> None:
    def numbers(version: str) -> list[int]:
        return [int(part) for part in version.split(".")]

    assert numbers(layout.NEEDS) <= numbers(dynfrsdb.__version__)


@pytest.mark.parametrize("step", [in_place(), rewrite()], ids=["in place", "rewrite"])
def test_a_migrated_store_is_the_same_forest_in_the_new_format(
    old: Path, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = said(old)
    with dynfrsdb.open(old) as db:
        commit = db.refresh()
    know(monkeypatch, step)

    done = dynfrsdb.migrate(old)

    assert (done.before, done.after, done.done, done.held_by) == (NEXT - 1, NEXT, True, ())
    assert format_of(old) == NEXT
    assert said(old) == before
    with changer(old) as db:
        assert db.refresh() == commit + 1
        assert db.remove(range(1, 60, 7), request_id="request 1").removed == 9
        db.add(X[:20], Y[:20])
        db.remove([100, 101])
        db.vacuum()
        assert (db.check().problems, bool(db.verify())) == ((), True)
    assert format_of(old) == NEXT


def test_a_step_in_place_changes_records_where_they_are(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, in_place())

    dynfrsdb.migrate(old)

    assert (kept(old), generations(old)) == (b"in place", ["gen-0001"])


def test_a_rewrite_goes_into_a_new_generation_and_the_old_one_is_gone(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, rewrite())

    dynfrsdb.migrate(old)

    assert generations(old) == ["gen-0002"]
    assert leftovers(old / "gen-0002" / "data.mdb") == []
    with Store.open(old, writable=False) as store, store.snapshot() as snapshot:
        assert snapshot.settings["rewritten"] == NEXT


def test_several_steps_are_taken_in_order(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = said(old)
    know(monkeypatch, in_place(), rewrite(NEXT + 1), rewrite(NEXT + 2))

    done = dynfrsdb.migrate(old)

    assert done.steps == tuple(f"format {NEXT + i}: {'another record' if i else 'a record more'}" for i in range(3))
    assert (format_of(old), kept(old)) == (NEXT + 2, b"in place, rewritten, rewritten")
    assert (generations(old), said(old)) == (["gen-0003"], before)


def test_a_rewrite_brings_databases_that_the_old_format_did_not_have(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = said(path)
    with lmdb.open(str(path / "gen-0001"), max_dbs=20, map_size=0, lib_version=0) as env:
        handle = env.open_db(b"suppression", create=False)
        with env.begin(write=True) as txn:
            txn.drop(handle)
    know(monkeypatch, rewrite(is_read=False))

    dynfrsdb.migrate(path)

    assert said(path) == before
    with changer(path) as db:
        db.suppress("skip")
        db.forget("person 3")
        assert db.check().problems == ()


def test_asked_again_there_is_nothing_to_do(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, rewrite())
    dynfrsdb.migrate(old)
    before = files(old)

    done = dynfrsdb.migrate(old)

    assert (done.before, done.steps, done.needed, done.done) == (NEXT, (), 0, True)
    assert files(old) == before


def test_an_older_store_is_read_and_not_written_before_it_is_migrated(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = said(old)
    know(monkeypatch, in_place())

    assert said(old) == before
    with pytest.raises(
        dynfrsdb.UnsupportedFormat,
        match=rf"has format {NEXT - 1}, which this version .* reads and does not write; run 'dynfrsdb migrate /.*'",
    ):
        dynfrsdb.open(old, "w")
    assert format_of(old) == NEXT - 1


@pytest.mark.parametrize("step", [in_place(is_read=False), rewrite(is_read=False)], ids=["in place", "rewrite"])
def test_a_store_that_is_too_old_to_be_read_says_which_command_to_run(
    old: Path, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = said(old)
    know(monkeypatch, step)

    for mode in ("r", "w"):
        with pytest.raises(dynfrsdb.UnsupportedFormat, match="does not read; run 'dynfrsdb migrate "):
            dynfrsdb.open(old, mode)

    dynfrsdb.migrate(old)
    assert said(old) == before


@pytest.mark.parametrize("step", [in_place(), rewrite()], ids=["in place", "rewrite"])
def test_a_newer_store_says_which_version_to_install(old: Path, step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as future:
        know(future, step)
        dynfrsdb.migrate(old)

    for ask in (dynfrsdb.open, dynfrsdb.migrate):
        with pytest.raises(
            dynfrsdb.UnsupportedFormat,
            match=rf"has format {NEXT}, .* reads {layout.OLDEST_READ} to {NEXT - 1}; install dynfrsdb {NEXT}\.0 or",
        ):
            ask(old)


def test_a_store_that_is_made_anew_says_what_it_needs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "FORMAT", NEXT - 2)

    with pytest.raises(dynfrsdb.UnsupportedFormat, match=rf"; install dynfrsdb {layout.NEEDS} or newer"):
        dynfrsdb.open(path)


def test_another_algorithm_is_refused_because_no_migration_changes_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = layout.ALGORITHM
    monkeypatch.setattr(layout, "ALGORITHM", real - 1)
    with pytest.raises(dynfrsdb.UnsupportedFormat, match=rf"algorithm {real}, .* install dynfrsdb {layout.NEEDS} or"):
        dynfrsdb.open(path)

    monkeypatch.setattr(layout, "ALGORITHM", real + 1)
    for ask in (dynfrsdb.open, dynfrsdb.migrate):
        with pytest.raises(dynfrsdb.UnsupportedFormat, match="Go on with the version that made it"):
            ask(path)


def test_a_backup_of_an_older_store_has_its_format(old: Path, store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, copy = said(old), store_dir / "copy.forest"
    know(monkeypatch, in_place())

    with dynfrsdb.open(old) as db:
        db.backup(copy)

    assert (format_of(copy), said(copy)) == (NEXT - 1, before)
    dynfrsdb.migrate(copy)
    assert (format_of(copy), said(copy)) == (NEXT, before)


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, in_place(), rewrite(NEXT + 1))
    before = files(old)

    plan = dynfrsdb.migrate(old, dry_run=True)

    assert (plan.before, plan.after, len(plan.steps), plan.done) == (NEXT - 1, NEXT + 1, 2, False)
    assert 1 << 20 < plan.needed < plan.free
    assert files(old) == before


def test_a_rewrite_refuses_without_room_and_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, rewrite())
    before, free = files(old), dynfrsdb.migrate(old, dry_run=True).free
    monkeypatch.setattr("dynfrsdb_storage.successor.MARGIN", free)

    with pytest.raises(dynfrsdb.StoreFull, match=r"a migration of .* needs up to [\d,]+ bytes beside the store"):
        dynfrsdb.migrate(old)

    assert (files(old), format_of(old)) == (before, NEXT - 1)


def test_a_damaged_row_ends_a_rewrite_and_nothing_is_changed(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, rewrite())
    rows = old / "gen-0001" / "rows.bin"
    data = bytearray(rows.read_bytes())
    data[40 * 17 + 30] ^= 1
    rows.write_bytes(data)

    with pytest.raises(dynfrsdb.CorruptStore, match="the row of sample 17 fails its hash; nothing was copied"):
        dynfrsdb.migrate(old)

    assert (format_of(old), generations(old)) == (NEXT - 1, ["gen-0001"])


def test_progress_is_told(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, rewrite())
    seen: dict[str, tuple[int, int]] = {}

    dynfrsdb.migrate(old, progress=lambda stage, done, total: seen.update({stage: (done, total)}))

    assert seen["rows"] == (288, 288)
    assert {"samples", "nodes", "buckets", "ledger", "checking samples"} <= seen.keys()
