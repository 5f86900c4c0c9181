"""Answer queries from the working set, or say what is missing to do so.

A query walks every tree from its root to a leaf. Class frequencies (or the leaf's mean target) are added in the order
of the trees and divided by the number of trees that hold any sample, all in float64, so an answer does not depend on
who gives it, or on threads.

A walk may end at a record that is not in memory or at a tag. Then the answer is worthless and the walk's end goes on
the list of needs; the caller brings or grows what is needed, for all rows and trees at once, and asks again.

Not done here: many rows, when everything is in memory (batch.py)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.kernel import inner, kernel
from dynfrsdb_engine.reference import Address
from dynfrsdb_engine.spec import Spec, spec_at
from dynfrsdb_engine.working import CLOCK, LEAF_POINT, TAGGED, Working, working_at

LANES = 10
"""Trees that one row walks in side by side: enough for the waits to overlap, and most forests have a multiple of it."""
ZERO, ONE = np.uint64(0), np.uint64(1)
Points = npt.NDArray[np.uint64]
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
def step_down(points: npt.NDArray[np.void], x: npt.NDArray[np.float32], at: np.uint64) -> np.uint64:
    """One step of a walk, without a branch: the child that `x` goes to, or the same point if it is not a split."""
    point = points[at]
    left = x[np.uint64(max(point.feature, 0))] <= point.cut
    below = np.uint64(point.child) + ONE - np.uint64(left)
    return below if point.feature >= 0 else at


@inner
def walk(points: npt.NDArray[np.void], x: npt.NDArray[np.float32], ends: Points, start: np.uint64) -> None:
    """Take a row from `LANES` points in `ends` to the first that is not a split.

    Every step waits for memory; side by side the waits overlap. Unsigned, because numba looks whether a signed index is
    negative.
    """
    moved = ONE
    while moved != ZERO:
        moved = ZERO
        for k in range(start, start + np.uint64(LANES)):
            at = step_down(points, x, ends[k])
            moved |= at ^ ends[k]
            ends[k] = at


@inner
def path_of(points: npt.NDArray[np.void], at: int, x: npt.NDArray[np.float32]) -> np.uint64:
    """The path on which a row walks from point `at`."""
    path = np.uint64(1)
    while points[at].feature >= 0:
        point = points[at]
        right = 0 if x[point.feature] <= point.cut else 1
        at = point.child + right
        path = path * np.uint64(2) + np.uint64(right)
    return path


@inner
def add_leaf(
    spec: Spec, leaves: npt.NDArray[np.int64], place: int, n: float, out: npt.NDArray[np.float64], i: int
) -> None:
    """Add what one leaf of `n` samples says to answer `i`."""
    if spec.classes == 0:
        out[i, 0] += spec.offset + spec.step * (np.float64(leaves[place + 3]) / n)
        return
    for c in range(place + 2, place + 2 + 2 * leaves[place + 1], 2):
        out[i, leaves[c]] += np.float64(leaves[c + 1]) / n


@inner
def begin(out: npt.NDArray[np.float64], roots: npt.NDArray[np.void]) -> int:
    """Set answers to zero; returns how many trees hold samples."""
    for i in range(out.shape[0]):
        for c in range(out.shape[1]):
            out[i, c] = 0.0
    holding = 0
    for t in range(roots.size):
        holding += roots[t].n > 0
    return holding


@inner
def list_trees(roots: npt.NDArray[np.void], trees: Points) -> None:
    """The roots of all trees that hold samples."""
    k = 0
    for t in range(roots.size):
        if roots[t].n > 0:
            trees[k] = t
            k += 1


@inner
def divide(out: npt.NDArray[np.float64], holding: int) -> None:
    """Turn sums over trees into means."""
    for i in range(out.shape[0]):
        for c in range(out.shape[1]):
            out[i, c] /= holding


@kernel
def answer(
    spec_address: Address[Spec],
    w_address: Address[Working],
    X: npt.NDArray[np.float32],
    out: npt.NDArray[np.float64],
) -> bool:
    """Fill `out` with mean answers, one line per row of X; False if something that is needed is not in memory, or if no
    tree holds a sample.

    Changes nothing else, so several threads may ask at once. Each row walks in many trees side by side.
    """
    spec, w = spec_at(spec_address), working_at(w_address)
    points, leaves, roots = w.points, w.leaves, w.roots
    trees, holding = np.zeros(roots.size + LANES, np.uint64), begin(out, roots)
    sizes = np.empty(roots.size, np.float64)
    for i in range(X.shape[0]):
        list_trees(roots, trees)
        for k in range(0, holding, LANES):
            walk(points, X[i], trees, np.uint64(k))
        for k in range(holding):  # before any leaf is added, so that the waits for all of them overlap
            point = points[trees[k]]
            if point.feature != LEAF_POINT:
                return False
            trees[k], sizes[k] = point.child, leaves[point.child]
        for k in range(holding):
            add_leaf(spec, leaves, np.int64(trees[k]), sizes[k], out, i)
    divide(out, holding)
    return holding > 0


@inner
def note_use(w: Working, owner: int) -> None:
    """Note that a bucket or a long leaf was needed just now."""
    if owner >= 0:
        w.nodes[owner].used = w.top[CLOCK]
    else:
        w.buckets[-2 - owner].used = w.top[CLOCK]


@kernel
def predict(
    spec_address: Address[Spec],
    w_address: Address[Working],
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
    spec, w = spec_at(spec_address), working_at(w_address)
    counts[0] = 0
    failed = 0
    holding = begin(out, w.roots)
    for t in range(spec.trees):
        if w.roots[t].n == 0:
            continue
        for i in range(X.shape[0]):
            point = w.points[descend(w.points, t, X[i])]
            if point.feature == LEAF_POINT:
                place = np.int64(point.child)
                add_leaf(spec, w.leaves, place, np.float64(w.leaves[place]), out, i)
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
    divide(out, holding)
    return failed == 0
