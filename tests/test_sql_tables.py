"""Tables of databases: what is read, how, and what cells become."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import SQLAlchemyError

import dynfrsdb
from dynfrsdb import sql
from dynfrsdb.errors import InvalidInput, Unreachable
from dynfrsdb.loading import create_from, prepare
from dynfrsdb.survey import Wishes
from dynfrsdb.tables.batch import Opaque
from dynfrsdb.tables.sql import Source, SqlTable
from tests.sources import Base, people


def read(url: str, query: str) -> dict[str, list[object]]:
    """All cells of a query, by column."""
    found: dict[str, list[object]] = {}
    with SqlTable(Source(url, query=query)) as table:
        for batch in table.batches():
            for name, cells in batch.columns.items():
                found.setdefault(name, []).extend(cells.tolist() if isinstance(cells, np.ndarray) else cells)
    return found


def create(path: Path, source: Source, **wishes: object) -> list[list[float]]:
    """The features of a store made from a source, by id."""
    with SqlTable(source, "id") as table:
        prepared = prepare(path, table, Wishes(target="y", id="id", min_category=1, **wishes), n_estimators=2)  # type: ignore[arg-type]
    create_from(path, prepared)
    with dynfrsdb.open(path) as db:
        return [db.sample(int(id)).x.tolist() for id in sorted(prepared.ids)]


def refusal(act: Callable[[], object], error: type[Exception] = InvalidInput) -> str:
    with pytest.raises(error) as caught:
        act()
    return str(caught.value)


def test_a_query_goes_to_the_database_as_it_is(base: Base) -> None:
    """Colons, percent signs, a semicolon and a comment at the end are the database's business."""
    query = "SELECT 7 % 4 AS a, ' :b' AS b, '100%' AS c, 'x:y' AS d -- and so on;"

    assert read(base.url, query) == {"a": [3], "b": [" :b"], "c": ["100%"], "d": ["x:y"]}
    assert read(base.url, "SELECT 1 AS only ;  ") == {"only": [1]}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM people; DELETE FROM people",
        "SELECT id FROM people) AS source; DELETE FROM people; SELECT * FROM (SELECT 1 AS id",
        "SELECT id FROM people) AS source; COMMIT; DELETE FROM people; SELECT * FROM (SELECT 1 AS id",
        "DELETE FROM people RETURNING id",
    ],
)
def test_a_query_is_one_select(query: str, base: Base) -> None:
    base.insert(people(3))

    refusal(lambda: read(base.url, query))

    assert read(base.url, "SELECT count(*) AS n FROM people") == {"n": [3]}


def test_a_source_cannot_be_written_to(base: Base) -> None:
    with SqlTable(base.source) as table:
        assert table._opened is not None
        with pytest.raises(SQLAlchemyError, match=r"read-?only"):
            table._opened.execute(text("INSERT INTO people (id) VALUES (1)"))


def test_names_are_quoted(base: Base) -> None:
    """Names that are words of SQL, have capitals or blanks or quotes in them."""
    base.execute('CREATE TABLE "Order ""x""" ("Group" integer, "select" text, y text)')
    base.execute('INSERT INTO "Order ""x""" VALUES (1, \'a\', \'b\')')

    with SqlTable(Source(base.url, table='Order "x"'), "Group") as table:
        assert table.count_ids() == 1
        batch = next(table.by_id(["select", "Group"]))

    assert {name: list(cells) for name, cells in batch.columns.items()} == {"select": ["a"], "Group": [1]}


def test_a_schema_may_be_named(base: Base) -> None:
    schema = "main" if base.url.startswith("sqlite") else "public"
    base.insert(people(2))

    with SqlTable(Source(base.url, table=f"{schema}.people"), "id") as table:
        assert table.count_ids() == 2


