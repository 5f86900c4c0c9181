"""Arguments and options that several verbs take, so that they are spelt and explained the same everywhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from dynfrsdb.cli.output import Form

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
    """--timeout, for verbs that write."""
    wait = click.FloatRange(min=0)
    return click.option(
        "--timeout", type=wait, default=30.0, show_default=True, help="Seconds to wait for other writers."
    )(function)


def change(function: F) -> F:
    """What all verbs that add or remove samples take."""
    dry_run = click.option("--dry-run", is_flag=True, help="Say what would be touched; change nothing.")
    request_id = click.option(
        "--request-id",
        metavar="TEXT",
        help="A name for this request: asked twice, it is carried out once and gives the same receipt.",
    )
    return dry_run(request_id(timeout(as_json(function))))
