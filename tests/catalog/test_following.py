"""A store that was just changed is brought in at once, if the catalog can be reached, and later if not."""

from __future__ import annotations

import time
from pathlib import Path

from sqlalchemy import text

from dynfrsdb import sql
from dynfrsdb.catalog import registry, report, schema
from dynfrsdb.catalog.following import SECONDS, follow
from dynfrsdb.catalog.handle import Catalog
from dynfrsdb.catalog.tables import Registered
from tests.catalog.stores import everything, opened
from tests.postgres import Server


def change(path: Path, number: int) -> None:
    with opened(path, "w") as db:
        db.remove([number])


def removed(catalog: Catalog) -> int:
    return sum(each["removed"] for each in report.ledger(catalog))


def test_a_change_of_a_registered_store_is_brought_in(anywhere: Catalog, path: Path) -> None:
    registry.register(anywhere, path)
    change(path, 1)

    assert follow(anywhere.url, path) is None

    assert removed(anywhere) == 1


def test_a_store_that_is_not_registered_is_left_alone(anywhere: Catalog, path: Path) -> None:
    before = everything(anywhere)

    assert follow(anywhere.url, path) is None

    assert everything(anywhere) == before


def test_a_store_under_a_link_is_found_by_its_real_path(catalog: Catalog, path: Path) -> None:
    registry.register(catalog, path)
    link = path.parent / "link.forest"
    link.symlink_to(path)
    change(path, 1)

    assert follow(catalog.url, link) is None

    assert removed(catalog) == 1


def test_a_catalog_that_is_down_is_said_and_repaired_at_the_next_contact(postgres_server: Server, path: Path) -> None:
    url = postgres_server.url(postgres_server.fresh())
    schema.migrate(url)
    catalog = Catalog(url)
    registry.register(catalog, path)
    postgres_server.stop()
    try:
        change(path, 1)
        said = follow(url, path)
    finally:
        postgres_server.start()

    assert said is not None
    assert "opening the catalog failed" in said
    registry.refresh(catalog)
    assert removed(catalog) == 1
    sql.dispose()


def test_nobody_waits_long_for_a_catalog_that_somebody_writes_to(anywhere: Catalog, path: Path) -> None:
    registry.register(anywhere, path)
    change(path, 1)
    with anywhere.writing("blocking") as session:
        session.get(Registered, report.stores(anywhere)[0]["uuid"], with_for_update=True)
        session.execute(text("UPDATE dynfrsdb_stores SET problem = NULL"))
        begun = time.monotonic()

        said = follow(anywhere.url, path)

    assert time.monotonic() - begun < SECONDS + 3
    assert said is not None
    assert "try again" in said
    registry.refresh(anywhere)
    assert removed(anywhere) == 1


def test_a_catalog_of_another_revision_is_said(catalog: Catalog, path: Path) -> None:
    with schema.writer(catalog.url) as connection, connection.begin():
        connection.execute(text("UPDATE dynfrsdb_catalog_version SET version_num = '9999'"))

    assert "install a newer dynfrsdb" in str(follow(catalog.url, path))