def test_everything_is_read_from_one_state(base: Base) -> None:
    """What is committed between two looks at a table is seen by neither."""
    if base.url.startswith("sqlite"):
        sqlite3.connect(base.url.removeprefix("sqlite:///")).execute("PRAGMA journal_mode = WAL")
    base.insert(people(5))

    with SqlTable(base.source, "id") as table:
        assert table.count_ids() == 5
        base.delete([1])
        base.insert({9: people(1)[0]})
        ids = [int(id) for batch in table.by_id(["id"]) for id in batch.columns["id"]]

    assert ids == [0, 1, 2, 3, 4]


def test_postgresql_is_read_through_a_cursor_on_the_server(postgres: str) -> None:
    statements: list[str] = []
    base = Base(postgres)
    engine = sql.engine(postgres)
    event.listen(engine, "before_cursor_execute", lambda c, cursor, *more: statements.append(type(cursor).__name__))

    with SqlTable(base.source, "id") as table:
        list(table.batches())

    assert statements == ["ServerCursor"]


def test_cells_of_postgresql(postgres: str) -> None:
    found = read(
        postgres,
        """SELECT NULL AS nothing, true AS truth, 9223372036854775807 AS big, 1e30::numeric AS huge, 2.50::numeric AS m,
           'NaN'::float8 AS nan, date '2020-02-03' AS day, now() AS moment, interval '1 day' AS span,
           '\\x00ff'::bytea AS bytes, '{"a": 1}'::json AS json, '{1,2}'::int[] AS list,
           '6b1f7a2c-1de6-4c4c-9d3a-5f5ad3f4a9a1'::uuid AS uuid, 'é'::text AS text""",
    )

    cells = {name: column[0] for name, column in found.items()}
    assert (cells["nothing"], cells["truth"], cells["big"], cells["text"]) == (None, True, 2**63 - 1, "é")
    assert (cells["huge"], cells["m"]) == (Decimal("1e30"), Decimal("2.5"))
    assert cells["nan"] != cells["nan"]
    assert [cells[name] for name in ("day", "moment", "span")] == [
        Opaque("date", True),
        Opaque("datetime", True),
        Opaque("timedelta", True),
    ]
    assert [cells[name] for name in ("bytes", "json", "list")] == [
        Opaque("bytes", False),
        Opaque("dict", False),
        Opaque("list", False),
    ]
    assert cells["uuid"] == "6b1f7a2c-1de6-4c4c-9d3a-5f5ad3f4a9a1"


def test_decimals_are_numbers_ids_subjects_and_classes(postgres: str, store_dir: Path) -> None:
    base = Base(postgres)
    base.execute("CREATE TABLE t (id numeric(38, 0), who numeric(20, 0), x numeric(10, 3), y numeric(3, 1))")
    base.execute("INSERT INTO t VALUES (18446744073709551615, 77, 1.125, 0.5), (9007199254740993, 77, 2, 1)")

    rows = create(store_dir / "t.forest", Source(postgres, table="t"), subject="who")

    assert rows == [[2.0], [1.125]]
    with dynfrsdb.open(store_dir / "t.forest", "w") as db:
        assert db.classes == (0.5, 1)
        assert 2**53 + 1 in db
        assert 2**64 - 1 in db
        assert db.forget("77").removed == 2


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ("DATE '2020-01-01'", "column 'x' is a date; turn dates into numbers"),
        ("TIMESTAMP '2020-01-01 10:00'", "column 'x' is a date"),
        ("CAST('ab' AS bytea)", "column 'x' is of type bytes, neither a number nor text; leave the column out"),
        ("'NaN'::float8", "column 'x' is missing; fill it in, or pass --impute x=VALUE"),
        ("'infinity'::numeric", "column 'x' is infinite"),
        ("1e40", "column 'x' is too large for float32"),
    ],
)
def test_what_cannot_be_a_feature_is_refused_as_in_files(cells: str, said: str, postgres: str, store_dir: Path) -> None:
    query = f"SELECT 4 AS id, {cells} AS x, 'a' AS y"

    message = refusal(lambda: create(store_dir / "t.forest", Source(postgres, query=query)))

    assert message.startswith(f"'the query', id 4, {said}")


