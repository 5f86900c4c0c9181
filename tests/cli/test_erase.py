"""Verbs for what is left of the removed: listed, erased, looked for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import dynfrsdb
from tests.cli.command import ROOT
from tests.cli.command import dynfrsdb as command
from tests.cli.conftest import make_store


@pytest.fixture
def removed(tmp_path: Path) -> Path:
    """A store from which a person was removed at the command line."""
    store = make_store(tmp_path / "own.forest")
    assert command("remove", store, "--id", 3, "--request-id", "ticket 4711").code == 0
    return store


def test_erasures_lists_stages_and_what_comes_next(removed: Path) -> None:
    ran = command("erasures", removed)

    (each,) = ran.data
    assert (ran.code, each["stage"], each["removed"], each["held_by"]) == (0, "rows erased", 1, [])
    assert each["remedy"] == f"dynfrsdb vacuum {removed}"
    assert len(each["request"]) == 32


def test_vacuum_says_what_it_needs_and_erases(removed: Path) -> None:
    plan = command("vacuum", removed, "--dry-run")
    assert (plan.code, plan.data["generation"]) == (0, 1)

    ran = command("vacuum", removed)

    assert (ran.code, ran.data["generation"], ran.data["done"], ran.data["held_by"]) == (0, 2, True, [])
    assert ran.data["samples"] == 59
    assert "MB beside the store" in ran.error
    (each,) = command("erasures", removed).data
    assert (each["stage"], each["remedy"]) == ("erased", None)
    assert [entry["kind"] for entry in command("ledger", removed).data][-2:] == ["vacuum", "erased"]
    assert command("check", removed).code == 0


def test_scan_tells_the_living_from_leftovers_by_its_exit_code(tmp_path: Path) -> None:
    store, needles = make_store(tmp_path / "own.forest"), tmp_path / "needles.jsonl"
    with dynfrsdb.open(store) as db:
        row = [float(value) for value in db.sample(3).x]
    needles.write_text(json.dumps({"x": row}) + "\n\n" + json.dumps({"hex": "0102030405060708aabbccdd"}) + "\n")

    ran = command("scan", store, "--needle-file", needles)

    assert (ran.code, ran.data["ok"]) == (0, True)
    assert {(hit["place"], hit["belongs"], hit["line"]) for hit in ran.data["hits"]} == {
        ("live", "the row of sample 3", 1)
    }
    (store / "stray").write_bytes(b"\7" * 5000 + bytes.fromhex("0102030405060708aabbccdd"))
    ran = command("scan", store, "--needle-file", needles)
    assert (ran.code, ran.data["ok"]) == (1, False)
    (hit,) = (hit for hit in ran.data["hits"] if hit["place"] == "leftover")
    assert (hit["file"], hit["offset"], hit["size"], hit["line"]) == ("stray", 5000, 12, 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds nothing to look for"),
        ('{"id": 3}', "holds nothing to look for (3 were too plain)"),
        ("x", "line 1 of the needle file is not JSON"),
        ("[1]", "line 1 of the needle file must be an object with some of x, subject, id, hex"),
        ('{"name": "me"}', "must be an object with some of"),
        ('{"hex": "zz"}', "'hex' is not hexadecimal"),
        ('{"x": [1.0]}', "features"),
    ],
)
def test_a_needle_file_that_makes_no_sense_is_refused(store: Path, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "needles").write_text(text)

    ran = command("scan", store, "--needle-file", tmp_path / "needles")

    assert (ran.code, ran.out) == (3, "")
    assert words in ran.error


@pytest.mark.parametrize("verb", ["erasures", "scan"])
def test_looking_needs_no_engine(store: Path, tmp_path: Path, verb: str) -> None:
    import subprocess

    from tests.cli.command import environment

    (tmp_path / "needles").write_text('{"hex": "0102030405060708aabbccdd"}')
    more = ["--needle-file", str(tmp_path / "needles")] if verb == "scan" else []
    code = f"import sys; from dynfrsdb.cli.app import run; run({[verb, str(store), *more]!r}); "
    code += "sys.exit(any(name.split('.')[0] == 'numba' for name in sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], env=environment(), cwd=ROOT, capture_output=True)

    assert done.returncode == 0, done.stderr
