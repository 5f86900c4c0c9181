"""Golden stores: made by earlier versions, one archive for each format, and readable for ever (tools/golden.py)."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import dynfrsdb

GOLDEN = Path(__file__).parent / "golden"
STORES = ("people.forest", "values.forest")


class Golden(NamedTuple):
    """A golden store, unpacked, and what it must answer."""

    path: Path
    expected: dict[str, Any]


def unpacked(archive: Path, name: str, folder: Path) -> Golden:
    """One store of an archive."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
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
