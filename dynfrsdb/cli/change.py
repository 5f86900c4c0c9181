"""Verbs that change a store, each in one transaction: remove, forget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dynfrsdb.cli import options
from dynfrsdb.cli.holds import queue
from dynfrsdb.cli.interrupt import Interrupted, Postponed
from dynfrsdb.cli.opening import database
from dynfrsdb.cli.output import emit, properties

if TYPE_CHECKING:
    from dynfrsdb.transaction import Transaction


@click.command()
@options.store
@click.option(
    "--id", "ids", type=options.SAMPLE_ID, multiple=True, required=True, help="A sample to remove; may be repeated."
)
@options.change
def remove(
    store: Path, ids: tuple[int, ...], dry_run: bool, request_id: str | None, timeout: float, as_json: bool
) -> None:
    """Remove samples by id, all or none, and print the receipt."""
    _carry_out(store, lambda txn: txn.remove(list(ids)), dry_run, request_id, timeout, as_json)


@click.command()
@options.store
@click.option("--subject", "subjects", multiple=True, required=True, help="Whose samples to remove; may be repeated.")
@click.option(
    "--after", metavar="DELAY", help="Not now but in 7d, 12h, 30m, ...: queue the request for 'requests run-due'."
)
@options.change
def forget(
    store: Path,
    subjects: tuple[str, ...],
    after: str | None,
    dry_run: bool,
    request_id: str | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Remove all samples of people, all or none, and print the receipt."""
    names = [options.as_given(subject) for subject in subjects]
    if after is not None:
        if dry_run:
            raise click.UsageError("--after and --dry-run do not go together")
        queue(store, names, after, request_id, timeout, as_json)
        return
    _carry_out(store, lambda txn: sum(txn.forget(name) for name in names), dry_run, request_id, timeout, as_json)


def _carry_out(
    store: Path,
    act: Callable[[Transaction], object],
    dry_run: bool,
    request_id: str | None,
    timeout: float,
    as_json: bool,
) -> None:
    replayed = False
    interrupts = Postponed()

    def act_and_hold(txn: Transaction) -> None:
        nonlocal replayed
        act(txn)
        replayed = txn.replayed
        if not dry_run:
            interrupts.begin()

    outcome: Any
    with database(store, "w") as db:
        outcome = db._once(act_and_hold, request_id, timeout, dry_run)
    result = {**outcome.as_dict(), "dry_run" if dry_run else "replayed": dry_run or replayed}
    emit(result, lambda: properties(result), as_json)
    if interrupts.came:
        raise Interrupted(f"interrupted too late to stop it: this is committed as change {outcome.sequence}")


VERBS = (remove, forget)
