"""Golden stores: made by earlier versions, one archive for each format, and readable for ever (tools/golden.py)."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import dynfrsdb
from dynfrsdb_storage import layout

GOLDEN = Path(__file__).parent / "golden"
STORES = ("people.forest", "values.forest")


class Golden(NamedTuple):
    """A golden store, unpacked, and what it must answer."""

    path: Path
    expected: dict[str, Any]


def unpacked(archive: Path, name: str, folder: Path) -> Golden:
    """One store of an archive."""
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)  # new in 3.11.4
        packed.extractall(folder)
    return Golden(folder / name, json.loads((folder / "expected.json").read_text())[name])


@pytest.fixture(
    params=[f"{archive.name} {name}" for archive in sorted(GOLDEN.glob("format-*.tar.xz")) for name in STORES]
)
def golden(request: pytest.FixtureRequest, store_dir: Path) -> Golden:
    """Each store of each archive."""
    archive, name = request.param.split()
    return unpacked(GOLDEN / archive, name, store_dir)


def said(db: dynfrsdb.Database, expected: dict[str, Any]) -> dict[str, Any]:
    """What a store says, in the terms of `expected`."""
    asked = np.array(expected["asked"], np.float32)
    answers = db.predict_proba(asked) if db.classes else db.predict(asked)
    return {
        "samples": len(db),
        "digest": db.digest(),
        "ledger_head": db.ledger_head(),
        "holds": len(db.holds()),
        "waiting": len(db.waiting()),
        "asked": expected["asked"],
        "answers": [value.hex() for value in answers.ravel().tolist()],
    }


def test_a_store_of_every_format_answers_as_it_did(golden: Golden) -> None:
    with dynfrsdb.open(golden.path) as db:
        assert said(db, golden.expected) == golden.expected
        assert db.check().problems == ()
        assert db.verify()


def test_a_store_of_every_format_migrates_and_is_the_same_forest(golden: Golden) -> None:
    with dynfrsdb.open(golden.path) as db:
        before = db.info()

    done = dynfrsdb.migrate(golden.path)

    assert (done.before, done.after) == (before["format"], layout.FORMAT)
    with dynfrsdb.open(golden.path, "w", settle=None) as db:
        assert said(db, golden.expected) == golden.expected
        assert [db.info()[name] for name in ("format", "uuid", "tags")] == [
            layout.FORMAT,
            before["uuid"],
            before["tags"],
        ]
        db.remove([20])
        db.add(golden.expected["asked"], db.predict(golden.expected["asked"]))
        assert db.check().problems == ()
        assert db.verify()


def test_there_are_golden_stores_of_every_format() -> None:
    archives = {archive.name for archive in GOLDEN.glob("*.tar.xz")}

    assert archives == {f"format-{number}.tar.xz" for number in range(1, layout.FORMAT + 1)}


def test_the_golden_stores_are_of_the_format_that_their_names_say(
    golden: Golden, request: pytest.FixtureRequest
) -> None:
    with dynfrsdb.open(golden.path) as db:
        assert f"format-{db.info()['format']}.tar" in request.node.name


def test_an_old_backup_is_migrated_and_takes_up_the_ledger_of_its_store(store_dir: Path) -> None:
    """The store was migrated and went on after the backup was made; the backup is of the older format."""
    for name in ("store", "backup"):
        (store_dir / name).mkdir()
    store, backup = (
        unpacked(GOLDEN / "format-1.tar.xz", "people.forest", store_dir / name).path for name in ("store", "backup")
    )
    dynfrsdb.migrate(store)
    with dynfrsdb.open(store, "w") as db:
        db.forget("person 20")
        db.export_ledger(store_dir / "ledger.jsonl")
        digest = db.digest()

    with pytest.raises(dynfrsdb.UnsupportedFormat, match="run 'dynfrsdb migrate"):
        dynfrsdb.restore(backup, store_dir / "ledger.jsonl")
    dynfrsdb.migrate(backup)
    dynfrsdb.restore(backup, store_dir / "ledger.jsonl")

    with dynfrsdb.open(backup) as db:
        assert (db.digest(), db.check().problems) == (digest, ())


def test_a_receipt_from_before_a_migration_still_proves_what_it_says(store_dir: Path) -> None:
    path = unpacked(GOLDEN / "format-1.tar.xz", "people.forest", store_dir).path
    with dynfrsdb.open(path) as db:
        receipt = db.issue_receipt(db.ledger()[-2].sequence)

    dynfrsdb.migrate(path)

    (store_dir / "receipt.json").write_text(receipt)
    assert dynfrsdb.verify_receipt(store_dir / "receipt.json", path)
