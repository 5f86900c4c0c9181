"""A store made from a file holds what the file says, whatever the file's format."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dynfrsdb
from dynfrsdb.api import _training as training
from dynfrsdb.build import build
from dynfrsdb.settings import Settings
from tests.cli.command import dynfrsdb as command
from tests.cli.command import environment, start
from tests.cli.tables import SETTINGS, people, write_csv, write_jsonl

JOBS = ("clerk, senior", "cook", "nurse")
COLUMNS = [
    {"name": "age", "kind": "number", "values": [], "impute": None},
    {"name": "job", "kind": "category", "values": list(JOBS), "impute": None},
    {"name": "smoker", "kind": "boolean", "values": [], "impute": None},
]


def write_parquet(path: Path) -> Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(people()), path)
    return path


def write_feather(path: Path) -> Path:
    import pyarrow
    import pyarrow.feather

    pyarrow.feather.write_feather(pyarrow.Table.from_pylist(people()), path)
    return path


def write_stream(path: Path) -> Path:
    import pyarrow
    import pyarrow.ipc

    table = pyarrow.Table.from_pylist(people())
    with pyarrow.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table, max_chunksize=30)
    return path


def write_npz(path: Path) -> Path:
    rows = people()
    columns: dict[str, Any] = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    np.savez(path, **columns)
    return path


def expected_features() -> npt.NDArray[np.float32]:
    """The features of all people, by hand."""
    return np.array([[row["age"], *(row["job"] == job for job in JOBS), row["smoker"]] for row in people()], np.float32)


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of a store that Python makes of the same people, encoded by hand."""
    rows, path = people(), tmp_path_factory.mktemp("python") / "people.forest"
    X, y = expected_features(), [row["sick"] for row in rows]
    settings = Settings.make(X=X, y=y, n_estimators=7, q=0.5, seed=3, encoding={"columns": COLUMNS})
    build(path, settings, training(settings, X, y, [row["id"] for row in rows], None), None)
    with dynfrsdb.open(path) as db:
        return db.digest()


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("people.csv", lambda path: write_csv(path, people())),
        ("people.csv.gz", lambda path: write_csv(path, people())),
        ("people.tsv", lambda path: write_csv(path, people(), "\t")),
        ("people.jsonl", lambda path: write_jsonl(path, people())),
        ("people.parquet", write_parquet),
        ("people.feather", write_feather),
        ("people.arrow", write_stream),
        ("people.npz", write_npz),
    ],
)
def test_every_format_gives_the_forest_that_python_makes(tmp_path: Path, digest: str, name: str, write: Any) -> None:
    data = write(tmp_path / name)

    ran = command("create", tmp_path / "own.forest", data, *SETTINGS)

    assert ran.code == 0, ran.err
    with dynfrsdb.open(tmp_path / "own.forest") as db:
        assert db.digest() == digest
        assert db.check()
        assert db.info()["samples_with_subject"] == 200


def test_create_says_what_it_made(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "people.csv", people())

    ran = command("create", tmp_path / "own.forest", data, *SETTINGS)

    found = ran.data
    assert (found["samples"], found["features"], found["classes"]) == (200, 5, ["no", "yes"])
    assert (found["encoded"], found["not_encoded"]) == ({"job": 3}, {"job": 10})
    assert (found["settings"]["n_trees"], found["settings"]["k"]) == (7, 4)
    assert found["seconds"] > 0
    assert found["bytes"] >= 200 * (24 + 4 * 5)
    assert "seed" not in ran.out
    assert "column 'job': 10 of 200 rows" in ran.error


def test_values_that_are_too_rare_are_nowhere_in_the_store(tmp_path: Path) -> None:
    """No single person is in the settings."""
    data = write_csv(tmp_path / "people.csv", people())
    command("create", tmp_path / "own.forest", data, *SETTINGS)

    held = b"".join(file.read_bytes() for file in (tmp_path / "own.forest").rglob("*") if file.is_file())

    assert b"nurse" in held
    assert b"owner of" not in held
    assert b"person 1" not in held


def test_info_lists_categories_as_taken_from_data(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "people.csv", people())
    command("create", tmp_path / "own.forest", data, *SETTINGS)

    found = command("info", tmp_path / "own.forest").data

    assert found["taken_from_data"] == ["classes", "categories"]
    assert found["settings"]["feature_names"] == ["age", *(f"job={job}" for job in JOBS), "smoker"]


def test_a_backup_and_a_vacuum_keep_the_encoding(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "people.csv", people())
    command("create", tmp_path / "own.forest", data, *SETTINGS)
    expected = command("predict", tmp_path / "own.forest", data, "--proba").out

    assert command("backup", tmp_path / "own.forest", tmp_path / "copy.forest").code == 0
    assert command("vacuum", tmp_path / "own.forest").code == 0

    for name in ("own.forest", "copy.forest"):
        assert command("predict", tmp_path / name, data, "--proba").out == expected != ""


