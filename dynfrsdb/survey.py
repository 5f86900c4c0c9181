"""The first look at a table: what its columns are, and what its encoding will be.

Cells are looked at batch by batch, and of each column only this is kept: which kinds of cells it has, and, unless it
is a column of numbers, how often each value occurs.

    only numbers               a number
    only true and false        a boolean
    only text                  a category
    only dates                 refused: what a date means to a forest is not ours to guess
    numbers and text           refused, with the line of the odd one out: most likely a slip

A column that has more values than a category can sensibly have is refused before it fills the memory.

Targets are kept as they come, as one number each: the forest's classes and step are made of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from dynfrsdb.encoding import BOOLEAN, CATEGORY, MIN_CATEGORY, NUMBER, Coded, Encoding, require
from dynfrsdb.errors import InvalidInput
from dynfrsdb.inputs import FINITE
from dynfrsdb.settings import MAX_CLASSES
from dynfrsdb.tables import Batch, Table
from dynfrsdb.tables.batch import Column, Opaque
from dynfrsdb.tables.cells import (
    TRUTHS,
    Where,
    categories,
    category,
    is_missing,
    label,
    looks_like_a_date,
    number,
    numbers,
    quick_numbers,
    type_of,
)

MOST_VALUES = 100_000
"""Different values of one column, as far as they are counted."""

_DATE, _TEXT = "date", "text"
_WHOLE = re.compile(r"-?(0|[1-9]\d*)")


@dataclass
class Wishes:
    """What the person says about a table's columns."""

    target: str
    id: str | None = None
    subject: str | None = None
    ignore: Sequence[str] = ()
    categorical: Sequence[str] = ()
    impute: Mapping[str, str] = field(default_factory=dict)
    min_category: int = MIN_CATEGORY

    def features(self, batch: Batch) -> list[str]:
        """The columns that are features, in the order of the table; raises if any that is named is not there."""
        roles = [name for name in (self.target, self.id, self.subject) if name is not None]
        for name in (*roles, *self.ignore, *self.categorical, *self.impute):
            require(batch, name)
        for name in (*self.categorical, *self.impute):
            if name in roles or name in self.ignore:
                raise InvalidInput(f"column {name!r} is no feature, so it can be neither a category nor imputed")
        if len(set(roles)) != len(roles):
            raise InvalidInput("target, id and subject are three different columns; name each only once")
        found = [name for name in batch.columns if name not in roles and name not in self.ignore]
        if not found:
            raise InvalidInput(
                f"'{batch.table}' has no column besides {', '.join(map(repr, roles))}; nothing to learn from"
            )
        return found


@dataclass(frozen=True)
class Survey:
    """What the first look found."""

    rows: int
    encoding: Encoding
    labels: list[Any]
    """The different labels in the order they came; empty for a regression."""
    targets: npt.NDArray[Any]
    """One per row: a place in `labels`, or a number."""
    not_encoded: dict[str, int]
    """Rows whose value was too rare to become a feature, by column."""


def survey(table: Table, wishes: Wishes, task: str, report: Any) -> Survey:
    """Look at all rows once."""
    looks: list[_Look] = []
    targets = _Values() if task == "regression" else _Labels(wishes.target, table.texts)
    rows = 0
    for batch in table.batches():
        if not looks:
            looks = [_Look(name, wishes, table.texts) for name in wishes.features(batch)]
        for look in looks:
            look.take(batch.columns[look.name], batch.where(look.name))
        targets.take(batch.columns[wishes.target], batch.where(wishes.target))
        rows += batch.size
        report("reading", table.done, table.total)
    if not rows:
        raise InvalidInput(f"'{table.name}' has columns and no rows; a forest needs samples")
    columns = [look.coded() for look in looks]
    encoding = Encoding(tuple(columns), wishes.target, wishes.id, wishes.subject, wishes.min_category)
    if not encoding.feature_names:
        raise InvalidInput(
            f"no column of '{table.name}' became a feature: no value occurs {wishes.min_category} times; "
            "pass a smaller --min-category"
        )
    left_out = {look.name: look.rare(column) for look, column in zip(looks, columns, strict=True)}
    not_encoded = {name: count for name, count in left_out.items() if count}
    return Survey(rows, encoding, targets.labels(), targets.values(), not_encoded)


