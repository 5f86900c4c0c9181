"""`migrate`: bring what an older dynfrsdb wrote to what this one writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dynfrsdb.cli import options
from dynfrsdb.cli.interrupt import Interrupted
from dynfrsdb.cli.output import emit, megabytes, note, progress, properties


@click.command()
@click.argument("store", required=False, type=click.Path(path_type=Path))
@click.option("--catalog", is_flag=True, help="Bring the tables of the catalog to the newest revision.")
@options.catalog
@click.option("--dry-run", is_flag=True, help="Of a store: only say what would be done, and how much space it takes.")
@options.timeout
@options.as_json
def migrate(store: Path | None, catalog: bool, url: str | None, dry_run: bool, timeout: float, as_json: bool) -> None:
    """Bring a store, or the catalog, that an older version made up to date.

    No sample, no answer and no receipt changes. Asked for again, it finds nothing to do.
    """
    if catalog == (store is not None):
        raise click.UsageError("say what to migrate: STORE or --catalog", click.get_current_context())
    result = _catalog(url) if store is None else _store(store, dry_run, timeout)
    emit(result, lambda: properties(result), as_json)


def _catalog(url: str | None) -> dict[str, Any]:
    from dynfrsdb import sql
    from dynfrsdb.catalog import place, schema

    there = place.url(url)
    return {"catalog": sql.shown(there), "before": schema.migrate(there), "revision": schema.NEWEST}


def _store(store: Path, dry_run: bool, timeout: float) -> dict[str, Any]:
    from dynfrsdb.migrating import migrate as carry_out

    try:
        plan = carry_out(store, dry_run=True)
        if plan.needed:
            note(f"needs up to {megabytes(plan.needed)} beside the store; {megabytes(plan.free)} are free")
        if dry_run or plan.done:
            return plan.as_dict()
        with progress() as show:
            done = carry_out(store, progress=show, timeout=timeout)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; the store is whole, before or after a step: see 'dynfrsdb migrate {store} --dry-run'"
        ) from None
    if done.held_by:
        pids = ", ".join(map(str, done.held_by))
        note(f"the old files are still open in process {pids}; they are erased when it has let go")
    return done.as_dict()


VERBS = (migrate,)
