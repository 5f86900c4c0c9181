"""`create --from` and `sync`: stores made from databases, and kept in step with them."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dynfrsdb as library
from tests.cli.command import COMMAND, PATIENCE, dynfrsdb, environment, start
from tests.postgres import PASSWORD, Server
from tests.sources import Base, Person, expected_digest, people, person

COUNT = 80
MADE = ["--target", "outcome", "--id", "id", "--subject", "who", "--seed", "7", "--n-estimators", "5", "--q", "0.4"]


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def filled(sqlite_base: Base) -> Base:
    sqlite_base.insert(people(COUNT))
    return sqlite_base


@pytest.fixture
def forest(filled: Base, store_dir: Path) -> Path:
    return filled.create(store_dir / "people.forest")


def test_a_store_from_a_database_is_that_from_a_file(base: Base, store_dir: Path) -> None:
    """But for the ledger, which says where it came from, without the user's name."""
    base.insert(people(COUNT))
    with open(store_dir / "people.csv", "w") as file:
        writer = csv.writer(file)
        writer.writerow(("id", *Person._fields))
        # SQLite has no truths: its booleans are 0 and 1.
        writer.writerows(
            (id, *(int(cell) if cell is True or cell is False else cell for cell in each))
            for id, each in people(COUNT).items()
        )
    smoker = "smoker" if base.url.startswith("sqlite") else "CAST(smoker AS integer) AS smoker"
    query = f"SELECT id, who, age, job, {smoker}, weight, outcome FROM people"

    from_file = dynfrsdb("create", store_dir / "file.forest", store_dir / "people.csv", *MADE)
    from_table = dynfrsdb("create", store_dir / "table.forest", *MADE, "--from", base.url, "--query", query)

    assert (from_file.code, from_table.code) == (0, 0), from_table.err
    digests = [dynfrsdb("digest", store_dir / name).data["digest"] for name in ("file.forest", "table.forest")]
    assert digests[0] == digests[1]
    (entry,) = dynfrsdb("ledger", store_dir / "table.forest").data
    assert entry["source"]["query"] == query
    assert "postgres@" not in json.dumps(entry)


def test_sync_prints_what_it_did_and_keeps_receipts(filled: Base, forest: Path, tmp_path: Path) -> None:
    filled.delete([3, 4, 5])
    filled.update({8: person(8, 1)})
    given = ("sync", forest, "--from", filled.url, "--table", "people")

    counted = dynfrsdb(*given, "--dry-run")
    done = dynfrsdb(*given, "--batch", 2, "--receipts", tmp_path / "receipts.jsonl")

    assert counted.data["dry_run"] is True
    counts = {"rows": 77, "added": 0, "removed": 3, "replaced": 1, "unchanged": 76, "held": 0, "suppressed": 0}
    assert counts.items() <= counted.data.items()
    assert counts.items() <= done.data.items()
    kept = lines(tmp_path / "receipts.jsonl")
    assert [each["sequence"] for each in kept] == done.data["receipts"]
    assert (sum(each["removed"] for each in kept), sum(each["added"] for each in kept)) == (4, 1)
    assert {each["source"]["table"] for each in kept} == {"people"}


