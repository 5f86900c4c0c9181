"""docs/catalog.md names every table, column and verb."""

from __future__ import annotations

from pathlib import Path

from dynfrsdb.catalog.projection import NOT_HELD, PENDING, REFUSED, UNREACHABLE
from dynfrsdb.catalog.tables import Base

DOCUMENT = (Path(__file__).parents[2] / "docs" / "catalog.md").read_text()


def test_the_picture_has_every_table_and_column() -> None:
    _, _, picture = DOCUMENT.partition("## The tables")
    words = set(picture.replace("*", " ").replace("`", " ").split())

    missing = [
        f"{name}.{column.name}"
        for name, table in Base.metadata.tables.items()
        for column in table.columns
        if name not in words or column.name not in words
    ]

    assert missing == []


def test_every_outcome_is_explained() -> None:
    _, _, table = DOCUMENT.partition("## What a request becomes")

    for outcome in (NOT_HELD, PENDING, REFUSED, UNREACHABLE, "unlearned", "rows erased", "erased"):
        assert f"`{outcome}`" in table
