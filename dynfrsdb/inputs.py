"""Inputs: what callers pass, turned into arrays or refused with the row and column that is wrong.

    X         lists, arrays, frames      features()   float32 [m, d], C-contiguous, finite, no -0.0
    y         labels or numbers          targets()    int64 [m], a class index or a fixed-point value
    ids       whole numbers              ids()        uint64 [m], no two alike
    subjects  str, bytes, None           subjects()   list of bytes, b"" for a sample that belongs to nobody

The forest is a function of what comes out of here, so rounding happens in this one place, for samples and queries
alike.

Invariants
    Every array returned is the store's own: no view of the caller's memory.
    Good input costs no Python loop over cells. Only when numpy makes no numbers of it are cells looked at one by one,
    and then either all are numbers after all (Decimal, nullable columns) or the first that is none is named.
    A message names places and types, never a feature's value: values are people's data, and messages end up in logs.

Rows and columns are counted from 0, as in numpy. Frames are known by their `columns`; pandas is not imported.

Not done here: whether an id is in the store, or a subject known, is for the store to say.
"""

from __future__ import annotations

import contextlib
import numbers
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from .errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .settings import Settings
else:
    from dynfrsdb_storage import lazynumpy as np

ID_LIMIT = 2**64
LAST_ID = ID_LIMIT - 1
"""May be given but is never assigned, so that the next id to assign always fits 64 bits."""
TARGET_LIMIT = 2**40
TARGET_SUM_LIMIT = 2**62
"""The absolute targets (fixed point) of all live samples together stay below this, so that no sum overflows."""
MAX_SAMPLES = 3_037_000_499
"""The square of a node's size must fit 63 bits."""
FOR_EVER = 1e9
"""Seconds; no lock of the system can be asked to wait much longer."""

Values = TypeVar("Values", bound=Sized)

_MISSING_TYPES = {"NoneType", "NAType", "NaTType"}
FINITE = "dynfrsdb stores finite numbers only"
ID_RULE = "ids are whole numbers from 0 to 2**64 - 1"


def features(X: Any, n_features: int, feature_names: Sequence[str] | None = None) -> npt.NDArray[np.float32]:
    """The samples' features as the store keeps them, rounded to float32."""
    if feature_names is not None:
        _check_columns(X, feature_names)

    def place(row: int, column: int) -> str:
        return f"row {row}, column {feature_names[column]!r}" if feature_names else f"row {row}, column {column}"

    numeric = _matrix(X, n_features, place)
    rounded = _rounded(numeric)
    finite = np.isfinite(rounded)
    if np.count_nonzero(finite) != finite.size:  # on a single row half the price of .all()
        row, column = np.argwhere(~finite)[0].tolist()
        value = numeric[row, column]
        problem = "NaN" if np.isnan(value) else "infinite" if np.isinf(value) else "too large for float32"
        raise InvalidInput(f"{place(row, column)} is {problem}; {FINITE}")
    return rounded


def width(X: Any) -> int:
    """How many features the samples have, for a store that takes its width from them."""
    shape = getattr(X, "shape", None)
    if shape is None:
        try:
            shape = (len(X), len(X[0]))
        except (TypeError, IndexError, KeyError):
            shape = np.asarray(X, object).shape
    if len(shape) != 2:
        _refuse_shape(len(shape))
    return int(shape[1])


def column_names(X: Any) -> tuple[str, ...] | None:
    """The names a frame gives its columns; None for arrays, and for frames whose columns are only numbered."""
    columns = list(getattr(X, "columns", ()))
    if not any(isinstance(name, str) for name in columns):
        return None
    for place, name in enumerate(columns):
        if not isinstance(name, str):
            raise InvalidInput(f"column {place} of X is named {name!r}; column names must all be strings, or none")
    return tuple(map(str, columns))


def targets(y: Any, m: int, settings: Settings) -> npt.NDArray[np.int64]:
    """One target per sample as the forest counts it: an index into the classes, or a number of `target_step`s."""
    if settings.task == "regression":
        return _fixed_point(_of_length(_vector(y), m, "y"), settings)
    labels = _of_length(_labels(y), m, "y")
    index = settings.class_index
    try:
        return np.fromiter(map(index.__getitem__, labels), np.int64, m)
    except (KeyError, TypeError):
        _refuse_label(labels, index)


def real_targets(y: Any) -> npt.NDArray[np.float64]:
    """Regression targets as finite float64."""
    numeric = _vector(y)
    _check_finite(numeric)
    return numeric