def test_sqlite_has_no_types_but_those_of_cells(sqlite_base: Base, store_dir: Path) -> None:
    base = sqlite_base
    base.execute("CREATE TABLE t (id INTEGER, x INTEGER, truth BOOLEAN, y)")
    base.execute("INSERT INTO t VALUES (1, 2.5, 1, 'a'), (2, 3, 0, 'b')")
    assert create(store_dir / "t.forest", Source(base.url, table="t")) == [[2.5, 1.0], [3.0, 0.0]]

    base.execute("INSERT INTO t VALUES (3, 'three', 1, 'a')")
    message = refusal(lambda: create(store_dir / "u.forest", Source(base.url, table="t")))
    assert message.startswith("'t', id 3, column 'x' is text, but other rows hold numbers there")

    base.execute("UPDATE t SET x = x'00ff' WHERE id = 3")
    message = refusal(lambda: create(store_dir / "u.forest", Source(base.url, table="t")))
    assert message.startswith("'t', id 3, column 'x' is of type bytes")

    base.execute("UPDATE t SET x = CAST(x'41fe41' AS TEXT) WHERE id = 3")
    message = refusal(lambda: create(store_dir / "u.forest", Source(base.url, table="t")))
    assert message.endswith("a text is not UTF-8; correct it")


def test_targets_stay_with_their_rows_whatever_order_they_come_in(postgres: str, store_dir: Path) -> None:
    """A database may give its rows in another order the second time; here it does so every time."""
    base = Base(postgres)
    query = "SELECT n AS id, n AS x, CASE WHEN n % 2 = 0 THEN 'even' ELSE 'odd' END AS y FROM"
    shuffled = f"{query} generate_series(1, 200) AS n ORDER BY random()"
    path = store_dir / "t.forest"

    create(path, Source(base.url, query=shuffled))

    with dynfrsdb.open(path) as db:
        assert [db.sample(n).y for n in range(1, 201)] == ["odd", "even"] * 100
        assert [db.sample(n).x.tolist() for n in range(1, 201)] == [[n] for n in range(1, 201)]


def test_two_rows_with_one_id_are_refused(base: Base, store_dir: Path) -> None:
    base.insert(people(4))
    base.insert({2: people(3)[2]})

    message = refusal(lambda: base.create(store_dir / "t.forest"))

    assert "id 2 was given before" in message


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "either a table or a query"),
        ({"table": "a", "query": "b"}, "either a table or a query"),
        ({"query": " ; "}, "--query is empty"),
        ({"table": "a", "where": " "}, "--where is empty"),
        ({"table": "a\udc80"}, "--table is not valid Unicode"),
    ],
)
def test_a_source_says_what_it_needs(given: dict[str, str], said: str) -> None:
    assert said in refusal(lambda: Source("sqlite:////data/people.db", **given))


def test_a_source_keeps_its_password_to_itself() -> None:
    source = Source("postgresql://ann:s3cret@db.example/clinic?user=bob&password=s3cret", table="people")

    for text_of_it in (repr(source), str(source), str(source.record()), source.name):
        assert not any(secret in text_of_it for secret in ("ann", "s3cret", "bob"))


def test_a_name_that_looks_like_a_hash_is_refused(base: Base) -> None:
    """The ledger could not be exported and read back with it."""
    source = Source(base.url, table="0123456789abcdef" * 2)

    assert "cannot be told from a hash" in refusal(lambda: source.record())


def test_a_file_that_is_not_there_is_not_created(tmp_path: Path) -> None:
    def act() -> None:
        with SqlTable(Source(f"sqlite:///{tmp_path}/people.db", table="people")):
            pass

    assert "there is no file" in refusal(act, Unreachable)
    assert list(tmp_path.iterdir()) == []
