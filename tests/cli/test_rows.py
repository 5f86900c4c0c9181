"""`add` and `predict` take the columns that a store was created from, and encode them the same."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import dynfrsdb
from tests.cli.command import COMMAND, PATIENCE, environment, on_a_terminal, start
from tests.cli.command import dynfrsdb as command
from tests.cli.tables import SETTINGS, people, write_csv, write_jsonl, write_text


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A store of 200 people."""
    ran = command("create", tmp_path / "own.forest", write_csv(tmp_path / "people.csv", people()), *SETTINGS)
    assert ran.code == 0
    return tmp_path / "own.forest"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, for tests that only look."""
    place = tmp_path_factory.mktemp("shared")
    command("create", place / "own.forest", write_csv(place / "people.csv", people()), *SETTINGS)
    return place / "own.forest"


def piped(text: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, text=True, env=environment(), timeout=PATIENCE)


def test_a_store_filled_in_two_goes_equals_one_filled_at_once(tmp_path: Path, own: Path) -> None:
    """The same raw columns give the same features, in another order and another format."""
    more = [dict(reversed(row.items())) for row in people(50, first=200)]
    both = write_csv(tmp_path / "both.csv", [*people(), *people(50, first=200)])

    added = command("add", own, write_jsonl(tmp_path / "more.jsonl", more))
    command("create", tmp_path / "both.forest", both, *SETTINGS)

    assert (added.code, added.data["added"], added.data["samples"]) == (0, 50, 250)
    assert command("digest", own).data == command("digest", tmp_path / "both.forest").data


def test_adding_counts_values_that_were_never_encoded(tmp_path: Path, own: Path) -> None:
    rows = [{**row, "job": "astronaut"} for row in people(4, first=300)]

    ran = command("add", own, write_csv(tmp_path / "more.csv", rows))

    assert (ran.code, ran.data["unknown"]) == (0, {"job": 4})
    assert "column 'job': 4 of 4 rows have a value that was not encoded" in ran.error
    with dynfrsdb.open(own) as db:
        assert db.sample(3003).x[1:4].tolist() == [0, 0, 0]


def test_a_person_who_was_added_can_be_forgotten_by_name(tmp_path: Path, own: Path) -> None:
    command("add", own, write_csv(tmp_path / "more.csv", people(10, first=300)))

    ran = command("forget", own, "--subject", "person 152")

    assert ran.data["removed"] == 2


def test_ids_are_assigned_and_told_where_there_is_no_id_column(tmp_path: Path, store: Path) -> None:
    """The store was made in Python: its features are found by their names, its target is not known."""
    data = write_text(tmp_path / "more.csv", "height,age,[red]weight,y,who\n1,2,3,yes,me\n4,5,6,no,\n")
    copy = tmp_path / "own.forest"
    command("backup", store, copy)

    ran = command("add", copy, data, "--target", "y", "--subject", "who")
    refused = command("add", copy, data)

    assert (ran.data["first_id"], ran.data["last_id"]) == (60, 61)
    with dynfrsdb.open(copy) as db:
        assert db.sample(61).x.tolist() == [5, 6, 4]
        assert (db.sample(60).has_subject, db.sample(61).has_subject) == (True, False)
    assert "pass --target" in refused.error


def test_adding_is_all_or_none(tmp_path: Path, own: Path) -> None:
    rows = [*people(3, first=300), {**people(1)[0]}]

    ran = command("add", own, write_csv(tmp_path / "more.csv", rows))

    assert ran.code == 3
    assert "row 3: sample 3 is already in" in ran.error
    with dynfrsdb.open(own) as db:
        assert (len(db), 3003 in db) == (200, False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sick": "perhaps"}, "column 'sick' is no class of this store; its classes are 'no', 'yes'"),
        ({"sick": ""}, "column 'sick' is missing; every sample needs a class"),
        ({"age": ""}, "column 'age' is missing; fill it in, or create the store with --impute age=VALUE"),
        ({"age": "old"}, "column 'age' is text, not a number"),
        ({"smoker": "often"}, "column 'smoker' is neither true nor false"),
    ],
)
def test_a_row_that_does_not_fit_the_store_is_named(
    tmp_path: Path, shared: Path, change: dict[str, str], words: str
) -> None:
    rows = people(3, first=300)
    rows[1] |= change

    ran = command("add", shared, write_csv(tmp_path / "more.csv", rows))

    assert ran.code == 3
    assert f"'{tmp_path / 'more.csv'}', line 3, {words}" in ran.error


def test_a_column_that_is_not_there_is_named(tmp_path: Path, shared: Path) -> None:
    rows = [{name: value for name, value in row.items() if name != "age"} for row in people(3)]

    ran = command("predict", shared, write_csv(tmp_path / "more.csv", rows))

    assert ran.code == 3
    assert "has no column 'age'; its columns are 'id', 'name', 'job', 'smoker', 'sick'" in ran.error


def test_a_dry_run_of_adding_changes_nothing(tmp_path: Path, own: Path) -> None:
    before = command("digest", own).data, command("ledger", own).data

    ran = command("add", own, write_csv(tmp_path / "more.csv", people(20, first=300)), "--dry-run")

    plan = ran.data
    assert (plan["added"], plan["removed"], plan["dry_run"]) == (20, 0, True)
    assert min(plan["trees"], plan["nodes"], plan["records"], plan["bytes"]) > 0
    assert plan["seconds"] > 0
    assert (command("digest", own).data, command("ledger", own).data) == before
    with dynfrsdb.open(own) as db:
        assert db.check()


def test_adding_shows_how_far_it_is_on_a_terminal(tmp_path: Path, own: Path) -> None:
    more = write_csv(tmp_path / "more.csv", people(20, first=300))

    shown = on_a_terminal("add", own, more, stream="stderr")

    assert "reading" in shown
    assert "changing the forest" in shown


def test_the_same_request_adds_once_also_from_another_format(tmp_path: Path, own: Path) -> None:
    rows = people(5, first=300)
    first = command("add", own, write_csv(tmp_path / "more.csv", rows), "--request-id", "load 1").data
    second = command("add", own, write_jsonl(tmp_path / "more.jsonl", rows), "--request-id", "load 1").data

    assert (first.pop("replayed"), second.pop("replayed")) == (False, True)
    assert first == second
    with dynfrsdb.open(own) as db:
        assert len(db) == 205


def test_predictions_are_those_of_the_library(shared: Path) -> None:
    data = shared.parent / "people.csv"
    names = ["clerk, senior", "cook", "nurse"]
    X = np.array([[row["age"], *(row["job"] == job for job in names), row["smoker"]] for row in people()])

    ran = command("predict", shared, data, "--proba")

    lines = [json.loads(line) for line in ran.out.splitlines()]
    with dynfrsdb.open(shared) as db:
        assert [line["prediction"] for line in lines] == db.predict(X).tolist()
        assert [list(line["proba"].values()) for line in lines] == db.predict_proba(X).tolist()
    assert [line["id"] for line in lines] == [row["id"] for row in people()]
    assert list(lines[0]["proba"]) == ["no", "yes"]
    assert "column 'job': 10 rows" in ran.error


def test_csv_has_a_heading_and_the_same_numbers(shared: Path) -> None:
    data = shared.parent / "people.csv"
    lines = [json.loads(line) for line in command("predict", shared, data, "--proba", "--explain").out.splitlines()]

    rows = list(csv.DictReader(io.StringIO(command("predict", shared, data, "--proba", "--explain", "--csv").out)))

    assert len(rows) == len(lines) == 200
    for row, line in zip(rows, lines, strict=True):
        assert (int(row["id"]), row["prediction"]) == (line["id"], line["prediction"])
        assert [float(row["proba:no"]), float(row["proba:yes"])] == list(line["proba"].values())
        moved = {row[f"feature_{i}"]: float(row[f"moved_{i}"]) for i in range(1, 6) if row[f"feature_{i}"]}
        assert moved == line["explain"]["moved"]
        assert (float(row["base"]), float(row["others"])) == (line["explain"]["base"], line["explain"]["others"])


def test_an_explanation_adds_up_to_the_prediction(shared: Path) -> None:
    ran = command("predict", shared, shared.parent / "people.csv", "--proba", "--explain")

    for line in map(json.loads, ran.out.splitlines()):
        parts = line["explain"]
        total = parts["base"] + sum(parts["moved"].values()) + parts["others"]
        assert total == pytest.approx(line["proba"][line["prediction"]], abs=1e-12)


def test_rows_can_be_piped_in_and_answers_piped_out(shared: Path) -> None:
    text = (shared.parent / "people.csv").read_text()

    done = piped(text, "predict", shared, "-")

    assert done.stdout == command("predict", shared, shared.parent / "people.csv").out


def test_a_reader_that_goes_away_is_no_error(shared: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)

    process = start("predict", shared, shared.parent / "people.csv", stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (141, "")


def test_a_table_without_rows_gives_no_answers(tmp_path: Path, shared: Path) -> None:
    data = write_text(tmp_path / "none.csv", "age,job,smoker\n")

    ran = command("predict", shared, data, "--csv")

    assert (ran.code, ran.out) == (0, "row,prediction\n")


def test_features_without_names_are_taken_in_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 2)).astype(np.float32)
    y = X[:, 0] * 2
    with dynfrsdb.create(tmp_path / "own.forest", X, y, task="regression", n_estimators=3, seed=1) as db:
        expected = db.predict(X).tolist()
    data = write_text(tmp_path / "x.csv", "p,q\n" + "".join(f"{a!r},{b!r}\n" for a, b in X.tolist()))
    wide = write_text(tmp_path / "wide.csv", "p,q,r\n1,2,3\n")

    ran = command("predict", tmp_path / "own.forest", data)
    refused = command("predict", tmp_path / "own.forest", wide)
    proba = command("predict", tmp_path / "own.forest", data, "--proba")

    assert [json.loads(line)["prediction"] for line in ran.out.splitlines()] == expected
    assert "has 3 columns of features, this store takes 2" in refused.error
    assert (proba.code, "a regression, which has no --proba" in proba.error) == (2, True)
