"""Contact with a registered store: is it there, and is it the one that was registered?

A store lives on a local disk, so it can be asked on its own host only. A path of another host is never opened here,
even if something is there: a copy would answer for the store."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dynfrsdb.catalog.tables import Registered
from dynfrsdb.errors import Error, StoreNotFound
from dynfrsdb.inside.store import Inside, look

Result = TypeVar("Result")


class Unreached(Exception):
    """A registered store cannot be asked; the message says why. Never leaves the catalog."""


class Gone(Unreached):
    """There is no store at its place, or another one."""


class Elsewhere(Unreached):
    """It is on another host."""


def here() -> str:
    """The name of this host."""
    return socket.gethostname()


def real(path: Path | str) -> str:
    """A path without links and steps upwards, as it is registered."""
    return os.path.realpath(path)


def uuid_at(path: Path | str) -> str:
    """The uuid of the store at a path."""
    return look(Path(path), uuid_of)


def uuid_of(inside: Inside) -> str:
    """The uuid of a store."""
    return str(inside.snapshot.generation.identity["uuid"].hex())


def reach(store: Registered, ask: Callable[[Inside], Result]) -> Result:
    """What `ask` says of the newest commit of a registered store."""
    expected, path = store.uuid, store.path

    def if_the_one(inside: Inside) -> Result:
        found = uuid_of(inside)
        if found != expected:
            raise Gone(f"another store, {found}, is at '{path}' now; if this one was moved, register it there")
        return ask(inside)

    if store.host != here():
        raise Elsewhere(f"it is on host '{store.host}'; run this there")
    try:
        return look(Path(path), if_the_one)
    except StoreNotFound as error:
        raise Gone(
            f"there is no store at '{path}'; if it was moved, run 'dynfrsdb catalog register' with its new place"
        ) from error
    except (Error, OSError) as error:
        raise Unreached(str(error)) from error


def note_problem(store: Registered, error: Unreached) -> None:
    """Note why a store could not be asked; that it is elsewhere is no problem of it."""
    if not isinstance(error, Elsewhere):
        store.problem = str(error)
