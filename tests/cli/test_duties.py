"""Holds, waiting requests, suppression and evidence at the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dynfrsdb
from tests.cli.command import dynfrsdb as command
from tests.cli.command import environment
from tests.cli.conftest import make_store

_NO_ENGINE = """
import contextlib, io, json, sys
from dynfrsdb.cli.app import run
store, out = sys.argv[1:]
with contextlib.redirect_stdout(io.StringIO()):
    codes = [run(each.split()) for each in (
        f"hold add {store} --subject alone --reason why", f"hold list {store}", f"hold release {store} 2",
        f"forget {store} --subject alone --after 7d", f"requests list {store}", f"requests cancel {store} 4",
        f"suppress {store} skip", f"suppress {store}", f"receipt {store} 2 --out {out}",
        f"receipt verify {out} --store {store}", f"ledger {store} --head", f"ledger {store} --export -",
    )]
print(json.dumps([codes, [name for name in ("numba", "cryptography") if name in sys.modules]]))
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A store for one test alone."""
    return make_store(tmp_path / "own.forest")


def test_forgetting_a_held_person_is_refused_with_code_3_and_the_reason(own: Path) -> None:
    placed = command("hold", "add", own, "--subject", "person 4", "--reason", "a court order", "--until", "2999-01-01")
    refused = [
        command("forget", own, "--subject", "person 4"),
        command("forget", own, "--subject", "person 9", "--subject", "person 4"),
        command("forget", own, "--subject", "person 4", "--after", "7d"),
        command("remove", own, "--id", 8),
    ]
    number = placed.data["sequence"]
    (hold,) = command("hold", "list", own).data
    released = command("hold", "release", own, number)

    assert {(ran.code, "a court order" in ran.error) for ran in refused} == {(3, True)}
    assert (hold["number"], hold["reason"], hold["until"][:10]) == (number, "a court order", "2999-01-01")
    assert (released.code, command("hold", "list", own).data) == (0, [])
    assert command("forget", own, "--subject", "person 4").data["removed"] == 2


def test_a_request_waits_and_is_run_when_it_is_due(own: Path) -> None:
    queued = command("forget", own, "--subject", "person 4", "--subject", "person 5", "--after", "0s")
    far = command("forget", own, "--subject", "person 6", "--after", "7d", "--request-id", "r").data
    again = command("forget", own, "--subject", "person 6", "--after", "7d", "--request-id", "r").data
    time.sleep(1.1)

    ran = command("requests", "run-due", own)

    assert far == again
    assert [(each["number"], each["receipt"]["removed"]) for each in ran.data] == [(queued.data["sequence"], 4)]
    assert [each["number"] for each in command("requests", "list", own).data] == [far["sequence"]]
    assert command("requests", "cancel", own, far["sequence"]).data["kind"] == "cancel"
    assert command("requests", "list", own).data == []
    with dynfrsdb.open(own) as db:
        assert len(db) == 56


def test_a_due_request_of_a_held_person_gives_code_3(own: Path) -> None:
    command("forget", own, "--subject", "person 4", "--after", "0s")
    command("hold", "add", own, "--subject", "person 4", "--reason", "a court order")
    time.sleep(1.1)

    ran = command("requests", "run-due", own)

    assert (ran.code, ran.data[0]["receipt"]) == (3, None)
    assert "a court order" in ran.data[0]["held"]


def test_suppression_is_turned_on_shown_and_lifted(own: Path) -> None:
    command("suppress", own, "refuse")
    command("forget", own, "--subject", "person 4")

    shown = command("suppress", own).data
    lifted = command("suppress", own, "--lift", "person 4")

    assert (shown, lifted.code) == ({"mode": "refuse", "subjects": 1}, 0)
    assert command("suppress", own).data == {"mode": "refuse", "subjects": 0}
    assert command("suppress", own, "--lift", "person 4").code == 5


def test_a_receipt_is_issued_signed_and_checked(own: Path, tmp_path: Path) -> None:
    from tests.test_issued_receipts import key_pair

    private, public = key_pair(tmp_path / "signer")
    number = command("forget", own, "--subject", "person 4").data["sequence"]
    file = tmp_path / "receipt.json"

    printed = command("receipt", own, number)
    issued = command("receipt", own, number, "--verify", "--sign", private, "--out", file)
    checked = command("receipt", "verify", file, "--store", own, "--key", public)
    file.write_text(file.read_text().replace('"removed": 2', '"removed": 3'))
    spoilt = command("receipt", "verify", file)

    assert json.loads(printed.out)["entry"]["removed"] == 2
    assert (issued.code, issued.out, issued.err) == (0, "", "")
    assert (checked.code, checked.data["ok"], checked.data["in_ledger"]) == (0, True, True)
    assert checked.data["signed_by"] is not None
    assert (spoilt.code, spoilt.data["ok"]) == (1, False)


def test_the_ledger_is_kept_elsewhere(own: Path, tmp_path: Path) -> None:
    head = command("ledger", own, "--head").data["head"]
    command("remove", own, "--id", 3)
    file = tmp_path / "ledger.jsonl"

    since = command("ledger", own, "--since", head)
    exported = command("ledger", own, "--export", file).data
    printed = command("ledger", own, "--since", head, "--export", "-").out
    number, _, digest = head.partition(":")
    other = command("ledger", own, "--since", f"{number}:{digest[::-1]}")
    ahead = command("ledger", own, "--since", f"77:{digest}")

    assert since.data[0]["kind"] == "change"
    lines = file.read_text().splitlines(True)
    assert (exported["exported"], exported["head"]) == (len(lines), command("ledger", own, "--head").data["head"])
    assert printed == "".join(lines[1:])
    assert (other.code, "is not the one that the head names" in other.error) == (1, True)
    assert (ahead.code, "cut short or rolled back" in ahead.error) == (1, True)


def test_a_copy_is_noted_unless_it_must_not_be(own: Path, tmp_path: Path) -> None:
    command("backup", own, tmp_path / "first.forest")
    command("backup", own, tmp_path / "second.forest", "--unrecorded")

    assert [entry["kind"] for entry in command("ledger", own).data] == ["create", "backup"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("hold",), 2, "missing command"),
        (("receipt",), 2, "missing command"),
        (("receipt", "STORE", 99), 5, "there is no entry 99"),
        (("receipt", "verify", "/nowhere"), 3, "'/nowhere' cannot be read"),
        (("receipt", "STORE", 1, "--sign", "/nowhere"), 3, "'/nowhere' cannot be read"),
        (("receipt", "STORE", 1, "--out", "/nowhere/file"), 3, "'/nowhere/file' cannot be written"),
        (("hold", "release", "STORE", 7), 5, "there is no hold 7"),
        (("hold", "add", "STORE", "--subject", "person 1"), 2, "missing option '--reason'"),
        (("requests", "cancel", "STORE", 7), 5, "no request 7 waits"),
        (("forget", "STORE", "--subject", "person 1", "--after", "soon"), 3, "is not a delay"),
        (("forget", "STORE", "--subject", "person 1", "--after", "1d", "--dry-run"), 2, "neither --dry-run nor"),
        (("suppress", "STORE", "off", "--lift", "x"), 2, "do not go together"),
        (("ledger", "STORE", "--since", "x"), 3, "is not a head"),
        (("ledger", "STORE", "--head", "--since", "x"), 2, "does not go together"),
        (("restore", "STORE"), 2, "missing option '--replay'"),
        (("restore", "/nowhere", "--replay", __file__), 3, "is not an entry of a ledger"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(
    store: Path, arguments: tuple[object, ...], code: int, words: str
) -> None:
    ran = command(*(store if each == "STORE" else each for each in arguments))

    assert (ran.code, ran.out) == (code, "")
    assert words in ran.error


def test_all_of_it_but_removing_does_without_the_engine(tmp_path: Path) -> None:
    store = tmp_path / "small.forest"
    dynfrsdb.create(store, [[1.0], [2.0]], [0, 1], subjects=["alone", "other"], n_estimators=2).close()

    done = subprocess.run(
        [sys.executable, "-c", _NO_ENGINE, str(store), str(tmp_path / "receipt.json")],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )

    assert json.loads(done.stdout) == [[0] * 12, []], done.stderr