def test_whoever_is_held_makes_exit_code_3(filled: Base, forest: Path) -> None:
    assert dynfrsdb("hold", "add", forest, "--subject", "subject 5", "--reason", "a lawsuit").code == 0
    filled.delete([10, 20])

    ran = dynfrsdb("sync", forest, "--from", filled.url, "--table", "people")

    assert (ran.code, ran.data["held"], ran.data["removed"]) == (3, 1, 1)
    assert "1 sample stays as it is, because somebody is held" in ran.error


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (["--table", "people"], 2, "missing option '--from'"),
        (["--from", "sqlite:////nowhere.db", "--table", "people"], 6, "there is no file '/nowhere.db'"),
        (["--from", "postgresql://ann:s3cret@127.0.0.1:1/x", "--table", "people"], 6, "'postgresql://127.0.0.1:1/x'"),
        (["--from", "people.db", "--table", "people"], 3, "this is no URL of a database"),
        (["--from", "sqlite:////nowhere.db"], 3, "pass one of --table and --query"),
        (["--from", "sqlite:////x.db", "--table", "t", "--dry-run", "--receipts", "x"], 2, "has no --receipts"),
    ],
)
def test_what_goes_wrong_is_one_line_and_an_exit_code(given: list[str], code: int, said: str, forest: Path) -> None:
    ran = dynfrsdb("sync", forest, *given)

    assert ran.code == code
    assert said in ran.error
    assert "s3cret" not in ran.err
    assert "ann" not in ran.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "missing DATA, or --from"),
        (["DATA", "--from", "sqlite:////x.db", "--table", "t"], "--from and DATA are two ways"),
        (["DATA", "--table", "t"], "go with --from, not with DATA"),
        (["--from", "sqlite:////x.db", "--table", "t", "--format", "csv"], "go with DATA, not with --from"),
    ],
)
def test_create_takes_a_file_or_a_source(given: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("x,y\n1,2\n")
    words = [str(tmp_path / "data.csv") if word == "DATA" else word for word in given]

    ran = dynfrsdb("create", tmp_path / "x.forest", *words, "--target", "y")

    assert ran.code == 2
    assert said in ran.error


def test_sync_does_not_join_a_transaction_of_the_shell(filled: Base, forest: Path) -> None:
    lines = f"begin\nsync --from {filled.url} --table people\n"

    ran = subprocess.run(
        [*COMMAND, "shell", str(forest)], input=lines, capture_output=True, text=True, env=environment()
    )

    assert ran.returncode == 2
    assert "sync makes transactions of its own; commit or roll back this one first" in ran.stderr


def test_a_wrong_password_is_unreachable_and_nothing_of_it_is_said(postgres_server: Server, tmp_path: Path) -> None:
    wrong = postgres_server.url_with_password("postgres", "guess")
    right = postgres_server.url_with_password("postgres")
    given = ("create", tmp_path / "x.forest", "--table", "no_such_table", "--target", "y")

    refused = dynfrsdb(*given, "--from", wrong)
    let_in = dynfrsdb(*given, DYNFRSDB_SOURCE=right)

    assert (refused.code, let_in.code) == (6, 3)
    assert "does not let this user in" in refused.error
    assert 'relation "no_such_table" does not exist' in let_in.error
    for hidden in ("guess", PASSWORD, "postgres:", 'user "postgres"'):
        assert hidden not in refused.err + let_in.err


def test_watching_follows_the_source_and_waits_for_one_that_is_away(postgres_server: Server, store_dir: Path) -> None:
    base = Base(postgres_server.url(postgres_server.fresh()))
    base.insert(people(COUNT))
    path = base.create(store_dir / "people.forest")
    receipts = store_dir / "receipts.jsonl"
    given = ("--from", base.url, "--table", "people", "--watch", "0.2", "--receipts", receipts)
    with start("sync", path, *given) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = json.loads(process.stdout.readline())
        base.delete([1])
        second = json.loads(process.stdout.readline())
        postgres_server.stop()
        away = process.stderr.readline()
        postgres_server.start()
        back = process.stderr.readline()
        base.update({2: person(2, 1)})
        third = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=PATIENCE)

    assert (first["unchanged"], second["removed"], third["replaced"]) == (COUNT, 1, 1)
    assert "trying again every 0.2 s" in away
    assert back == "dynfrsdb: it is back\n"
    assert (process.returncode, rest) == (130, "")
    assert said == "dynfrsdb: interrupted; 2 transactions are committed\n"
    assert len(lines(receipts)) == 2


def test_watching_tells_the_catalog(filled: Base, forest: Path, store_dir: Path) -> None:
    url = f"sqlite:///{store_dir}/catalog.sqlite"
    assert dynfrsdb("catalog", "register", forest, "--url", url).code == 0

    given = ("--from", filled.url, "--table", "people", "--watch", "0.2")
    with start("sync", forest, *given, env=environment(DYNFRSDB_CATALOG=url)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        filled.delete([1])
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130

    (source,) = dynfrsdb("catalog", "sources", "--url", url).data
    assert source["table"] == "people"
    assert [each["removed"] for each in dynfrsdb("catalog", "ledger", "--url", url).data if each["removed"]] == [1]


def test_ctrl_c_ends_between_transactions_and_says_what_is_committed(
    filled: Base, forest: Path, store_dir: Path
) -> None:
    now = {id: person(id, 1) for id in range(COUNT)}
    filled.update(now)
    receipts = store_dir / "receipts.jsonl"
    given = ("--from", filled.url, "--table", "people", "--batch", 1, "--receipts", receipts)

    with start("sync", forest, *given) as process:
        until(lambda: len(lines(receipts)) > 2)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=PATIENCE)

    with library.open(forest) as db:
        changes = [each.sequence for each in db.ledger() if each.kind == "change"]
        assert db.check()
    assert (process.returncode, out) == (130, "")
    assert [each["sequence"] for each in lines(receipts)] == changes
    assert len(changes) < COUNT
    assert f"{len(changes)} transactions are committed" in said
    assert f"{len(changes)} replaced); run it again to go on" in said
    assert dynfrsdb("sync", forest, "--from", filled.url, "--table", "people").data["replaced"] == COUNT - len(changes)
    with library.open(forest) as db:
        assert db.digest() == expected_digest(forest, now)
