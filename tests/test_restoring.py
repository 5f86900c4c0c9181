"""A restored backup holds nobody who was removed after it was taken, and is closed until that is so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import dynfrsdb
from dynfrsdb import proof
from tests.cli.command import dynfrsdb as command
from tests.clock import advance
from tests.people import SHAPE, X, Y, changer, receipt_of
from tests.reliability.workload import KILLED, die_at, in_child


class Backup:
    """A store that went on after a backup, and both of them."""

    def __init__(self, path: Path) -> None:
        self.store, self.copy, self.ledger = path, path.parent / "copy.forest", path.parent / "ledger.jsonl"

    def take(self, db: dynfrsdb.Database) -> None:
        db.backup(self.copy)

    def end(self, db: dynfrsdb.Database) -> None:
        db.export_ledger(self.ledger)


@pytest.fixture
def backup(path: Path) -> Backup:
    return Backup(path)


def fresh_digest(place: Path, without: set[int]) -> str:
    """The digest of a store that never held some of the 300."""
    kept = [row for row in range(300) if row not in without]
    with dynfrsdb.create(place, X[kept], Y[kept], ids=kept, **SHAPE) as fresh:
        return fresh.digest()


def test_every_removal_after_the_backup_is_applied(backup: Backup, store_dir: Path) -> None:
    with changer(backup.store) as db:
        db.remove([1])
        backup.take(db)
        db.remove([5, 6])
        db.forget("person 50")
        backup.end(db)

    restored = dynfrsdb.restore(backup.copy, backup.ledger)

    assert (restored.removed, restored.lost) == (5, 0)
    with changer(backup.copy) as db:
        assert db.digest() == fresh_digest(store_dir / "fresh.forest", {1, 5, 6, 50, 150, 250})
        assert db.check().problems == ()
        assert db.verify().differing == ()
        assert db.ledger()[-1].kind in ("restore", "rows erased")


def test_a_sample_that_came_back_is_removed_as_it_was_and_counted_as_lost(backup: Backup) -> None:
    """What is in the backup is the person's old row; the new one is lost like all that was added."""
    with changer(backup.store) as db:
        backup.take(db)
        db.remove([5, 6])
        db.add(X[:3], Y[:3], ids=[5, 1000, 1001])
        db.remove([1000])
        backup.end(db)

    restored = dynfrsdb.restore(backup.copy, backup.ledger)

    assert (restored.removed, restored.lost) == (2, 2)
    with dynfrsdb.open(backup.copy) as db:
        assert (len(db), 5 in db, 1001 in db) == (298, False, False)


def test_ids_that_were_assigned_after_the_backup_are_not_assigned_again(backup: Backup) -> None:
    with changer(backup.store) as db:
        backup.take(db)
        lost = receipt_of(db.add(X[:3], Y[:3])).ids
        backup.end(db)

    dynfrsdb.restore(backup.copy, backup.ledger)

    with changer(backup.copy) as db:
        assert min(receipt_of(db.add(X[:1], Y[:1])).ids) > max(lost)


def test_receipts_and_heads_from_after_the_backup_hold_in_the_restored_store(backup: Backup) -> None:
    with changer(backup.store) as db:
        backup.take(db)
        sequence = receipt_of(db.remove([5])).sequence
        text, head = db.issue_receipt(sequence).encode(), db.ledger_head()
        backup.end(db)

    dynfrsdb.restore(backup.copy, backup.ledger)

    assert proof.inspect(text, backup.copy).problems == ()
    with dynfrsdb.open(backup.copy) as db:
        assert db.ledger_since(head)[0].kind == "restore"


def test_what_was_erased_in_the_lost_store_is_not_called_erased_in_the_restored_one(backup: Backup) -> None:
    """The person was in the backup: their bytes are in its free pages until it is vacuumed itself."""
    with changer(backup.store) as db:
        backup.take(db)
        sequence = receipt_of(db.forget("person 50")).sequence
        db.vacuum()
        assert [each.stage for each in db.erasure_status()] == ["erased"]
        backup.end(db)

    dynfrsdb.restore(backup.copy, backup.ledger)

    with changer(backup.copy) as db:
        before = {each.sequence: each.stage for each in db.erasure_status()}
        issued = json.loads(db.issue_receipt(sequence))["stage"]
        db.vacuum()
        after = {each.stage for each in db.erasure_status()}
    assert (before[sequence], issued, after) == ("rows erased", "rows erased", {"erased"})


