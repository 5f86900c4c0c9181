"""A backup is one committed state, whole, while others go on; it holds nobody who was removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynfrsdb
from dynfrsdb_storage.locks import read_holder
from tests.cli.command import dynfrsdb as command
from tests.reliability.workload import (
    BATCH,
    KILLED,
    Child,
    Tell,
    add,
    answer,
    chance,
    die_at,
    in_child,
    living,
    new_store,
    traces,
    values,
)

COPIES = 8


@pytest.fixture
def db(store_dir: Path) -> Iterator[dynfrsdb.Database]:
    """A store that people have come to and gone from, with tags, and with holes in rows.bin."""
    with dynfrsdb.open(new_store(store_dir / "people.forest"), "w", settle=None) as db:
        db.remove(range(0, 60, 2))
        add(db, [1000, 1001, 1002])
        db.forget("subject 50")
        db.remove([1001], request_id="r")
        yield db


def test_a_backup_is_the_same_forest_with_the_same_history(db: dynfrsdb.Database, store_dir: Path) -> None:
    commit = db.backup(store_dir / "copy.forest")

    with dynfrsdb.open(store_dir / "copy.forest") as copy:
        assert copy.digest() == db.digest()
        assert copy.check().problems == ()
        assert copy.verify().differing == ()
        assert np.array_equal(copy.predict_proba(BATCH), db.predict_proba(BATCH))
        assert living(copy) == living(db)
        assert copy.ledger() == db.ledger()
        ours, theirs = db.info(), copy.info()
    same = ("uuid", "commit", "samples", "tags", "nodes", "buckets", "sample_digest", "ledger_head", "settings")
    assert {name: theirs[name] for name in same} == {name: ours[name] for name in same}
    assert (commit, ours["tags"] > 0) == (ours["commit"], True)


def test_a_backup_goes_on_as_the_original_would(db: dynfrsdb.Database, store_dir: Path) -> None:
    """Changes on top of it use its free slots, follow its stamps and know its request ids."""
    db.backup(store_dir / "copy.forest")

    with dynfrsdb.open(store_dir / "copy.forest", "w") as copy:
        for each in (db, copy):
            add(each, [*range(2000, 2100), 1001])
            each.remove([3, 1000])
            each.settle()
        assert copy.remove([1001], request_id="r") == db.remove([1001], request_id="r")
        assert 1001 in copy

        assert copy.digest() == db.digest()
        assert copy.check().problems == ()
        assert copy.verify().differing == ()


def test_a_backup_of_a_backup_is_the_same(db: dynfrsdb.Database, store_dir: Path) -> None:
    db.backup(store_dir / "copy.forest")
    with dynfrsdb.open(store_dir / "copy.forest") as copy:
        copy.backup(store_dir / "second.forest")

    with dynfrsdb.open(store_dir / "second.forest") as second:
        assert second.digest() == db.digest()
        assert second.check().problems == ()


def test_a_backup_holds_nobody_who_was_removed(db: dynfrsdb.Database, store_dir: Path) -> None:
    """Also while the original cannot erase them yet, because somebody still looks at an older commit."""
    gone = [*range(0, 60, 2), 150, 151, 152, 1001, 7]
    with db.snapshot():
        db.remove([7])
        assert traces(db.path, gone) == [7]

        db.backup(store_dir / "copy.forest")

    data = b"".join(file.read_bytes() for file in (store_dir / "copy.forest").rglob("*") if file.is_file())
    assert [id for id in gone if values([id]).tobytes() in data] == []
    assert values([9]).tobytes() in data


@pytest.mark.parametrize(
    "settings", [{"task": "classification", "classes": ["a", "b"]}, {"task": "regression", "target_step": 0.5}]
)
def test_an_empty_store_can_be_backed_up(store_dir: Path, settings: dict[str, Any]) -> None:
    with dynfrsdb.create(store_dir / "empty.forest", n_features=3, n_estimators=5, **settings) as db:
        db.backup(store_dir / "copy.forest")
        digest = db.digest()

    with dynfrsdb.open(store_dir / "copy.forest", "w") as copy:
        assert (copy.digest(), len(copy)) == (digest, 0)
        copy.add([[1, 2, 3]], ["a"] if copy.classes else [7.5])
        assert copy.check().problems == ()


def test_a_backup_is_private_and_nobodys_to_wait_for(db: dynfrsdb.Database, store_dir: Path) -> None:
    """A reader makes it during a transaction, of the commit before it, and it can be written at once."""
    dest = store_dir / "copy.forest"
    with db.transaction() as txn, dynfrsdb.open(db.path) as reader:
        txn.remove([1])
        commit = reader.backup(dest)
        with dynfrsdb.open(dest, "w") as copy:
            assert 1 in copy
            copy.remove([1], timeout=0)

    assert read_holder(dest).acknowledged >= commit
    assert dest.stat().st_mode & 0o777 == 0o700
    modes = {entry.stat().st_mode & 0o777 for entry in dest.rglob("*") if entry.is_file() and entry.name != "lock.mdb"}
    assert modes <= {0o600, 0o700}


def test_a_backup_tells_how_far_it_is(db: dynfrsdb.Database, store_dir: Path) -> None:
    told: list[tuple[str, int, int]] = []

    db.backup(store_dir / "copy.forest", lambda stage, done, total: told.append((stage, done, total)))

    assert [stage for stage, _, _ in told][:2] == ["rows", "samples"]
    assert all(done == total for _, done, total in told)


def test_a_backup_that_is_interrupted_leaves_nothing(db: dynfrsdb.Database, store_dir: Path) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "nodes":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        db.backup(store_dir / "copy.forest", interrupt)

    assert [entry.name for entry in store_dir.iterdir()] == ["people.forest"]


@pytest.mark.parametrize("point", ["build-fill", "build-sync", "current-switch", "build-rename"])
def test_a_backup_that_is_killed_is_not_there_and_the_next_one_cleans_up(
    db: dynfrsdb.Database, store_dir: Path, point: str
) -> None:
    def die() -> None:
        die_at(point)
        db.backup(store_dir / "copy.forest")

    assert in_child(die) == KILLED
    assert not (store_dir / "copy.forest").exists()

    db.backup(store_dir / "copy.forest")
    assert sorted(entry.name for entry in store_dir.iterdir()) == ["copy.forest", "people.forest"]


def test_a_backup_overwrites_nothing(db: dynfrsdb.Database, store_dir: Path) -> None:
    (store_dir / "notes").write_text("mine")
    (store_dir / "link").symlink_to("nowhere")

    for dest in ("notes", "link", "people.forest/gen-0001/copy", "people.forest", "missing/copy.forest"):
        with pytest.raises(dynfrsdb.Error):
            db.backup(store_dir / dest)

    assert (store_dir / "notes").read_text() == "mine"
    assert sorted(entry.name for entry in store_dir.iterdir()) == ["link", "notes", "people.forest"]


@pytest.mark.parametrize("name", ["rows.bin", "data.mdb"])
def test_damage_is_named_and_not_copied(db: dynfrsdb.Database, store_dir: Path, name: str) -> None:
    file = db.path / "gen-0001" / name
    db.close()
    data = file.read_bytes()
    if name == "rows.bin":
        file.write_bytes(data.replace(values([9]).tobytes(), values([10]).tobytes()))
    else:
        file.write_bytes(data.replace(b"removed_ids", b"removed_odd"))  # in every ledger entry

    with dynfrsdb.open(db.path) as damaged, pytest.raises(dynfrsdb.CorruptStore, match=r"sample 9\b|ledger"):
        damaged.backup(store_dir / "copy.forest")
    assert [entry.name for entry in store_dir.iterdir()] == ["people.forest"]


def test_a_commit_that_ends_the_snapshot_makes_the_backup_start_over(
    store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB's map grows under it, which ends older snapshots of the same process."""
    monkeypatch.setattr("dynfrsdb_storage.env.FIRST_MAP", 1 << 20)
    stages: list[str] = []
    with dynfrsdb.open(new_store(store_dir / "people.forest"), "w") as db:

        def grow(stage: str, done: int, total: int) -> None:
            stages.append(stage)
            if stages.count("rows") == 1 and stage == "rows":
                add(db, range(10_000, 30_000))

        db.backup(store_dir / "copy.forest", grow)

        assert stages.count("rows") > 1
        with dynfrsdb.open(store_dir / "copy.forest") as copy:
            assert len(copy) == 20_240
            assert (copy.digest(), copy.check().problems) == (db.digest(), ())


