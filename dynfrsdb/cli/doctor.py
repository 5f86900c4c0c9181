"""`doctor`: what this installation runs on, and whether a store can live here.

Each part of the report is a function that returns what it found and adds to the problems; a new part is a line in
`doctor`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from platform import platform, python_version
from typing import Any

import click

import dynfrsdb
from dynfrsdb.cli import options
from dynfrsdb.cli.output import emit, properties

_NEEDED = ("numpy", "numba", "llvmlite", "lmdb", "msgpack", "click", "rich", "sqlalchemy", "alembic")
_EXTRA = ("scikit-learn", "cryptography", "psycopg")


@click.command()
@click.argument("place", type=click.Path(path_type=Path), default=".")
@click.option(
    "--warm", is_flag=True, help="Compile all kernels now, so that first uses are fast; takes about a minute."
)
@options.as_json
@click.pass_context
def doctor(ctx: click.Context, place: Path, warm: bool, as_json: bool) -> None:
    """Versions, kernel cache, filesystem, and the store.

    PLACE is a store, or where one will be; by default here. Exit code 1 if something is in the way.
    """
    if warm:
        from dynfrsdb.cli.opening import compile_ahead

        compile_ahead()
    problems: list[str] = []
    result: dict[str, Any] = {
        "dynfrsdb": dynfrsdb.__version__,
        "python": python_version(),
        "platform": platform(),
        "processors": os.cpu_count(),
        "packages": _versions(problems),
        "kernels": _kernels(problems),
        "filesystem": _filesystem(place, problems),
        "store": _store(place, problems),
        "catalog": _catalog(problems),
    }
    result["problems"] = problems
    emit(result, lambda: properties({**result, "problems": "\n".join(problems) or "none"}), as_json)
    ctx.exit(1 if problems else 0)


def _versions(problems: list[str]) -> dict[str, str | None]:
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = {}
    for package in (*_NEEDED, *_EXTRA):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
            if package in _NEEDED:
                problems.append(f"'{package}' is not installed; install dynfrsdb again")
    return found


def _kernels(problems: list[str]) -> dict[str, Any]:
    """Where compiled kernels are kept; a cache that cannot be written costs time, not answers, so it is no problem."""
    try:
        from dynfrsdb_engine.kernel import CACHE, CACHED
    except ImportError as error:
        problems.append(f"the engine cannot be imported: {error}")
        return {}
    from dynfrsdb.cli.opening import is_warm

    return {"cache": str(CACHE), "writable": CACHED, "compiled": CACHED and is_warm(CACHE)}


def _filesystem(place: Path, problems: list[str]) -> dict[str, Any]:
    from dynfrsdb.errors import UnsupportedPlace
    from dynfrsdb_storage.disk import refuse_network

    there = next((each for each in (place.absolute(), *place.absolute().parents) if each.exists()), Path("/"))
    try:
        refuse_network(there)
    except UnsupportedPlace as error:
        problems.append(str(error))
    return {"path": str(there), "type": _mounted_as(there), "free_bytes": shutil.disk_usage(there).free}


def _store(place: Path, problems: list[str]) -> dict[str, Any] | None:
    """The map, the readers and what waits for them, if there is a store."""
    from dynfrsdb.errors import Error
    from dynfrsdb.inside.store import Inside, look
    from dynfrsdb_storage import layout

    def about(inside: Inside) -> dict[str, Any]:
        found = inside.store.info()
        readers = [each for each in found["readers"] if each["pid"] != os.getpid()]
        return {
            "commit": found["commit"],
            "map_bytes": found["map_size"],
            "data_bytes": found["files"][layout.DATA_FILE],
            "readers": len(readers),
            "commits_behind": max((each["lag"] for each in readers), default=0),
            "pending_erasures": found["pending_erasures"],
        }

    if not (place / layout.CURRENT_FILE).exists():
        return None
    try:
        return look(place, about)
    except Error as error:
        problems.append(str(error))
        return None


def _catalog(problems: list[str]) -> str | None:
    """Where the catalog is, or would be made; without a password."""
    from dynfrsdb import sql
    from dynfrsdb.catalog.place import VARIABLE, url
    from dynfrsdb.errors import Error

    try:
        return sql.shown(url(None))
    except Error as error:
        problems.append(f"{VARIABLE}: {error}")
        return None


def _mounted_as(place: Path) -> str | None:
    """The type of the file system that holds a path, or None where the system does not say."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    resolved = place.resolve()
    found: dict[Path, str] = {}
    for line in lines:
        mount, _, kind = line.partition(" - ")
        found[Path(mount.split()[4])] = kind.split()[0]
    return next((found[each] for each in (resolved, *resolved.parents) if each in found), None)


VERBS = (doctor,)
