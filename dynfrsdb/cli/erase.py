"""Verbs for what is left of the removed: erasures, vacuum, scan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dynfrsdb.cli import options
from dynfrsdb.cli.interrupt import Interrupted
from dynfrsdb.cli.opening import database
from dynfrsdb.cli.output import emit, megabytes, note, progress, properties, rows

if TYPE_CHECKING:
    from dynfrsdb.erasure import Erasure

FAILED = 1


@click.command()
@options.store
@options.as_json
def erasures(store: Path, as_json: bool) -> None:
    """Every removal: the stage it has reached, when, and what holds it back."""
    from dynfrsdb.erasure import erasures as status  # needs no engine
    from dynfrsdb_storage import Store

    with Store.open(store, writable=False) as source, source.snapshot() as snapshot:
        found = status(source, snapshot)
    columns = ("change", "removed", "stage", "since", "waits for")
    emit([each.as_dict() for each in found], lambda: rows(columns, map(_line, found)), as_json)


def _line(each: Erasure) -> list[Any]:
    since = each.erased or each.rows_erased or each.unlearned
    held = ", ".join(f"process {holder.pid} with {holder.has} for {holder.age:.0f} s" for holder in each.held_by)
    return [each.sequence, each.removed, each.stage, since.replace("T", " ")[:19], held or each.remedy]


@click.command()
@options.store
@click.option("--dry-run", is_flag=True, help="Only say how much free space it takes.")
@options.timeout
@options.as_json
def vacuum(store: Path, dry_run: bool, timeout: float, as_json: bool) -> None:
    """Rebuild the store from its live samples; nothing of removed ones is left in its files.

    Readers go on meanwhile, writers wait. Files that other processes still have open are erased after them.
    """
    try:
        with database(store, "w", settle=None) as db, progress() as show:
            space = db.vacuum(dry_run=True)
            note(f"needs up to {megabytes(space.needed)} beside the store; {megabytes(space.free)} are free")
            report = space if dry_run else db.vacuum(show, timeout=timeout)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the store is whole, before or after its vacuum: see 'dynfrsdb info'") from None
    if report.held_by:
        pids = ", ".join(map(str, report.held_by))
        note(f"the old files are still open in process {pids}; they are erased when it has let go")
    result = report.as_dict()
    emit(result, lambda: properties(result), as_json)


@click.command()
@options.store
@click.option(
    "--needle-file",
    "needles",
    type=click.Path(path_type=Path),
    required=True,
    help='JSON lines: {"x": [...], "subject": "...", "id": ..., "hex": "..."}, any of them.',
)
@options.as_json
@click.pass_context
def scan(ctx: click.Context, store: Path, needles: Path, as_json: bool) -> None:
    """Look for people's bytes in every file of the store; exit code 1 if any belong to nobody who lives."""
    from dynfrsdb.needles import read  # needs no engine
    from dynfrsdb.needles import scan as look
    from dynfrsdb.settings import Settings
    from dynfrsdb_storage import Store

    with Store.open(store, writable=False) as source, source.snapshot() as snapshot, progress() as show:
        report = look(snapshot, read(needles, Settings.from_record(snapshot.settings)), show)
    columns = ("line", "what", "bytes", "place", "file", "offset", "belongs to")
    lines = [[hit.line, hit.what, hit.size, hit.place, hit.file, hit.offset, hit.belongs] for hit in report.hits]
    emit(report.as_dict(), lambda: rows(columns, lines), as_json)
    ctx.exit(0 if report else FAILED)


VERBS = (erasures, vacuum, scan)
