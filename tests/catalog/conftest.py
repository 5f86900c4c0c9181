"""A catalog in SQLite, and the same in PostgreSQL where there is one; stores to put into it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynfrsdb import sql
from dynfrsdb.catalog import registry, schema
from dynfrsdb.catalog.handle import Catalog
from tests.catalog.stores import new_stores


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, store_dir: Path) -> Iterator[str]:
    """The URL of a database without a catalog."""
    postgres = request.param == "postgresql"
    yield request.getfixturevalue("postgres") if postgres else f"sqlite:///{store_dir}/catalog.sqlite"
    sql.dispose()


@pytest.fixture(scope="session")
def new_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new catalog, made once: running all revisions takes its time."""
    file = tmp_path_factory.mktemp("catalog") / "new.sqlite"
    schema.migrate(f"sqlite:///{file}")
    return file


@pytest.fixture
def anywhere(empty: str) -> Catalog:
    """An empty catalog, in each kind of database."""
    schema.migrate(empty)
    return Catalog(empty)


@pytest.fixture
def catalog(store_dir: Path, new_file: Path) -> Iterator[Catalog]:
    """An empty catalog, in SQLite."""
    shutil.copy(new_file, store_dir / "catalog.sqlite")
    yield Catalog(f"sqlite:///{store_dir}/catalog.sqlite")
    sql.dispose()


@pytest.fixture
def three(store_dir: Path) -> dict[str, Path]:
    """Three stores, in memory: see stores.py."""
    return new_stores(store_dir)


@pytest.fixture
def known(catalog: Catalog, three: dict[str, Path]) -> Catalog:
    """A catalog that knows the three stores."""
    for path in three.values():
        registry.register(catalog, path)
    return catalog
