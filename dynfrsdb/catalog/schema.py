"""Which revision a catalog has, and how it gets the newest.

    nothing there, SQLite       made by whoever registers a store, by running all revisions
    nothing there, else         refused: tables are not made in somebody's database without being asked
    an older revision           refused, with the command to run
    a newer one                 refused: install a newer dynfrsdb
    the newest                  good

Revisions run in one transaction, which two processes cannot be in at once: the second finds nothing to do. Whoever dies
in it has changed nothing. Alembic is imported only to run them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from dynfrsdb import sql
from dynfrsdb.catalog.place import VARIABLE, default_file
from dynfrsdb.catalog.place import url as default_url
from dynfrsdb.catalog.tables import Base
from dynfrsdb.errors import InvalidInput, StoreNotFound, Unreachable, UnsupportedFormat
from dynfrsdb_migrations.catalog import REVISIONS, VERSION_TABLE

if TYPE_CHECKING:
    from alembic.config import Config

NEWEST = REVISIONS[-1]
_TURN = 0x64796E66
"""The number of the lock under which revisions run in PostgreSQL."""


def migrate(url: str) -> str | None:
    """Bring the catalog at `url` to the newest revision; returns the one it had, None if there was none."""
    from alembic import command

    _make_room(url)
    with sql.in_words("migrating the catalog", url), writer(url) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:turn)"), {"turn": _TURN})
        before = found(connection)
        if before not in (None, *REVISIONS):
            raise _newer(url, before)
        command.upgrade(alembic_config(connection), NEWEST)
    return before


def confirm(url: str, create: bool) -> None:
    """Raise unless the catalog at `url` is there and of the newest revision; `create` makes one in SQLite."""
    file = _file(url)
    if file is not None and not (file.exists() and file.stat().st_size):
        if not create:
            raise StoreNotFound(
                f"there is no catalog at '{sql.shown(url)}'; 'dynfrsdb catalog register STORE' makes one"
            )
        migrate(url)
    with sql.in_words("opening the catalog", url), sql.engine(url).connect() as connection:
        revision = found(connection)
        empty = revision is None and file is not None and not inspect(connection).get_table_names()
    if empty and create:
        migrate(url)
    elif revision is None:
        raise InvalidInput(f"there is no catalog at '{sql.shown(url)}'; to make one, run '{_command(url)}'")
    elif revision not in REVISIONS:
        raise _newer(url, revision)
    elif revision != NEWEST:
        raise UnsupportedFormat(
            f"the catalog at '{sql.shown(url)}' has revision {revision}, this version uses {NEWEST}; run "
            f"'{_command(url)}'"
        )


def found(connection: Connection) -> str | None:
    """The revision of a catalog; None if there is none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision: str | None = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
    return revision


def alembic_config(connection: Connection) -> Config:
    """What Alembic is told: where the revisions are, on which connection to run them, what the tables should be."""
    from alembic.config import Config

    import dynfrsdb_migrations.catalog as revisions

    config = Config()
    config.set_main_option("script_location", str(Path(revisions.__file__).parent).replace("%", "%%"))
    config.attributes.update(connection=connection, metadata=Base.metadata)
    return config


def writer(url: str) -> Connection:
    """A connection whose transactions begin as those of a writer."""
    return sql.engine(url).connect().execution_options(**{sql.IMMEDIATE: True})


def _file(url: str) -> Path | None:
    """The file of an SQLite catalog."""
    place = sql.parsed(url)
    name = place.database or ""
    return Path(name) if place.get_backend_name() == "sqlite" and not name.startswith("file:") else None


def _make_room(url: str) -> None:
    """Make the file, which nobody else may read: it names stores, and has the key of the catalog's hashes."""
    file = _file(url)
    if file is None or file.exists():
        return
    try:
        if file == default_file():
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Unreachable(f"the catalog '{file}' cannot be made: {why}; pass --url, or set {VARIABLE}") from error


def _newer(url: str, revision: str | None) -> UnsupportedFormat:
    return UnsupportedFormat(
        f"the catalog at '{sql.shown(url)}' has revision {revision}, which this version does not know (its newest is "
        f"{NEWEST}); install a newer dynfrsdb"
    )


def _command(url: str) -> str:
    return "dynfrsdb migrate --catalog" + ("" if url == default_url(None) else " --url URL")
