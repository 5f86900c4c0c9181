"""How Alembic runs revisions of the catalog: on the connection it is handed, inside the transaction of the caller.

The database may be somebody else's as well, so only names that begin as ours do are looked at."""

from __future__ import annotations

from alembic import context
from alembic.runtime.environment import NameFilterParentNames, NameFilterType

from dynfrsdb_migrations.catalog import VERSION_TABLE

PREFIX = "dynfrsdb_"


def _ours(name: str | None, kind: NameFilterType, parents: NameFilterParentNames) -> bool:
    return kind != "table" or (name or "").startswith(PREFIX)


given = context.config.attributes
context.configure(
    connection=given["connection"],
    target_metadata=given["metadata"],
    version_table=VERSION_TABLE,
    include_name=_ours,
    compare_type=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
