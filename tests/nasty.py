"""Nasty data: small forests' worth of rows that break an engine which is only right on normal numbers.

Two ways in. `make(seed, task)` gives one reproducible data set, for loops over many seeds and for failures that are
easy to name in a report. The hypothesis strategies (`cases`, `rows`, `targets`, `settings`) give data that shrinks, for
properties and for the state machine.

What is nasty, and what it catches

    constant, one-hot, few-valued columns   skipped features, multiplicities of lo and hi, ties between scores
    duplicated columns                      ties between features
    equal rows with different labels        an impure node with no candidate
    a lone outlier                          a range that moves when one sample goes
    neighbouring, subnormal, huge floats    thresholds that round onto hi, or overflow if computed in float32
    negative zero                           two bit patterns for one value
    targets near 2^40 that cancel           sums beyond 2^53, where the form of the score matters

Rows come out as float32 *before* -0.0 is normalised, as a user would pass them; `naive.as_samples` normalises.
Feature values are finite, a class index is below n_classes, a fixed-point target is below 2^40 in magnitude.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.naive import Criterion, Sample, Settings, as_samples

Task = Literal["binary", "multiclass", "regression"]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

TASKS: tuple[Task, ...] = ("binary", "multiclass", "regression")
CLASSES: dict[Task, int] = {"binary": 2, "multiclass": 5, "regression": 0}
CRITERIA: dict[Task, tuple[Criterion, ...]] = {
    "binary": ("gini", "entropy"),
    "multiclass": ("gini", "entropy"),
    "regression": ("squared_error",),
}

TARGET_LIMIT = 2**40
HUGE = np.float32(1e38)
TINY = np.float32(1.401298464324817e-45)  # the smallest subnormal
VALUES = (0.0, -0.0, 1.0, -1.0, 0.5, 3.0, float(TINY), -float(TINY), 1e-40, 1e38, -1e38, 3.4028234663852886e38)
OFFSETS_AND_STEPS = ((0.0, 1.0), (1e6, 2.0**-20), (-3.5, 0.1))

N_TREES = (1, 3, 7)
Q_RULES = ("all", "one tree", "half")
MAX_DEPTHS = (1, 4, 56)
N_THRESHOLDS = (1, 5, 30)
MIN_SAMPLES_SPLITS = (2, 10)
P_RULES = ("one", "sqrt", "all")


@dataclass(frozen=True, eq=False)
class Data:
    """Raw rows with targets, for one task."""

    task: Task
    rows: Floats
    y: Ints

    @property
    def n_classes(self) -> int:
        return CLASSES[self.task]

    def samples(self, first_id: int = 0) -> list[Sample]:
        """The samples under the ids first_id, first_id + 1, ..."""
        return as_samples(self.rows, self.y, range(first_id, first_id + len(self.y)))


def constant(rng: np.random.Generator, n: int) -> Floats:
    return np.repeat(np.float32(rng.choice(VALUES)), n)


def few_valued(rng: np.random.Generator, n: int) -> Floats:
    return rng.choice(np.array([-1.0, 0.0, 0.25, 7.0], dtype=np.float32), size=n)


def indicator(rng: np.random.Generator, n: int) -> Floats:
    """One column of a one-hot group: mostly 0, sometimes 1."""
    share = float(rng.choice([0.05, 0.2, 0.5]))
    return (rng.random(n) < share).astype(np.float32)


def outlier(rng: np.random.Generator, n: int) -> Floats:
    """Equal values but for one, whose removal makes the column constant."""
    column = np.zeros(n, dtype=np.float32)
    if n:
        column[rng.integers(n)] = rng.choice([-5.0, 5.0, 1e38])
    return column


def neighbours(rng: np.random.Generator, n: int) -> Floats:
    """Values one float apart, so that most thresholds round onto a value."""
    base = np.float32(rng.choice([1.0, -1.0, 16777216.0])).view(np.int32)
    return (base + rng.integers(4, size=n, dtype=np.int32)).view(np.float32)


def subnormal(rng: np.random.Generator, n: int) -> Floats:
    bits = rng.integers(6, size=n, dtype=np.uint32) | (rng.integers(2, size=n, dtype=np.uint32) << np.uint32(31))
    return bits.view(np.float32)


def huge(rng: np.random.Generator, n: int) -> Floats:
    """Values whose range does not fit in a float32."""
    return rng.choice(np.array([-3.4, -1.7, -1.0, 0.0, 1.0, 3.4], dtype=np.float32) * HUGE, size=n)


def signed_zero(rng: np.random.Generator, n: int) -> Floats:
    return rng.choice(np.array([-0.0, 0.0, float(TINY), 1.0], dtype=np.float32), size=n)


def integers(rng: np.random.Generator, n: int) -> Floats:
    return rng.integers(-20, 21, size=n).astype(np.float32)


def normals(rng: np.random.Generator, n: int) -> Floats:
    return rng.standard_normal(n).astype(np.float32)


COLUMNS: tuple[Callable[[np.random.Generator, int], Floats], ...] = (
    constant,
    few_valued,
    indicator,
    outlier,
    neighbours,
    subnormal,
    huge,
    signed_zero,
    integers,
    normals,
)


def one_hot(rng: np.random.Generator, n: int, width: int) -> Floats:
    """A whole one-hot group: each row has one 1."""
    return np.eye(width, dtype=np.float32)[rng.integers(width, size=n)]


def make_rows(rng: np.random.Generator, n: int, d: int) -> Floats:
    """A mixture of column kinds, maybe a one-hot group and a duplicated column, and some duplicated rows."""
    rows = np.stack([COLUMNS[rng.integers(len(COLUMNS))](rng, n) for _ in range(d)], axis=1)
    if d >= 3 and rng.random() < 0.4:
        rows[:, :3] = one_hot(rng, n, 3)
    if d >= 2 and rng.random() < 0.4:
        rows[:, d - 1] = rows[:, rng.integers(d - 1)]
    if n >= 2 and rng.random() < 0.6:
        twins = rng.integers(n, size=n // 3 + 1)
        rows[twins] = rows[rng.integers(n, size=len(twins))]
    return np.ascontiguousarray(rows)


def make_targets(rng: np.random.Generator, rows: Floats, task: Task) -> Ints:
    """Targets that partly follow the first column, so that trees have something to find and something to get wrong."""
    n = len(rows)
    middle = np.sort(rows[:, 0])[n // 2 : n // 2 + 1]  # one of the values: a median of two huge ones overflows
    follows = (rows[:, 0] >= middle).astype(np.int64)
    if task == "binary":
        return np.where(rng.random(n) < 0.8, follows, 1 - follows)
    if task == "multiclass":
        return np.where(rng.random(n) < 0.6, follows, rng.integers(CLASSES[task], size=n))
    kinds = (
        follows + rng.integers(2, size=n),
        rng.integers(-TARGET_LIMIT + 1, TARGET_LIMIT, size=n),
        np.where(rng.random(n) < 0.5, TARGET_LIMIT - 1, -TARGET_LIMIT + 1),
        TARGET_LIMIT - 1 - rng.integers(3, size=n),
        follows * 1000 + rng.integers(-500, 500, size=n),
    )
    return kinds[rng.integers(len(kinds))]


def make(seed: int, task: Task, n: int | None = None, d: int | None = None) -> Data:
    """A reproducible data set; without n or d the seed chooses 0 to 60 rows, 1 to 8 features."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(61)) if n is None else n
    d = int(rng.integers(1, 9)) if d is None else d
    rows = make_rows(rng, n, d)
    return Data(task, rows, make_targets(rng, rows, task))


