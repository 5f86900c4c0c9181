"""Answer queries from the working set, or say what is missing to do so.

A query walks every tree from its root to a leaf. Class frequencies (or the leaf's mean target) are added in the order
of the trees and divided by the number of trees that hold any sample, all in float64, so an answer does not depend on
who gives it, or on threads.

A walk may end at a record that is not in memory or at a tag. Then the answer is worthless and the walk's end goes on
the list of needs; the caller brings or grows what is needed, for all rows and trees at once, and asks again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.kernel import inner, kernel
from dynfrsdb_engine.reference import refer
from dynfrsdb_engine.spec import Spec
from dynfrsdb_engine.working import CLOCK, LEAF_POINT, TAGGED, Working

NEED = np.dtype([("path", "u8"), ("tree", "i8"), ("row", "i8"), ("tagged", "i8")], align=True)
"""A walk that could not go on: where, for which query row, and whether a tag stopped it."""


@inner
def descend(points: npt.NDArray[np.void], at: int, x: npt.NDArray[np.float32]) -> int:
    """Walk from point `at` to the first point that is not a split."""
    while points[at].feature >= 0:
        point = points[at]
        at = point.child + (0 if x[point.feature] <= point.cut else 1)
    return at


@inner
def path_of(points: npt.NDArray[np.void], at: int, x: npt.NDArray[np.float32]) -> np.uint64:
    """The path on which `descend` went."""
    path = np.uint64(1)
    while points[at].feature >= 0:
        point = points[at]
        right = 0 if x[point.feature] <= point.cut else 1
        at = point.child + right
        path = path * np.uint64(2) + np.uint64(right)
    return path


@inner
def add_leaf(spec: Spec, leaves: npt.NDArray[np.int64], place: int, out: npt.NDArray[np.float64]) -> None:
    """Add what one leaf says to an answer."""
    n = np.float64(leaves[place])
    if spec.classes == 0:
        out[0] += spec.offset + spec.step * (np.float64(leaves[place + 3]) / n)
        return
    for i in range(leaves[place + 1]):
        out[leaves[place + 2 + 2 * i]] += np.float64(leaves[place + 3 + 2 * i]) / n


@inner
def note_use(w: Working, owner: int) -> None:
    """Note that a bucket or a long leaf was needed just now."""
    if owner >= 0:
        w.nodes[owner].used = w.top[CLOCK]
    else:
        w.buckets[-2 - owner].used = w.top[CLOCK]


@kernel
def predict(
    spec: Spec,
    w: Working,
    X: npt.NDArray[np.float32],
    out: npt.NDArray[np.float64],
    needs: npt.NDArray[np.void],
    counts: npt.NDArray[np.int64],
    track: bool,
) -> bool:
    """Fill `out` with mean answers, one line per row of X; False if something stood in the way of one.

    What did is in `needs` then, as far as there is room, and counts[0] says how many: a missing record once a call
    (counts[1] is the call's own number), a tag for every row that meets it. With `track`, what is used is noted.
    """
    spec, w = refer(spec), refer(w)
    counts[0] = 0
    holding, failed = 0, 0
    for i in range(X.shape[0]):
        for c in range(out.shape[1]):
            out[i, c] = 0.0
    for t in range(spec.trees):
        if w.roots[t].n == 0:
            continue
        holding += 1
        for i in range(X.shape[0]):
            at = descend(w.points, t, X[i])
            point = w.points[at]
            if point.feature == LEAF_POINT:
                add_leaf(spec, w.leaves, np.int64(point.child), out[i])
                if track:
                    note_use(w, np.int64(point.owner))
                continue
            failed += 1
            if counts[0] < needs.size and (point.feature == TAGGED or point.child != counts[1]):
                point.child = counts[1]
                need = needs[counts[0]]
                need.path, need.tree, need.row = path_of(w.points, t, X[i]), t, i
                need.tagged = point.feature == TAGGED
                counts[0] += 1
    for i in range(X.shape[0]):
        for c in range(out.shape[1]):
            out[i, c] /= holding
    return failed == 0