class _Look:
    """One column, as far as it was looked at."""

    def __init__(self, name: str, wishes: Wishes, texts: bool) -> None:
        self.name, self._texts = name, texts
        self._forced = name in wishes.categorical
        self._impute = wishes.impute.get(name)
        self._least = wishes.min_category
        self._kinds: dict[str, str] = {}
        """Kinds of cells that were met, each with where it was met first."""
        self._counts: Counter[str] = Counter()

    def take(self, column: Column, where: Where) -> None:
        """Look at some more cells."""
        if not len(column):
            return
        if self._forced:
            self._count(categories(column, where), where)
        elif isinstance(column, np.ndarray):
            self._take_array(column, where)
        elif self._texts:
            self._take_texts(column, where)
        else:
            self._take_values(column, where)
        if len(self._counts) > MOST_VALUES:
            raise InvalidInput(
                f"column {self.name!r} has more than {MOST_VALUES:,} different values, too many for a category; "
                f"leave it out with --ignore {self.name}"
            )

    def _take_array(self, column: npt.NDArray[Any], where: Where) -> None:
        self._kinds.setdefault(BOOLEAN if column.dtype.kind == "b" else NUMBER, where(0))
        if column.dtype.kind == "f":
            self._check_missing(np.isnan(column), where)

    def _take_texts(self, column: Sequence[str], where: Where) -> None:
        quick = quick_numbers(column)
        if quick is not None:
            self._kinds.setdefault(NUMBER, where(0))
            self._check_missing(np.isnan(quick), where)
            return
        cells = categories(column, where)
        kinds = {text: _kind_of_text(text) for text in set(cells) if text is not None}
        self._take_kinds([None if cell is None else kinds[cell] for cell in cells], cells, where)

    def _take_values(self, column: Sequence[Any], where: Where) -> None:
        kinds = [None if is_missing(cell) else self._kind_of(cell, where, row) for row, cell in enumerate(column)]
        self._take_kinds(kinds, [category(cell, lambda: self.name) for cell in column], where)

    def _take_kinds(self, kinds: Sequence[str | None], cells: Sequence[str | None], where: Where) -> None:
        found = set(kinds) - {None}
        for kind in found:
            if kind is not None and kind not in self._kinds:
                self._kinds[kind] = where(kinds.index(kind))
        if found <= {NUMBER}:
            self._check_missing(np.array([kind is None for kind in kinds], bool), where)
        else:
            self._count(cells, where)

    def _kind_of(self, cell: Any, where: Where, row: int) -> str:
        if isinstance(cell, str):
            return _DATE if looks_like_a_date(cell) else _TEXT
        if isinstance(cell, bool):
            return BOOLEAN
        if isinstance(cell, Opaque):
            if cell.is_date:
                self._refuse_date(where(row))
            remedy = f"leave the column out with --ignore {self.name}"
            raise InvalidInput(f"{where(row)} is of type {cell.type}, neither a number nor text; {remedy}")
        return NUMBER

    def _count(self, cells: Sequence[str | None], where: Where) -> None:
        missing = np.array([cell is None for cell in cells], bool)
        self._check_missing(missing, where)
        self._counts.update(cell for cell in cells if cell is not None)
        if self._impute is not None:
            self._counts[self._impute] += int(missing.sum())

    def _check_missing(self, missing: npt.NDArray[np.bool_], where: Where) -> None:
        if self._impute is None and missing.any():
            raise InvalidInput(
                f"{where(int(missing.argmax()))} is missing; fill it in, or pass --impute {self.name}=VALUE"
            )

    def coded(self) -> Coded:
        """What becomes of the column."""
        kind = CATEGORY if self._forced else self._kind()
        if kind == CATEGORY:
            frequent = sorted(value for value, count in self._counts.items() if count >= self._least)
            if any(value.encode("utf-8", "replace").decode() != value for value in frequent):
                raise InvalidInput(f"column {self.name!r} holds text that is not valid Unicode; correct it")
            return Coded(self.name, CATEGORY, tuple(frequent), self._impute)
        return Coded(self.name, kind, impute=None if self._impute is None else self._number_for(kind, self._impute))

    def _kind(self) -> str:
        kinds = set(self._kinds)
        if not kinds:
            raise InvalidInput(f"column {self.name!r} is empty; leave it out with --ignore {self.name}")
        if kinds == {_DATE}:
            self._refuse_date(self._kinds[_DATE])
        if kinds in ({NUMBER}, {BOOLEAN}):
            return kinds.pop()
        if NUMBER in kinds:
            odd = next(kind for kind in (_TEXT, _DATE, BOOLEAN) if kind in kinds)
            raise InvalidInput(
                f"{self._kinds[odd]} is {'a ' if odd != _TEXT else ''}{odd}, but other rows hold numbers there; "
                f"correct it, or pass --categorical {self.name}"
            )
        return CATEGORY

    def _refuse_date(self, place: str) -> NoReturn:
        raise InvalidInput(
            f"{place} is a date; turn dates into numbers, such as days since a fixed day, or leave the column out with "
            f"--ignore {self.name}"
        )

    def _number_for(self, kind: str, text: str) -> float:
        found = float(TRUTHS[text]) if text in TRUTHS and kind == BOOLEAN else number(text)
        if found is None or not np.isfinite(np.float32(found)) or (kind == BOOLEAN and found not in (0, 1)):
            raise InvalidInput(f"--impute {self.name}={text}: the column holds {kind}s, so this must be one")
        return found

    def rare(self, column: Coded) -> int:
        """Rows whose value has no feature."""
        if column.kind != CATEGORY:
            return 0
        return sum(self._counts.values()) - sum(map(self._counts.__getitem__, column.values))