def classes_in(y: Any) -> tuple[Any, ...]:
    """The distinct labels in ascending order, for a store that takes its classes from them."""
    labels = _labels(y)
    try:
        distinct = set(labels)
    except TypeError:
        _refuse_label(labels, {label: 0 for label in labels if _is_hashable(label)})
    if any(map(_is_missing, distinct)):
        _refuse_label(labels, {label: 0 for label in distinct if not _is_missing(label)})
    try:
        return tuple(sorted(distinct))
    except TypeError:
        kinds = ", ".join(sorted({type(label).__name__ for label in distinct}))
        raise InvalidInput(f"the labels in y are of types {kinds}, which have no common order; pass classes=") from None


def ids(ids: Any, m: int | None = None) -> npt.NDArray[np.uint64]:
    """Sample ids, one per sample if `m` says how many; a single whole number counts as a list of one."""
    if isinstance(ids, (int, np.integer)) and not isinstance(ids, bool):
        ids = [ids]
    if type(ids) is not list:
        _check_is_list(ids, "ids", "id", ordered=m is not None)
    numeric = _of_length(_whole_numbers(ids), m, "ids")
    if len(numeric) > 1:
        _check_distinct(numeric)
    return numeric


def one_id(id: Any) -> int:
    """A single sample id."""
    return _whole_number(id, "the id")


def subjects(subjects: Any, m: int) -> list[bytes] | None:
    """Whom each sample belongs to; None when nobody was named at all."""
    if subjects is None:
        return None
    _check_is_list(subjects, "subjects", "subject")
    given = _of_length(list(subjects), m, "subjects")
    with contextlib.suppress(UnicodeEncodeError):
        if set(map(type, given)) <= {str} and all(given):
            return list(map(str.encode, given))
    return [b"" if subject is None else _subject(subject, row) for row, subject in enumerate(given)]


def one_subject(subject: Any) -> bytes:
    """A single subject; text and its UTF-8 bytes are the same subject."""
    return _subject(subject, None)


def place(path: Any, name: str = "path") -> Path:
    """Where a store is or will be."""
    try:
        given = os.fspath(path)
    except TypeError:
        raise InvalidInput(f"{name} is of type {type(path).__name__}; pass a str or a pathlib.Path") from None
    if isinstance(given, bytes):
        given = os.fsdecode(given)
    if not given or "\0" in given:
        raise InvalidInput(f"{name} {'holds a zero byte' if given else 'is empty'}; pass the path of a directory")
    try:
        os.fsencode(given)
    except UnicodeEncodeError:
        raise InvalidInput(f"{name} is not valid Unicode text; pass it as os.fsdecode gives it") from None
    return Path(given)


def seconds(value: Any, name: str) -> float:
    """A time to wait or to last; for ever is as long as the system can wait."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)) or not value >= 0:
        raise InvalidInput(f"{name}={value!r} is not a number of seconds; pass 0 or more (math.inf: for ever)")
    return FOR_EVER if value > FOR_EVER else float(value)


def count(value: Any, name: str, least: int) -> int:
    """How many of something."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InvalidInput(f"{name}={value!r} is not a whole number from {least} on")
    return int(value)


