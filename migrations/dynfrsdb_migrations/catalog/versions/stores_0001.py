"""The first: stores, their ledgers and holds, requests and what became of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_TIME, _HASH, _UUID = sa.String(32), sa.String(64), sa.String(32)


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "dynfrsdb_catalog",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("made", _TIME, nullable=False),
    )
    op.create_table(
        "dynfrsdb_stores",
        sa.Column("uuid", _UUID, primary_key=True),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("registered", _TIME, nullable=False),
        sa.Column("unregistered", _TIME),
        sa.Column("seen", _TIME),
        sa.Column("problem", sa.Text),
        sa.Column("task", sa.String(32)),
        sa.Column("features", sa.BigInteger),
        sa.Column("trees", sa.BigInteger),
        sa.Column("samples", sa.BigInteger),
        sa.Column("format", sa.BigInteger),
        sa.Column("algorithm", sa.BigInteger),
        sa.Column("commit", sa.BigInteger),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("head", _HASH, nullable=False),
    )
    _ledger_and_holds()
    _requests()


def _ledger_and_holds() -> None:
    op.create_table(
        "dynfrsdb_ledger",
        sa.Column("store", _UUID, sa.ForeignKey("dynfrsdb_stores.uuid"), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("time", _TIME, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("added", sa.BigInteger, nullable=False),
        sa.Column("removed", sa.BigInteger, nullable=False),
        sa.Column("samples", sa.BigInteger),
        sa.Column("request", _HASH),
        sa.Column("details", sa.JSON, nullable=False),
        sa.Column("prev", _HASH, nullable=False),
        sa.Column("hash", _HASH, nullable=False),
    )
    op.create_index("ix_dynfrsdb_ledger_request", "dynfrsdb_ledger", ["request"])
    op.create_table(
        "dynfrsdb_holds",
        sa.Column("store", _UUID, sa.ForeignKey("dynfrsdb_stores.uuid"), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("subject", _HASH, nullable=False),
        sa.Column("since", _TIME, nullable=False),
        sa.Column("until", _TIME),
    )


def _requests() -> None:
    op.create_table(
        "dynfrsdb_requests",
        sa.Column("request", sa.String(200), primary_key=True),
        sa.Column("subject_hash", _HASH, nullable=False),
        sa.Column("subject", sa.Text),
        sa.Column("made", _TIME, nullable=False),
    )
    op.create_index("ix_dynfrsdb_requests_subject_hash", "dynfrsdb_requests", ["subject_hash"])
    op.create_table(
        "dynfrsdb_outcomes",
        sa.Column("request", sa.String(200), sa.ForeignKey("dynfrsdb_requests.request"), primary_key=True),
        sa.Column("store", _UUID, sa.ForeignKey("dynfrsdb_stores.uuid"), primary_key=True),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("tried", _TIME, nullable=False),
        sa.Column("subject", _HASH),
        sa.Column("sequence", sa.BigInteger),
        sa.Column("hash", _HASH),
        sa.Column("removed", sa.BigInteger),
        sa.Column("time", _TIME),
        sa.Column("why", sa.Text),
    )


def downgrade() -> None:
    """Drop them, those that refer to others first."""
    for name in ("outcomes", "requests", "holds", "ledger", "stores", "catalog"):
        op.drop_table(f"dynfrsdb_{name}")
