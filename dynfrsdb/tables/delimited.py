"""CSV and its kin, with a header, read by Python's csv module.

Spaces behind a delimiter do not count. A quoted cell may hold delimiters and line ends; a message names the line on
which a row begins. Blank lines are passed over.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from dynfrsdb.errors import InvalidInput
from dynfrsdb.tables.batch import Batch, TableFile, check_names, rows_at_once
from dynfrsdb.tables.files import lines

CHARACTERS_AT_ONCE = 1 << 24

_IN_WORDS = {
    "field larger": "holds a cell of more than 131,072 characters; is a closing quote missing?",
    "new-line character": "holds a carriage return that ends no line; save the file with ordinary line ends",
    "unexpected end": "is the last, and a quoted cell is still open; close its quote",
    "expected after": "has text behind a closing quote; write a quote inside a quoted cell twice",
}


class Delimited(TableFile):
    """A file of cells between delimiters."""

    texts = True

    def __init__(self, path: Path, delimiter: str) -> None:
        super().__init__(path)
        if len(delimiter) != 1 or delimiter in '\r\n" ':
            raise InvalidInput(f"delimiter {delimiter!r} is not one character between cells, such as ',' or ';'")
        self._delimiter = delimiter
        self._read = 0

    def batches(self) -> Iterator[Batch]:
        rows = self._rows()
        _, header = next(rows, (0, []))
        names = [name.strip() for name in header]
        if not names:
            raise InvalidInput(f"'{self.path}' is empty; the first line of a table names its columns")
        check_names(self.name, names)
        first, most = 0, rows_at_once(len(names))
        starts: list[int] = []
        cells: list[list[str]] = []
        begun = self._read
        for start, row in rows:
            if len(row) != len(names):
                raise InvalidInput(
                    f"'{self.path}', line {start} has {len(row)} cells, the header has {len(names)}; is "
                    f"{self._delimiter!r} its delimiter?"
                )
            starts.append(start)
            cells.append(row)
            if len(cells) == most or self._read - begun > CHARACTERS_AT_ONCE:
                yield self._batch(names, cells, starts, first)
                first, starts, cells, begun = first + len(cells), [], [], self._read
        if cells or not first:
            yield self._batch(names, cells, starts, first)

    def _batch(self, names: list[str], cells: list[list[str]], starts: list[int], first: int) -> Batch:
        columns = zip(*cells, strict=True) if cells else (() for _ in names)
        name = self.name
        return Batch(
            self.name,
            dict(zip(names, columns, strict=True)),
            len(cells),
            first,
            lambda row: f"'{name}', line {starts[row]}",
        )

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Rows that are not blank, each with the line it begins on."""
        reader = csv.reader(self._lines(), delimiter=self._delimiter, strict=True, skipinitialspace=True)
        start = 1
        try:
            for row in reader:
                if row:
                    yield start, row
                start = reader.line_num + 1
        except csv.Error as error:
            words = next((words for part, words in _IN_WORDS.items() if part in str(error)), f"is no CSV: {error}")
            raise InvalidInput(f"'{self.path}', line {start} {words}") from error

    def _lines(self) -> Iterator[str]:
        for line in lines(self.path, self._report):
            self._read += len(line)
            yield line

    def _report(self, done: int, total: int) -> None:
        self.done, self.total = done, total