def _kind_of_text(text: str) -> str:
    if number(text) is not None:
        return NUMBER
    if text in TRUTHS:
        return BOOLEAN
    return _DATE if looks_like_a_date(text) else _TEXT


class _Values:
    """The targets of a regression."""

    def __init__(self) -> None:
        self._parts: list[npt.NDArray[np.float64]] = []

    def take(self, column: Column, where: Where) -> None:
        """Look at some more cells."""
        found = numbers(column, where)
        finite = np.isfinite(found)
        if not finite.all():
            row = int(finite.argmin())
            what = "missing; every sample needs a target" if np.isnan(found[row]) else f"infinite; {FINITE}"
            raise InvalidInput(f"{where(row)} is {what}")
        self._parts.append(found)

    def labels(self) -> list[Any]:
        """No classes."""
        return []

    def values(self) -> npt.NDArray[np.float64]:
        """All targets."""
        return np.concatenate(self._parts)


class _Labels:
    """The labels of a classification: each different one once, and where in that list each row's is."""

    def __init__(self, name: str, texts: bool) -> None:
        self._name, self._texts = name, texts
        self._codes: dict[Any, int] = {}
        self._parts: list[npt.NDArray[np.int32]] = []

    def take(self, column: Column, where: Where) -> None:
        """Look at some more cells."""
        cells = column.tolist() if isinstance(column, np.ndarray) else column
        for cell in dict.fromkeys(cells):
            if cell in self._codes:
                continue
            if is_missing(cell):
                raise InvalidInput(f"{where(cells.index(cell))} is missing; every sample needs a class")
            if not isinstance(cell, (str, int, float, Decimal)):
                raise InvalidInput(
                    f"{where(cells.index(cell))} is of type {type_of(cell)}; a class is text or a number"
                )
            self._codes[cell] = len(self._codes)
        if len(self._codes) > MAX_CLASSES:
            raise InvalidInput(
                f"column {self._name!r} has more than {MAX_CLASSES:,} classes; for a target of numbers pass "
                "--task regression"
            )
        self._parts.append(np.fromiter(map(self._codes.__getitem__, cells), np.int32, len(cells)))

    def labels(self) -> list[Any]:
        """The different labels, in the order they came; those of a text file as numbers if all of them are."""
        given = [label(each) for each in self._codes]
        return classes_in(given) if self._texts else given

    def values(self) -> npt.NDArray[np.int32]:
        """Where in `labels` each row's is."""
        return np.concatenate(self._parts)


def classes_in(texts: Sequence[str]) -> list[Any]:
    """Labels that were given as text: as numbers or truths if all of them are, else as they are."""
    if all(_WHOLE.fullmatch(text) and len(text) < 19 for text in texts):
        return [int(text) for text in texts]
    if all(text in TRUTHS for text in texts):
        return [TRUTHS[text] for text in texts]
    found = [number(text) for text in texts]
    return list(texts) if any(value is None or not np.isfinite(value) for value in found) else found
