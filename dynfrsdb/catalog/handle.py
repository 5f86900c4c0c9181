"""The open catalog.

Whoever writes begins as a writer (SQLite) or locks the row of the store it is about (PostgreSQL), and only then looks
at the store. So two processes that bring in the same store take turns, and the second never has an older look at it
than the first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from hashlib import blake2b
from typing import TypeVar

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from dynfrsdb import sql
from dynfrsdb.catalog import schema
from dynfrsdb.catalog.tables import Base, Identity
from dynfrsdb.receipt import now
from dynfrsdb.secrets import HASH_BYTES

KEY_BYTES = 32
Row = TypeVar("Row", bound=Base)
_ONLY = 1


class Catalog:
    """A catalog of the newest revision; `create` makes it if it is an SQLite file that is not there yet."""

    def __init__(self, url: str, create: bool = False) -> None:
        schema.confirm(url, create)
        self.url = url

    @contextmanager
    def writing(self, what: str) -> Iterator[Session]:
        """A transaction that may change the catalog; `what` is being done, for error messages."""
        engine = sql.engine(self.url).execution_options(**{sql.IMMEDIATE: True})
        with sql.in_words(what, self.url), Session(engine) as session, session.begin():
            yield session

    @contextmanager
    def reading(self, what: str = "reading the catalog") -> Iterator[Session]:
        """A transaction that only looks."""
        with sql.in_words(what, self.url), Session(sql.engine(self.url)) as session:
            yield session

    def subject_hash(self, subject: bytes) -> str:
        """What stands for a subject in the catalog."""
        return blake2b(subject, key=self._key, digest_size=HASH_BYTES).hexdigest()

    @cached_property
    def _key(self) -> bytes:
        """The key of this catalog's hashes, made by whoever needs it first."""
        with self.writing("reading the key of the catalog") as session:
            known = session.get(Identity, _ONLY)
            if known is None:
                put_new(session, Identity(id=_ONLY, key=os.urandom(KEY_BYTES), made=now()))
                known = there(session, Identity, _ONLY)
            return known.key


def put_new(session: Session, row: Base) -> bool:
    """Add a row, unless another process has just added one with its key; returns whether it was added."""
    try:
        with session.begin_nested():
            session.add(row)
        return True
    except IntegrityError:
        return False


def there(session: Session, kind: type[Row], key: object, locked: bool = False) -> Row:
    """A row that is known to be there; `locked`: nobody else changes it before the transaction has ended."""
    found = session.get(kind, key, with_for_update=locked or None)
    assert found is not None, f"no {kind.__name__} {key}: rows that others refer to are never deleted"
    return found
