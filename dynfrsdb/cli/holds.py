"""Verbs about who stays and who must not come back: hold, requests, suppress.

Only `requests run-due` needs the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dynfrsdb.cli import options
from dynfrsdb.cli.interrupt import Interrupted
from dynfrsdb.cli.output import emit, properties, rows

if TYPE_CHECKING:
    from dynfrsdb.receipt import Receipt
    from dynfrsdb.secrets import Secrets
    from dynfrsdb_storage import Snapshot, Store

REFUSED = 3
_HOLDS = ("number", "subject", "reason", "since", "until", "in_force")
_REQUESTS = ("number", "due", "is_due", "subjects")


@contextmanager
def _opened(path: Path, writable: bool = True) -> Iterator[tuple[Store, Secrets]]:
    from dynfrsdb.secrets import Secrets
    from dynfrsdb.settings import Settings
    from dynfrsdb_storage import Store

    try:
        with Store.open(path, writable) as store:
            with store.snapshot() as snapshot:
                secrets = Secrets(Settings.from_record(snapshot.settings))
            yield store, secrets
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; 'dynfrsdb ledger {path}' says whether it was committed") from None


@click.group(no_args_is_help=False)
def hold() -> None:
    """Keep somebody's samples from being removed."""


@hold.command("add")
@options.store
@click.option("--subject", required=True, help="Whose samples to keep.")
@click.option("--reason", required=True, help="Why; whoever tries to remove them is told.")
@click.option("--until", metavar="DATE", help="Until when, like 2027-01-31; without it, until released.")
@options.timeout
@options.as_json
def hold_add(store: Path, subject: str, reason: str, until: str | None, timeout: float, as_json: bool) -> None:
    """Hold a subject: removing its samples is refused, with exit code 3 and the reason."""
    from dynfrsdb import holds, inputs

    with _opened(store) as (source, secrets):
        name = inputs.one_subject(options.as_given(subject))
        _show(holds.place(source, secrets, name, reason, until, timeout), as_json)


@hold.command("list")
@options.store
@options.as_json
def hold_list(store: Path, as_json: bool) -> None:
    """All holds, in the order they were placed."""
    from dynfrsdb import holds

    _list(store, holds.listed, _HOLDS, as_json)


@hold.command("release")
@options.store
@click.argument("number", type=click.IntRange(min=1))
@options.timeout
@options.as_json
def hold_release(store: Path, number: int, timeout: float, as_json: bool) -> None:
    """End the hold with this number."""
    from dynfrsdb import holds

    with _opened(store) as (source, _):
        _show(holds.release(source, number, timeout), as_json)


@click.group(no_args_is_help=False)
def requests() -> None:
    """Requests to forget that wait: 'forget --after' makes them."""


@requests.command("list")
@options.store
@options.as_json
def requests_list(store: Path, as_json: bool) -> None:
    """All requests that wait, the next one first."""
    from dynfrsdb import later

    _list(store, later.listed, _REQUESTS, as_json)


@requests.command("cancel")
@options.store
@click.argument("number", type=click.IntRange(min=1))
@options.timeout
@options.as_json
def requests_cancel(store: Path, number: int, timeout: float, as_json: bool) -> None:
    """Take a request off the queue; nothing is forgotten."""
    from dynfrsdb import later

    with _opened(store) as (source, _):
        _show(later.cancel(source, number, timeout), as_json)


@requests.command("run-due")
@options.store
@options.timeout
@options.as_json
@click.pass_context
def requests_run_due(ctx: click.Context, store: Path, timeout: float, as_json: bool) -> None:
    """Carry out what is due, each request in a transaction of its own.

    Exit code 3 if some have to wait because somebody is held. Meant for cron.
    """
    from dynfrsdb.cli.opening import database

    try:
        with database(store, "w") as db:
            outcomes = db.run_due(timeout=timeout)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; 'requests list' says what still waits, the rest is done") from None
    result = [each.as_dict() for each in outcomes]
    lines = [
        [each.number, each.held or "done", None if each.receipt is None else each.receipt.removed] for each in outcomes
    ]
    emit(result, lambda: rows(("number", "outcome", "removed"), lines), as_json)
    ctx.exit(REFUSED if any(each.held for each in outcomes) else 0)


def queue(
    store: Path, subjects: list[str | bytes], after: str, request_id: str | None, timeout: float, as_json: bool
) -> None:
    """What 'forget --after' does."""
    from dynfrsdb import inputs, later

    with _opened(store) as (source, secrets):
        names = [inputs.one_subject(subject) for subject in subjects]
        _show(later.enqueue(source, secrets, names, after, request_id, timeout), as_json)


@click.command()
@options.store
@click.argument("mode", required=False, type=click.Choice(["off", "refuse", "skip"]))
@click.option("--lift", metavar="SUBJECT", help="Take somebody off the list.")
@options.timeout
@options.as_json
def suppress(store: Path, mode: str | None, lift: str | None, timeout: float, as_json: bool) -> None:
    """What 'add' does with samples of people who were forgotten.

    MODE is off (they are taken), refuse, or skip (they are left out and counted). Without it, say what it is.
    """
    from dynfrsdb import inputs, suppression

    if mode is not None and lift is not None:
        raise click.UsageError("MODE and --lift do not go together")
    with _opened(store, writable=mode is not None or lift is not None) as (source, secrets):
        if mode is not None:
            _show(suppression.switch(source, mode, timeout), as_json)
        elif lift is not None:
            name = inputs.one_subject(options.as_given(lift))
            _show(suppression.lift(source, secrets, name, timeout), as_json)
        else:
            with source.snapshot() as snapshot:
                found = {"mode": suppression.mode(snapshot.state), "subjects": len(suppression.listed(snapshot))}
            emit(found, lambda: properties(found), as_json)


def _list(store: Path, listed: Callable[[Snapshot], list[Any]], columns: tuple[str, ...], as_json: bool) -> None:
    with _opened(store, writable=False) as (source, _), source.snapshot() as snapshot:
        found = [each.as_dict() for each in listed(snapshot)]
    emit(found, lambda: rows(columns, [[each[column] for column in columns] for each in found]), as_json)


def _show(receipt: Receipt, as_json: bool) -> None:
    result: dict[str, Any] = receipt.as_dict()
    emit(result, lambda: properties(result), as_json)


VERBS = (hold, requests, suppress)
