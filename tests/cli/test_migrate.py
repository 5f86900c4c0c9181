"""`dynfrsdb migrate`: a store that an older version made, brought up to date, and what is said before and after."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from dynfrsdb_storage import Store, layout, records
from tests.cli.command import dynfrsdb, on_a_terminal, start
from tests.people import files
from tests.test_golden_stores import GOLDEN, unpacked


@pytest.fixture
def old(store_dir: Path) -> Path:
    """A store of format 1."""
    return unpacked(GOLDEN / "format-1.tar.xz", "people.forest", store_dir).path


def test_an_older_store_is_looked_at_and_names_the_command_to_whoever_wants_to_change_it(old: Path) -> None:
    assert dynfrsdb("info", old).data["format"] == 1
    assert "(this version writes 2; see 'migrate')" in on_a_terminal("info", old)

    refused = dynfrsdb("remove", old, "--id", 20)

    assert refused.code == 3
    assert refused.error.endswith(f"reads and does not write; run 'dynfrsdb migrate {old}'")


def test_it_migrates_says_what_it_did_and_finds_nothing_to_do_the_second_time(old: Path) -> None:
    done = dynfrsdb("migrate", old)

    assert (done.code, done.err) == (0, "")
    assert (done.data["before"], done.data["after"], done.data["done"], len(done.data["steps"])) == (1, 2, True, 1)
    assert dynfrsdb("remove", old, "--id", 20).code == 0
    again = dynfrsdb("migrate", old)
    assert (again.code, again.data["before"], again.data["steps"], again.data["done"]) == (0, 2, [], True)


def test_a_dry_run_changes_nothing(old: Path) -> None:
    before = files(old)

    plan = dynfrsdb("migrate", old, "--dry-run").data

    assert (plan["before"], plan["after"], plan["needed"], plan["done"]) == (1, 2, 0, False)
    assert files(old) == before


def test_a_store_that_is_open_elsewhere_is_not_migrated(old: Path) -> None:
    with Store.open(old, writable=False):
        refused = dynfrsdb("migrate", old, "--timeout", 0.2)

    assert refused.code == 4
    assert "Close it and try again, or pass --timeout" in refused.error
    assert dynfrsdb("info", old).data["format"] == 1


def test_ctrl_c_while_it_waits_leaves_the_store_as_it_was(old: Path) -> None:
    with Store.open(old, writable=False):
        waiting = start("migrate", old)
        time.sleep(2)
        waiting.send_signal(signal.SIGINT)
        out, error = waiting.communicate(timeout=30)

    assert (waiting.returncode, out) == (130, "")
    assert error.startswith("dynfrsdb: interrupted; the store is whole, before or after a step")
    assert dynfrsdb("info", old).data["format"] == 1


def test_a_newer_store_names_the_version_to_install(old: Path) -> None:
    newer = {"format": layout.FORMAT + 1, "algorithm": 1, "uuid": bytes(16), "needs": "7.5"}
    with Store.open(old, writable=True, migrating=True) as store, store.write() as session:
        session.put("meta", layout.META_FORMAT, records.frame(newer))
        session.commit()

    for verb in ("info", "migrate", "predict"):
        refused = dynfrsdb(verb, old, *(["/dev/null"] if verb == "predict" else []))
        assert refused.code == 3
        assert "install dynfrsdb 7.5 or newer" in refused.error


def test_it_is_said_what_to_migrate(old: Path) -> None:
    assert dynfrsdb("migrate").code == 2
    assert dynfrsdb("migrate", old, "--catalog").code == 2