def occupancy_size(rule: str, n_trees: int) -> int:
    """k for q = 1, 1/T or 0.5, by DESIGN's formula."""
    q = {"all": 1.0, "one tree": 1.0 / n_trees, "half": 0.5}[rule]
    return max(1, math.ceil(q * n_trees - 1e-9))


def features_considered(rule: str, d: int) -> int:
    """p for max_features 1, "sqrt" or all."""
    return {"one": 1, "sqrt": min(d, int(math.sqrt(d)) + 1), "all": d}[rule]


class Shape(NamedTuple):
    """One point of the grid of settings, before it is fitted to a data set."""

    n_trees: int
    q_rule: str
    p_rule: str
    s: int
    max_depth: int
    min_samples_split: int


# Ordered from cheap to dear, so that hypothesis shrinks towards cheap.
SHAPES = [Shape(*one) for one in product(N_TREES, Q_RULES, P_RULES, N_THRESHOLDS, MAX_DEPTHS, MIN_SAMPLES_SPLITS)]


def fit(
    shape: Shape, seed: bytes, task: Task, criterion: Criterion, d: int, target: tuple[float, float] = (0.0, 1.0)
) -> Settings:
    """Settings of a shape for a task with d features."""
    return Settings(
        seed=seed,
        n_trees=shape.n_trees,
        k=occupancy_size(shape.q_rule, shape.n_trees),
        p=features_considered(shape.p_rule, d),
        s=shape.s,
        max_depth=shape.max_depth,
        min_samples_split=shape.min_samples_split,
        criterion=criterion,
        n_features=d,
        n_classes=CLASSES[task],
        target_offset=target[0] if task == "regression" else 0.0,
        target_step=target[1] if task == "regression" else 1.0,
    )


