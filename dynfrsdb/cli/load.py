"""`create`: a new store from a file, or from a table of a database."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dynfrsdb.cli import options
from dynfrsdb.cli.interrupt import Interrupted
from dynfrsdb.cli.opening import mention_compiling
from dynfrsdb.cli.output import emit, note, progress, properties

if TYPE_CHECKING:
    from dynfrsdb.loading import Prepared
    from dynfrsdb.survey import Wishes
    from dynfrsdb.tables import Table

_READING = ("format", "delimiter", "url", "table", "query", "where")
_SHOWN = (
    "criterion",
    "n_trees",
    "k",
    "p",
    "s",
    "max_depth",
    "min_samples_split",
    "target_offset",
    "target_step",
    "bucket",
    "q",
)


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """COLUMN=VALUE, for each of the values."""
    parts = [value.partition("=") for value in values]
    for column, equals, stand_in in parts:
        if not column or not equals:
            raise click.BadParameter(f"'{column}{equals}{stand_in}' is not of the form COLUMN=VALUE", ctx, param)
    return {column: stand_in for column, _, stand_in in parts}


@click.command()
@options.store
@options.table_or_source
@click.option("--target", required=True, metavar="COLUMN", help="What is to be predicted.")
@click.option("--id", metavar="COLUMN", help="Sample ids; without it samples are numbered 0, 1, 2, ...")
@click.option("--subject", metavar="COLUMN", help="Whom a sample belongs to, so that `forget` finds it.")
@click.option("--ignore", multiple=True, metavar="COLUMN", help="Leave a column out; may be repeated.")
@click.option("--categorical", multiple=True, metavar="COLUMN", help="Numbers that are names; may be repeated.")
@click.option(
    "--impute",
    multiple=True,
    callback=_pairs,
    metavar="COLUMN=VALUE",
    help="What stands in for missing values, for ever; may be repeated.",
)
@click.option(
    "--min-category",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Encode only values that occur N times or more, so that no single person is in the settings.",
)
@options.settings
@options.as_json
def create(store: Path, data: Path | None, as_json: bool, **given: Any) -> None:
    """Create a store from DATA: CSV, JSON lines (both also gzipped), Parquet, Arrow, Feather or npz.

    Or from a table or a query of a database, with --from; then `sync` keeps the store in step with it. It is read
    twice, in one transaction that sees one state of it.

    Columns of numbers become features as they are, true and false 0 and 1, and text one feature for each value. How is
    kept in the store, so that `add` and `predict` take the same columns.
    """
    from dynfrsdb.loading import create_from, prepare
    from dynfrsdb.survey import Wishes, classes_in

    begun = time.monotonic()
    existed = os.path.lexists(store)
    opened, said = _table(data, **{name: given.pop(name) for name in _READING}, id=given["id"])
    names = ("target", "id", "subject", "ignore", "categorical", "impute", "min_category")
    wishes = Wishes(**{name: given.pop(name) for name in names})
    settings = {name: value for name, value in given.items() if value not in (None, ())}
    if "classes" in settings:
        settings["classes"] = classes_in(settings["classes"])
    if "seed" in settings and settings["seed"].isdigit():
        settings["seed"] = int(settings["seed"])
    try:
        with opened as table, progress() as show:
            prepared = prepare(store, table, wishes, show, **settings)
        mention_compiling()
        with progress() as show:
            create_from(store, prepared, show, said(wishes))
    except KeyboardInterrupt:
        made = os.path.lexists(store) and not existed
        raise Interrupted(f"interrupted; the store '{store}' is {'complete' if made else 'not created'}") from None
    for column, rows in prepared.not_encoded.items():
        note(f"column {column!r}: {rows:,} of {len(prepared.X):,} rows have a value that is too rare to be encoded")
    result = _summary(store, prepared, time.monotonic() - begun)
    shown = {name: value for name, value in result.items() if value}
    emit(result, lambda: properties({**shown, "classes": _in_short(result["classes"])}), as_json)


def _table(
    data: Path | None,
    format: str | None,
    delimiter: str | None,
    url: str | None,
    table: str | None,
    query: str | None,
    where: str | None,
    id: str | None,
) -> tuple[AbstractContextManager[Table], Callable[[Wishes], dict[str, Any] | None]]:
    """What a store is made from, and what the ledger is to say of it."""
    from dynfrsdb.tables import open_table

    if data is not None:
        if url is not None and _was_typed("url"):
            raise click.UsageError("--from and DATA are two ways to give samples; pass one of them")
        if (table, query, where) != (None, None, None):
            raise click.UsageError("--table, --query and --where go with --from, not with DATA")
        return nullcontext(open_table(data, format, delimiter)), lambda wishes: None
    if url is None:
        raise click.UsageError("missing DATA, or --from with --table or --query", click.get_current_context())
    if format is not None or delimiter is not None:
        raise click.UsageError("--format and --delimiter go with DATA, not with --from")
    from dynfrsdb.tables.sql import Source, SqlTable

    source = Source(url, table, query, where)
    return SqlTable(source, id), lambda wishes: source.record(
        id=wishes.id, target=wishes.target, subject=wishes.subject
    )


def _was_typed(name: str) -> bool:
    """Whether an option is on the command line, and not only in the environment."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _summary(store: Path, prepared: Prepared, seconds: float) -> dict[str, Any]:
    settings = prepared.settings
    record = settings.record()
    columns = (settings.encoding or {"columns": []})["columns"]
    return {
        "store": str(store),
        "samples": len(prepared.X),
        "features": settings.n_features,
        "task": settings.task,
        "classes": list(settings.classes),
        "encoded": {column["name"]: len(column["values"]) for column in columns if column["kind"] == "category"},
        "not_encoded": prepared.not_encoded,
        "settings": {name: record[name] for name in _SHOWN},
        "seconds": round(seconds, 3),
        "bytes": sum(file.stat().st_size for file in store.rglob("*") if file.is_file()),
    }


def _in_short(classes: list[Any]) -> list[Any]:
    return classes if len(classes) <= 10 else [*classes[:10], f"... ({len(classes)} in all)"]


VERBS = (create,)
