"""Opening a store together with its engine.

Imports numba, so it is called by verbs when they run. The first use of the engine on a machine compiles its kernels,
which takes so long that people would wonder; so they are told, once, and before it begins.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynfrsdb.cli.output import note

if TYPE_CHECKING:
    from dynfrsdb.database import Database


joined: Any = None
"""What stands for the handle while a transaction of the shell is open (shell.py); it is used as a `Database`."""


def database(path: Path, mode: str = "r", settle: str | None = "auto") -> Database:
    """`dynfrsdb.open`, and a word about kernels if they have yet to be compiled."""
    if joined is not None:
        handle: Database = joined
        return handle
    from dynfrsdb.database import Database

    handle = Database(path, mode, settle)
    mention_compiling()
    return handle


def mention_compiling() -> None:
    """Say that kernels will be compiled, if they will."""
    from dynfrsdb_engine.kernel import CACHE, CACHED

    if not CACHED:
        note(f"compiling kernels, each time: '{CACHE}' cannot be written; set DYNFRSDB_KERNEL_CACHE to keep them")
    elif not is_warm(CACHE):
        note("compiling kernels, once; this takes about a minute")


def compile_ahead() -> None:
    """Compile all kernels that are not compiled yet, on two cores."""
    from dynfrsdb.warm import warm

    mention_compiling()
    warm()


def is_warm(cache: Path) -> bool:
    """Whether the cache holds any compiled kernel."""
    return next(cache.rglob("*.nbc"), None) is not None
