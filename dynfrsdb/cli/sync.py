"""`sync`: a store that follows a table of a database, once or again and again.

With --watch a round that changed something prints one line, and a source or a store that cannot be had for a while is
mentioned once and tried again in the next round. Everything else that goes wrong ends the command, as without it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dynfrsdb.cli import opening, options
from dynfrsdb.cli.interrupt import Interrupted, Postponed
from dynfrsdb.cli.opening import database
from dynfrsdb.cli.output import emit, note, progress, properties

if TYPE_CHECKING:
    from dynfrsdb.database import Database
    from dynfrsdb.receipt import Receipt
    from dynfrsdb.syncing import SyncReport
    from dynfrsdb.tables.sql import Source

REFUSED = 3
_COUNTED = ("added", "removed", "replaced")


@click.command()
@options.store
@options.source
@click.option("--id", metavar="COLUMN", help="Sample ids, if they are not named as when the store was created.")
@click.option("--target", metavar="COLUMN", help="The target, likewise.")
@click.option("--subject", metavar="COLUMN", help="Whom a sample belongs to, likewise.")
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    metavar="N",
    help="At most so many changes in one transaction.",
)
@click.option("--allow-empty", is_flag=True, help="Remove all samples if the source has no rows.")
@click.option("--dry-run", is_flag=True, help="Change nothing; count what would be done.")
@click.option(
    "--watch", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Again and again, until Ctrl-C."
)
@click.option(
    "--receipts", type=options.FILE, metavar="FILE", help="Append the receipts: one JSON object to a transaction."
)
@options.timeout
@options.as_json
def sync(store: Path, as_json: bool, watch: float | None, **given: Any) -> None:
    """Bring a store in step with a table or a query: new rows are added, vanished ones removed, changed ones replaced.

    The source is streamed and compared row by row; what differs is applied in transactions of bounded size. Whoever is
    held stays, and is counted: exit code 3.
    """
    from dynfrsdb.tables.sql import Source

    if opening.joined is not None:
        raise click.UsageError("sync makes transactions of its own; commit or roll back this one first")
    source = Source(given.pop("url"), given.pop("table"), given.pop("query"), given.pop("where"))
    dry_run, file = given["dry_run"], given.pop("receipts")
    if dry_run and file is not None:
        raise click.UsageError("--dry-run changes nothing, so it has no --receipts")
    with database(store, "r" if dry_run else "w") as db, _receipts(file) as keep:
        following = _Following(db, source, keep, given)
        if watch is not None:
            following.watch(watch, as_json)
        result = following.round()
        emit(result, lambda: properties({name: value for name, value in result.items() if name != "receipts"}), as_json)
    for column, count in result["unknown"].items():
        note(f"column {column!r}: {count:,} rows have a value that was not encoded; it is 0 in all its features")
    if result["held"]:
        stay = _plural(result["held"], "sample stays as it is", "samples stay as they are")
        note(f"{result['held']:,} {stay}, because somebody is held; see 'dynfrsdb hold list {store}'")
        click.get_current_context().exit(REFUSED)


class _Following:
    """Rounds of bringing one store in step with one source."""

    def __init__(self, db: Database, source: Source, keep: Callable[[Receipt], None], given: dict[str, Any]) -> None:
        self._db, self._source, self._keep = db, source, keep
        self._columns = {name: given.pop(name) for name in ("id", "target", "subject")}
        self._given = given
        self._commits = 0

    def round(self) -> dict[str, Any]:
        """One of them; returns what came of it."""
        from dynfrsdb.errors import Error
        from dynfrsdb.syncing import Manner, SyncReport, sync

        begun, report, interrupts = time.monotonic(), SyncReport(), Postponed()
        try:
            with progress() as show:
                manner = Manner(
                    **self._given,
                    progress=show or (lambda stage, done, total: None),
                    before_commit=interrupts.begin,
                    on_receipt=self._keep,
                    after_commit=interrupts.end,
                )
                sync(self._db, self._source, **self._columns, manner=manner, report=report)
        except KeyboardInterrupt:
            raise Interrupted(_interrupted(self._commits + len(report.receipts), report)) from None
        except Error:
            if report.receipts:
                many = _plural(len(report.receipts), "transaction", "transactions")
                note(f"before this, {len(report.receipts)} {many}: {_in_words(report)}; run it again to go on")
            raise
        finally:
            self._commits += len(report.receipts)
        dry = {"dry_run": True} if self._given["dry_run"] else {}
        return {**report.as_dict(), **dry, "seconds": round(time.monotonic() - begun, 3)}

    def watch(self, seconds: float, as_json: bool) -> None:
        """Rounds until Ctrl-C."""
        from dynfrsdb.errors import Locked, Unreachable

        away, first = "", True
        try:
            while True:
                try:
                    result = self.round()
                    if result["transactions"]:
                        options.tell_catalog(self._db.path)
                    if away:
                        note("it is back")
                    if first or any(result[name] for name in _COUNTED):
                        _print_round(result, as_json)
                    away, first = "", False
                except (Unreachable, Locked) as error:
                    if not away:
                        note(f"{error}; trying again every {seconds:g} s")
                    away = str(error)
                time.sleep(seconds)
        except KeyboardInterrupt:
            raise Interrupted(_interrupted(self._commits)) from None


def _interrupted(commits: int, report: SyncReport | None = None) -> str:
    if not commits:
        return "interrupted; nothing was committed"
    rest = f" (in the last round: {_in_words(report)}); run it again to go on" if report and report.receipts else ""
    return f"interrupted; {commits:,} {_plural(commits, 'transaction is', 'transactions are')} committed{rest}"


def _plural(count: int, one: str, many: str) -> str:
    return one if count == 1 else many


def _in_words(report: SyncReport) -> str:
    return ", ".join(f"{getattr(report, name):,} {name}" for name in _COUNTED)


def _print_round(result: dict[str, Any], as_json: bool) -> None:
    line = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **result}
    if as_json or not sys.stdout.isatty():
        click.echo(json.dumps(line, ensure_ascii=False))
    else:
        words = ", ".join(f"{line[name]:,} {name}" for name in (*_COUNTED, "unchanged", "held"))
        click.echo(f"{line['time']}  {words}")
    sys.stdout.flush()


@contextmanager
def _receipts(path: Path | None) -> Iterator[Callable[[Receipt], None]]:
    """A function that appends a receipt to a file, durably; that it can be written is known before anything changes."""
    if path is None:
        yield lambda receipt: None
        return
    from dynfrsdb.errors import InvalidInput

    try:
        file = open(path, "a", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise InvalidInput(f"receipts cannot be written to '{path}': {why}; nothing was changed") from error

    def keep(receipt: Receipt) -> None:
        try:
            file.write(json.dumps(receipt.as_dict(), ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            raise click.ClickException(
                f"change {receipt.sequence} is committed, but its receipt could not be written to '{path}': {error}; "
                f"'dynfrsdb receipt STORE {receipt.sequence}' gives it"
            ) from error

    with file:
        yield keep


VERBS = (sync,)
