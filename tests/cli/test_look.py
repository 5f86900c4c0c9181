"""Verbs that look inside tell what the library tells, and start without the engine."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dynfrsdb
from dynfrsdb_storage import layout
from tests.cli.command import dynfrsdb as command
from tests.cli.command import environment, on_a_terminal, start
from tests.test_golden_stores import GOLDEN, unpacked

_LOOK_AROUND = """
import contextlib, io, json, sys
from dynfrsdb.cli.app import run
store = sys.argv[1]
looks = [[], ["--help"], ["info", store], ["ledger", store], ["readers", store], ["sample", store, "3"],
         ["subject", store, "person 3"], ["tree", store, "0"], ["node", store, "0", "."], ["importances", store],
         ["tree", store, "0", "--svg", "/dev/null"], ["info", store, "--html", "/dev/null"]]
with contextlib.redirect_stdout(io.StringIO()):
    codes = [run(each) for each in looks]
heavy = ("numba", "numpy", "sqlalchemy", "pandas", "sklearn", "rich", "dynfrsdb.database")
print(json.dumps([sum(codes), [name for name in heavy if name in sys.modules]]))
"""


def test_info_says_what_the_library_says(store: Path) -> None:
    with dynfrsdb.open(store) as db:
        expected = db.info()

    found = command("info", store).data

    del expected["readers"], found["readers"]
    assert found == expected


def test_info_counts_people_and_their_samples(store: Path) -> None:
    found = command("info", store).data

    assert (found["samples"], found["samples_with_subject"], found["subjects"]) == (60, 60, 30)


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


def test_help_and_looking_inside_import_neither_the_engine_nor_numpy_nor_rich(store: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOOK_AROUND, str(store)], capture_output=True, text=True, env=environment(), check=True
    )

    assert json.loads(done.stdout) == [0, []]


def test_completion_knows_verbs_and_options_and_imports_little() -> None:
    def completed(words: str, place: int) -> list[str]:
        command = [sys.executable, "-X", "importtime", "-m", "dynfrsdb.cli"]
        asked = environment(_DYNFRSDB_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(place))
        done = subprocess.run(command, env=asked, capture_output=True, text=True)
        assert not any(name in done.stderr for name in ("numba", "numpy", "lmdb"))
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert completed("dynfrsdb imp", 1) == ["importances"]
    assert {"--depth", "--svg", "--json"} <= set(completed("dynfrsdb tree some.forest 0 --", 4))


def test_rows_are_printed_as_csv_when_asked(store: Path) -> None:
    entries = command("ledger", store).data

    (line,) = csv.DictReader(io.StringIO(command("ledger", store, "--csv").out))

    assert [line["sequence"], line["kind"], line["hash"]] == ["1", "create", entries[0]["hash"]]
    assert command("ledger", store, "--csv", "--json").code == 2


def test_readers_are_those_that_look_now_and_not_ourselves(store: Path) -> None:
    assert command("readers", store).data == []

    with dynfrsdb.open(store) as db, db.snapshot():
        (reader,) = command("readers", store).data

    assert (reader["pid"], reader["lag"], bool(reader["command"])) == (os.getpid(), 0, True)


def test_a_terminal_gets_tables_and_names_are_not_taken_for_markup(store: Path) -> None:
    shown = on_a_terminal("sample", str(store), "3")

    assert "[red]weight" in shown
    assert "{" not in shown


def test_a_terminal_gets_json_when_asked(store: Path) -> None:
    shown = on_a_terminal("ledger", str(store), "--json")

    assert json.loads(shown)[0]["kind"] == "create"


def test_a_closed_pipe_is_silent(store: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)

    process = start("info", store, stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (141, "")


@pytest.fixture
def busy(store_dir: Path) -> Path:
    """A store made from a table, with a hold, a waiting request, and people who must not come back."""
    return unpacked(GOLDEN / f"format-{layout.FORMAT}.tar.xz", "people.forest", store_dir).path


def test_info_counts_holds_waiting_requests_and_suppressed_subjects(busy: Path) -> None:
    found = command("info", busy).data

    assert [found[name] for name in ("holds", "waiting_requests", "suppression", "suppressed")] == [1, 1, "skip", 2]


def test_info_says_in_a_line_how_a_table_is_encoded(busy: Path) -> None:
    (line,) = (line for line in on_a_terminal("info", busy).splitlines() if "encoding" in line)

    assert "target bought, id id, subject who, one-hot colour (3)" in line
    assert command("info", busy).data["settings"]["encoding"]["columns"][1]["values"] == ["blue", "green", "red"]
