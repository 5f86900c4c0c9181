"""Tables and queries of SQL databases, read as streams.

    Source(url, table="people")                            SELECT * FROM people
    Source(url, table="clinic.people", where="age > 17")   SELECT * FROM clinic.people WHERE (age > 17)
    Source(url, query="SELECT ...")                        SELECT * FROM (SELECT ...) AS source

    with SqlTable(source, id="id") as table:
        table.batches()        all rows, in whatever order the database likes
        table.count_ids()      how many rows there are, once it is sure that every one has its own id
        table.by_id(columns)   all rows, in the order of their ids

Everything between the two ends of the `with` block sees one state of the database: it is one transaction that only
reads (REPEATABLE READ READ ONLY; with SQLite a read transaction). Rows come through a cursor on the server, some
thousands at a time, so that a table is never in memory as a whole, neither here nor in the driver.

Cells come as the driver has them, without a second opinion from column types: SQLite has none, and PostgreSQL's are in
the values. Dates, bytes and what else is no feature are `Opaque`, and only an error where they are used.

The text of a query and of a condition is the operator's own and goes to the database as it is. Names of tables and
columns are quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from types import NoneType, TracebackType
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy import Connection, Select, column, literal_column, select
from sqlalchemy import table as sql_table
from sqlalchemy.exc import SQLAlchemyError

from dynfrsdb.errors import InvalidInput, Unreachable
from dynfrsdb.sql import engine, in_words, parsed, shown
from dynfrsdb.tables.batch import Batch, Column, Opaque, Table, check_names, rows_at_once
from dynfrsdb.tables.cells import ids

_PLAIN = {NoneType, bool, int, float, str, Decimal}
_DATES = (date, time, timedelta)
_NAMED_AT_MOST = 5
_LIKE_A_HASH = re.compile("(?:[0-9a-f]{32}){1,2}")


@dataclass(frozen=True)
class Source:
    """Where samples are kept outside: a table or a query of a database, and which of its rows."""

    url: str = field(repr=False)
    """May hold a password."""
    table: str | None = None
    query: str | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        parsed(self.url)
        if (self.table is None) == (self.query is None):
            raise InvalidInput("a source is either a table or a query; pass one of --table and --query")
        for what, text in (("table", self.table), ("query", self.query), ("where", self.where)):
            if text is not None and not text.strip(" \t\n;"):
                raise InvalidInput(f"--{what} is empty")
            try:
                (text or "").encode()
            except UnicodeEncodeError:
                raise InvalidInput(f"--{what} is not valid Unicode text") from None

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.table or "the query"

    def record(self, **columns: str | None) -> dict[str, str | None]:
        """What the ledger has of it: no user name, no password."""
        said = {"url": shown(self.url), "table": self.table, "query": self.query, "where": self.where, **columns}
        for text in said.values():
            if text is not None and _LIKE_A_HASH.fullmatch(text):
                raise InvalidInput(f"{text!r} cannot be told from a hash in the ledger; give it another name")
        return said

    def rows(self, columns: Sequence[str] | None = None) -> Select[Any]:
        """The statement that asks for all its rows, with some columns if it is a table, and otherwise with all."""
        if self.query is not None:
            # Behind a line end, because the query may end with a comment.
            found: Select[Any] = select(literal_column(f"* FROM ({self.query.strip().rstrip(';')}\n) AS source"))
        else:
            schema, _, name = (self.table or "").rpartition(".")
            wanted: list[Any] = [literal_column("*")] if columns is None else [column(each) for each in columns]
            found = select(*wanted).select_from(sql_table(name, schema=schema or None))
        return found if self.where is None else found.where(literal_column(f"({self.where}\n)"))


class SqlTable(Table):
    """The rows of a source; read inside a `with` block, which is one transaction of the source."""

    keeps_order = False

    def __init__(self, source: Source, id: str | None = None) -> None:
        super().__init__(source.name)
        self.source, self._id = source, id
        self._opened: Connection | None = None

    def __enter__(self) -> SqlTable:
        url = parsed(self.source.url)
        if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
            raise Unreachable(f"there is no file '{url.database}'; look at its path")  # SQLite would create one
        with in_words(f"opening '{self.name}'", self.source.url):
            connection = engine(self.source.url).connect()
            if url.get_backend_name() == "sqlite":
                connection.detach()  # not to go back among those that may write
                self._opened = connection
                connection.exec_driver_sql("PRAGMA query_only = ON")
            else:
                self._opened = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(SQLAlchemyError):  # nothing was written, so nothing depends on it
                opened.close()

    def heading(self) -> Batch:
        """All columns, without rows."""
        return next(self._batches(self.source.rows().limit(0)))

    def batches(self) -> Iterator[Batch]:
        return self._batches(self.source.rows())

    def by_id(self, columns: Sequence[str]) -> Iterator[Batch]:
        """All rows in the order of their ids, as the database orders them; columns of a query come all."""
        return self._batches(self.source.rows(columns).order_by(column(self._required_id)))

    def count_ids(self) -> int:
        """How many rows there are; raises unless their ids are whole numbers that ascend, each once."""
        id, last, total = self._required_id, -1, 0
        ordered = self.source.rows([id]).order_by(column(id))
        for batch in self._batches(ordered):
            if not batch.size:
                break
            found = ids(batch.columns[id], batch.where(id))
            before = np.concatenate(([np.uint64(max(last, 0))], found[:-1]))
            wrong = found <= before
            wrong[0] = int(found[0]) <= last
            if wrong.any():
                self._refuse_ids(found[wrong & (found == before)].tolist())
            last, total = int(found[-1]), total + batch.size
        return total

    @property
    def _required_id(self) -> str:
        if self._id is None:
            raise InvalidInput("rows can only be followed by their ids; pass --id")
        return self._id

    def _refuse_ids(self, twins: list[int]) -> None:
        if not twins:
            raise InvalidInput(
                f"column {self._id!r} of '{self.name}' sorts otherwise than whole numbers do (as text, 10 comes before "
                "9); nothing was changed. Make it a column of numbers, or pass --query with a CAST of it"
            )
        shown_ids = ", ".join(map(str, twins[:_NAMED_AT_MOST])) + (", ..." if len(twins) > _NAMED_AT_MOST else "")
        raise InvalidInput(
            f"'{self.name}' has more than one row with id {shown_ids}; nothing was changed. Give each row its own id"
        )

    def _batches(self, statement: Select[Any]) -> Iterator[Batch]:
        first = 0
        for names, rows in self._parts(statement):
            if not first:
                check_names(self.name, names)
            cells = zip(*rows, strict=True) if rows else (() for _ in names)
            columns = {name: _column(each) for name, each in zip(names, cells, strict=True)}
            self.done = first + len(rows)
            yield Batch(self.name, columns, len(rows), first, self._place(first, columns))
            first += len(rows)

    def _parts(self, statement: Select[Any]) -> Iterator[tuple[list[str], Sequence[Any]]]:
        """The names of the columns and some rows, at least once."""
        if self._opened is None:
            raise RuntimeError("a table of a database is read inside its 'with' block")
        with in_words(f"reading '{self.name}'", self.source.url):
            result = self._opened.execute(statement, execution_options={"stream_results": True})
            cursor = result.cursor
            assert cursor is not None
            # Not the result's own keys: it takes the only column of a query for one with the name of the whole text.
            names = [str(each[0]) for each in cursor.description]
            any_rows = False
            with result:
                for rows in result.partitions(rows_at_once(len(names))):
                    any_rows = True
                    yield names, rows
                if not any_rows:
                    yield names, ()

    def _place(self, first: int, columns: dict[str, Column]) -> Callable[[int], str]:
        known = columns.get(self._id or "", ())

        def place(row: int) -> str:
            id = known[row] if row < len(known) else None
            numbered = isinstance(id, (int, np.integer, Decimal)) and not isinstance(id, bool)
            return f"'{self.name}', {self._id} {id}" if numbered else f"'{self.name}', row {first + row}"

        return place


def _column(cells: Sequence[Any]) -> Column:
    """The cells of a column: an array where they are all of one kind of number."""
    kinds = set(map(type, cells))
    if kinds == {int}:
        try:
            return np.array(cells, np.int64)
        except OverflowError:
            return list(cells)
    if kinds == {bool}:
        return np.array(cells, np.bool_)
    if float in kinds and kinds <= {float, NoneType}:
        return np.array(cells, np.float64)
    return list(cells) if kinds <= _PLAIN else [each if type(each) in _PLAIN else _cell(each) for each in cells]


def _cell(cell: Any) -> Any:
    if isinstance(cell, UUID):
        return str(cell)
    return Opaque(type(cell).__name__, isinstance(cell, _DATES))
