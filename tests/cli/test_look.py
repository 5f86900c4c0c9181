"""Verbs that look inside tell what the library tells, and start without the engine."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import dynfrsdb
from tests.cli.command import COMMAND, environment, start
from tests.cli.command import dynfrsdb as command

_LOOK_AROUND = """
import contextlib, io, json, sys
from dynfrsdb.cli.app import run
store = sys.argv[1]
with contextlib.redirect_stdout(io.StringIO()):
    codes = [run(each) for each in (["--help"], ["info", store], ["ledger", store], ["sample", store, "3"])]
print(json.dumps([codes, [name for name in ("numba", "sqlalchemy", "pandas", "sklearn") if name in sys.modules]]))
"""


def test_info_says_what_the_library_says(store: Path) -> None:
    with dynfrsdb.open(store) as db:
        expected = db.info()

    found = command("info", store).data

    del expected["readers"], found["readers"]
    assert found == expected


def test_info_never_shows_the_seed(store: Path) -> None:
    found = command("info", store).out

    assert "seed" not in found


def test_the_ledger_lists_the_receipts_of_the_library(store: Path) -> None:
    with dynfrsdb.open(store) as db:
        expected = [json.loads(json.dumps(receipt.as_dict())) for receipt in db.ledger()]

    assert command("ledger", store).data == expected


def test_a_sample_is_shown_with_its_values_and_the_trees_it_lives_in(store: Path) -> None:
    with dynfrsdb.open(store) as db:
        expected = db.sample(17)

    found = command("sample", store, 17).data

    assert found["trees"] == list(expected.trees)
    assert list(found["features"]) == ["age", "[red]weight", "height"]
    assert [value.hex() for value in map(float, expected.x)] == [
        float(expected.x.dtype.type(value)).hex() for value in found["features"].values()
    ]
    assert (found["id"], found["target"], found["has_subject"]) == (17, expected.y, True)


def test_help_and_looking_inside_import_no_engine(store: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOOK_AROUND, str(store)], capture_output=True, text=True, env=environment(), check=True
    )

    assert json.loads(done.stdout) == [[0, 0, 0, 0], []]


def test_help_alone_does_not_even_import_numpy() -> None:
    code = "import sys; from dynfrsdb.cli.app import run; run(['--help']); sys.exit('numpy' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True).returncode == 0


def test_a_terminal_gets_tables_and_names_are_not_taken_for_markup(store: Path) -> None:
    shown = _on_a_terminal("sample", str(store), "3")

    assert "[red]weight" in shown
    assert "{" not in shown


def test_a_terminal_gets_json_when_asked(store: Path) -> None:
    shown = _on_a_terminal("ledger", str(store), "--json")

    assert json.loads(shown)[0]["kind"] == "create"


def test_a_closed_pipe_is_silent(store: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)

    process = start("info", store, stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (141, "")


def _on_a_terminal(*arguments: str) -> str:
    ours, theirs = pty.openpty()
    with subprocess.Popen([*COMMAND, *arguments], stdout=theirs, env=environment(TERM="xterm")) as process:
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
    os.close(ours)
    assert process.returncode == 0
    return shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # how Linux says that the other side has closed
        return b""
