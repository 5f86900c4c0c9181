"""Verbs that look at one row or one person: sample, subject. They never import the engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dynfrsdb.cli import options
from dynfrsdb.cli.output import emit, properties, rows

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command()
@options.store
@click.argument("id", type=options.SAMPLE_ID)
@options.as_json
def sample(store: Path, id: int, as_json: bool) -> None:
    """One sample: its values and its places.

    Its class or target, its features, and the leaf where it lies in each of the trees it lives in.
    """
    from dynfrsdb.inside.people import sample as find
    from dynfrsdb.inside.store import look

    found = look(store, lambda inside: find(inside, id))
    emit(found, lambda: _sample_drawing(found), as_json)


def _sample_drawing(found: dict[str, Any]) -> RenderableType:
    from rich.console import Group

    about = {name: value for name, value in found.items() if name not in ("features", "places", "trees")}
    about["id"] = str(found["id"])
    lines = ([str(at["tree"]), at["path"], at["kind"], at["samples"]] for at in found["places"])
    places = rows(("tree", "path", "ends in a", "samples there"), lines)
    return Group(properties(about), "", properties(found["features"]), "", places)


@click.command()
@options.store
@click.argument("subject")
@options.as_json
def subject(store: Path, subject: str, as_json: bool) -> None:
    """The samples of one person.

    Also the changes in which they were forgotten. The store does not know SUBJECT by name, only by a keyed hash, which
    is shown: receipts name the person by it.
    """
    from dynfrsdb.inside.people import subject as find
    from dynfrsdb.inside.store import look

    found = look(store, lambda inside: find(inside, options.as_given(subject)))
    emit(found, lambda: properties({**found, "ids": list(map(str, found["ids"]))}), as_json)


VERBS = (sample, subject)
