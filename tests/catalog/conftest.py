"""A catalog in SQLite, and the same in PostgreSQL where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dynfrsdb import sql


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without a catalog."""
    postgres = request.param == "postgresql"
    yield request.getfixturevalue("postgres") if postgres else f"sqlite:///{tmp_path}/catalog.sqlite"
    sql.dispose()
