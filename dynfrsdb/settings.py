"""Settings: everything besides the samples that decides what the forest is.

    forest = F(seed, settings, live samples)

They are fixed when a store is created and never recomputed: a fresh store of the survivors with the same settings and
seed is the same forest, bit for bit. Three groups live side by side here:

    read by F       task, criterion, n_trees, k, p, s, max_depth, min_samples_split, n_features, classes, target_offset,
                    target_step, and how columns of a table become features (encoding.py): `canonical()` spells them
                    for the digest
    the secret      seed, 16 bytes: every random choice is a hash keyed by it, so whoever has it knows which trees hold
                    whom
    not read by F   feature_names, bucket, q as it was given, from_data: they change no answer and no digest

`make` turns the arguments of `create` into settings. What it had to take from the data (the classes, the step of a
regression target, the categories of an encoding) is listed in `from_data`, because the promise holds given these: a
store made anew from the survivors alone might pick others.

    >>> Settings.make(n_features=14, classes=["no", "yes"], seed=1).p      # int(sqrt(14)) + 1
    4

Invariants
    The seed is in no repr and no message; it leaves this module only inside `record()`, for the store's meta record.
    `Settings.from_record(settings.record()) == settings`.

Not done here: no file is read or written, and samples are checked in inputs.py.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgpack

from . import inputs
from .errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    from dynfrsdb_storage import lazynumpy as np

ClassLabel = int | str | bool | float

MAX_TREES = MAX_FEATURES = MAX_CLASSES = 65_535
MAX_THRESHOLDS = 255
MAX_DEPTH = 56
MAX_SAMPLES = 2**32 - 1
BUCKET = 128

_CRITERIA = {"classification": ("gini", "entropy"), "regression": ("squared_error",)}


@dataclass(frozen=True)
class Settings:
    """The settings of one store; made by `make` or read back by `from_record`."""

    task: str
    criterion: str
    n_trees: int
    k: int
    p: int
    s: int
    max_depth: int
    min_samples_split: int
    n_features: int
    classes: tuple[ClassLabel, ...]
    target_offset: float
    target_step: float
    seed: bytes = field(repr=False)
    feature_names: tuple[str, ...] | None
    bucket: int
    q: float
    from_data: tuple[str, ...]
    encoding: dict[str, Any] | None = field(default=None, hash=False)

    @classmethod
    def make(
        cls,
        *,
        X: Any = None,
        y: Any = None,
        task: str = "classification",
        n_features: int | None = None,
        feature_names: Sequence[str] | None = None,
        classes: Sequence[Any] | None = None,
        target_offset: float = 0.0,
        target_step: float | None = None,
        n_estimators: int = 100,
        q: float = 0.1,
        max_depth: int = 20,
        n_thresholds: int = 20,
        max_features: int | float | str | None = None,
        min_samples_split: int = 10,
        criterion: str | None = None,
        seed: int | str | bytes | None = None,
        bucket: int = BUCKET,
        encoding: dict[str, Any] | None = None,
    ) -> Settings:
        """Settings from the arguments of `create`; X and y are looked at only for what no argument says."""
        _choice("task", task, tuple(_CRITERIA))
        names = inputs.column_names(X) if feature_names is None else _names(feature_names)
        d = _width(n_features, names, X)
        n_trees = _whole("n_estimators", n_estimators, 1, MAX_TREES)
        share = _real("q", q, "greater than 0 and at most 1", lambda value: 0 < value <= 1)
        labels, labels_from_data = _classes(task, classes, y)
        offset, step, step_from_data = _target(task, target_offset, target_step, y)
        return cls(
            task=task,
            criterion=_criterion(task, criterion),
            n_trees=n_trees,
            k=max(1, math.ceil(share * n_trees - 1e-9)),
            p=_candidates(max_features, d, task),
            s=_whole("n_thresholds", n_thresholds, 1, MAX_THRESHOLDS),
            max_depth=_whole("max_depth", max_depth, 1, MAX_DEPTH),
            min_samples_split=_whole("min_samples_split", min_samples_split, 2, MAX_SAMPLES),
            n_features=d,
            classes=labels,
            target_offset=offset,
            target_step=step,
            seed=_seed(seed),
            feature_names=names,
            bucket=_whole("bucket", bucket, 1, 65_535),
            q=share,
            from_data=("classes",) * labels_from_data
            + ("target_step",) * step_from_data
            + ("categories",) * _has_categories(encoding),
            encoding=encoding,
        )

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Settings:
        """Settings as `record` wrote them; what else the store keeps beside them is passed over."""
        values = {each.name: record[each.name] for each in fields(cls) if each.name != "encoding"}
        values["encoding"] = record.get("encoding")  # a store that was made without one may not say so
        for name in ("classes", "feature_names", "from_data"):
            values[name] = None if values[name] is None else tuple(values[name])
        return cls(**values)

    def record(self) -> dict[str, Any]:
        """Everything, seed included, in types msgpack keeps."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def canonical(self) -> bytes:
        """What F reads, without the seed, in fixed order: the settings' part of the forest's digest."""
        read_by_f = [
            self.task,
            self.criterion,
            self.n_trees,
            self.k,
            self.p,
            self.s,
            self.max_depth,
            self.min_samples_split,
            self.n_features,
            list(self.classes),
            self.target_offset,
            self.target_step,
        ]
        if self.encoding is not None:
            names = ("name", "kind", "values", "impute")
            read_by_f.append([[column[name] for name in names] for column in self.encoding["columns"]])
        return bytes(msgpack.packb(read_by_f, use_bin_type=True))

    def occupancy_key(self) -> int:
        """The 64-bit key that decides which trees a sample lives in."""
        return int.from_bytes(self._key(b"occupancy", 0), "little")

    def tree_key(self, tree: int) -> int:
        """The 64-bit key of one tree, for its feature orders and thresholds."""
        return int.from_bytes(self._key(b"tree", tree), "little")

    def tree_keys(self) -> npt.NDArray[np.uint64]:
        """The keys of all trees."""
        return np.array([self.tree_key(tree) for tree in range(self.n_trees)], np.uint64)

    def secret(self, purpose: bytes) -> bytes:
        """32 bytes for a purpose outside F, such as hashing subjects; no two purposes' secrets tell of each other."""
        return blake2b(purpose, key=self.seed, digest_size=32).digest()

    def _key(self, purpose: bytes, tree: int) -> bytes:
        return blake2b(purpose + tree.to_bytes(4, "little"), key=self.seed, digest_size=8).digest()

    def feature_name(self, feature: int) -> str:
        """What people call a feature: its name, or x and its number."""
        return self.feature_names[feature] if self.feature_names else f"x{feature}"

    @property
    def n_classes(self) -> int:
        """C, or 0 for regression."""
        return len(self.classes)

    @property
    def mean_columns(self) -> int:
        """Columns of a prediction: one per class, or one for a regression's mean."""
        return len(self.classes) or 1

    @cached_property
    def class_index(self) -> dict[ClassLabel, int]:
        """Where each label stands in the class list."""
        return {label: index for index, label in enumerate(self.classes)}


