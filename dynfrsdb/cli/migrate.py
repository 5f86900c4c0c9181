"""`migrate`: bring what an older dynfrsdb wrote to what this one reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dynfrsdb.cli import options
from dynfrsdb.cli.output import emit, properties


@click.command()
@click.argument("store", required=False, type=click.Path(path_type=Path))
@click.option("--catalog", is_flag=True, help="Bring the tables of the catalog to the newest revision.")
@options.catalog
@options.as_json
def migrate(store: Path | None, catalog: bool, url: str | None, as_json: bool) -> None:
    """Bring the catalog, which an older version made, up to date.

    Asked for again, it finds nothing to do.
    """
    if not catalog or store is not None:
        raise click.UsageError("say what to migrate: --catalog", click.get_current_context())
    result = _catalog(url)
    emit(result, lambda: properties(result), as_json)


def _catalog(url: str | None) -> dict[str, Any]:
    from dynfrsdb import sql
    from dynfrsdb.catalog import place, schema

    there = place.url(url)
    return {"catalog": sql.shown(there), "before": schema.migrate(there), "revision": schema.NEWEST}


VERBS = (migrate,)