def test_a_backup_taken_before_a_vacuum_was_through_is_restored_too(backup: Backup) -> None:
    """Such a copy has no old generation, so its first commit notes a stage, in a ledger that is being continued."""
    with changer(backup.store) as db:
        db.forget("person 51")
        with dynfrsdb.open(backup.store) as reader, reader.snapshot():
            assert not db.vacuum()
            backup.take(db)
        sequence = receipt_of(db.forget("person 50")).sequence
        backup.end(db)

    dynfrsdb.restore(backup.copy, backup.ledger)

    with changer(backup.copy) as db:
        assert db.check().problems == ()
        stages = {each.sequence: each.stage for each in db.erasure_status()}
        assert (stages[2], stages[sequence]) == ("erased", "rows erased")
        db.vacuum()
        assert db.check().problems == ()


def test_holds_requests_and_suppression_stand_where_they_stood(backup: Backup, monkeypatch: pytest.MonkeyPatch) -> None:
    with changer(backup.store) as db:
        released = db.hold("person 1", "over by then").sequence
        kept = db.hold("person 2", "still on").sequence
        cancelled = db.forget_later("person 3", "7d").sequence
        backup.take(db)
        db.release(released)
        db.cancel(cancelled)
        later = db.hold("person 4", "placed later", "2999-01-01").sequence
        waiting = db.forget_later("person 5", "7d").sequence
        db.suppress("refuse")
        db.forget("person 1")
        backup.end(db)

    dynfrsdb.restore(backup.copy, backup.ledger)

    with changer(backup.copy) as db:
        assert [(hold.number, hold.reason[:14]) for hold in db.holds()] == [
            (kept, "still on"),
            (later, "the reason was"),
        ]
        assert [each.number for each in db.waiting()] == [waiting]
        with pytest.raises(dynfrsdb.Held):
            db.forget("person 4")
        with pytest.raises(dynfrsdb.Suppressed):
            db.add(X[:1], Y[:1], subjects=["person 1"])
        assert db.check().problems == ()
        advance(monkeypatch, days=8)
        assert [outcome.number for outcome in db.run_due()] == [waiting]


def test_a_hold_of_the_backup_does_not_keep_who_was_removed_after_its_release(backup: Backup) -> None:
    with changer(backup.store) as db:
        number = db.hold("person 1", "for a while").sequence
        backup.take(db)
        db.release(number)
        db.forget("person 1")
        backup.end(db)

    assert dynfrsdb.restore(backup.copy, backup.ledger).removed == 3


def test_a_backup_with_nothing_after_it_is_restored_too(backup: Backup) -> None:
    with changer(backup.store) as db:
        backup.take(db)
        backup.end(db)

    restored = dynfrsdb.restore(backup.copy, backup.ledger)

    assert (restored.replayed, restored.removed, restored.lost) == (0, 0, 0)


@pytest.mark.parametrize("point", ["acknowledge-after", "commit-before"])
def test_a_restoration_that_died_halfway_leaves_a_store_that_nobody_can_open(backup: Backup, point: str) -> None:
    """Killed after its first commit, or before its second."""
    with changer(backup.store) as db:
        backup.take(db)
        db.forget("person 50")
        backup.end(db)

    def die() -> None:
        die_at(point, visits=1 if point == "acknowledge-after" else 2)
        dynfrsdb.restore(backup.copy, backup.ledger)

    assert in_child(die) == KILLED

    for mode in ("r", "w"):
        with pytest.raises(dynfrsdb.Unrestored, match="removals that came after it are not applied"):
            dynfrsdb.open(backup.copy, mode)
    ran = command("info", backup.copy)
    assert (ran.code, "run 'dynfrsdb restore" in ran.error) == (3, True)
    assert dynfrsdb.restore(backup.copy, backup.ledger).removed == 3
    with dynfrsdb.open(backup.copy) as db:
        assert (len(db), db.check().problems) == (297, ())


