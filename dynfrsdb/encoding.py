"""Encoding: how a table's columns become features, the same for every file of a store.

    column     kind       feature                values
    age        number     age                    as it is
    smoker     boolean    smoker                 0 or 1
    job        category   job=clerk, job=cook    1 for the sample's own, 0 for the others

It is made when a store is created from a table and kept in the store's settings, in the commit that creates it. A value
that was not there then, or was too rare (so that no single person is in the settings), is 0 everywhere; how many there
were is counted. What stands in for a missing value was given by hand and is kept as well: a median learnt from samples
would not be unlearned with them.

The forest knows features only. The encoding is part of the settings, and of the digest, because `add` and `predict` of
the same file must give the same features for as long as the store lives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dynfrsdb.errors import InvalidInput
from dynfrsdb.tables import Batch
from dynfrsdb.tables.cells import Where, categories, check_finite, numbers, truths

NUMBER, BOOLEAN, CATEGORY = "number", "boolean", "category"
MIN_CATEGORY = 10
Block = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Coded:
    """One column of a table and the features it becomes."""

    name: str
    kind: str
    values: tuple[str, ...] = ()
    """The categories that have a feature, ascending."""
    impute: float | str | None = None
    """What stands in for a missing value; None if that is an error."""

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        return tuple(f"{self.name}={value}" for value in self.values) if self.kind == CATEGORY else (self.name,)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {value: place for place, value in enumerate(self.values)}

    def fill(self, cells: Any, out: Block, where: Where) -> int:
        """Write the features of some cells into a block of zeros; returns how many had no feature of their own."""
        if self.kind == CATEGORY:
            return self._fill_categories(cells, out, where)
        found = numbers(cells, where) if self.kind == NUMBER else truths(cells, where)
        missing = np.isnan(found)
        if missing.any():
            if self.impute is None:
                self._refuse_missing(int(missing.argmax()), where)
            found[missing] = self.impute
        out[:, 0] = check_finite(found, where)
        return 0

    def _fill_categories(self, cells: Any, out: Block, where: Where) -> int:
        found = categories(cells, where)
        if None in found:
            if self.impute is None:
                self._refuse_missing(found.index(None), where)
            found = [self.impute if value is None else value for value in found]  # type: ignore[misc]
        places = np.fromiter((self._index.get(value, -1) for value in found), np.int64, len(found))  # type: ignore[arg-type]
        known = np.flatnonzero(places >= 0)
        out[known, places[known]] = 1.0
        return len(found) - known.size

    def _refuse_missing(self, row: int, where: Where) -> None:
        raise InvalidInput(
            f"{where(row)} is missing; fill it in, or create the store with --impute {self.name}=VALUE, which fills all"
        )


@dataclass(frozen=True)
class Encoding:
    """All columns that are features, and the names of those that are not."""

    columns: tuple[Coded, ...]
    target: str | None = None
    id: str | None = None
    subject: str | None = None
    min_category: int = MIN_CATEGORY
    named: bool = True
    """Whether columns are found by name; else they are all columns of a table, in order."""

    @classmethod
    def plain(cls, n_features: int, names: Sequence[str] | None) -> Encoding:
        """The encoding of a store that was made without one: every feature is a column of numbers."""
        own = names or [f"x{place}" for place in range(n_features)]
        return cls(tuple(Coded(name, NUMBER) for name in own), named=names is not None)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Encoding:
        """What `record` wrote."""
        columns = tuple(Coded(**{**each, "values": tuple(each["values"])}) for each in record["columns"])
        return cls(columns, record["target"], record["id"], record["subject"], record["min_category"])

    def record(self) -> dict[str, Any]:
        """Everything, in types msgpack keeps."""
        columns = [
            {"name": each.name, "kind": each.kind, "values": list(each.values), "impute": each.impute}
            for each in self.columns
        ]
        rest = {name: getattr(self, name) for name in ("target", "id", "subject", "min_category")}
        return {"columns": columns, **rest}

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The names of all features, in order."""
        return tuple(name for column in self.columns for name in column.features)

    def encode(self, batch: Batch, out: Block, unknown: Counter[str]) -> None:
        """Write the features of a batch into `out`, and count cells that are zero everywhere by column."""
        out[:] = 0.0
        at = 0
        sources = self._sources(batch)
        for column, name in zip(self.columns, sources, strict=True):
            width = len(column.features)
            if without := column.fill(batch.columns[name], out[:, at : at + width], batch.where(name)):
                unknown[column.name] += without
            at += width
        np.add(out, np.float32(0.0), out=out)  # -0.0 + 0.0 is 0.0

    def _sources(self, batch: Batch) -> Sequence[str]:
        """Where in a batch each column is found."""
        if self.named:
            for column in self.columns:
                require(batch, column.name)
            return [column.name for column in self.columns]
        others = {self.target, self.id, self.subject}
        names = [name for name in batch.columns if name not in others]
        if len(names) != len(self.columns):
            raise InvalidInput(
                f"'{batch.table}' has {len(names)} columns of features, this store takes {len(self.columns)}"
            )
        return names


def require(batch: Batch, name: str) -> None:
    """Raise unless a batch has a column of this name."""
    if name not in batch.columns:
        given = list(batch.columns)
        shown = ", ".join(map(repr, given[:10])) + (f", ... ({len(given)} in all)" if len(given) > 10 else "")
        guess = next((mark for mark in ";\t|," if len(given) == 1 and mark in given[0]), None)
        hint = f"; if {guess!r} is its delimiter, pass --delimiter" if guess else ""
        raise InvalidInput(f"'{batch.table}' has no column {name!r}; its columns are {shown}{hint}")
