"""Output: tables on a terminal, JSON when piped or asked for.

Data goes to stdout. Progress goes to stderr, and only if that is a terminal. rich is imported when there is a table to
draw.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

Progress = Callable[[str, int, int], None]


class Form(NamedTuple):
    """How rows were asked for; neither: a table on a terminal, JSON elsewhere."""

    json: bool
    csv: bool


def emit(data: Any, drawing: Callable[[], RenderableType], as_json: bool) -> None:
    """Print `data` as JSON, or on a terminal as `drawing` has it."""
    if as_json or not sys.stdout.isatty():
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console()
    with console.capture() as captured:
        console.print(drawing())
    # Not printed by rich itself, which has its own mind about closed pipes.
    click.echo(captured.get(), nl=False)


def emit_rows(records: Sequence[Mapping[str, Any]], drawing: Callable[[], RenderableType], form: Form) -> None:
    """Print records as CSV if that was asked for, and otherwise as `emit` does."""
    if not form.csv:
        emit(records, drawing, form.json)
        return
    import csv

    lines = io.StringIO()
    fields = dict.fromkeys(name for record in records for name in record)
    writer = csv.DictWriter(lines, list(fields), restval="", lineterminator="\n")
    if fields:
        writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in record.items()} for record in records)
    click.echo(lines.getvalue(), nl=False)


def _cell(value: Any) -> Any:
    """A value in CSV: several are parted by blanks, what has parts of its own is JSON."""
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping) else value


def properties(values: Mapping[str, Any]) -> RenderableType:
    """Names and values, one to a line."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in values.items():
        table.add_row(Text(printable(name).replace("_", " ")), Text(in_short(value)))
    return table


def rows(columns: Iterable[str], lines: Iterable[Iterable[Any]]) -> RenderableType:
    """A table with a heading."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column)
    for line in lines:
        # As Text, because a name may hold what rich takes for markup.
        table.add_row(*(Text(in_short(value)) for value in line))
    return table


def printable(text: object) -> str:
    """Text without characters that a terminal, or a page, would take for orders."""
    spelt = str(text).encode("utf-8", "replace").decode()
    return "".join(each if (each >= " " and each not in "\x7f\x9b") or each in "\n\t" else "\ufffd" for each in spelt)


def in_short(value: Any) -> str:
    """A value as people read it."""
    if value is None or value == [] or value == ():
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {in_short(each)}" for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(in_short, value))
    return printable(value)


def megabytes(size: int) -> str:
    """A number of bytes as people read it."""
    return f"{size / (1 << 20):,.1f} MB"


def note(message: str) -> None:
    """Tell the person at the terminal something that is not the result."""
    click.echo(f"dynfrsdb: {message}", err=True)


@contextmanager
def progress() -> Iterator[Progress | None]:
    """A callback that draws a progress bar of the stage at hand, or None where nobody would see them.

    A total of 0 means that nobody knows how long the stage takes."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("opening", total=None)

        def show(stage: str, done: int, total: int) -> None:
            bars.update(bar, description=stage, completed=done, total=total or None)

        yield show
