"""Verbs that keep house: check, verify, digest, settle, backup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dynfrsdb.cli import options
from dynfrsdb.cli.interrupt import Interrupted
from dynfrsdb.cli.opening import database
from dynfrsdb.cli.output import emit, progress, properties

FAILED = 1


@click.command()
@options.store
@options.as_json
@click.pass_context
def check(ctx: click.Context, store: Path, as_json: bool) -> None:
    """Look at every record and recount everything; exit code 1 if anything is wrong."""
    with database(store) as db, progress() as show:
        report = db.check(show)
    result = {
        "ok": bool(report),
        "samples": report.samples,
        "trees": report.trees,
        "records": report.records,
        "problems": list(report.problems),
    }
    emit(result, lambda: properties({**result, "problems": "\n".join(report.problems) or None}), as_json)
    ctx.exit(0 if report else FAILED)


@click.command()
@options.store
@click.option("--trees", type=click.IntRange(min=1), metavar="N", help="Take N trees at random instead of all.")
@options.as_json
@click.pass_context
def verify(ctx: click.Context, store: Path, trees: int | None, as_json: bool) -> None:
    """Grow trees again from the live samples and compare; exit code 1 if any differs."""
    with database(store) as db, progress() as show:
        report = db.verify(trees, show)
    result: dict[str, Any] = {
        "ok": bool(report),
        "trees": len(report.trees),
        "differing": list(report.differing),
        "digest": report.digest,
    }
    emit(result, lambda: properties(result), as_json)
    ctx.exit(0 if report else FAILED)


@click.command()
@options.store
@options.as_json
def digest(store: Path, as_json: bool) -> None:
    """The hash of the settled forest: equal digests, equal forests."""
    with database(store) as db:
        found = db.digest()
    emit({"digest": found}, lambda: found, as_json)


@click.command()
@options.store
@options.timeout
@options.as_json
def settle(store: Path, timeout: float, as_json: bool) -> None:
    """Grow tagged nodes and write them; changes no answer."""
    written = 0

    def count(stage: str, done: int, total: int) -> None:
        nonlocal written
        written = done
        if show is not None:
            show(stage, done, total)

    try:
        with database(store, "w", settle=None) as db, progress() as show:
            written = db.settle(timeout=timeout, progress=count)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {written} tags were grown and committed, the rest stay as they were") from None
    emit({"settled": written}, lambda: f"{written} tags grown", as_json)


@click.command()
@options.store
@click.argument("dest", type=click.Path(path_type=Path))
@click.option("--unrecorded", is_flag=True, help="Do not note the copy in the ledger: for a store that is read-only.")
@options.timeout
@options.as_json
def backup(store: Path, dest: Path, unrecorded: bool, timeout: float, as_json: bool) -> None:
    """Copy the newest commit to DEST, a new store, while this one is in use.

    The ledger notes that a copy exists; 'restore' makes a store of it again.
    """
    from dynfrsdb.backup import backup as copy  # needs no engine
    from dynfrsdb_storage import Store

    try:
        with Store.open(store, writable=not unrecorded) as source, progress() as show:
            commit = copy(source, dest, show, timeout)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; there is no backup at '{dest}'") from None
    result = {"backup": str(dest), "commit": commit}
    emit(result, lambda: properties(result), as_json)


VERBS = (check, verify, digest, settle, backup)