def _width(n_features: Any, names: tuple[str, ...] | None, X: Any) -> int:
    if n_features is not None:
        d = _whole("n_features", n_features, 1, MAX_FEATURES)
        if names is not None and len(names) != d:
            raise InvalidInput(f"there are {len(names)} feature names for n_features={d}; give each feature one name")
        return d
    if names is not None:
        return _whole("the number of feature_names", len(names), 1, MAX_FEATURES)
    if X is None:
        raise InvalidInput("n_features is not known; pass n_features=, feature_names= or samples")
    return _whole("the number of features in X", inputs.width(X), 1, MAX_FEATURES)


def _several(values: Any, name: str) -> tuple[Any, ...]:
    """What a caller lists."""
    try:
        return tuple(values)
    except TypeError:
        raise InvalidInput(f"{name} is of type {type(values).__name__}; pass a list") from None


def _names(feature_names: Any) -> tuple[str, ...]:
    if isinstance(feature_names, (str, bytes)):
        raise InvalidInput(f"feature_names={feature_names!r} is one string; pass a list with one name per feature")
    names = _several(feature_names, "feature_names")
    for place, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"feature_names[{place}] is {name!r}; names are non-empty strings")
        if name in names[:place]:
            raise InvalidInput(f"feature_names[{place}] is {name!r} again; give each feature its own name")
    return tuple(map(str, names))


def _has_categories(encoding: Mapping[str, Any] | None) -> bool:
    return encoding is not None and any(column["values"] for column in encoding["columns"])


def _criterion(task: str, criterion: Any) -> str:
    allowed = _CRITERIA[task]
    if criterion is None:
        return allowed[0]
    if not isinstance(criterion, str) or criterion not in allowed:
        raise InvalidInput(f"criterion={criterion!r} is not for {task}; pass {_either(allowed)}")
    return str(criterion)