def test_missing_values_are_filled_as_told_then_and_later(tmp_path: Path) -> None:
    rows = people()
    rows[5]["age"], rows[6]["job"], rows[7]["smoker"] = "", None, "NA"
    data = write_csv(tmp_path / "people.csv", rows)
    fill = ("--impute", "age=44.5", "--impute", "job=nurse", "--impute", "smoker=true")

    ran = command("create", tmp_path / "own.forest", data, *SETTINGS, *fill)
    more = write_csv(tmp_path / "more.csv", [{**rows[5], "id": 9999}])
    added = command("add", tmp_path / "own.forest", more)

    assert (ran.code, added.code) == (0, 0)
    with dynfrsdb.open(tmp_path / "own.forest") as db:
        assert db.sample(53).x[0] == db.sample(9999).x[0] == np.float32(44.5)
        assert db.sample(63).x[1:4].tolist() == [0, 0, 1]
        assert db.sample(73).x[4] == 1


def test_numbers_may_be_names(tmp_path: Path) -> None:
    rows = [{**row, "age": index % 3} for index, row in enumerate(people())]
    data = write_jsonl(tmp_path / "people.jsonl", rows)

    ran = command("create", tmp_path / "own.forest", data, *SETTINGS, "--categorical", "age", "--ignore", "job")

    assert ran.data["encoded"] == {"age": 3}
    with dynfrsdb.open(tmp_path / "own.forest") as db:
        assert db.sample(13).x.tolist()[:3] == [0, 1, 0]


def test_without_an_id_column_samples_are_numbered(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "people.csv", people(60))

    command("create", tmp_path / "own.forest", data, "--target", "sick", "--ignore", "name", "--n-estimators", 3)

    with dynfrsdb.open(tmp_path / "own.forest") as db:
        assert (0 in db, 59 in db, 60 in db) == (True, True, False)


def test_a_regression_keeps_the_targets_of_the_file(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "people.csv", people(60))
    settings = ("--target", "age", "--task", "regression", "--ignore", "name", "--target-step", 0.1, "--id", "id")

    ran = command("create", tmp_path / "own.forest", data, *settings, "--n-estimators", 3)

    assert (ran.data["classes"], ran.data["task"]) == ([], "regression")
    with dynfrsdb.open(tmp_path / "own.forest") as db:
        assert db.sample(13).y == pytest.approx(people(60)[1]["age"])


def test_labels_of_a_text_file_are_numbers_if_all_of_them_are(tmp_path: Path) -> None:
    rows = [{**row, "sick": index % 3} for index, row in enumerate(people(60))]
    data = write_csv(tmp_path / "people.csv", rows)

    ran = command("create", tmp_path / "own.forest", data, *SETTINGS)

    assert ran.data["classes"] == [0, 1, 2]


def test_classes_may_be_given_in_an_order(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "people.csv", people(60))

    order = ("--class", "yes", "--class", "no", "--class", "perhaps")
    ran = command("create", tmp_path / "own.forest", data, *SETTINGS, *order)

    assert ran.data["classes"] == ["yes", "no", "perhaps"]


def test_a_store_that_is_there_is_not_replaced(tmp_path: Path, store: Path) -> None:
    data = write_csv(tmp_path / "people.csv", people(60))

    ran = command("create", store, data, *SETTINGS)

    assert ran.code == 3
    assert "exists already" in ran.error


def test_a_place_where_no_store_can_be_is_refused_before_the_table_is_read(tmp_path: Path) -> None:
    unreadable = tmp_path / "people.csv"
    unreadable.write_bytes(b"\xff" * 100)

    ran = command("create", tmp_path / "nowhere" / "own.forest", unreadable, *SETTINGS)

    assert ran.code == 5
    assert "there is no directory" in ran.error


def test_ctrl_c_while_creating_leaves_nothing(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "people.csv", people(20_000))
    process = start("create", tmp_path / "own.forest", data, *SETTINGS, "--n-estimators", 2000)

    deadline = time.monotonic() + 120
    while not list(tmp_path.glob(".own.forest.creating-*")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (130, "")
    assert err == f"dynfrsdb: interrupted; the store '{tmp_path / 'own.forest'}' is not created\n"
    assert [path.name for path in tmp_path.iterdir()] == ["people.csv"]


def test_without_pyarrow_the_error_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "people.parquet").write_bytes(b"PAR1")
    code = (
        "import sys; sys.modules['pyarrow'] = None; from dynfrsdb.cli.app import run;"
        "sys.exit(run(['create', *sys.argv[1:], '--target', 'y']))"
    )
    arguments = [str(tmp_path / "own.forest"), str(tmp_path / "people.parquet")]

    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment(), capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 3
    assert done.stderr.endswith("needs pyarrow; pip install 'dynfrsdb[arrow]'\n")