def write_on(path: Path, tell: Tell, seed: str) -> None:
    """Change the store until killed, telling after each commit what the answers are."""
    dice = chance(seed)
    with dynfrsdb.open(path, "w", settle=None) as db:
        while True:
            tell({"commit": db.refresh(), "answer": answer(db)})
            some = dice.sample(sorted(living(db)), 3)
            db.remove(some)
            tell({"commit": db.refresh(), "answer": answer(db)})
            add(db, some)


def test_backups_taken_while_others_write_are_each_one_committed_state(store_dir: Path) -> None:
    path = new_store(store_dir / "people.forest")
    copies: dict[int, str] = {}
    known: dict[int, str] = {}

    def hear_of(commit: int) -> None:
        """Listen to the writer until it has made this commit."""
        while max(known, default=0) < commit:
            said = writer.hear()
            assert said is not None
            known[said["commit"]] = said["answer"]

    with Child(lambda tell: write_on(path, tell, "backups while others write")) as writer, dynfrsdb.open(path) as db:
        for number in range(COPIES):
            commit = db.backup(store_dir / f"{number}.forest")
            with dynfrsdb.open(store_dir / f"{number}.forest") as copy:
                assert copy.check().problems == ()
                copies[commit] = answer(copy)
            hear_of(commit + 1)

    print(f"{len(known)} commits, {len(copies)} of them copied")
    assert copies == {commit: known[commit] for commit in copies}
    assert len(copies) == COPIES


def test_the_command_line_makes_the_same_backup(db: dynfrsdb.Database, store_dir: Path) -> None:
    dest = store_dir / "copy.forest"

    made, again = command("backup", db.path, dest), command("backup", db.path, dest)

    assert (again.code, "exists already" in again.error) == (3, True)
    with dynfrsdb.open(dest) as copy:
        assert (made.code, made.err, made.data) == (0, "", {"backup": str(dest), "commit": copy.info()["commit"]})
        assert copy.digest() == db.digest()
