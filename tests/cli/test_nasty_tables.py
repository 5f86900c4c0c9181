"""Files that are not what they should be: each works, or is refused in one line that says where and what to do."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import dynfrsdb
from tests.cli.command import dynfrsdb as command
from tests.cli.tables import people, write_csv, write_text

FEW = ("--target", "y", "--n-estimators", 2, "--min-category", 1)
GOOD = "a,b,y\n" + "".join(f"{i},{i % 3},{i % 2}\n" for i in range(30))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", GOOD.replace(",", ";"), "has no column 'y'; its columns are 'a;b;y'; if ';' is its delimiter"),
        ("t.csv", "", "is empty; the first line of a table names its columns"),
        ("t.csv", "a,b,y\n", "has columns and no rows"),
        ("t.csv", "a,a,y\n1,2,0\n", "has two columns named 'a'"),
        ("t.csv", ",a,y\n1,2,0\n", "column 1 of 'T' has no name"),
        ("t.csv", GOOD + "1e400,1,0\n", "'T', line 32, column 'a' is infinite"),
        ("t.csv", GOOD + "1e39,1,0\n", "'T', line 32, column 'a' is too large for float32"),
        ("t.csv", GOOD + "1,2\n", "'T', line 32 has 2 cells, the header has 3"),
        ("t.csv", GOOD + ",2,1\n", "'T', line 32, column 'a' is missing; fill it in, or pass --impute a=VALUE"),
        ("t.csv", GOOD + "1,2,\n", "'T', line 32, column 'y' is missing; every sample needs a class"),
        ("t.csv", GOOD + "12a,2,1\n", "'T', line 32, column 'a' is text, but other rows hold numbers there"),
        ("t.csv", GOOD + "1_000,2,1\n", "'T', line 32, column 'a' is text, but other rows hold numbers there"),
        ("t.csv", "a,y\n2024-02-29,0\n2024-03-01,1\n", "'T', line 2, column 'a' is a date; turn dates into numbers"),
        ("t.csv", GOOD.encode() + b"\xe9,2,1\n", "'T', line 32 is not UTF-8"),
        ("t.csv", GOOD.encode("utf-16"), "is UTF-16; save it as UTF-8"),
        ("t.csv", GOOD + '"1,2,1\n', "'T', line 32 is the last, and a quoted cell is still open"),
        ("t.csv", GOOD + '"1"x,2,1\n', "'T', line 32 has text behind a closing quote"),
        ("t.csv", GOOD + "1" * 200_000 + ",2,1\n", "'T', line 32 holds a cell of more than 131,072 characters"),
        ("t.csv", GOOD.replace("\n", "\r"), "holds a carriage return that ends no line"),
        ("t.csv.gz", gzip.compress(GOOD.encode(), mtime=0)[:-20], "is damaged behind line"),
        ("t.jsonl", "", "is empty; a JSON lines file has one object to a line"),
        ("t.jsonl", '{"a": 1, "y": 0}\n{"a": 1,\n', "'T', line 2 is not JSON"),
        ("t.jsonl", '[{"a": 1, "y": 0}]\n', "'T', line 1 is a list, not an object"),
        ("t.jsonl", '{"a": 1, "a": 2, "y": 0}\n', "'T', line 1 has two keys 'a'"),
        ("t.jsonl", '{"a": 1, "y": 0}\n{"A": 1, "y": 0}\n', "'T', line 2 has 'A', which the first line does not have"),
        ("t.jsonl", '{"a": [1], "y": 0}\n', "'T', line 1, column 'a' is of type JSON list"),
        ("t.jsonl", '{"a": 1e400, "y": 0}\n{"a": 1, "y": 1}\n', "'T', line 1, column 'a' is infinite"),
        ("t.jsonl", '{"a": ' + "[" * 100_000 + "\n", "'T', line 1 is not JSON: it is too large or too deep"),
        ("t.parquet", b"PAR1 and then nothing", "cannot be read"),
        ("t.arrow", b"FEA1 of old", "is Feather of version 1"),
        ("t.npz", b"PK and then nothing", "cannot be read as .npz"),
        ("t.xlsx", b"PK", "does not tell its format; pass --format csv|jsonl|parquet|arrow|npz"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(
    tmp_path: Path, name: str, content: str | bytes, words: str
) -> None:
    data = write_text(tmp_path / name, content)

    ran = command("create", tmp_path / "own.forest", data, *FEW)

    assert (ran.code, ran.out) == (3, "")
    assert words.replace("'T'", f"'{data}'") in ran.error
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (2**64, "is beyond 64 bits; ids are whole numbers from 0 to 2**64 - 1"),
        ("9" * 5000, "is beyond 64 bits"),
        (-1, "is no whole number"),
        ("12.0", "is no whole number"),
        ("", "is missing; every sample needs an id"),
        (7, "line 32: id 7 was given before, in"),
    ],
)
def test_an_id_that_is_none_is_refused(tmp_path: Path, cell: object, words: str) -> None:
    data = write_text(tmp_path / "t.csv", GOOD + f"{cell},1,1\n")

    ran = command("create", tmp_path / "own.forest", data, *FEW, "--id", "a")

    assert ran.code == 3
    assert words in ran.error
    assert "line 32" in ran.error


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bom.csv", "\ufeff" + GOOD),
        ("windows.csv", GOOD.replace("\n", "\r\n")),
        ("blank.csv", GOOD.replace("\n", "\n\n")),
        ("spaces.csv", GOOD.replace(",", ", ")),
        ("quoted.csv", GOOD.replace("0,0,0", '"0","0","0"')),
        ("packed.csv", gzip.compress(GOOD.encode(), mtime=0)),
    ],
)
def test_what_can_be_read_is_read(tmp_path: Path, name: str, content: str | bytes) -> None:
    data = write_text(tmp_path / name, content)

    ran = command("create", tmp_path / "own.forest", data, *FEW)

    assert (ran.code, ran.err) == (0, "")
    with dynfrsdb.open(tmp_path / "own.forest") as db:
        assert len(db) == 30
        assert db.sample(29).x.tolist() == [29, 2]


def test_a_line_end_inside_a_cell_is_part_of_it_and_lines_are_still_counted(tmp_path: Path) -> None:
    rows = people(40)
    for row in rows:
        row["job"] = "cook\nand baker"
    data = write_csv(tmp_path / "people.csv", rows)
    bad = write_csv(tmp_path / "bad.csv", [*rows, {**rows[0], "id": "x"}])
    settings = ("--target", "sick", "--id", "id", "--ignore", "name", "--n-estimators", 2)

    made = command("create", tmp_path / "own.forest", data, *settings)
    refused = command("create", tmp_path / "other.forest", bad, *settings)

    assert made.code == 0
    with dynfrsdb.open(tmp_path / "own.forest") as db:
        assert "job=cook\nand baker" in db.info()["settings"]["feature_names"]
    assert "line 82, column 'id'" in refused.error


def test_another_delimiter_is_read_when_told(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "people.csv", people(60), ";")

    ran = command("create", tmp_path / "own.forest", data, *FEW[2:], "--target", "sick", "--delimiter", ";")

    assert ran.data["samples"] == 60


def test_an_error_never_shows_what_is_in_a_cell(tmp_path: Path) -> None:
    """Messages end up in logs, and cells are people's data."""
    secret = "a very private remark"
    data = write_text(tmp_path / "t.csv", GOOD + f"{secret},1,1\n")
    lines = write_text(tmp_path / "t.jsonl", json.dumps({"a": [secret], "y": 0}) + "\n")

    first = command("create", tmp_path / "own.forest", data, *FEW)
    second = command("create", tmp_path / "own.forest", lines, *FEW)

    assert (first.code, second.code) == (3, 3)
    assert secret not in first.err + second.err


def test_an_array_of_objects_is_never_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", a=np.array([{"x": 1}, 2], object), y=np.array([0, 1]))

    ran = command("create", tmp_path / "own.forest", tmp_path / "t.npz", *FEW)

    assert "it holds Python objects" in ran.error


def test_a_pipe_cannot_become_a_store(tmp_path: Path) -> None:
    ran = command("create", tmp_path / "own.forest", "-", *FEW)

    assert ran.code == 3
    assert "is read twice to create a store, so it cannot be a pipe" in ran.error