def flag(value: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidInput(f"{name} is of type {type(value).__name__}; pass True or False")
    return bool(value)


def callback(progress: Any) -> Any:
    """What is called with (stage, done, total), or None."""
    if progress is not None and not callable(progress):
        raise InvalidInput(f"progress is of type {type(progress).__name__}; pass a function of (stage, done, total)")
    return progress


def _matrix(X: Any, d: int, place: Callable[[int, int], str]) -> npt.NDArray[Any]:
    """X as a two-dimensional array of real numbers of any type."""
    if hasattr(X, "toarray"):
        raise InvalidInput("X is a sparse matrix; pass X.toarray()")
    if isinstance(X, np.ma.MaskedArray):
        raise InvalidInput("X is a masked array; fill the masked cells and pass a plain array")
    try:
        rows = _as_array(X)
    except (ValueError, TypeError):
        return _cell_by_cell(X, d, place)
    if rows.shape == (0,):
        return np.empty((0, d), np.float32)
    if rows.ndim != 2 and (rows.ndim != 1 or rows.dtype.kind in "biuf"):
        _refuse_shape(rows.ndim)
    if rows.dtype.kind not in "biuf":
        # Text in a list makes numpy turn its neighbours into text too: look at what was passed, not at what it became.
        return _cell_by_cell(X if isinstance(X, (list, tuple)) else rows, d, place)
    if rows.shape[1] != d:
        _refuse_width(0, rows.shape[1], d)
    return rows


def _rounded(numeric: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """A copy in float32 and in the order of C, without -0.0."""
    zero = np.float32(0.0)  # -0.0 + 0.0 is 0.0
    if numeric.dtype == np.float32:
        copied: npt.NDArray[np.float32] = np.add(numeric, zero, order="C")
        return copied
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = numeric.astype(np.float32, order="C", copy=True)
    rounded += zero
    return rounded


def _as_array(X: Any) -> npt.NDArray[Any]:
    if type(X) is np.ndarray:
        return X
    kinds = {getattr(dtype, "kind", "O") for dtype in getattr(X, "dtypes", ())}
    if kinds and kinds <= set("biuf"):
        # A frame of bool and float columns would become an array of objects, to be read cell by cell.
        with contextlib.suppress(ValueError, TypeError):  # older pandas: a missing value is no float64
            return np.asarray(X.to_numpy(np.float64))
    return np.asarray(X)


def _cell_by_cell(rows: Iterable[Any], d: int, place: Callable[[int, int], str]) -> npt.NDArray[np.float64]:
    """The slow way for what numpy makes no numbers of; ends in an array only if every cell is a number."""
    numeric = []
    for i, row in enumerate(rows):
        if isinstance(row, (str, bytes)) or not hasattr(row, "__len__"):
            _refuse_shape(1)
        if len(row) != d:
            _refuse_width(i, len(row), d)
        numeric.append([_number(cell, place(i, j)) for j, cell in enumerate(row)])
    return np.array(numeric, np.float64).reshape(-1, d)


def _vector(y: Any) -> npt.NDArray[np.float64]:
    """y as a one-dimensional array of real numbers, finite or not."""
    _check_is_list(y, "y", "target")
    if isinstance(y, np.ma.MaskedArray):
        raise InvalidInput("y is a masked array; fill the masked cells and pass a plain array")
    try:
        numeric = np.asarray(y)
    except (ValueError, TypeError):
        numeric = np.empty(0, object)
    if numeric.ndim == 1 and numeric.dtype.kind in "biuf":
        return numeric.astype(np.float64)
    if numeric.ndim > 1:
        _refuse_depth("y", numeric.ndim, "target")
    return np.array([_number(value, f"row {row} of y") for row, value in enumerate(y)], np.float64)


def refuse_too_much(settings: Settings, samples: int, target_sum: float) -> None:
    """Raise if a store cannot hold so many samples, or targets that are so large together."""
    if samples > MAX_SAMPLES:
        raise InvalidInput(f"a store holds at most {MAX_SAMPLES} samples")
    if not settings.classes and target_sum >= TARGET_SUM_LIMIT:
        raise InvalidInput("the targets of all samples together are too large for exact sums; use a larger target_step")


def _number(cell: Any, where: str) -> float:
    if type(cell).__name__ in _MISSING_TYPES:
        raise InvalidInput(f"{where} is missing; {FINITE}")
    if not isinstance(cell, (numbers.Real, Decimal, np.bool_)):
        raise InvalidInput(f"{where} is of type {type(cell).__name__}, not a number")
    try:
        return float(cell)
    except OverflowError:
        raise InvalidInput(f"{where} is too large for float64; {FINITE}") from None


def _check_finite(numeric: npt.NDArray[np.float64]) -> None:
    finite = np.isfinite(numeric)
    if not finite.all():
        row = int(np.argmin(finite))
        raise InvalidInput(f"row {row} of y is {'NaN' if np.isnan(numeric[row]) else 'infinite'}; {FINITE}")


def _fixed_point(numeric: npt.NDArray[np.float64], settings: Settings) -> npt.NDArray[np.int64]:
    with np.errstate(over="ignore"):
        steps = np.rint((numeric - settings.target_offset) / settings.target_step)
    fits = np.abs(steps) < TARGET_LIMIT
    if np.count_nonzero(fits) != fits.size:
        _check_finite(numeric)  # NaN and infinity fit nowhere, so this is the first that needs to ask
        reach = TARGET_LIMIT * settings.target_step
        raise InvalidInput(
            f"row {int(np.argmin(fits))} of y is {reach:g} or more away from target_offset={settings.target_offset:g}, "
            f"too far for target_step={settings.target_step:g}; create the store with a larger target_step"
        )
    return steps.astype(np.int64)


def _labels(y: Any) -> list[Any]:
    """Class labels as Python values, so that 1, 1.0 and numpy's 1 are one label."""
    _check_is_list(y, "y", "target")
    if getattr(y, "ndim", 1) > 1:
        _refuse_depth("y", y.ndim, "target")
    return list(y.tolist() if hasattr(y, "tolist") else y)


def _is_missing(label: Any) -> bool:
    return type(label).__name__ in _MISSING_TYPES or bool(label != label)


def _is_hashable(label: Any) -> bool:
    try:
        hash(label)
    except TypeError:
        return False
    return True


def _refuse_label(labels: list[Any], index: Mapping[Any, int]) -> NoReturn:
    """Name the first label that is not in `index`."""
    row = next(row for row, label in enumerate(labels) if not _is_hashable(label) or label not in index)
    label = labels[row]
    if not _is_hashable(label):
        raise InvalidInput(f"row {row} of y is of type {type(label).__name__}; pass one class per sample")
    if _is_missing(label):
        raise InvalidInput(f"row {row} of y is missing; every sample needs a class")
    known = ", ".join(map(repr, list(index)[:10])) + (f", ... ({len(index)} in all)" if len(index) > 10 else "")
    raise InvalidInput(f"row {row} of y is {label!r}, which is not a class of this store; its classes are {known}")


def _whole_numbers(ids: Any) -> npt.NDArray[np.uint64]:
    if type(ids) is not list and hasattr(ids, "__array__"):
        given: npt.NDArray[Any] = np.asarray(ids)
        if given.ndim > 1:
            _refuse_depth("ids", given.ndim, "id")
        if given.dtype.kind == "u" or (given.dtype.kind == "i" and not (given < 0).any()):
            return given.astype(np.uint64)
        ids = given.tolist()
    values = list(ids)
    # A bool is an int to Python; comparing types exactly keeps it out of the fast way.
    if set(map(type, values)) <= {int} and (not values or (min(values) >= 0 and max(values) < ID_LIMIT)):
        return np.array(values, np.uint64)
    return np.array([_whole_number(value, f"row {row} of ids") for row, value in enumerate(values)], np.uint64)


def _whole_number(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidInput(f"{where} is of type {type(value).__name__}; {ID_RULE}")
    if not 0 <= value < ID_LIMIT:
        raise InvalidInput(f"{where} is {value}; {ID_RULE}")
    return int(value)


def _check_distinct(numeric: npt.NDArray[np.uint64]) -> None:
    ascending = np.sort(numeric)
    if (ascending[1:] != ascending[:-1]).all():
        return
    first_rows: dict[int, int] = {}
    for row, id in enumerate(numeric.tolist()):
        first = first_rows.setdefault(id, row)
        if first != row:
            raise InvalidInput(f"id {id} is given twice, in rows {first} and {row}; give each sample its own id")


def _subject(subject: Any, row: int | None) -> bytes:
    where = "the subject" if row is None else f"row {row} of subjects"
    if isinstance(subject, float) and subject != subject:
        raise InvalidInput(f"{where} is NaN; pass None for a sample that belongs to nobody")
    if not isinstance(subject, (str, bytes)):
        raise InvalidInput(f"{where} is of type {type(subject).__name__}; subjects are str or bytes")
    if not subject:
        remedy = "name the person to forget" if row is None else "pass None for a sample that belongs to nobody"
        raise InvalidInput(f"{where} is empty; {remedy}")
    try:
        return subject.encode() if isinstance(subject, str) else bytes(subject)
    except UnicodeEncodeError:
        raise InvalidInput(f"{where} is not valid Unicode text; pass it as bytes") from None


def _check_columns(X: Any, feature_names: Sequence[str]) -> None:
    names = column_names(X)
    if names is None:
        return
    for place, (name, expected) in enumerate(zip(names, feature_names, strict=False)):
        if name != expected:
            raise InvalidInput(f"column {place} of X is {name!r}, this store expects {expected!r} there")


def _check_is_list(values: Any, name: str, what: str, ordered: bool = True) -> None:
    if values is None:
        raise InvalidInput(f"{name} is missing; pass one {what} per sample")
    if ordered and isinstance(values, (set, frozenset)):
        raise InvalidInput(f"{name} is a set, which has no order; pass a list with one {what} per sample")
    if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0:
        raise InvalidInput(f"{name} is of type {type(values).__name__}; pass a list with one {what} per sample")


def _of_length(values: Values, m: int | None, name: str) -> Values:
    if m is not None and len(values) != m:
        raise InvalidInput(f"{name} has {len(values)} entries for {m} rows of X; pass one per row")
    return values


def _refuse_width(row: int, given: int, d: int) -> NoReturn:
    raise InvalidInput(f"row {row} has {given} features, this store takes {d}")


def _refuse_shape(ndim: int) -> NoReturn:
    raise InvalidInput(f"X has {ndim} dimension{'' if ndim == 1 else 's'}; pass a 2-D array, one row per sample")


def _refuse_depth(name: str, ndim: int, what: str) -> NoReturn:
    raise InvalidInput(f"{name} has {ndim} dimensions; pass one {what} per sample")
