"""Arguments and options that several verbs take, so that they are spelt and explained the same everywhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.exceptions import Exit

from dynfrsdb.catalog.place import VARIABLE
from dynfrsdb.cli import opening
from dynfrsdb.cli.output import Form, note

F = TypeVar("F", bound=Callable[..., Any])

MAX_ID = 2**64 - 1
SAMPLE_ID = click.IntRange(0, MAX_ID)
FILE = click.Path(dir_okay=False, path_type=Path)
"""A file to write; one that is there is replaced."""


def store(function: F) -> F:
    """STORE, the directory of a store; whether it is there is for the library to say."""
    return click.argument("store", type=click.Path(path_type=Path))(function)


def as_given(subject: str) -> str | bytes:
    """The subject; as bytes if the argument was not valid Unicode."""
    try:
        subject.encode()
    except UnicodeEncodeError:
        return os.fsencode(subject)
    return subject


def as_json(function: F) -> F:
    """--json, for JSON on a terminal too."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, also on a terminal.")(function)


def rows(function: F) -> F:
    """--json and --csv, for verbs that print rows; the verb gets them as one argument, `form`."""

    @wraps(function)
    def with_form(*args: Any, as_json: bool, as_csv: bool, **more: Any) -> Any:
        if as_json and as_csv:
            raise click.UsageError("--json and --csv cannot be had together", click.get_current_context())
        return function(*args, form=Form(as_json, as_csv), **more)

    csv = click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
    return csv(as_json(with_form))  # type: ignore[return-value]


def timeout(function: F) -> F:
    """--timeout, for verbs that write; what they wrote is told to the catalog, if there is one."""

    @wraps(function)
    def and_tell(*args: Any, **given: Any) -> Any:
        store = None if given.get("dry_run") else given.get("store", given.get("backup"))
        try:
            result = function(*args, **given)
        except Exit:
            tell_catalog(store)
            raise
        tell_catalog(store)
        return result

    wait = click.FloatRange(min=0)
    return click.option(  # type: ignore[return-value]
        "--timeout", type=wait, default=30.0, show_default=True, help="Seconds to wait for other writers."
    )(and_tell)


def tell_catalog(store: Path | None) -> None:
    """Bring a store that was changed into the catalog that DYNFRSDB_CATALOG names, or say that this is pending."""
    url = os.environ.get(VARIABLE)
    if store is None or not url or opening.joined is not None:
        return
    from dynfrsdb.catalog.following import follow

    problem = follow(url, store)
    if problem is not None:
        note(
            f"'{store}' is changed, but the catalog does not know yet: {problem}. When it can be reached, "
            "'dynfrsdb catalog refresh' brings it in"
        )


def catalog(function: F) -> F:
    """--url, where the catalog is."""
    return click.option(
        "--url", metavar="URL", help="Where the catalog is; else DYNFRSDB_CATALOG, else a file of yours: see 'doctor'."
    )(function)


def change(function: F) -> F:
    """What all verbs that add or remove samples take."""
    dry_run = click.option(
        "--dry-run",
        is_flag=True,
        help="Change nothing; say what would be touched: samples, trees, nodes, nodes whose best split would be "
        "another (resplit), nodes below which everything is grown anew (voided), records and bytes to write, and about "
        "how many seconds it takes.",
    )
    request_id = click.option(
        "--request-id",
        metavar="TEXT",
        help="A name for this request: asked twice, it is carried out once and gives the same receipt.",
    )
    receipt = click.option(
        "--receipt",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Write the receipt to a file as well, as 'receipt' would.",
    )
    return dry_run(request_id(receipt(timeout(as_json(function)))))


def table(function: F) -> F:
    """DATA, a file of rows, and how to read it."""
    return _data(function, required=True)


def table_or_source(function: F) -> F:
    """DATA, or a source in a database; which of them was given is for the verb to say."""
    return _data(source(function, required=False), required=False)


def source(function: F, required: bool = True) -> F:
    """A table or a query of a database."""
    url = click.option(
        "--from",
        "url",
        metavar="URL",
        required=required,
        envvar="DYNFRSDB_SOURCE",
        show_envvar=True,
        help="A database: sqlite:////data/people.db or postgresql://host/database. Passwords are better kept in "
        "PGPASSWORD or ~/.pgpass.",
    )
    name = click.option("--table", metavar="TABLE", help="A table of it, or SCHEMA.TABLE.")
    query = click.option("--query", metavar="SQL", help="Or a query: one SELECT.")
    where = click.option("--where", metavar="SQL", help="Only rows for which this condition holds.")
    return url(name(query(where(function))))


def _data(function: F, required: bool) -> F:
    kind = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
    data = click.argument("data", type=kind, required=required)
    form = click.option(
        "--format",
        type=click.Choice(["csv", "jsonl", "parquet", "arrow", "npz"]),
        help="What DATA is, if its name does not tell.",
    )
    delimiter = click.option("--delimiter", metavar="CHAR", help="Between cells of CSV; a comma unless told otherwise.")
    return data(form(delimiter(function)))


def settings(function: F) -> F:
    """The settings of a new store, named and explained as in `dynfrsdb.create`."""
    for option in reversed(_SETTINGS):
        function = option(function)
    return function


def _features(ctx: click.Context, param: click.Parameter, value: str | None) -> int | float | str | None:
    if value is None or value in ("sqrt", "all"):
        return value
    for kind in (int, float):
        with suppress(ValueError):
            return kind(value)
    raise click.BadParameter(f"{value!r} is neither a number nor one of 'sqrt', 'all'", ctx, param)


_SETTINGS = (
    click.option(
        "--task",
        type=click.Choice(["classification", "regression"]),
        default="classification",
        help="What targets are.",
    ),
    click.option("--n-estimators", type=int, metavar="N", help="Trees; 100 unless told otherwise."),
    click.option("--q", type=float, help="The share of trees that a sample lives in; 0.1 unless told otherwise."),
    click.option("--max-depth", type=int, metavar="N", help="20 unless told otherwise."),
    click.option("--n-thresholds", type=int, metavar="N", help="Thresholds per candidate; 20 unless told otherwise."),
    click.option(
        "--max-features",
        callback=_features,
        metavar="N|SHARE|sqrt|all",
        help="Features that a node considers; sqrt, or all for a regression.",
    ),
    click.option("--min-samples-split", type=int, metavar="N", help="10 unless told otherwise."),
    click.option(
        "--criterion",
        type=click.Choice(["gini", "entropy", "squared_error"]),
        help="What makes a split good; gini, or squared_error for a regression.",
    ),
    click.option("--class", "classes", multiple=True, metavar="LABEL", help="All classes, in order; else from DATA."),
    click.option("--target-offset", type=float, help="Regression: targets are kept as multiples of a step from here."),
    click.option("--target-step", type=float, help="Regression: that step; else from DATA."),
    click.option("--seed", metavar="TEXT", help="Secret; whole numbers are numbers. From the system unless given."),
)
