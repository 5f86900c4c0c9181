"""Verbs that look inside: info, ledger, sample. They never import the engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dynfrsdb.cli import options
from dynfrsdb.cli.output import emit, properties, rows

if TYPE_CHECKING:
    from rich.console import RenderableType

_LEDGER = ("change", "time", "kind", "added", "removed", "samples", "trees", "hash")
"""What a terminal of 80 columns has room for; `--json` has everything."""


@click.command()
@options.store
@options.as_json
def info(store: Path, as_json: bool) -> None:
    """Sizes, counts, settings and readers of a store."""
    from dynfrsdb.cli import peek

    found = peek.info(store)
    emit(found, lambda: _info_drawing(found), as_json)


def _info_drawing(found: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    settings = dict(found["settings"])
    names = settings.pop("feature_names")
    if names and len(names) > 8:
        names = [*names[:8], f"... ({len(names)} in all; --json has them)"]
    rest = {name: value for name, value in found.items() if name not in ("settings", "readers", "files")}
    rest["files"] = {name: f"{size:,} bytes" for name, size in found["files"].items()}
    rest["readers"] = [
        f"process {each['pid']}, {each['lag']} commits behind for {each['age']:.0f} s" for each in found["readers"]
    ]
    return Group(properties(rest), Text("\nsettings", style="bold"), properties({**settings, "feature_names": names}))


@click.command()
@options.store
@click.option("--head", is_flag=True, help="Print only the head: keep it elsewhere, for --since.")
@click.option(
    "--since", metavar="HEAD", help="Only what came after HEAD; exit code 1 if the ledger does not continue it."
)
@click.option(
    "--export", type=click.Path(path_type=Path), metavar="FILE", help="Write JSON lines to FILE, - for stdout."
)
@options.as_json
def ledger(store: Path, head: bool, since: str | None, export: Path | None, as_json: bool) -> None:
    """All changes of a store, oldest first."""
    from dynfrsdb.cli import peek, prove

    if head or export is not None:
        if head and (since is not None or export is not None):
            raise click.UsageError("--head does not go together with --since and --export")
        prove.ledger_out(store, since, export, as_json)
        return
    receipts = peek.ledger(store, since)
    emit(receipts, lambda: rows(_LEDGER, (_ledger_line(receipt) for receipt in receipts)), as_json)


def _ledger_line(receipt: dict[str, Any]) -> list[Any]:
    day, _, clock = receipt["time"].partition("T")
    counts = (receipt[name] for name in ("added", "removed", "samples", "trees"))
    return [receipt["sequence"], f"{day} {clock[:8]}", receipt["kind"], *counts, receipt["hash"][:8]]


@click.command()
@options.store
@click.argument("id", type=options.SAMPLE_ID)
@options.as_json
def sample(store: Path, id: int, as_json: bool) -> None:
    """One sample: its values, its class or target, and the trees it lives in."""
    from dynfrsdb.cli import peek

    found = peek.sample(store, id)
    about = {name: value for name, value in found.items() if name != "features"}
    emit(found, lambda: properties({**about, "id": str(id), **found["features"]}), as_json)


VERBS = (info, ledger, sample)
