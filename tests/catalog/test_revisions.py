"""The catalog's schema goes up and down, is what the tables say, and no other revision is opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from dynfrsdb import sql
from dynfrsdb.catalog import schema
from dynfrsdb.catalog.tables import Base
from dynfrsdb.errors import InvalidInput, StoreNotFound, UnsupportedFormat
from dynfrsdb_migrations.catalog import REVISIONS, VERSION_TABLE


def with_alembic(url: str, act: Callable[[Config], object]) -> None:
    with schema.writer(url) as connection, connection.begin():
        act(schema.alembic_config(connection))


def tables(url: str) -> set[str]:
    with sql.engine(url).connect() as connection:
        return set(inspect(connection).get_table_names())


def pretend(url: str, revision: str) -> None:
    with schema.writer(url) as connection, connection.begin():
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = :revision"), {"revision": revision})


def test_revisions_go_up_and_down_and_up_again(empty: str) -> None:
    assert schema.migrate(empty) is None
    assert tables(empty) == {*Base.metadata.tables, VERSION_TABLE}

    for _ in REVISIONS[1:]:
        with_alembic(empty, lambda config: command.downgrade(config, "-1"))
    assert schema.migrate(empty) == REVISIONS[0]
    assert tables(empty) == {*Base.metadata.tables, VERSION_TABLE}

    with_alembic(empty, lambda config: command.downgrade(config, "base"))
    assert tables(empty) == {VERSION_TABLE}


def test_the_revisions_make_what_the_tables_say(empty: str) -> None:
    """`alembic check`; also in a database that holds other people's tables."""
    schema.migrate(empty)
    with schema.writer(empty) as connection, connection.begin():
        connection.execute(text("CREATE TABLE patients (id INTEGER)"))

    with_alembic(empty, command.check)


def test_constraints_have_the_names_that_the_tables_give_them(empty: str) -> None:
    schema.migrate(empty)
    with sql.engine(empty).connect() as connection:
        seen = inspect(connection)
        found = {
            name: [
                seen.get_pk_constraint(name)["name"],
                *sorted(str(each["name"]) for each in seen.get_foreign_keys(name)),
            ]
            for name in Base.metadata.tables
        }

    assert found["dynfrsdb_ledger"] == ["pk_dynfrsdb_ledger", "fk_dynfrsdb_ledger_store"]
    assert found["dynfrsdb_outcomes"] == [
        "pk_dynfrsdb_outcomes",
        "fk_dynfrsdb_outcomes_request",
        "fk_dynfrsdb_outcomes_store",
    ]


def test_the_list_of_revisions_is_that_of_the_files(empty: str) -> None:
    files: list[str] = []

    def look(config: Config) -> None:
        files.extend(each.revision for each in ScriptDirectory.from_config(config).walk_revisions())

    with_alembic(empty, look)

    assert tuple(reversed(files)) == REVISIONS


def test_an_older_catalog_is_refused_with_the_command_to_run(empty: str) -> None:
    schema.migrate(empty)
    with_alembic(empty, lambda config: command.downgrade(config, "0001"))

    with pytest.raises(UnsupportedFormat, match=r"has revision 0001, this version uses .* run 'dynfrsdb migrate --cat"):
        schema.confirm(empty, create=True)

    schema.migrate(empty)
    schema.confirm(empty, create=False)


def test_a_newer_catalog_is_refused_and_left_alone(empty: str) -> None:
    schema.migrate(empty)
    pretend(empty, "9999")

    with pytest.raises(UnsupportedFormat, match=r"has revision 9999.*install a newer dynfrsdb"):
        schema.confirm(empty, create=True)
    with pytest.raises(UnsupportedFormat, match="install a newer dynfrsdb"):
        schema.migrate(empty)


def test_no_tables_are_made_in_a_database_without_being_asked(postgres: str) -> None:
    with pytest.raises(InvalidInput, match=r"there is no catalog at .* run 'dynfrsdb migrate --catalog --url URL'"):
        schema.confirm(postgres, create=True)

    assert tables(postgres) == set()
    sql.dispose()


def test_looking_does_not_make_a_catalog(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.sqlite"

    with pytest.raises(StoreNotFound, match="'dynfrsdb catalog register STORE' makes one"):
        schema.confirm(url, create=False)

    assert os.listdir(tmp_path) == []


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    schema.confirm(f"sqlite:///{tmp_path}/catalog.sqlite", create=True)

    assert (tmp_path / "catalog.sqlite").stat().st_mode & 0o777 == 0o600


def test_two_who_migrate_at_once_take_turns(empty: str) -> None:
    with ThreadPool(4) as pool:
        before = pool.map(schema.migrate, [empty] * 4)

    assert sorted(before, key=str) == sorted([None, *[schema.NEWEST] * 3], key=str)


def test_a_death_in_a_migration_leaves_nothing(empty: str) -> None:
    """Whether the database can take back the making of tables is up to it, and to how we begin."""

    def die(connection: Connection) -> None:
        command.upgrade(schema.alembic_config(connection), "0001")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), schema.writer(empty) as connection, connection.begin():
        die(connection)

    assert tables(empty) == set()
    assert schema.migrate(empty) is None
