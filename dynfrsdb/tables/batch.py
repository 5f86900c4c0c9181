"""What every reader of tables gives: batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from dynfrsdb.errors import InvalidInput

Column = Sequence[Any] | npt.NDArray[Any]
"""The cells of one column: an array of bool, whole or real numbers, or Python values with None for nothing."""

ROWS_AT_ONCE = 8192
CELLS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Opaque:
    """A cell of a type that is no feature; it is only an error if its column is used."""

    type: str
    is_date: bool


@dataclass(frozen=True)
class Batch:
    """Some rows of a table."""

    table: str
    """Its name, for messages."""
    columns: Mapping[str, Column]
    size: int
    first: int
    """Rows of the table before these."""
    place: Callable[[int], str]
    """Where a row of this batch is, in words."""

    def where(self, column: str) -> Callable[[int], str]:
        """Where a cell of a column is, in words."""
        return lambda row: f"{self.place(row)}, column {column!r}"


class Table(ABC):
    """A table of samples. `batches` gives at least one batch, which may be empty, so that columns are always known."""

    texts = False
    """Whether cells are text also where they mean numbers."""
    keeps_order = True
    """Whether rows come in the same order whenever they are read."""

    def __init__(self, name: str) -> None:
        self.name = name
        """What messages call it."""
        self.done, self.total = 0, 0
        """How far the reading is, and how far it goes (0 if that is not known), in units of the reader's own."""

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """All rows, from the beginning."""

    @property
    def can_be_read_again(self) -> bool:
        """Whether `batches` may be called twice."""
        return True

    def place_of(self, row: int) -> str:
        """Where a row of the whole table is, in words; reads up to there."""
        if self.can_be_read_again and self.keeps_order:
            for batch in self.batches():
                if batch.first <= row < batch.first + batch.size:
                    return batch.place(row - batch.first)
        return f"row {row} of '{self.name}'"


class TableFile(Table):
    """A table in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path

    @property
    def can_be_read_again(self) -> bool:
        return self.path.is_file()


def check_names(table: str, names: Iterable[str]) -> None:
    """Refuse columns without a name, and two of the same."""
    seen: set[str] = set()
    for number, name in enumerate(names, 1):
        if not name:
            raise InvalidInput(f"column {number} of '{table}' has no name; name it, or take it out")
        if name in seen:
            raise InvalidInput(f"'{table}' has two columns named {name!r}; give each column its own name")
        seen.add(name)


def rows_at_once(columns: int) -> int:
    """How many rows of so many columns make a batch."""
    return max(1, min(ROWS_AT_ONCE, CELLS_AT_ONCE // max(1, columns)))
