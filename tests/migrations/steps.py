"""Steps that exist only here, from the real format to two that come after it, and a store that takes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dynfrsdb
from dynfrsdb_migrations.store import steps
from dynfrsdb_migrations.store.step import InPlace, Rewrite, Step
from dynfrsdb_storage import Store, WriteSession, layout
from tests.people import X, changer

NEXT = layout.FORMAT + 1
KEPT = b"kept"
"""A record of `meta` that the steps write and change."""


def put(session: WriteSession) -> None:
    session.put("meta", KEPT, b"in place")


def changed(database: str, key: bytes, payload: bytes) -> tuple[bytes, bytes]:
    return (key, payload + b", rewritten") if (database, key) == ("meta", KEPT) else (key, payload)


def in_place(to: int = NEXT, is_read: bool = True) -> InPlace:
    return InPlace(to=to, needs=f"{to}.0", about="a record more", is_read=is_read, apply=put)


def rewrite(to: int = NEXT, is_read: bool = True) -> Rewrite:
    return Rewrite(
        to=to,
        needs=f"{to}.0",
        about="another record",
        is_read=is_read,
        record=changed,
        settings=lambda settings: {**settings, "rewritten": to},
    )


def know(monkeypatch: pytest.MonkeyPatch, *taken: Step) -> None:
    """From now on be the version that has these steps."""
    monkeypatch.setattr(steps, "STEPS", (*steps.STEPS, *taken))
    monkeypatch.setattr(layout, "FORMAT", taken[-1].to)
    monkeypatch.setattr(layout, "NEEDS", taken[-1].needs)
    unread = [step.to for step in taken if not step.is_read]
    monkeypatch.setattr(layout, "OLDEST_READ", max(unread, default=layout.OLDEST_READ))


def worn(path: Path) -> Path:
    """A store with a history: tags, free slots, people who are gone."""
    with changer(path) as db:
        db.forget("person 7")
        db.remove(range(1, 60, 7), request_id="request 1")
        db.hold("person 9", reason="a dispute")
        assert db.info()["tags"]
    return path


def said(path: Path) -> dict[str, Any]:
    """What must stay the same whatever format a store has."""
    with dynfrsdb.open(path) as db:
        return {
            "digest": db.digest(),
            "answers": db.predict_proba(X).tobytes(),
            "samples": len(db),
            "ledger": db.ledger(),
            "holds": db.holds(),
            "uuid": db.info()["uuid"],
            "tags": db.info()["tags"],
            "problems": db.check().problems,
        }


def format_of(path: Path) -> int:
    with any_format(path) as store, store.snapshot() as snapshot:
        return int(snapshot.generation.identity["format"])


def kept(path: Path) -> bytes | None:
    with any_format(path) as store, store.snapshot() as snapshot:
        (found,) = snapshot.get("meta", [KEPT])
        return found


def generations(path: Path) -> list[str]:
    return sorted(each.name for each in path.glob("gen-*"))


@contextmanager
def any_format(path: Path) -> Iterator[Store]:
    """A store that may have to be migrated."""
    with Store.open(path, writable=False, migrating=True) as store:
        yield store
