"""Databases outside the store: URLs, engines, and what goes wrong, in one line each."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from dynfrsdb import sql
from dynfrsdb.errors import InvalidInput, MissingExtra, Unreachable
from tests.postgres import PASSWORD, Server


def ask(url: str, statement: str = "SELECT 1") -> object:
    with sql.in_words("asking", url), sql.engine(url).connect() as connection:
        return connection.execute(text(statement)).scalar()


def refusal(error: type[Exception], act: Callable[[], object]) -> str:
    with pytest.raises(error) as caught:
        act()
    message = str(caught.value)
    assert "\n" not in message
    assert PASSWORD not in message
    assert "postgres@" not in message
    return message


@pytest.fixture
def file(tmp_path: Path) -> str:
    sqlite3.connect(tmp_path / "people.db").executescript("CREATE TABLE people (id INTEGER); PRAGMA journal_mode=WAL;")
    return f"sqlite:///{tmp_path}/people.db"


@pytest.mark.parametrize(
    "url", ["", "people.db", "sqlite://", "sqlite:///:memory:", "mysql://host/x", "oracle://a:b@c"]
)
def test_what_is_no_url_of_ours_is_refused_without_repeating_it(url: str) -> None:
    message = refusal(InvalidInput, lambda: sql.parsed(url))

    assert "write it like sqlite:////data/people.db or postgresql://host/database" in message
    assert "a:b" not in message


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cret@db.example:5433/clinic?sslmode=require", "postgresql://db.example:5433/clinic"),
        ("postgres://ann@/clinic?host=/run/pg", "postgresql:///clinic?host=%2Frun%2Fpg"),
        ("sqlite:////data/people.db", "sqlite:////data/people.db"),
    ],
)
def test_a_url_is_shown_without_user_password_and_options(url: str, shown: str) -> None:
    assert sql.shown(url) == shown


def test_there_is_one_engine_for_a_url(file: str) -> None:
    assert sql.engine(file) is sql.engine(file)


def test_a_forked_child_has_an_engine_of_its_own(postgres: str) -> None:
    """The child leaves its parent's connection alone, and the parent goes on using it."""
    ask(postgres)
    parents = sql.engine(postgres)

    child = os.fork()
    if not child:
        os._exit(0 if sql.engine(postgres) is not parents and ask(postgres) == 1 else 1)

    assert os.waitpid(child, 0)[1] == 0
    assert ask(postgres) == 1


def test_an_sqlite_transaction_sees_one_state(file: str, tmp_path: Path) -> None:
    with sql.engine(file).connect() as connection:
        before = connection.execute(text("SELECT count(*) FROM people")).scalar()
        with sqlite3.connect(tmp_path / "people.db") as other:
            other.execute("INSERT INTO people VALUES (1)")

        assert connection.execute(text("SELECT count(*) FROM people")).scalar() == before


def test_a_writer_of_sqlite_waits_its_turn(file: str) -> None:
    """Two that read and then write do not meet as a locked database: the second begins after the first."""

    def raise_count() -> None:
        with sql.engine(file).connect().execution_options(immediate=True) as connection, connection.begin():
            found = connection.execute(text("SELECT count(*) FROM people")).scalar()
            time.sleep(0.05)
            connection.execute(text("INSERT INTO people VALUES (:id)"), {"id": found})

    threads = [threading.Thread(target=raise_count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert ask(file, "SELECT group_concat(id) FROM people") == "0,1,2,3"


def test_a_missing_driver_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    message = refusal(MissingExtra, lambda: sql.engine("postgresql://ann:pw@nowhere/clinic"))

    assert message == "'postgresql://nowhere/clinic' needs psycopg; pip install 'dynfrsdb[postgres]'"


def test_what_sqlite_refuses_is_said_in_one_line(file: str, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, and long enough to be looked at " * 20)

    assert "no such table: nobody" in refusal(InvalidInput, lambda: ask(file, "SELECT * FROM nobody"))
    assert "syntax error" in refusal(InvalidInput, lambda: ask(file, "SELECT ??"))
    no_database = f"sqlite:///{tmp_path}/text.db"
    assert "is no SQLite database" in refusal(InvalidInput, lambda: ask(no_database, "SELECT * FROM people"))
    nowhere = f"sqlite:///{tmp_path}/nowhere/people.db"
    assert "cannot be opened" in refusal(Unreachable, lambda: ask(nowhere))


def test_text_that_is_not_utf8_is_not_repeated(file: str) -> None:
    message = refusal(InvalidInput, lambda: ask(file, "SELECT CAST(x'41 fe 41' AS TEXT)".replace(" fe ", "fe")))

    assert message.endswith("a text is not UTF-8; correct it")


def test_what_postgresql_refuses_is_said_in_one_line(postgres: str) -> None:
    assert 'relation "nothing" does not exist' in refusal(InvalidInput, lambda: ask(postgres, "SELECT * FROM nothing"))
    assert "syntax error" in refusal(InvalidInput, lambda: ask(postgres, "SELECT FROM WHERE"))
    message = refusal(InvalidInput, lambda: ask(postgres, "SELECT CAST('Ann Smith' AS integer)"))
    assert "Ann" not in message
    assert "a value cannot be turned into the type" in message


def test_who_is_not_let_in_hears_so_without_their_name(postgres_server: Server) -> None:
    wrong = postgres_server.url_with_password("postgres", "guess")
    right = postgres_server.url_with_password("postgres")
    nowhere = postgres_server.url_with_password("no_such_database")

    message = refusal(Unreachable, lambda: ask(wrong))
    assert "does not let this user in" in message
    assert "guess" not in message
    assert ask(right) == 1
    assert "no_such_database" in refusal(Unreachable, lambda: ask(nowhere))


def test_a_server_that_is_down_is_unreachable() -> None:
    message = refusal(Unreachable, lambda: ask("postgresql://ann:pw@127.0.0.1:1/clinic"))

    assert message.startswith("asking failed at 'postgresql://127.0.0.1:1/clinic': ")
    assert "look whether the server is up" in message


def test_a_statement_that_takes_too_long_is_unreachable(postgres: str) -> None:
    slow = f"{postgres}&options=-c statement_timeout=50"

    assert "took too long" in refusal(Unreachable, lambda: ask(slow, "SELECT pg_sleep(5)"))


def test_a_connection_that_the_server_ends_is_unreachable(postgres: str) -> None:
    """And the next one, which the engine would have taken from its pool, works."""

    def end_myself() -> None:
        ask(postgres, "SELECT pg_terminate_backend(pg_backend_pid())")

    refusal(Unreachable, end_myself)

    assert ask(postgres) == 1
