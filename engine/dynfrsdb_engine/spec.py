"""What F reads besides the samples, as plain numbers that kernels take.

`Spec` travels through every kernel. Counts come in *columns*: one per class for classification, for regression one,
beside which the sum of the fixed-point targets is kept. A node's *totals* are its class counts, or six numbers for
regression:

    0 N   1 SUM   2 LEAST   3 MOST   4 AT_LEAST   5 AT_MOST

LEAST and MOST are the smallest and largest target with how many samples have exactly that, so that a removal knows
without a scan whether the node became pure."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.reference import Layout
from dynfrsdb_engine.score import ENTROPY, GINI, SQUARED_ERROR, entropy_table

CRITERIA = {"gini": GINI, "entropy": ENTROPY, "squared_error": SQUARED_ERROR}


class Spec(NamedTuple):
    """Settings of F, the physical bucket size, and the keys that make its choices."""

    features: int
    candidates: int
    thresholds: int
    classes: int
    columns: int
    totals: int
    criterion: int
    max_depth: int
    min_split: int
    bucket: int
    occupancy: int
    trees: int
    offset: float
    step: float
    occupancy_key: np.uint64
    tree_keys: npt.NDArray[np.uint64]
    xlog: npt.NDArray[np.int64]


def make_spec(
    *,
    n_features: int,
    p: int,
    s: int,
    n_classes: int,
    criterion: str,
    max_depth: int,
    min_samples_split: int,
    bucket: int,
    k: int,
    offset: float,
    step: float,
    occupancy_key: int,
    tree_keys: npt.NDArray[np.uint64],
) -> Spec:
    """`n_classes` is 0 for regression."""
    code = CRITERIA[criterion]
    return Spec(
        features=n_features,
        candidates=p,
        thresholds=s,
        classes=n_classes,
        columns=n_classes or 1,
        totals=n_classes or 6,
        criterion=code,
        max_depth=max_depth,
        min_split=min_samples_split,
        bucket=bucket,
        occupancy=k,
        trees=len(tree_keys),
        offset=float(offset),
        step=float(step),
        occupancy_key=np.uint64(occupancy_key),
        tree_keys=np.ascontiguousarray(tree_keys, dtype=np.uint64),
        xlog=_entropies() if code == ENTROPY else np.zeros(1, np.int64),
    )


@cache
def _entropies() -> npt.NDArray[np.int64]:
    return entropy_table()


EXAMPLE = make_spec(
    n_features=1,
    p=1,
    s=1,
    n_classes=2,
    criterion="gini",
    max_depth=1,
    min_samples_split=2,
    bucket=1,
    k=1,
    offset=0.0,
    step=1.0,
    occupancy_key=0,
    tree_keys=np.zeros(1, np.uint64),
)
SPEC = Layout(EXAMPLE)
spec_at = SPEC.reader()
