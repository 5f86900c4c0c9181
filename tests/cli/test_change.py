"""Verbs that change a store do it once, whole, and with a receipt."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from subprocess import Popen

import pytest

import dynfrsdb
from tests.cli.command import dynfrsdb as command
from tests.cli.command import start
from tests.cli.conftest import make_store


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A store for one test alone."""
    return make_store(tmp_path / "own.forest")


def test_removing_prints_the_receipt_that_is_in_the_ledger(own: Path) -> None:
    ran = command("remove", own, "--id", 3, "--id", 8)

    with dynfrsdb.open(own) as db:
        assert (len(db), 3 in db, 8 in db) == (58, False, False)
    shown = ran.data
    assert shown.pop("replayed") is False
    assert (ran.code, ran.err, shown["removed"]) == (0, "", 2)
    assert shown in command("ledger", own).data


def test_forgetting_several_people_is_one_change(own: Path) -> None:
    ran = command("forget", own, "--subject", "person 4", "--subject", "person 9")

    assert (ran.data["sequence"], ran.data["removed"], len(ran.data["subjects"])) == (2, 4, 2)


def test_forgetting_nobody_we_know_changes_nothing(own: Path) -> None:
    """All or none: the first subject is known, the second is not."""
    ran = command("forget", own, "--subject", "person 4", "--subject", "nobody")

    assert (ran.code, ran.error) == (5, f"dynfrsdb: no sample of this subject is in '{own}'")
    with dynfrsdb.open(own) as db:
        assert len(db) == 60


def test_a_dry_run_says_what_would_be_touched_and_changes_nothing(own: Path) -> None:
    before = command("info", own).data

    ran = command("forget", own, "--subject", "person 4", "--dry-run")

    assert (ran.code, ran.data["removed"], ran.data["dry_run"]) == (0, 2, True)
    assert ran.data["nodes"] > 0
    assert command("info", own).data == before


def test_the_same_request_twice_gives_the_same_receipt(own: Path) -> None:
    first = command("remove", own, "--id", 3, "--request-id", "ticket 1").data
    second = command("remove", own, "--id", 3, "--request-id", "ticket 1").data
    other = command("remove", own, "--id", 4, "--request-id", "ticket 1")

    assert (first.pop("replayed"), second.pop("replayed")) == (False, True)
    assert first == second
    assert other.code == 3
    assert "used before" in other.error


def test_a_busy_store_is_reported_as_locked(own: Path) -> None:
    with dynfrsdb.open(own, "w") as db, db.transaction():
        ran = command("remove", own, "--id", 3, "--timeout", 0.1)

    assert ran.code == 4
    assert "is being written by process" in ran.error
    assert "--timeout" in ran.error


def test_ctrl_c_while_waiting_says_that_nothing_was_committed(own: Path) -> None:
    with dynfrsdb.open(own, "w") as db, db.transaction():
        process = start("remove", own, "--id", 3)
        _wait_until_it_has_opened(process, own)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)

    assert (process.returncode, out, err) == (130, "", "dynfrsdb: interrupted; nothing was committed\n")
    with dynfrsdb.open(own) as db:
        assert 3 in db


def _wait_until_it_has_opened(process: Popen[str], store: Path) -> None:
    """Wait until a process holds the lease of a store open; from then on it can only be waiting for the lock."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None
        for each in Path(f"/proc/{process.pid}/fd").iterdir():
            try:
                if each.readlink().is_relative_to(store) and each.readlink().name == "LEASE":
                    return
            except OSError:
                continue
        time.sleep(0.02)
    raise AssertionError("the command did not open the store within 60 s")
