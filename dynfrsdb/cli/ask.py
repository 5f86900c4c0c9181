"""`predict`: answers for the rows of a file, as a stream."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dynfrsdb.cli import options
from dynfrsdb.cli.opening import database
from dynfrsdb.cli.output import note

if TYPE_CHECKING:
    from dynfrsdb.database import Database
    from dynfrsdb.explain import Explanation
    from dynfrsdb.loading import Part

STRONGEST = 5
"""Features that an explanation names."""
Line = dict[str, Any]


@click.command()
@options.store
@options.table
@click.option("--proba", is_flag=True, help="Add the frequency of every class.")
@click.option("--explain", is_flag=True, help="Add the features that moved the prediction most; slower.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, also when piped.")
@options.as_json
def predict(
    store: Path,
    data: Path,
    format: str | None,
    delimiter: str | None,
    proba: bool,
    explain: bool,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Predict the rows of DATA: CSV on a terminal, one JSON object to a line when piped.

    DATA has the columns of features that the store was created from, in any order; others are passed over. Rows are
    read, answered and printed in batches, each from the newest commit.
    """
    from dynfrsdb.loading import encoding_of, parts
    from dynfrsdb.tables import open_table

    if as_csv and as_json:
        raise click.UsageError("--csv and --json are two forms; pass one of them")
    with database(store) as db:
        if proba and not db.classes:
            raise click.UsageError("this store is a regression, which has no --proba")
        unknown: Counter[str] = Counter()
        asking = _Asking(db, proba, explain)
        write = _write_csv if as_csv or (sys.stdout.isatty() and not as_json) else _write_json
        encoding = encoding_of(db._settings)
        features = replace(encoding, target=None, id=None, subject=None)
        for part in parts(open_table(data, format, delimiter).batches(), features, unknown):
            write(asking.lines(part, encoding.id), asking.heading(part, encoding.id), part.batch.first == 0)
    for column, count in unknown.items():
        note(f"column {column!r}: {count:,} rows have a value that was not encoded; it is 0 in all its features")


class _Asking:
    """What is asked about each row."""

    def __init__(self, db: Database, proba: bool, explain: bool) -> None:
        self._db, self._proba, self._explain = db, proba, explain

    def lines(self, part: Part, id: str | None) -> Iterator[Line]:
        """One answer for each row of a part."""
        name, names = self._names(part, id)
        classes = self._db.classes
        if not part.batch.size:
            return
        import numpy as np

        explained = self._db.explain(part.X) if self._explain else None
        if explained is not None:
            means = np.array([each.answer for each in explained])
        else:
            means = self._db.predict_proba(part.X) if classes else self._db.predict(part.X)[:, None]
        for row, mean in enumerate(means.tolist()):
            line = {name: names[row], "prediction": classes[mean.index(max(mean))] if classes else mean[0]}
            if self._proba:
                line["proba"] = dict(zip(map(spelt, classes), mean, strict=True))
            if explained is not None:
                line["explain"] = _in_short(explained[row])
            yield line

    def heading(self, part: Part, id: str | None) -> list[str]:
        """The columns of the same as CSV."""
        proba = [f"proba:{spelt(each)}" for each in self._db.classes] if self._proba else []
        places = range(1, STRONGEST + 1)
        moved = [name for place in places for name in (f"feature_{place}", f"moved_{place}")]
        explain = ["base", *moved, "others"] if self._explain else []
        return [self._names(part, id)[0], "prediction", *proba, *explain]

    @staticmethod
    def _names(part: Part, id: str | None) -> tuple[str, Sequence[Any]]:
        """What rows are called: by their id if there is one, else by their number."""
        column = part.batch.columns.get(id) if id is not None else None
        if column is None:
            return "row", range(part.batch.first, part.batch.first + part.batch.size)
        return "id", [_whole(cell) for cell in (column.tolist() if hasattr(column, "tolist") else column)]


def _whole(cell: Any) -> Any:
    """An id as a number if it is one, also where cells are text."""
    return int(cell) if isinstance(cell, str) and cell.isdecimal() and len(cell) <= 20 else cell


def _in_short(explanation: Explanation) -> Line:
    strongest = dict(list(explanation.moved.items())[:STRONGEST])
    others = math.fsum(list(explanation.moved.values())[STRONGEST:])
    return {"base": explanation.base, "moved": strongest, "others": others}


def spelt(label: Any) -> str:
    """A class as the name of a column."""
    return str(label).lower() if isinstance(label, bool) else str(label)


def _write_json(lines: Iterator[Line], heading: list[str], first: bool) -> None:
    for line in lines:
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _write_csv(lines: Iterator[Line], heading: list[str], first: bool) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if first:
        writer.writerow(heading)
    for line in lines:
        explain = line.pop("explain", None)
        cells = [*line.pop("proba", {}).values()]
        if explain is not None:
            moved = [cell for pair in explain["moved"].items() for cell in pair]
            cells += [explain["base"], *moved, *[""] * (2 * STRONGEST - len(moved)), explain["others"]]
        writer.writerow([*line.values(), *cells])
    sys.stdout.flush()


VERBS = (predict,)
