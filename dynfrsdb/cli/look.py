"""Verbs that say how a store is: info, ledger, readers. They never import the engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dynfrsdb.cli import options
from dynfrsdb.cli.output import Form, emit, emit_rows, properties, rows

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dynfrsdb.inside.store import Inside

_LEDGER = ("change", "time", "kind", "added", "removed", "samples", "trees", "hash")
"""What a terminal of 80 columns has room for; `--json` has everything."""


@click.command()
@options.store
@click.option("--html", type=options.FILE, metavar="FILE", help="Write a page with pictures, for a browser, instead.")
@options.as_json
def info(store: Path, html: Path | None, as_json: bool) -> None:
    """Sizes, counts, settings and readers of a store."""
    from dynfrsdb.inside.store import look

    if html is not None:
        from dynfrsdb.cli.page import page

        html.write_text(look(store, lambda inside: page(inside, _about(inside))), encoding="utf-8")
        emit({"html": str(html)}, lambda: f"wrote '{html}'", as_json)
        return
    found = look(store, _about)
    emit(found, lambda: _info_drawing(found), as_json)


def _about(inside: Inside) -> dict[str, Any]:
    """What the store says of itself, less ourselves among its readers."""
    from dynfrsdb.inside.store import info as about

    found = about(inside)
    found["readers"] = [reader for reader in found["readers"] if reader["pid"] != os.getpid()]
    return found


def _info_drawing(found: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from dynfrsdb_storage import layout

    settings = {**found["settings"], "encoding": _encoding(found["settings"]["encoding"])}
    names = settings.pop("feature_names")
    if names and len(names) > 8:
        names = [*names[:8], f"... ({len(names)} in all; --json has them)"]
    rest = {name: value for name, value in found.items() if name not in ("settings", "readers", "files")}
    if found["format"] < layout.FORMAT:
        rest["format"] = f"{found['format']} (this version writes {layout.FORMAT}; see 'migrate')"
    rest["files"] = {name: f"{size:,} bytes" for name, size in found["files"].items()}
    rest["readers"] = [
        f"process {each['pid']}, {each['lag']} commits behind for {each['age']:.0f} s" for each in found["readers"]
    ]
    return Group(properties(rest), Text("\nsettings", style="bold"), properties({**settings, "feature_names": names}))


def _encoding(record: dict[str, Any] | None) -> dict[str, Any] | None:
    """The encoding of a table in a line or two: which column is what, and how many values of text are features."""
    if record is None:
        return None
    columns = {name: record[name] for name in ("target", "id", "subject") if record.get(name) is not None}
    encoded = [f"{column['name']} ({len(column['values'])})" for column in record["columns"] if column["values"]]
    if len(encoded) > 8:
        encoded = [*encoded[:8], f"... ({len(encoded)} in all; --json has them)"]
    return {**columns, "one-hot": encoded}


@click.command()
@options.store
@click.option("--head", is_flag=True, help="Print only the head: keep it elsewhere, for --since.")
@click.option(
    "--since", metavar="HEAD", help="Only what came after HEAD; exit code 1 if the ledger does not continue it."
)
@click.option(
    "--export", type=click.Path(path_type=Path), metavar="FILE", help="Write JSON lines to FILE, - for stdout."
)
@options.rows
def ledger(store: Path, head: bool, since: str | None, export: Path | None, form: Form) -> None:
    """All changes of a store, oldest first."""
    from dynfrsdb.cli import prove
    from dynfrsdb.inside.store import ledger as entries
    from dynfrsdb.inside.store import look

    if head or export is not None:
        if head and (since is not None or export is not None):
            raise click.UsageError("--head does not go together with --since and --export")
        prove.ledger_out(store, since, export, form.json)
        return
    receipts = [receipt.as_dict() for receipt in look(store, lambda inside: entries(inside.snapshot, since))]
    emit_rows(receipts, lambda: rows(_LEDGER, map(_ledger_line, receipts)), form)


def _ledger_line(receipt: dict[str, Any]) -> list[Any]:
    day, _, clock = receipt["time"].partition("T")
    counts = (receipt[name] for name in ("added", "removed", "samples", "trees"))
    return [receipt["sequence"], f"{day} {clock[:8]}", receipt["kind"], *counts, receipt["hash"][:8]]


@click.command()
@options.store
@options.rows
def readers(store: Path, form: Form) -> None:
    """Processes that look at a store right now.

    A reader that is behind keeps removed rows from being erased and makes the file grow.
    """
    from dynfrsdb.inside.store import look

    found = [
        {**each, "command": _command(each["pid"])} for each in look(store, lambda inside: _about(inside)["readers"])
    ]
    lines = ([str(each["pid"]), each["command"], each["lag"], f"{each['age']:.0f} s"] for each in found)
    emit_rows(found, lambda: rows(("process", "command", "commits behind", "for"), lines) if found else "none", form)


def _command(pid: int) -> str | None:
    """What a process is called; without its arguments, which may name people."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return None


VERBS = (info, ledger, readers)
