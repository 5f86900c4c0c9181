"""Verbs about evidence: receipt, restore, and the ledger outside its store.

Only `receipt --verify` and `restore` need the engine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from dynfrsdb.cli import options
from dynfrsdb.cli.interrupt import Interrupted
from dynfrsdb.cli.output import emit, progress, properties

FAILED = 1


class _Receipts(click.Group):
    """`receipt STORE N` issues one, `receipt verify FILE` checks one: what is not a command's name is a store."""

    usual = "issue"
    """The command that is meant when none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [self.usual, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Receipts, no_args_is_help=False, options_metavar="", subcommand_metavar="STORE N | verify FILE")
def receipt() -> None:
    """Issue the receipt of a change as a document to hand out, or check one.

    'receipt STORE N' issues the receipt of ledger entry N; 'receipt issue --help' has its options.
    """


@receipt.command("issue")
@options.store
@click.argument("number", type=click.IntRange(min=1))
@click.option("--verify", is_flag=True, help="Grow all trees again, and put into the receipt that they are equal.")
@click.option("--sign", type=click.Path(path_type=Path), metavar="KEY", help="Sign it: a PEM file, Ed25519.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write it to FILE instead of stdout.")
def issue(store: Path, number: int, verify: bool, sign: Path | None, out: Path | None) -> None:
    """Print the receipt of ledger entry NUMBER, in JSON: hand it out as it is, to the byte."""
    from dynfrsdb import documents, proof

    if verify:
        from dynfrsdb.cli.opening import database

        with database(store) as db, progress() as show:
            text = db.issue_receipt(number, verify=True, key=sign, progress=show)
    else:
        from dynfrsdb_storage import Store

        with Store.open(store, writable=False) as source, source.snapshot() as snapshot:
            text = proof.sealed(proof.issue(source, snapshot, number), sign)
    if out is None:
        click.echo(text, nl=False)
    else:
        documents.write(out, text)


@receipt.command("verify")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--store", type=click.Path(path_type=Path), help="Look it up in the ledger of this store, too.")
@click.option(
    "--key", type=click.Path(path_type=Path), metavar="KEY", help="It must be signed with this: a public PEM file."
)
@options.as_json
@click.pass_context
def verify(ctx: click.Context, file: Path, store: Path | None, key: Path | None, as_json: bool) -> None:
    """Check a receipt; exit code 1 if a byte of it was changed."""
    from dynfrsdb.proof import verify_receipt

    report = verify_receipt(file, store, key)
    result = report.as_dict()
    emit(result, lambda: properties({**result, "problems": "\n".join(report.problems) or None}), as_json)
    ctx.exit(0 if report else FAILED)


@click.command()
@click.argument("backup", type=click.Path(path_type=Path))
@click.option(
    "--replay",
    type=click.Path(path_type=Path),
    metavar="LEDGER",
    required=True,
    help="The newest export of the ledger: 'dynfrsdb ledger STORE --export LEDGER'.",
)
@options.timeout
@options.as_json
def restore(backup: Path, replay: Path, timeout: float, as_json: bool) -> None:
    """Make BACKUP the store again: apply every removal that came after it.

    BACKUP itself is changed. It cannot be opened from when this begins until it is complete.
    """
    from dynfrsdb.cli.opening import mention_compiling
    from dynfrsdb.restoring import restore as apply

    mention_compiling()
    try:
        result = apply(backup, replay, timeout).as_dict()
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; '{backup}' is as it was, or closed until this is run again") from None
    emit(result, lambda: properties(result), as_json)


def ledger_out(store: Path, since: str | None, export: Path | None, as_json: bool) -> None:
    """What 'ledger --head' and 'ledger --export' do."""
    from dynfrsdb import chain
    from dynfrsdb_storage import Store

    with Store.open(store, writable=False) as source, source.snapshot() as snapshot:
        head = chain.head(snapshot)
        if export is not None:
            found = chain.entries(snapshot) if since is None else chain.since(snapshot, since)
    if export is None:
        emit({"head": head}, lambda: head, as_json)
    elif str(export) == "-":
        sys.stdout.writelines(map(chain.line, found))
    else:
        chain.export(found, export)
        result: dict[str, Any] = {"exported": len(found), "file": str(export), "head": head}
        emit(result, lambda: properties(result), as_json)


VERBS = (receipt, restore)
