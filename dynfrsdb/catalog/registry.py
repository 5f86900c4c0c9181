"""Which stores there are.

A store is known by its uuid. A backup has the uuid of its store, so two places may claim to be one:

    the registered place      the new place                      then
    is the same directory     by another path                    it is known already
    has no such store         has it                             it was moved
    has it, or cannot be read has it                             one is a copy: refused
    is on another host        has it                             nobody can tell: refused, unless it is said (`moved`)

A store that is taken out of the catalog is no longer asked; what is known of it stays, as evidence."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from dynfrsdb.catalog import contact
from dynfrsdb.catalog.contact import Elsewhere, Gone, Unreached
from dynfrsdb.catalog.handle import Catalog, put_new, there
from dynfrsdb.catalog.projection import project
from dynfrsdb.catalog.tables import Registered
from dynfrsdb.errors import Error, InvalidInput, StoreExists, StoreNotFound
from dynfrsdb.receipt import now
from dynfrsdb_storage import layout

NEW, MOVED, CURRENT, RESTORED = "registered", "moved", "current", "restored"
UNREACHABLE, ELSEWHERE, COPY = "unreachable", "elsewhere", "a copy"


@dataclass(frozen=True)
class Contact:
    """What came of a contact with one store."""

    store: str
    uuid: str | None
    state: str
    entries: int = 0
    """Ledger entries that were new."""
    why: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The contact as plain values."""
        return dict(self.__dict__)


def register(catalog: Catalog, path: Path | str, moved: bool = False) -> Contact:
    """Put a store into the catalog, or say that it is there already."""
    uuid, place = contact.uuid_at(path), contact.real(path)
    if not place.isprintable():
        raise InvalidInput(f"{place!r} has characters that no table can hold; rename it")
    with catalog.writing("registering a store") as session:
        state = CURRENT
        if session.get(Registered, uuid) is None:
            state = NEW
            put_new(session, Registered(uuid=uuid, host=contact.here(), path=place, registered=now()))
        store = there(session, Registered, uuid, locked=True)
        if (store.host, store.path) != (contact.here(), place) and not _is_same_directory(store, place):
            if not moved:
                _refuse_copy(store, place)
            store.host, store.path, state = contact.here(), place, MOVED
        store.unregistered = None
        return _bring_in(session, store, state)


def _is_same_directory(store: Registered, place: str) -> bool:
    try:
        return store.host == contact.here() and os.path.samefile(store.path, place)
    except OSError:
        return False


def _refuse_copy(store: Registered, place: str) -> None:
    """Raise unless the registered place is known not to have the store any more."""
    if store.unregistered is not None:
        return
    if store.host != contact.here():
        raise StoreExists(
            f"the store at '{place}' is registered at '{store.path}' on host '{store.host}'; if it was moved from "
            "there, pass --moved; if this is a copy, leave it out"
        )
    try:
        contact.reach(store, lambda inside: None)
    except Gone:
        return
    except Unreached:
        pass  # it may be there again tomorrow
    raise StoreExists(
        f"'{place}' is a copy of '{store.path}', which is registered (both have the uuid {store.uuid}); one request is "
        f"carried out in one of them only. To take this one instead, 'dynfrsdb catalog unregister {store.path}' first"
    )


def unregister(catalog: Catalog, which: str) -> Contact:
    """Take a store, named by its path or uuid, out of the catalog; what is known of it stays."""
    with catalog.writing("taking a store out of the catalog") as session:
        store = there(session, Registered, find(session, which).uuid, locked=True)
        store.unregistered = now()
        return Contact(store.path, store.uuid, "unregistered")


def find(session: Session, which: str) -> Registered:
    """The registered store with this path or uuid."""
    places = (which, contact.real(which))
    found = [each for each in registered(session) if each.uuid == which or each.path in places]
    mine = [each for each in found if each.host == contact.here()] or found
    if not mine:
        raise StoreNotFound(f"no store '{which}' is registered; 'dynfrsdb catalog stores' lists those that are")
    if len(mine) > 1:
        raise InvalidInput(f"several stores are registered at '{which}'; name one by its uuid: {mine[0].uuid}, ...")
    return mine[0]


def registered(session: Session) -> Sequence[Registered]:
    """All stores that are to be asked, by host and path."""
    asked = select(Registered).where(Registered.unregistered.is_(None))
    return session.scalars(asked.order_by(Registered.host, Registered.path, Registered.uuid)).all()


def refresh(catalog: Catalog, anew: bool = False) -> list[Contact]:
    """Bring in what is new in every store; `anew` drops what is known of each and reads it from the beginning."""
    with catalog.reading() as session:
        uuids = [each.uuid for each in registered(session)]
    return [_refresh(catalog, uuid, anew) for uuid in uuids]


def _refresh(catalog: Catalog, uuid: str, anew: bool) -> Contact:
    with catalog.writing("bringing in a store") as session:
        return _bring_in(session, there(session, Registered, uuid, locked=True), CURRENT, anew)


def _bring_in(session: Session, store: Registered, state: str, anew: bool = False) -> Contact:
    known = store.sequence if store.head else 0
    before = 0 if anew else known
    try:
        seen = project(session, store, anew)
    except Unreached as error:
        contact.note_problem(store, error)
        return Contact(
            store.path, store.uuid, ELSEWHERE if isinstance(error, Elsewhere) else UNREACHABLE, 0, str(error)
        )
    if seen.anew and before:
        why = f"its ledger does not continue entry {before}, which was seen: it was restored, or replaced by a copy"
        return Contact(store.path, store.uuid, RESTORED, len(seen.entries), why)
    return Contact(store.path, store.uuid, state, len(seen.entries))


def rebuild(catalog: Catalog, places: Sequence[Path]) -> list[Contact]:
    """Make all that is said of stores anew, after those at or below `places` were registered."""
    found: dict[str, list[str]] = defaultdict(list)
    contacts = []
    for path in sorted({each for place in places for each in _stores_below(place)}):
        try:
            found[contact.uuid_at(path)].append(path)
        except (Error, OSError) as error:
            contacts.append(Contact(path, None, UNREACHABLE, 0, str(error)))
    for uuid, paths in found.items():
        contacts += _register_one_of(catalog, uuid, paths)
    return [*contacts, *refresh(catalog, anew=True)]


def _register_one_of(catalog: Catalog, uuid: str, paths: list[str]) -> Iterator[Contact]:
    """Register a store that was found, unless it is a copy of one that is known, or nobody can tell which is one."""
    with catalog.reading() as session:
        store = session.get(Registered, uuid)
        known = store is not None and store.unregistered is None and store.path in paths
    if len(paths) > 1 and not known:
        why = f"there are {len(paths)} stores with this uuid; register the one that is in use"
        yield from (Contact(path, uuid, COPY, 0, why) for path in paths)
        return
    for path in paths:
        try:
            found = register(catalog, path)
            if found.state in (MOVED, RESTORED):
                yield found
        except StoreExists as error:
            yield Contact(path, uuid, COPY, 0, str(error))


def _stores_below(place: Path) -> Iterator[str]:
    """The stores at or below a directory; those that are being made have names that begin with a dot."""
    if not place.is_dir():
        raise StoreNotFound(f"there is neither a store nor a directory at '{place}'")
    for folder, names, files in os.walk(place):
        if layout.CURRENT_FILE in files:
            names.clear()
            yield contact.real(folder)
        names[:] = [name for name in names if not name.startswith(".")]
