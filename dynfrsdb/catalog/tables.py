"""The tables of the catalog.

What the stores say, and can be asked again, is a *projection* of them: everything but where stores are and what was
asked for. It is keyed as in the stores (a store's uuid, the number of a ledger entry), so that the same stores always
give the same rows.

    dynfrsdb_catalog      one row: the key of the catalog's own hashes
    dynfrsdb_stores       where stores are; what they are and the head that was seen last      (projection)
    dynfrsdb_ledger       their ledger entries, without the hashes of removed ids              projection
    dynfrsdb_holds        their holds, without the reasons                                     projection
    dynfrsdb_sources      the tables and queries their samples came from                       projection
    dynfrsdb_requests     who is to be forgotten, as a keyed hash
    dynfrsdb_outcomes     what became of a request in a store

All names begin with `dynfrsdb_`, because the database may be somebody else's as well. Times are text as the ledger has
it (UTC, ISO 8601), hashes are hexadecimal digits: both mean the same in every database.

A change here needs a revision in `dynfrsdb_migrations.catalog` (`alembic check` is a test)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, LargeBinary, MetaData, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

PREFIX = "dynfrsdb_"
LONGEST_REQUEST = 200
_TIME, _HASH, _UUID = String(32), String(64), String(32)


class Base(DeclarativeBase):
    """What all tables have in common: constraints are named the same everywhere, so that revisions can name them."""

    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "ix": "ix_%(table_name)s_%(column_0_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
        }
    )
    type_annotation_map = {int: BigInteger, str: Text}  # noqa: RUF012


class Identity(Base):
    """The catalog itself; one row."""

    __tablename__ = PREFIX + "catalog"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    key: Mapped[bytes] = mapped_column(LargeBinary)
    made: Mapped[str] = mapped_column(_TIME)


class Registered(Base):
    """A store: where it is, and what it said of itself when it was seen last."""

    __tablename__ = PREFIX + "stores"

    uuid: Mapped[str] = mapped_column(_UUID, primary_key=True)
    host: Mapped[str]
    path: Mapped[str]
    registered: Mapped[str] = mapped_column(_TIME)
    unregistered: Mapped[str | None] = mapped_column(_TIME)
    seen: Mapped[str | None] = mapped_column(_TIME)
    """When it was reached last."""
    problem: Mapped[str | None]
    """Why it could not be reached since."""
    task: Mapped[str | None] = mapped_column(String(32))
    features: Mapped[int | None]
    trees: Mapped[int | None]
    samples: Mapped[int | None]
    format: Mapped[int | None]
    algorithm: Mapped[int | None]
    commit: Mapped[int | None]
    sequence: Mapped[int] = mapped_column(default=0)
    head: Mapped[str] = mapped_column(_HASH, default="0" * 64)


class LedgerEntry(Base):
    """One entry of a store's ledger."""

    __tablename__ = PREFIX + "ledger"

    store: Mapped[str] = mapped_column(ForeignKey(Registered.uuid), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    time: Mapped[str] = mapped_column(_TIME)
    kind: Mapped[str] = mapped_column(String(32))
    added: Mapped[int]
    removed: Mapped[int]
    samples: Mapped[int | None]
    request: Mapped[str | None] = mapped_column(_HASH, index=True)
    """The request id, hashed under the key of the store."""
    details: Mapped[dict[str, Any]] = mapped_column(JSON)
    prev: Mapped[str] = mapped_column(_HASH)
    hash: Mapped[str] = mapped_column(_HASH)


class StandingHold(Base):
    """A hold, until it is released or its subject forgotten. The reason stays in the store: it may name somebody."""

    __tablename__ = PREFIX + "holds"

    store: Mapped[str] = mapped_column(ForeignKey(Registered.uuid), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    subject: Mapped[str] = mapped_column(_HASH)
    """Hashed under the key of the store."""
    since: Mapped[str] = mapped_column(_TIME)
    until: Mapped[str | None] = mapped_column(_TIME)


class ForgetRequest(Base):
    """A request to forget somebody, everywhere."""

    __tablename__ = PREFIX + "requests"

    request: Mapped[str] = mapped_column(String(LONGEST_REQUEST), primary_key=True)
    subject_hash: Mapped[str] = mapped_column(_HASH, index=True)
    """Hashed under the key of the catalog."""
    subject: Mapped[str | None]
    """Only if the operator asked for it to be kept."""
    made: Mapped[str] = mapped_column(_TIME)


class Outcome(Base):
    """What became of a request in one store; no row: the store was not asked yet."""

    __tablename__ = PREFIX + "outcomes"

    request: Mapped[str] = mapped_column(ForeignKey(ForgetRequest.request), primary_key=True)
    store: Mapped[str] = mapped_column(ForeignKey(Registered.uuid), primary_key=True)
    outcome: Mapped[str] = mapped_column(String(16))
    tried: Mapped[str] = mapped_column(_TIME)
    subject: Mapped[str | None] = mapped_column(_HASH)
    """Hashed under the key of the store; known once the store was found to hold the subject."""
    sequence: Mapped[int | None]
    """The ledger entry of the removal, and what it says."""
    hash: Mapped[str | None] = mapped_column(_HASH)
    removed: Mapped[int | None]
    time: Mapped[str | None] = mapped_column(_TIME)
    why: Mapped[str | None]


class Source(Base):
    """A table or query that samples of a store came from."""

    __tablename__ = PREFIX + "sources"

    store: Mapped[str] = mapped_column(ForeignKey(Registered.uuid), primary_key=True)
    first: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """The first ledger entry that names it."""
    last: Mapped[int]
    url: Mapped[str]
    described: Mapped[dict[str, Any]] = mapped_column(JSON)
    """All that the ledger says of it."""
