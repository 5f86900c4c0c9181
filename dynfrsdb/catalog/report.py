"""What the catalog says, for people and for auditors. Nothing here asks a store.

A request is *done* when every registered store has removed the subject or does not hold it. How far a removal has come
since (unlearned, rows erased, erased) follows from the ledger of its store, as it was seen last."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from dynfrsdb import moments
from dynfrsdb.catalog.handle import Catalog
from dynfrsdb.catalog.projection import DONE, PENDING, REFUSED, UNREACHABLE
from dynfrsdb.catalog.registry import find
from dynfrsdb.catalog.tables import Base, ForgetRequest, LedgerEntry, Outcome, Registered, Source, StandingHold
from dynfrsdb.erasure import Stages
from dynfrsdb.errors import EntryNotFound
from dynfrsdb_storage.stages import ERASED, ROWS_ERASED, VACUUM

_OPEN = (UNREACHABLE, PENDING, REFUSED)
"""States of a store in which a request is not done, the one that a request is named after first."""
_STAGES = (ROWS_ERASED, VACUUM, ERASED, "restore")
"""Entries that stages are told from."""


def stores(catalog: Catalog, everything: bool = False) -> list[dict[str, Any]]:
    """All stores that are registered; `everything` has those that were, as well."""
    with catalog.reading() as session:
        return [
            _plain(store)
            for store in session.scalars(select(Registered).order_by(Registered.host, Registered.path, Registered.uuid))
            if everything or store.unregistered is None
        ]


def ledger(catalog: Catalog, which: str | None = None) -> list[dict[str, Any]]:
    """The ledger entries of all stores, or of one, in the order of their times."""
    asked = select(LedgerEntry, Registered.path).join(Registered)
    with catalog.reading() as session:
        if which is not None:
            asked = asked.where(LedgerEntry.store == find(session, which).uuid)
        found = session.execute(asked.order_by(LedgerEntry.time, LedgerEntry.store, LedgerEntry.sequence))
        return [{"path": path, **_plain(entry)} for entry, path in found]


def holds(catalog: Catalog) -> list[dict[str, Any]]:
    """The holds of all stores."""
    asked = select(StandingHold, Registered.path).join(Registered).where(Registered.unregistered.is_(None))
    with catalog.reading() as session:
        found = session.execute(asked.order_by(Registered.path, StandingHold.number))
        return [{"path": path, **_plain(hold), "in_force": _in_force(hold.until)} for hold, path in found]


def sources(catalog: Catalog) -> list[dict[str, Any]]:
    """Where the samples of all stores came from."""
    asked = select(Source, Registered.path).join(Registered).where(Registered.unregistered.is_(None))
    with catalog.reading() as session:
        found = session.execute(asked.order_by(Registered.path, Source.first))
        return [{"path": path, **source.described, **_used(source)} for source, path in found]


def _used(source: Source) -> dict[str, Any]:
    return {"store": source.store, "first": source.first, "last": source.last}


def requests(catalog: Catalog, which: str | None = None) -> list[dict[str, Any]]:
    """All requests, or one, in the order they were made: what became of them in each store."""
    asked = select(ForgetRequest).order_by(ForgetRequest.made, ForgetRequest.request)
    with catalog.reading() as session:
        if which is not None:
            asked = asked.where(ForgetRequest.request == which)
        noted = session.scalars(asked).all()
        if which is not None and not noted:
            raise EntryNotFound(
                f"there is no request '{which}' in the catalog; 'dynfrsdb catalog requests' lists them. If the catalog "
                "was lost, forget the subject again with this id: stores that did it give the same receipt"
            )
        return _followed(session, noted)


def lines(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Requests with a line for each store, for CSV."""
    return [
        {**{name: value for name, value in request.items() if name != "stores"}, **store}
        for request in found
        for store in request["stores"]
    ]


def _followed(session: Session, noted: Sequence[ForgetRequest]) -> list[dict[str, Any]]:
    places = session.scalars(select(Registered).order_by(Registered.host, Registered.path, Registered.uuid)).all()
    asked = select(Outcome) if len(noted) > 1 else select(Outcome).where(Outcome.request.in_(r.request for r in noted))
    outcomes = {(each.request, each.store): each for each in session.scalars(asked)}
    stages = _stages(session)
    result = []
    for request in noted:
        each = [(place, outcomes.get((request.request, place.uuid))) for place in places]
        parts = [
            _part(place, outcome, stages[place.uuid])
            for place, outcome in each
            if place.unregistered is None or (outcome is not None and outcome.outcome == DONE)
        ]
        found = {part["outcome"] for part in parts}
        state = next((state for state in _OPEN if state in found), DONE)
        result.append({**_plain(request), "state": state, "stores": parts})
    return result


def _part(place: Registered, outcome: Outcome | None, stages: Stages) -> dict[str, Any]:
    """What became of a request in one store, with the evidence."""
    known: dict[str, Any] = {
        "outcome": PENDING,
        "sequence": None,
        "time": None,
        "removed": None,
        "hash": None,
        "why": None,
    }
    if outcome is not None:
        known = {name: getattr(outcome, name) for name in known}
    rows = erased = None
    if known["outcome"] == DONE:
        known["outcome"], rows, erased = stages.of(known["sequence"])
    return {
        "store": place.path,
        "host": place.host,
        "uuid": place.uuid,
        "outcome": known["outcome"],
        "change": known["sequence"],
        "removed": known["removed"],
        "unlearned": known["time"],
        "rows_erased": rows,
        "erased": erased,
        "entry_hash": known["hash"],
        "tried": None if outcome is None else outcome.tried,
        "seen": place.seen,
        "head": f"{place.sequence}:{place.head}",
        "why": known["why"],
    }


def _stages(session: Session) -> dict[str, Stages]:
    """The stages of all stores."""
    entries: dict[str, list[dict[str, Any]]] = defaultdict(list)
    asked = select(LedgerEntry).where(LedgerEntry.kind.in_(_STAGES)).order_by(LedgerEntry.sequence)
    for entry in session.scalars(asked):
        said = {"sequence": entry.sequence, "time": entry.time, "kind": entry.kind}
        entries[entry.store].append({**entry.details, **said})
    none = Stages(())
    return defaultdict(lambda: none, {uuid: Stages(each) for uuid, each in entries.items()})


def _in_force(until: str | None) -> bool:
    return until is None or moments.moment(until, "until") > time.time()


def _plain(row: Base) -> dict[str, Any]:
    """A row as plain values."""
    return {column.key: getattr(row, column.key) for column in row.__table__.columns}
