"""Requests come as lists and leave with receipts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dynfrsdb
from tests.cli.command import dynfrsdb as command
from tests.cli.conftest import make_store
from tests.cli.tables import write_text


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A store for one test alone."""
    return make_store(tmp_path / "own.forest")


def test_ids_from_a_file_are_removed_together(tmp_path: Path, own: Path) -> None:
    listed = write_text(tmp_path / "ids.txt", "\ufeff3\r\n8\r\n\r\n8\r\n")

    ran = command("remove", own, "--ids-from", listed, "--id", 9)

    assert (ran.data["sequence"], ran.data["removed"]) == (2, 3)


def test_subjects_from_a_file_are_forgotten_together(tmp_path: Path, own: Path) -> None:
    listed = write_text(tmp_path / "people.txt", "person 3\nperson 4\nperson 3\n")

    ran = command("forget", own, "--subjects-from", listed, "--subject", "person 5")

    assert (ran.data["sequence"], ran.data["removed"], len(ran.data["subjects"])) == (2, 6, 3)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("id\n3\n", 3, "line 1 is no whole number; ids are whole numbers"),
        ("3\n99999999999999999999\n", 3, "line 2 is beyond 64 bits"),
        ("\n\n", 3, "is empty; it has one entry to a line"),
        ("3\n500\n", 5, "sample 500 is not in"),
    ],
)
def test_a_list_with_a_slip_removes_nobody(tmp_path: Path, own: Path, text: str, code: int, words: str) -> None:
    listed = write_text(tmp_path / "ids.txt", text)

    ran = command("remove", own, "--ids-from", listed)

    assert ran.code == code
    assert words in ran.error
    with dynfrsdb.open(own) as db:
        assert len(db) == 60


def test_the_receipt_in_the_file_is_the_one_in_the_ledger(tmp_path: Path, own: Path) -> None:
    ran = command("forget", own, "--subject", "person 3", "--receipt", tmp_path / "receipt.json")

    checked = command("receipt", "verify", tmp_path / "receipt.json", "--store", own)
    assert (ran.code, checked.code) == (0, 0), checked.err
    assert json.loads((tmp_path / "receipt.json").read_text())["entry"]["hash"] == ran.data["hash"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.forest", "receipt.json"]


def test_a_request_asked_again_writes_the_same_receipt_again(tmp_path: Path, own: Path) -> None:
    asking = ("forget", own, "--subject", "person 3", "--request-id", "ticket 1", "--receipt")

    command(*asking, tmp_path / "first.json")
    command(*asking, tmp_path / "second.json")

    first, second = (json.loads((tmp_path / name).read_text()) for name in ("first.json", "second.json"))
    assert first["entry"] == second["entry"]
    with dynfrsdb.open(own) as db:
        assert [entry.kind for entry in db.ledger()].count("change") == 1


def test_a_receipt_that_cannot_be_written_stops_the_change_before_it_begins(tmp_path: Path, own: Path) -> None:
    ran = command("forget", own, "--subject", "person 3", "--receipt", tmp_path / "nowhere" / "receipt.json")

    assert ran.code == 3
    assert "nothing was changed" in ran.error
    with dynfrsdb.open(own) as db:
        assert len(db) == 60


def test_a_dry_run_has_no_receipt(tmp_path: Path, own: Path) -> None:
    ran = command("forget", own, "--subject", "person 3", "--dry-run", "--receipt", tmp_path / "receipt.json")

    assert ran.code == 2
    assert not (tmp_path / "receipt.json").exists()


def test_a_plan_names_what_the_change_then_does(own: Path) -> None:
    plan = command("remove", own, "--id", 3, "--id", 8, "--dry-run").data

    done = command("remove", own, "--id", 3, "--id", 8).data

    assert {name: plan[name] for name in ("removed", "trees", "nodes", "tagged")} == {
        name: done[name] for name in ("removed", "trees", "nodes", "tagged")
    }
    assert plan["seconds"] > 0
