"""Where samples came from, for stores that are made from SQL tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table, and forget how far ledgers were read: the next contact reads them, and their sources, anew."""
    op.create_table(
        "dynfrsdb_sources",
        sa.Column("store", sa.String(32), sa.ForeignKey("dynfrsdb_stores.uuid"), primary_key=True),
        sa.Column("first", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("last", sa.BigInteger, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("described", sa.JSON, nullable=False),
    )
    op.execute("UPDATE dynfrsdb_stores SET head = ''")


def downgrade() -> None:
    """Drop it."""
    op.drop_table("dynfrsdb_sources")