def _candidates(max_features: Any, d: int, task: str) -> int:
    """p: how many features a node considers."""
    if max_features is None:
        max_features = "sqrt" if task == "classification" else "all"
    if isinstance(max_features, (bool, np.bool_)):
        raise InvalidInput(f"max_features={max_features!r} is neither a number nor one of 'sqrt', 'all'")
    if isinstance(max_features, (int, np.integer)):
        return _whole("max_features", max_features, 1, d)
    if isinstance(max_features, (float, np.floating)):
        share = _real("max_features", max_features, "greater than 0 and at most 1", lambda value: 0 < value <= 1)
        return max(1, int(share * d))
    _choice("max_features", max_features, ("sqrt", "all"))
    return min(d, math.isqrt(d) + 1) if max_features == "sqrt" else d


def _classes(task: str, classes: Any, y: Any) -> tuple[tuple[ClassLabel, ...], bool]:
    """The ordered class list, and whether it was taken from the data."""
    if task == "regression":
        if classes is not None:
            raise InvalidInput("classes= is for classification; leave it out or pass task='classification'")
        return (), False
    if classes is None and y is None:
        raise InvalidInput("the classes are not known; pass classes= or samples with their y")
    if isinstance(classes, (str, bytes)):
        raise InvalidInput(f"classes={classes!r} is one string; pass a list of classes")
    given = inputs.classes_in(y) if classes is None else _several(classes, "classes")
    labels = tuple(_label(label) for label in given)
    if not 1 <= len(labels) <= MAX_CLASSES:
        raise InvalidInput(f"there are {len(labels)} classes; a store takes 1 to {MAX_CLASSES}")
    if len(set(labels)) != len(labels):
        twin = next(label for place, label in enumerate(labels) if label in labels[:place])
        raise InvalidInput(f"class {twin!r} is given twice; classes must differ (1, 1.0 and True are equal)")
    return labels, classes is None


def _label(label: Any) -> ClassLabel:
    """A class as a plain Python value that msgpack gives back the same."""
    value = label.item() if isinstance(label, np.generic) else label
    if isinstance(value, str) and value.encode("utf-8", "replace").decode() == value:
        return str(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value) + 0.0
    raise InvalidInput(f"class {label!r} cannot be stored; classes are str, 64-bit int, finite float or bool")


def _target(task: str, offset: Any, step: Any, y: Any) -> tuple[float, float, bool]:
    """The target's offset and step, and whether the step was taken from the data."""
    offset = _real("target_offset", offset, "a finite number", math.isfinite) + 0.0
    if task == "classification":
        if step is not None or offset != 0.0:
            raise InvalidInput(
                "target_offset= and target_step= are for regression; leave them out or pass task='regression'"
            )
        return 0.0, 1.0, False
    if step is not None:
        return offset, _real("target_step", step, "greater than 0", lambda value: 0 < value < math.inf), False
    if y is None:
        raise InvalidInput(
            "target_step is not known; pass target_step=, the precision of targets, such as 0.01, or samples"
        )
    return offset, _step_for(inputs.real_targets(y), offset), True


def _step_for(numeric: npt.NDArray[np.float64], offset: float) -> float:
    """A power of two that leaves the largest target 36 bits, and 4 bits of room for later samples."""
    with np.errstate(over="ignore"):
        largest = float(np.abs(numeric - offset).max(initial=0.0))
    if math.isinf(largest):
        raise InvalidInput("y minus target_offset is too large for float64; pass a target_offset nearer the targets")
    exponent = math.frexp(largest)[1]
    return math.ldexp(1.0, max(exponent - 36, -1022)) if largest else 1.0


def _seed(seed: Any) -> bytes:
    """16 secret bytes; what the user gives is tagged with its type, so that 1 and "1" are different seeds."""
    if seed is None:
        return os.urandom(16)
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        tagged = b"int:%x" % int(seed)
    elif isinstance(seed, str) and seed:
        tagged = b"str:" + seed.encode("utf-8", "surrogatepass")
    elif isinstance(seed, bytes) and seed:
        tagged = b"bytes:" + seed
    else:
        problem = "empty" if isinstance(seed, (str, bytes)) else f"of type {type(seed).__name__}"
        raise InvalidInput(f"seed is {problem}; pass an int, a non-empty str or bytes, or None for a random one")
    return blake2b(tagged, digest_size=16).digest()


def _whole(name: str, value: Any, low: int, high: int) -> int:
    allowed = f"a whole number from {low} to {high}"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise InvalidInput(f"{name}={value!r} is not {allowed}")
    return int(value)


def _real(name: str, value: Any, allowed: str, accepts: Callable[[float], bool]) -> float:
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    try:
        number = float(value) if is_number else math.nan
    except OverflowError:
        number = math.nan
    if not accepts(number):
        raise InvalidInput(f"{name}={value!r} is not {allowed}")
    return number


def _choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidInput(f"{name}={value!r} is not known; pass {_either(allowed)}")


def _either(allowed: tuple[str, ...]) -> str:
    return " or ".join(map(repr, allowed))
