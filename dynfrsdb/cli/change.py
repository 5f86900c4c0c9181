"""Verbs that change a store, each in one transaction: add, remove, forget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dynfrsdb.cli import opening, options
from dynfrsdb.cli.evidence import receipt_file
from dynfrsdb.cli.holds import queue
from dynfrsdb.cli.interrupt import Interrupted, Postponed
from dynfrsdb.cli.opening import database
from dynfrsdb.cli.output import emit, note, progress, properties

if TYPE_CHECKING:
    from dynfrsdb.database import Database
    from dynfrsdb.receipt import Plan, Receipt
    from dynfrsdb.transaction import Transaction

_LIST = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@click.command()
@options.store
@options.table
@click.option("--target", metavar="COLUMN", help="The target, if it is not named as when the store was created.")
@click.option("--id", metavar="COLUMN", help="Sample ids, likewise; without any, ids go on from the largest.")
@click.option("--subject", metavar="COLUMN", help="Whom a sample belongs to, likewise.")
@options.change
def add(
    store: Path,
    data: Path,
    format: str | None,
    delimiter: str | None,
    target: str | None,
    id: str | None,
    subject: str | None,
    **change: Any,
) -> None:
    """Add the rows of DATA as samples, all or none, and print the receipt.

    DATA has the columns that the store was created from, in any order.
    """
    from dynfrsdb.loading import rows_to_add
    from dynfrsdb.tables import open_table

    with database(store, "w") as db:
        with progress() as show:
            rows = rows_to_add(open_table(data, format, delimiter), db._settings, target, id, subject, show)

        def more(outcome: Receipt | Plan) -> dict[str, Any]:
            for column, count in rows.unknown.items():
                note(f"column {column!r}: {count:,} of {len(rows.X):,} rows have a value that was not encoded; it is 0")
            ids = getattr(outcome, "ids", ()) if rows.ids is None else ()
            return {"unknown": rows.unknown, **({"first_id": ids[0], "last_id": ids[-1]} if ids else {})}

        _carry_out(db, lambda txn: txn.add(rows.X, rows.y, rows.ids, rows.subjects), more=more, **change)


@click.command()
@options.store
@click.option("--id", "ids", type=options.SAMPLE_ID, multiple=True, help="A sample to remove; may be repeated.")
@click.option("--ids-from", type=_LIST, metavar="FILE", help="A file with one id to a line; - is what is piped in.")
@options.change
def remove(store: Path, ids: tuple[int, ...], ids_from: Path | None, **change: Any) -> None:
    """Remove samples by id, all or none, and print the receipt."""
    _refuse_none(ids, ids_from, "--id", "--ids-from")
    chosen = list(dict.fromkeys([*ids, *(_ids_in(ids_from) if ids_from else ())]))
    with database(store, "w") as db:
        _carry_out(db, lambda txn: txn.remove(chosen), **change)


@click.command()
@options.store
@click.option("--subject", "subjects", multiple=True, help="Whose samples to remove; may be repeated.")
@click.option(
    "--subjects-from", type=_LIST, metavar="FILE", help="A file with one subject to a line; - is what is piped in."
)
@click.option(
    "--after", metavar="DELAY", help="Not now but in 7d, 12h, 30m, ...: queue the request for 'requests run-due'."
)
@options.change
def forget(
    store: Path, subjects: tuple[str, ...], subjects_from: Path | None, after: str | None, **change: Any
) -> None:
    """Remove all samples of people, all or none, and print the receipt."""
    _refuse_none(subjects, subjects_from, "--subject", "--subjects-from")
    listed = [text for _, text in _lines(subjects_from)] if subjects_from else []
    names = list(dict.fromkeys([*map(options.as_given, subjects), *listed]))
    if after is not None:
        if change["dry_run"] or change["receipt"] is not None:
            raise click.UsageError("--after puts off the change, so it goes with neither --dry-run nor --receipt")
        queue(store, names, after, change["request_id"], change["timeout"], change["as_json"])
        return
    with database(store, "w") as db:
        _carry_out(db, lambda txn: sum(txn.forget(name) for name in names), **change)


def _carry_out(
    db: Database,
    act: Callable[[Transaction], object],
    *,
    dry_run: bool,
    request_id: str | None,
    receipt: Path | None,
    timeout: float,
    as_json: bool,
    more: Callable[[Receipt | Plan], dict[str, Any]] = lambda outcome: {},
) -> None:
    replayed = False
    interrupts = Postponed()

    def act_and_hold(txn: Transaction) -> None:
        nonlocal replayed
        act(txn)
        replayed = txn.replayed
        if not dry_run:
            interrupts.begin()

    if dry_run and receipt is not None:
        raise click.UsageError("--dry-run changes nothing, so it has no --receipt")
    if receipt is not None and opening.joined is not None:
        raise click.UsageError("nothing is committed before the transaction is, so this has no --receipt")
    with receipt_file(receipt, db) as keep:
        with progress() as show:
            if show is not None:
                show("changing the forest", 0, 0)
            outcome: Any = db._once(act_and_hold, request_id, timeout, dry_run)
        result = {**outcome.as_dict(), **({"dry_run": True} if dry_run else {}), "replayed": replayed, **more(outcome)}
        emit(result, lambda: properties(result), as_json)
        if receipt is not None:
            keep(outcome.sequence)
    if interrupts.came:
        raise Interrupted(f"interrupted too late to stop it: this is committed as change {outcome.sequence}")


def _refuse_none(given: tuple[Any, ...], listed: Path | None, one: str, many: str) -> None:
    if not given and listed is None:
        raise click.UsageError(f"missing option '{one}' or '{many}'", click.get_current_context())


def _lines(path: Path) -> list[tuple[int, str]]:
    """Lines that are not blank, with their numbers."""
    from dynfrsdb.errors import InvalidInput
    from dynfrsdb.tables.files import lines

    texts = ((number, line.rstrip("\r\n")) for number, line in enumerate(lines(path, lambda done, total: None), 1))
    found = [(number, text) for number, text in texts if text.strip()]
    if not found:
        raise InvalidInput(f"'{path}' is empty; it has one entry to a line")
    return found


def _ids_in(path: Path) -> list[int]:
    from dynfrsdb.tables.cells import ids

    found = _lines(path)
    return [int(each) for each in ids([text for _, text in found], lambda row: f"'{path}', line {found[row][0]}")]


VERBS = (add, remove, forget)