def test_a_restoration_is_gone_on_with_the_ledger_it_was_begun_with(backup: Backup) -> None:
    other = backup.store.parent / "other.jsonl"
    with changer(backup.store) as db:
        backup.take(db)
        db.forget("person 50")
        backup.end(db)
        db.forget("person 51")
        db.export_ledger(other)

    def die() -> None:
        die_at("acknowledge-after")
        dynfrsdb.restore(backup.copy, backup.ledger)

    assert in_child(die) == KILLED
    with pytest.raises(dynfrsdb.InvalidInput, match="begun with another ledger"):
        dynfrsdb.restore(backup.copy, other)


def _of_another_store(backup: Backup) -> None:
    with dynfrsdb.create(backup.store.parent / "other.forest", X, Y, **SHAPE) as other:
        for id in range(5):
            other.remove([id])
        other.export_ledger(backup.ledger)


def _too_old(backup: Backup) -> None:
    backup.ledger.write_text("".join(backup.ledger.read_text().splitlines(True)[:1]))


def _with_a_gap(backup: Backup) -> None:
    backup.ledger.write_text("".join(backup.ledger.read_text().splitlines(True)[3:]))


def _of_a_copy_that_was_changed(backup: Backup) -> None:
    with changer(backup.copy) as copy:
        copy.remove([9])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_of_another_store, "does not continue the ledger"),
        (_too_old, "the export is older than the backup"),
        (_with_a_gap, "those between are missing"),
        (_of_a_copy_that_was_changed, "does not continue the ledger"),
    ],
)
def test_a_ledger_that_does_not_continue_the_backup_is_refused_and_changes_nothing(
    backup: Backup, spoil: Callable[[Backup], None], words: str
) -> None:
    with changer(backup.store) as db:
        backup.take(db)
        db.forget("person 50")
        db.forget("person 51")
        db.remove([1])
        backup.end(db)
    spoil(backup)
    with dynfrsdb.open(backup.copy) as db:
        head = db.ledger_head()

    with pytest.raises(dynfrsdb.InvalidInput, match=words):
        dynfrsdb.restore(backup.copy, backup.ledger)

    with dynfrsdb.open(backup.copy) as db:
        assert db.ledger_head() == head


def test_restoring_twice_says_that_it_was_done(backup: Backup) -> None:
    with changer(backup.store) as db:
        backup.take(db)
        db.remove([1])
        backup.end(db)
    dynfrsdb.restore(backup.copy, backup.ledger)

    with pytest.raises(dynfrsdb.InvalidInput, match="restored from it already"):
        dynfrsdb.restore(backup.copy, backup.ledger)


def test_the_ledger_knows_of_every_copy(backup: Backup, store_dir: Path) -> None:
    def stop(stage: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with changer(backup.store) as db:
        backup.take(db)
        with pytest.raises(KeyboardInterrupt):
            db.backup(store_dir / "second.forest", stop)
        with pytest.raises(dynfrsdb.StoreExists):
            backup.take(db)
        first, second, void = db.ledger()[1:]

        assert [each.kind for each in (first, second, void)] == ["backup", "backup", "no backup"]
        assert void.details == {"backup": second.sequence}
    with dynfrsdb.open(backup.copy) as copy:
        assert copy.ledger()[-1] == first


def test_the_command_line_restores(backup: Backup) -> None:
    assert command("backup", backup.store, backup.copy).code == 0
    with changer(backup.store) as db:
        db.forget("person 50")
    exported = command("ledger", backup.store, "--export", backup.ledger)
    shutil.rmtree(backup.store)
    backup.copy.rename(backup.store)

    ran = command("restore", backup.store, "--replay", backup.ledger)

    assert (exported.code, ran.code, ran.err) == (0, 0, "")
    assert (ran.data["removed"], ran.data["lost"]) == (3, 0)
    assert command("restore", backup.store, "--replay", backup.store / "nothing").code == 3
