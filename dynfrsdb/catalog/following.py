"""A change that was just made to a store, brought into the catalog at once.

The store does not need it: if the catalog is down, slow or of another revision, that is said in one line, and the next
contact brings the change in. So nobody waits here for long."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import select

from dynfrsdb import sql
from dynfrsdb.catalog import contact
from dynfrsdb.catalog.contact import Unreached
from dynfrsdb.catalog.handle import Catalog, there
from dynfrsdb.catalog.projection import project
from dynfrsdb.catalog.tables import Registered
from dynfrsdb.errors import Error

SECONDS = 3
"""How long to wait for a connection, or for somebody who writes to the catalog."""


def follow(url: str, path: Path) -> str | None:
    """Bring in a store, if it is registered; returns what went wrong, in words."""
    try:
        catalog = Catalog(_hurried(url))
        with catalog.writing("bringing in a change") as session:
            place = select(Registered.uuid).where(Registered.host == contact.here())
            uuid = session.scalar(place.where(Registered.path == contact.real(path), Registered.unregistered.is_(None)))
            if uuid is not None:
                project(session, there(session, Registered, uuid, locked=True))
    except (Error, Unreached, OSError) as error:
        return str(error)
    return None


def _hurried(url: str) -> str:
    """The same database, for somebody who does not wait."""
    place = sql.parsed(url)
    limits = {"timeout": str(SECONDS)}
    if place.get_backend_name() == "postgresql":
        milliseconds = 1000 * SECONDS
        options = f"-c lock_timeout={milliseconds} -c statement_timeout={3 * milliseconds}"
        limits = {"connect_timeout": str(SECONDS), "options": options}
    new = {name: value for name, value in limits.items() if name not in place.query}
    return place.update_query_dict(new).render_as_string(hide_password=False)
