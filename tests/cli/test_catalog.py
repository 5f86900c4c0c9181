"""The catalog at the command line: three stores, one request, and a catalog that is away."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import dynfrsdb
from dynfrsdb.cli.app import run
from tests.cli.command import Ran, environment, on_a_terminal
from tests.cli.command import dynfrsdb as in_a_process
from tests.cli.conftest import make_store

GONE = {"unlearned", "rows erased", "erased"}
_LOOKS = """
import contextlib, io, json, sys
from dynfrsdb.cli.app import run
looks = [["catalog", verb] for verb in ("stores", "refresh", "requests", "ledger", "holds", "sources", "export")]
with contextlib.redirect_stdout(io.StringIO()):
    codes = [run(each) for each in looks]
heavy = ("numba", "alembic", "pandas", "sklearn", "rich", "dynfrsdb.database")
print(json.dumps([codes, [name for name in heavy if name in sys.modules]]))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two stores and the data of a user."""
    place = tmp_path_factory.mktemp("catalog")
    for name in ("credit", "fraud"):
        make_store(place / f"{name}.forest")
    return place


@pytest.fixture(scope="module")
def url(place: Path) -> str:
    """A catalog that knows both."""
    url = f"sqlite:///{place}/catalog.sqlite"
    assert command("catalog", "register", place / "credit.forest", place / "fraud.forest", "--url", url).code == 0
    return url


def command(*arguments: object, **more: str) -> Ran:
    """The command, in this process: importing the engine takes longer than most of them."""
    before = signal.getsignal(signal.SIGINT)
    out, err = io.StringIO(), io.StringIO()
    with patch.dict(os.environ, more), redirect_stdout(out), redirect_stderr(err):
        code = run([*map(str, arguments)])
    signal.signal(signal.SIGINT, before)  # a verb that commits keeps Ctrl-C waiting
    return Ran(code, out.getvalue(), err.getvalue())


def outcomes(found: dict[str, Any]) -> list[str]:
    return [part["outcome"] for part in found["stores"]]


def test_one_request_over_all_stores(place: Path, url: str) -> None:
    ran = command("catalog", "forget", "--subject", "person 3", "--request-id", "ticket 3", DYNFRSDB_CATALOG=url)
    status = command("catalog", "status", "ticket 3", "--url", url)

    assert (ran.code, ran.err) == (0, "")
    assert status.data == ran.data
    assert set(outcomes(ran.data)) <= GONE
    with dynfrsdb.open(place / "fraud.forest") as db:
        entry = next(each for each in db.ledger() if each.removed)
    assert ran.data["stores"][1]["entry_hash"] == entry.hash


def test_a_hold_refuses_and_a_store_that_is_away_cannot_be_reached(place: Path, url: str) -> None:
    asked = ("catalog", "forget", "--subject", "person 4", "--request-id", "ticket 4", "--url", url)
    with dynfrsdb.open(place / "credit.forest", "w") as db:
        hold = db.hold("person 4", "a case")
    held = command(*asked)
    with dynfrsdb.open(place / "credit.forest", "w") as db:
        db.release(hold.sequence)
    shutil.move(place / "credit.forest", place / "away.forest")
    away = command(*asked)
    shutil.move(place / "away.forest", place / "credit.forest")
    again = command(*asked)

    assert [each.code for each in (held, away, again)] == [3, 6, 0]
    assert "a case" in held.data["stores"][0]["why"]
    assert outcomes(away.data)[0] == "unreachable"
    assert set(outcomes(again.data)) <= GONE


def test_one_store_that_is_not_there_does_not_keep_the_others_out(place: Path) -> None:
    new = f"sqlite:///{place}/new.sqlite"

    ran = command("catalog", "register", place / "nothing.forest", place / "credit.forest", "--url", new)

    assert ran.code == 5
    assert "there is no store at" in ran.error
    assert [Path(each["store"]).name for each in ran.data] == ["credit.forest"]


def test_a_request_for_somebody_else_is_refused(url: str) -> None:
    command("catalog", "forget", "--subject", "person 5", "--request-id", "ticket 5", "--url", url)

    ran = command("catalog", "forget", "--subject", "person 6", "--request-id", "ticket 5", "--url", url)

    assert ran.code == 3
    assert ran.error.startswith("dynfrsdb: request 'ticket 5' was made for somebody else")


def test_the_auditor_gets_the_same_as_json_and_as_csv(url: str) -> None:
    command("catalog", "forget", "--subject", "person 7", "--request-id", "ticket 7", "--url", url)

    document = command("catalog", "export", "ticket 7", "--url", url).data
    table = list(csv.DictReader(io.StringIO(command("catalog", "export", "ticket 7", "--csv", "--url", url).out)))

    (request,) = document["requests"]
    assert [line["entry_hash"] for line in table] == [part["entry_hash"] for part in request["stores"]]
    assert {line["request"] for line in table} == {"ticket 7"}
    assert all(part["head"].partition(":")[0].isdigit() for part in request["stores"])


def test_looking_asks_no_store_and_starts_without_the_engine(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOOKS],
        capture_output=True,
        text=True,
        env=environment(DYNFRSDB_CATALOG=url),
        check=True,
    )

    assert json.loads(done.stdout) == [[0] * 7, []]


def test_a_status_on_a_terminal_is_a_table(url: str) -> None:
    command("catalog", "forget", "--subject", "person 8", "--request-id", "ticket 8", "--url", url)

    shown = on_a_terminal("catalog", "status", "ticket 8", "--url", url, COLUMNS="200")

    assert "fraud.forest" in shown
    assert "{" not in shown


def test_what_a_verb_changes_is_in_the_catalog_at_once(place: Path, url: str) -> None:
    ran = command("remove", place / "fraud.forest", "--id", 40, DYNFRSDB_CATALOG=url)

    hashes = [each["hash"] for each in command("catalog", "ledger", "--url", url).data]

    assert (ran.code, ran.err) == (0, "")
    assert ran.data["hash"] in hashes


def test_a_catalog_that_is_away_changes_neither_a_change_nor_its_exit_code(place: Path, url: str) -> None:
    away = "postgresql://ann:s3cret@127.0.0.1:1/x"

    ran = in_a_process("remove", place / "fraud.forest", "--id", 41, DYNFRSDB_CATALOG=away)
    before = [each["hash"] for each in command("catalog", "ledger", "--url", url).data]
    command("catalog", "refresh", "--url", url)
    after = [each["hash"] for each in command("catalog", "ledger", "--url", url).data]

    assert ran.code == 0
    assert "is changed, but the catalog does not know yet" in ran.error
    assert "'dynfrsdb catalog refresh' brings it in" in ran.error
    assert "s3cret" not in ran.error
    assert [ran.data["hash"] in each for each in (before, after)] == [False, True]


def test_by_default_the_catalog_is_a_file_of_the_user_which_doctor_shows(place: Path) -> None:
    home = {"XDG_DATA_HOME": str(place / "data"), "DYNFRSDB_CATALOG": ""}

    none = command("catalog", "stores", **home)
    made = command("catalog", "register", place / "credit.forest", **home)
    found = command("doctor", place, **home).data["catalog"]

    assert none.code == 5
    assert "'dynfrsdb catalog register STORE' makes one" in none.error
    assert made.code == 0
    assert found == f"sqlite:///{place}/data/dynfrsdb/catalog.sqlite"
    assert (place / "data" / "dynfrsdb" / "catalog.sqlite").stat().st_mode & 0o77 == 0


def test_migrate_says_which_revision_there_was(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.sqlite"

    first, second = command("migrate", "--catalog", "--url", url), command("migrate", "--catalog", "--url", url)

    assert first.data["before"] is None
    assert second.data["before"] == second.data["revision"] == first.data["revision"]
