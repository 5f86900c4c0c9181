"""The catalog's schema, as Alembic revisions: 0001, 0002, ...

`dynfrsdb migrate --catalog` applies them, through `dynfrsdb.catalog.schema`, which hands over a connection and the
metadata of the tables as they should be. There is no alembic.ini: to make a new revision, change the tables, write the
next file in `versions/` (its number behind the last one in `REVISIONS`), and run tests/catalog/test_revisions.py, which
asks `alembic check` whether the two agree."""

REVISIONS = ("0001", "0002")
"""All revisions, the oldest first."""
VERSION_TABLE = "dynfrsdb_catalog_version"
