"""SQL databases outside the store: one engine per process and URL, and errors in our words.

    sqlite:////data/people.db            a file
    postgresql://host/clinic             through psycopg        pip install 'dynfrsdb[postgres]'

Two things read and write such databases: tables that samples come from, and the catalog. Both go through `engine`, so
both have the same rules:

- SQLite transactions begin where SQLAlchemy says so. Python's driver would begin one only before it writes, and two
  looks at a table would see two states of it. A connection with the execution option `immediate=True` begins as a
  writer, so that it waits for its turn at the beginning and not in the middle.
- A connection that was lost is noticed: before it is used again, and within a minute while it is.
- A forked child never uses its parent's connections.

`in_words` turns what goes wrong into one line: `Unreachable` if trying again later may help, `InvalidInput` if not. No
user name, no password and no value of a row is in it: what databases say quotes all three.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, exc, make_url

from dynfrsdb.errors import Error, InvalidInput, MissingExtra, Unreachable

IMMEDIATE = "immediate"
"""The execution option of a connection that is going to write to SQLite."""
CONNECT_SECONDS = 10
LOCKED_SECONDS = 15.0
"""How long to wait for somebody who writes to the same SQLite file."""

_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
}
_EXAMPLES = "write it like sqlite:////data/people.db or postgresql://host/database"
_POSTGRES = {
    "connect_timeout": CONNECT_SECONDS,
    "fallback_application_name": "dynfrsdb",
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
_engines: dict[str, Engine] = {}


def parsed(url: str) -> URL:
    """A URL with the driver that is used for it, or an error that does not repeat it: it may hold a password."""
    try:
        found = make_url(url)
    except (exc.ArgumentError, ValueError) as error:
        raise InvalidInput(f"this is no URL of a database; {_EXAMPLES}") from error
    if found.drivername not in _DRIVERS:
        raise InvalidInput(f"databases of the kind {found.drivername!r} are not known; {_EXAMPLES}")
    if found.drivername.startswith("sqlite") and found.database in (None, "", ":memory:"):
        raise InvalidInput(f"an SQLite database in memory ends with its process; {_EXAMPLES}")
    found = found.set(drivername=_DRIVERS[found.drivername])
    if found.get_backend_name() == "sqlite":
        return found.set(database=os.path.abspath(found.database or ""))  # the same wherever it is read next
    return found


def shown(url: str | URL) -> str:
    """A URL for people and for the ledger: without driver, user name, password and most options."""
    found = parsed(url) if isinstance(url, str) else url
    where = {name: value for name, value in found.query.items() if name in ("host", "port")}  # of a socket
    return URL.create(
        found.get_backend_name(), host=found.host, port=found.port, database=found.database, query=where
    ).render_as_string()


def engine(url: str) -> Engine:
    """The one engine of this process for a URL; nothing is connected before it is used."""
    place = parsed(url)
    key = place.render_as_string(hide_password=False)
    if key not in _engines:
        _engines[key] = _new_engine(place)
    return _engines[key]


def _new_engine(place: URL) -> Engine:
    if place.get_backend_name() == "sqlite":
        patience = {} if "timeout" in place.query else {"timeout": LOCKED_SECONDS}
        made = create_engine(place, hide_parameters=True, connect_args=patience)
        event.listen(made, "connect", _prepare_sqlite)
        event.listen(made, "begin", _begin_sqlite)
        return made
    given = {name: value for name, value in _POSTGRES.items() if name not in place.query}
    try:
        return create_engine(place, hide_parameters=True, pool_pre_ping=True, connect_args=given)
    except ImportError as error:
        raise MissingExtra(f"'{shown(place)}' needs psycopg; pip install 'dynfrsdb[postgres]'") from error


def _prepare_sqlite(connection: sqlite3.Connection, record: object) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself; `_begin_sqlite` does
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Any) -> None:
    immediate = connection.get_execution_options().get(IMMEDIATE)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


def dispose() -> None:
    """Close all connections that are not in use, and forget the engines."""
    for each in _engines.values():
        each.dispose()
    _engines.clear()


def _born_by_fork() -> None:
    for each in _engines.values():
        each.dispose(close=False)  # the sockets are the parent's
    _engines.clear()


os.register_at_fork(after_in_child=_born_by_fork)


@contextmanager
def in_words(what: str, url: str) -> Iterator[None]:
    """Turn errors of SQLAlchemy and its drivers into ours: '`what` failed at `url`: reason; remedy'."""
    try:
        yield
    except Error:
        raise
    except exc.DBAPIError as error:
        kind, why = _reason(error)
        raise kind(f"{what} failed at '{shown(url)}': {why}") from error
    except exc.TimeoutError as error:
        raise Unreachable(f"{what} failed at '{shown(url)}': all connections are in use; try again later") from error
    except UnicodeError as error:
        raise InvalidInput(f"{what} failed at '{shown(url)}': a text is not valid Unicode; correct it") from error
    except exc.NoSuchTableError as error:
        raise InvalidInput(f"{what} failed: there is no table '{error}' at '{shown(url)}'") from error
    except exc.SQLAlchemyError as error:
        raise InvalidInput(f"{what} failed at '{shown(url)}': {_one_line(error)}") from error


def _reason(error: exc.DBAPIError) -> tuple[type[Error], str]:
    original = error.orig
    if isinstance(original, sqlite3.Error):
        return _sqlite_reason(original)
    state = str(getattr(original, "sqlstate", None) or "")
    for prefix, (kind, why) in _STATES.items():
        if state.startswith(prefix):
            return kind, why or _one_line(original)
    if state:
        return InvalidInput, _one_line(original)
    if "authentication failed" in str(original):
        return _STATES["28"]
    if isinstance(error, exc.OperationalError) or error.connection_invalidated:
        return Unreachable, f"{_one_line(original)}; look whether the server is up, and try again"
    return InvalidInput, _one_line(original)


_STATES: dict[str, tuple[type[Error], str]] = {
    "08": (Unreachable, "the connection was lost; try again"),
    "22": (InvalidInput, "a value cannot be turned into the type that the query asks for; correct it, or the query"),
    "28": (Unreachable, "the server does not let this user in; look at user name and password"),
    "3D": (Unreachable, "there is no such database on that server"),
    "40": (Unreachable, "another transaction was in the way; try again"),
    "42501": (InvalidInput, "this user may not read there; ask for the right to SELECT"),
    "42": (InvalidInput, ""),
    "53": (Unreachable, "the server has run out of connections, memory or disk; try again later"),
    "55P03": (Unreachable, "another transaction holds a lock for too long; try again"),
    "57014": (Unreachable, "the server ended the statement, most likely because it took too long; try again"),
    "57": (Unreachable, "the server was stopped, or ended the connection; try again when it is up"),
    "25P0": (Unreachable, "the server ended the transaction, because it took too long; try again"),
}
"""What classes of SQLSTATE mean, the longer ones before the shorter; an empty text: what the server says."""


def _sqlite_reason(error: sqlite3.Error) -> tuple[type[Error], str]:
    said = str(error)
    if "decode to UTF-8" in said:
        return InvalidInput, "a text is not UTF-8; correct it"
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Unreachable, "somebody else is writing to it for too long; try again"
    if code == sqlite3.SQLITE_CANTOPEN:
        return Unreachable, "the file cannot be opened; look at its path and permissions"
    if code == sqlite3.SQLITE_NOTADB:
        return InvalidInput, "the file is no SQLite database"
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL):
        return Unreachable, f"{_one_line(error)}; look at the file and its disk"
    return InvalidInput, _one_line(error)


_PEOPLE = re.compile(r"""\b(user|role)\s+("[^"]*"|'[^']*')""")


def _one_line(error: object) -> str:
    """The first line of what a driver says, without user names."""
    text = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return _PEOPLE.sub(r"\1", " ".join(text.split()))[:300]
