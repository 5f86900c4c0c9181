"""JSON lines: one object to a line; the first one names the columns.

A key that a later line leaves out is a missing value. A key that only a later line has is an error: it may be a
misspelt column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dynfrsdb.errors import InvalidInput
from dynfrsdb.tables.batch import Batch, Opaque, TableFile, check_names, rows_at_once
from dynfrsdb.tables.delimited import CHARACTERS_AT_ONCE
from dynfrsdb.tables.files import lines


class JsonLines(TableFile):
    """A file of JSON objects."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._read = 0

    def batches(self) -> Iterator[Batch]:
        objects = self._objects()
        number, head = next(objects, (0, None))
        if head is None:
            raise InvalidInput(f"'{self.path}' is empty; a JSON lines file has one object to a line")
        check_names(self.name, head)
        known, names, most = set(head), list(head), rows_at_once(len(head))
        first, numbers, rows, begun = 0, [number], [head], self._read
        for number, row in objects:
            if not row.keys() <= known:
                extra = next(name for name in row if name not in known)
                raise InvalidInput(f"'{self.path}', line {number} has {extra!r}, which the first line does not have")
            if len(rows) == most or self._read - begun > CHARACTERS_AT_ONCE:
                yield self._batch(names, rows, numbers, first)
                first, numbers, rows, begun = first + len(rows), [], [], self._read
            numbers.append(number)
            rows.append(row)
        yield self._batch(names, rows, numbers, first)

    def _batch(self, names: list[str], rows: list[dict[str, Any]], numbers: list[int], first: int) -> Batch:
        columns = {name: [_cell(row.get(name)) for row in rows] for name in names}
        path = self.name
        return Batch(self.name, columns, len(rows), first, lambda row: f"'{path}', line {numbers[row]}")

    def _objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in enumerate(lines(self.path, self._report), 1):
            self._read += len(line)
            if not line.strip():
                continue
            where = f"'{self.path}', line {number}"
            try:
                found = json.loads(line, object_pairs_hook=_object)
            except _TwiceNamed as twice:
                raise InvalidInput(f"{where} has two keys {twice.name!r}; give each column its own name") from None
            except (ValueError, RecursionError) as error:
                what = error.msg.lower() if isinstance(error, json.JSONDecodeError) else "it is too large or too deep"
                raise InvalidInput(f"{where} is not JSON: {what}; write one object to a line") from None
            if not isinstance(found, dict):
                raise InvalidInput(f"{where} is a {type(found).__name__}, not an object; write one object to a line")
            yield number, found

    def _report(self, done: int, total: int) -> None:
        self.done, self.total = done, total


class _TwiceNamed(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceNamed(next(name for name in names if names.count(name) > 1))
    return found


def _cell(value: Any) -> Any:
    return Opaque(f"JSON {type(value).__name__}", False) if isinstance(value, (list, dict)) else value
