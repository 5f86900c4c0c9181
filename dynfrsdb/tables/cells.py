"""What single cells mean.

    missing     an empty cell, None, NaN, or one of the spellings that pandas takes for nothing
    number      a number, or text that is one; never 1_000, which only Python reads as a number
    truth       a boolean, or true and false as text
    category    text as it is; a number as its shortest spelling, so that 3 and 3.0 are one category
    id          a whole number from 0 to 2**64 - 1, or text that is one
    subject     text, or a whole number's; nothing for a sample that belongs to nobody
    label       a class: text or a number, a decimal as the number that it is

A message names the place of a cell and its type, never its content, which is somebody's data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from dynfrsdb.errors import InvalidInput
from dynfrsdb.inputs import FINITE, ID_LIMIT, ID_RULE
from dynfrsdb.tables.batch import Column, Opaque

Where = Callable[[int], str]

MISSING = frozenset(("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None"))
TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d{1,2}([./-])\d{1,2}\2\d{2,4}( .*)?|\d\d?:\d\d(:\d\d.*)?")


def is_missing(cell: Any) -> bool:
    """Whether there is nothing in a cell."""
    return cell in MISSING if isinstance(cell, str) else cell is None or bool(cell != cell)


def looks_like_a_date(text: str) -> bool:
    """Whether text is a date or a time of day."""
    return _DATE.fullmatch(text.strip()) is not None


def number(text: str) -> float | None:
    """The number that text spells, or None."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def numbers(column: Column, where: Where) -> npt.NDArray[np.float64]:
    """Cells as numbers, NaN where there is nothing."""
    if isinstance(column, np.ndarray):
        return column.astype(np.float64)
    quick = quick_numbers(column)
    if quick is not None:
        return quick
    return np.array([_number(cell, where, row) for row, cell in enumerate(column)], np.float64)


def quick_numbers(column: Sequence[Any]) -> npt.NDArray[np.float64] | None:
    """Text cells as numbers, if every one is a number."""
    try:
        if "_" in "".join(column):
            return None
        return np.fromiter(map(float, column), np.float64, len(column))
    except (TypeError, ValueError):
        return None


def _number(cell: Any, where: Where, row: int) -> float:
    if is_missing(cell):
        return float("nan")
    if isinstance(cell, str):
        found = number(cell)
        if found is None:
            raise InvalidInput(f"{where(row)} is text, not a number")
        return found
    if not isinstance(cell, (Real, Decimal, np.bool_)):
        raise InvalidInput(f"{where(row)} is of type {type_of(cell)}, not a number")
    try:
        return float(cell)
    except OverflowError:
        return float("inf")


def truths(column: Column, where: Where) -> npt.NDArray[np.float64]:
    """Cells as 1.0 and 0.0, NaN where there is nothing."""
    if isinstance(column, np.ndarray) and column.dtype.kind == "b":
        return column.astype(np.float64)
    return np.array([_truth(cell, where, row) for row, cell in enumerate(column)], np.float64)


def _truth(cell: Any, where: Where, row: int) -> float:
    if is_missing(cell):
        return float("nan")
    value = TRUTHS.get(cell, number(cell)) if isinstance(cell, str) else cell
    if isinstance(value, (bool, np.bool_, Real)) and value in (0, 1):
        return float(value)
    raise InvalidInput(f"{where(row)} is neither true nor false")


def categories(column: Column, where: Where) -> list[str | None]:
    """Cells as categories, None where there is nothing."""
    cells = column.tolist() if isinstance(column, np.ndarray) else column
    if set(map(type, cells)) <= {str}:
        return [None if cell in MISSING else cell for cell in cells]
    return [category(cell, lambda row=row: where(row)) for row, cell in enumerate(cells)]  # type: ignore[misc]


def category(cell: Any, where: Callable[[], str]) -> str | None:
    """One cell as a category, None if there is nothing."""
    if is_missing(cell):
        return None
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, (int, float, Decimal)):
        return _shortest(cell)
    raise InvalidInput(f"{where()} is of type {type_of(cell)}, neither a number nor text")


def _shortest(value: Any) -> str:
    return str(int(value)) if abs(value) < 2**63 and value % 1 == 0 else str(value)


def label(cell: Any) -> Any:
    """A cell as a class of a store."""
    return plain(cell) if isinstance(cell, Decimal) else cell


def plain(value: Decimal) -> int | float:
    """A decimal as a plain number: a whole one exactly, if 64 bits may hold it."""
    whole = value.is_finite() and abs(value) < ID_LIMIT and value % 1 == 0
    return int(value) if whole else float(value)


def ids(column: Column, where: Where) -> npt.NDArray[np.uint64]:
    """Cells as sample ids."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "iu" and not (column < 0).any():
        return column.astype(np.uint64)
    cells = column.tolist() if isinstance(column, np.ndarray) else column
    return np.array([_id(cell, where, row) for row, cell in enumerate(cells)], np.uint64)


def _id(cell: Any, where: Where, row: int) -> int:
    if is_missing(cell):
        raise InvalidInput(f"{where(row)} is missing; every sample needs an id")
    if isinstance(cell, str):
        text = cell.strip()
        if not (text.isascii() and text.isdigit()):
            raise InvalidInput(f"{where(row)} is no whole number; {ID_RULE}")
        # Not read as a number while it may have a million digits.
        cell = int(text) if len(text) <= 20 else ID_LIMIT
    if isinstance(cell, Decimal):
        cell = plain(cell) if cell < ID_LIMIT else ID_LIMIT  # as a plain number it might become 2**64 exactly
    if isinstance(cell, bool) or not isinstance(cell, int):
        raise InvalidInput(f"{where(row)} is of type {type_of(cell)}; {ID_RULE}")
    if not 0 <= cell < ID_LIMIT:
        raise InvalidInput(f"{where(row)} is {'negative' if cell < 0 else 'beyond 64 bits'}; {ID_RULE}")
    return cell


def subjects(column: Column, where: Where) -> list[bytes]:
    """Cells as subjects, b"" for nobody."""
    cells = column.tolist() if isinstance(column, np.ndarray) else column
    return [_subject(cell, where, row) for row, cell in enumerate(cells)]


def _subject(cell: Any, where: Where, row: int) -> bytes:
    if cell is None or bool(cell != cell):
        return b""
    if isinstance(cell, Decimal):
        cell = plain(cell)
    if isinstance(cell, int) and not isinstance(cell, bool):
        cell = str(cell)
    if not isinstance(cell, str):
        raise InvalidInput(f"{where(row)} is of type {type_of(cell)}; subjects are text or whole numbers")
    try:
        return cell.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{where(row)} is not valid Unicode text") from None


def check_finite(values: npt.NDArray[np.float64], where: Where) -> npt.NDArray[np.float32]:
    """Numbers as the store keeps them, or an error that names the first that it cannot keep."""
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32)
    finite = np.isfinite(rounded)
    if not finite.all():
        row = int(np.argmin(finite))
        problem = "infinite" if np.isinf(values[row]) else "too large for float32"
        raise InvalidInput(f"{where(row)} is {problem}; {FINITE}")
    return rounded


def type_of(cell: Any) -> str:
    """The type of a cell, in words."""
    return cell.type if isinstance(cell, Opaque) else type(cell).__name__