def make_settings(seed: int, task: Task, d: int) -> Settings:
    """Reproducible settings: one shape of the grid, a criterion of the task, and a forest seed."""
    rng = np.random.default_rng([seed, 1])
    criterion = CRITERIA[task][rng.integers(len(CRITERIA[task]))]
    target = OFFSETS_AND_STEPS[rng.integers(len(OFFSETS_AND_STEPS))]
    return fit(SHAPES[rng.integers(len(SHAPES))], rng.bytes(16), task, criterion, d, target)


def settings_grid(seed: bytes, task: Task, d: int) -> Iterator[Settings]:
    """The whole grid for a task, each distinct setting once."""
    made = (fit(shape, seed, task, criterion, d) for shape in SHAPES for criterion in CRITERIA[task])
    yield from dict.fromkeys(made)


def values() -> st.SearchStrategy[float]:
    """One feature value that a float32 holds exactly: often a repeated nasty one, sometimes any finite float."""
    exact = st.sampled_from([float(np.float32(value)) for value in VALUES])
    small = st.integers(-3, 3).map(float)
    return small | exact | st.floats(width=32, allow_nan=False, allow_infinity=False)


def rows(d: int) -> st.SearchStrategy[Floats]:
    """One raw row."""
    return st.lists(values(), min_size=d, max_size=d).map(lambda row: np.array(row, dtype=np.float32))


def targets(task: Task) -> st.SearchStrategy[int]:
    """One class index, or one fixed-point target."""
    if task != "regression":
        return st.integers(0, CLASSES[task] - 1)
    return st.integers(-2, 2) | st.integers(-TARGET_LIMIT + 1, TARGET_LIMIT - 1)


def sample_ids() -> st.SearchStrategy[int]:
    """Any id a store takes; small ones often, so that they meet again."""
    return st.integers(0, 50) | st.integers(0, 2**64 - 1)


@st.composite
def settings(draw: st.DrawFn, task: Task, d: int) -> Settings:
    """Settings from the grid with any seed."""
    shape = draw(st.sampled_from(SHAPES))
    seed = draw(st.binary(min_size=16, max_size=16))
    criterion = draw(st.sampled_from(CRITERIA[task]))
    return fit(shape, seed, task, criterion, d, draw(st.sampled_from(OFFSETS_AND_STEPS)))


@st.composite
def columns(draw: st.DrawFn, n: int) -> list[float]:
    """One column drawn from a small palette of values, so that constancy and ties are common."""
    palette = draw(st.lists(values(), min_size=1, max_size=5))
    return draw(st.lists(st.sampled_from(palette), min_size=n, max_size=n))


@st.composite
def datasets(draw: st.DrawFn, task: Task, max_rows: int = 30, max_features: int = 5) -> Data:
    """A data set that shrinks, made of columns; one column may be a copy of another."""
    n = draw(st.integers(0, max_rows))
    table = [draw(columns(n)) for _ in range(draw(st.integers(1, max_features)))]
    if draw(st.booleans()):
        table[-1] = table[0]
    y = draw(st.lists(targets(task), min_size=n, max_size=n))
    return Data(task, np.array(table, dtype=np.float32).T.copy(), np.array(y, dtype=np.int64))


@st.composite
def cases(draw: st.DrawFn, max_rows: int = 30, max_features: int = 5) -> tuple[Settings, Data]:
    """A data set of any task with settings that fit it."""
    task = draw(st.sampled_from(TASKS))
    data = draw(datasets(task, max_rows, max_features))
    return draw(settings(task, data.rows.shape[1])), data
