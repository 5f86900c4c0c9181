"""Gather the samples below a node, and tag it.

Removing a sample walks from the root to its bucket and lowers the counts on the way:

    before            remove s7           after the next query
    n0  n=9           n0  n=8             n0  n=8
    |-n1 n=5          |-n1 n=4  TAG       |-n1 n=4  (grown again)
    `-n2 n=4          `-n2 n=4            `-n2 n=4

n1's best split changed, so everything below it is void. Growing it now would make `remove` cost O(subtree); instead n1
gets a tag, and whoever next needs n1 grows it.

Invariants
    A tagged node has no children; it keeps its samples.
    Growing a tag never changes an answer, because the forest is a function of its samples.

A node that becomes small (n <= B) turns into a tagged bucket, one that becomes a leaf keeps its samples as a long list.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.kernel import inner, maker
from dynfrsdb_engine.local import local_ints
from dynfrsdb_engine.records import LEAF, SPLIT, TAG
from dynfrsdb_engine.slots import copy, sort
from dynfrsdb_engine.spec import Spec
from dynfrsdb_engine.working import (
    LEAF_POINT,
    MISSING,
    TAGGED,
    TAGGINGS,
    TAGS,
    TOP_LEAF,
    TOP_LIST,
    Working,
    clear_records,
    free_bucket,
    free_node,
    lower_tags,
    new_bucket,
    raise_tags,
    touch_bucket,
    touch_node,
)

ZERO, NOT_A_LEAF = np.int64(0), np.int64(-1)
ENDINGS = np.uint32(256)
"""Slots are told apart by their last bits before they are looked for: most that stay end like none that leaves."""


class Ops(NamedTuple):
    """Samples that come (sign +1) and go (-1), one line each.

    `order` groups them by tree and is partitioned on the way down.
    """

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    slots: npt.NDArray[np.uint32]
    sign: npt.NDArray[np.int8]
    order: npt.NDArray[np.int32]


@inner
def gather_below(w: Working, root: int, out: npt.NDArray[np.uint32]) -> int:
    """Copy the slots of all samples below point `root` into `out`.

    Returns how many, or -1 if something is not in memory.
    """
    stack = local_ints()
    stack[0], height, n = root, 1, ZERO
    while height > 0:
        height -= 1
        point = w.points[stack[height]]
        if point.feature == MISSING:
            return -1
        if point.owner < 0:
            row = -2 - np.int64(point.owner)
            size = w.buckets[row].n
            copy(w.slots[row], ZERO, size, out, n)
            n += size
        elif point.feature >= 0:
            stack[height], stack[height + 1] = point.child + 1, point.child
            height += 2
        else:
            at = w.nodes[point.owner].list_at
            if at < 0:
                return -1
            size = w.stats.head[point.owner].n
            copy(w.lists, at, size, out, n)
            n += size
    return n


@inner
def all_below(w: Working, root: int) -> bool:
    """Whether every list below point `root` is in memory."""
    stack = local_ints()
    stack[0], height = root, 1
    while height > 0:
        height -= 1
        point = w.points[stack[height]]
        if point.feature == MISSING:
            return False
        if point.owner >= 0:
            if point.feature >= 0:
                stack[height], stack[height + 1] = point.child + 1, point.child
                height += 2
            elif w.nodes[point.owner].list_at < 0:
                return False
    return True


@inner
def free_below(w: Working, root: int) -> None:
    """Give back the lines of everything at and below point `root`, and count the tags that go with them."""
    stack = local_ints()
    stack[0], height = root, 1
    while height > 0:
        height -= 1
        point = w.points[stack[height]]
        if point.feature == TAGGED:
            w.top[TAGS] -= 1
        if point.owner >= 0:
            if point.feature >= 0:
                stack[height], stack[height + 1] = point.child + 1, point.child
                height += 2
            free_node(w, np.int64(point.owner))
        elif point.owner < -1:
            free_bucket(w, -2 - np.int64(point.owner))


@inner
def take_out(slots: npt.NDArray[np.uint32], n: int, slot: np.uint32, at: int) -> int:
    """Take one slot out of the first `n`, where it is at `at` or further on; returns how many are left. If it is not
    there nothing is changed, and -1 returned."""
    while at < n and slots[at] != slot:
        at += 1
    if at >= n:
        return -1
    copy(slots[at + 1 :], ZERO, n - 1 - at, slots[at:], ZERO)
    return n - 1


@inner
def place_in_order(slots: npt.NDArray[np.uint32], n: int, slot: np.uint32) -> int:
    """Where a slot is, or belongs, among the first `n`, which are in order."""
    low, high = ZERO, np.int64(n)
    while low < high:
        middle = (low + high) >> 1
        if slots[middle] < slot:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def is_among(slots: npt.NDArray[np.uint32], n: int, slot: np.uint32) -> bool:
    """Whether a slot is one of the first `n`, which are in order."""
    at = place_in_order(slots, n, slot)
    return bool(at < n and slots[at] == slot)


@maker
def edit_list(ops: Ops, a: int, b: int, slots: npt.NDArray[np.uint32], n: int) -> int:
    """Take removed slots out of the first `n` of `slots` and append added ones; returns the new size, -1 if one was not
    there.

    `slots` needs room for those that are added.
    """
    if b - a == 1 and ops.sign[ops.order[a]] < 0:
        return take_out(slots, n, ops.slots[ops.order[a]], ZERO)
    gone = np.empty(b - a, np.uint32)
    leaving = ZERO
    for i in range(a, b):
        if ops.sign[ops.order[i]] < 0:
            gone[leaving] = ops.slots[ops.order[i]]
            leaving += 1
    sort(gone, leaving)
    endings, kept = local_ints(), ZERO
    for ending in range(ENDINGS):
        endings[ending] = 0
    for i in range(leaving):
        endings[gone[i] % ENDINGS] = 1
    for i in range(n):
        slot = slots[i]
        if not endings[slot % ENDINGS] or not is_among(gone, leaving, slot):
            slots[kept] = slot
            kept += 1
    if n - kept != leaving:
        return -1
    for i in range(a, b):
        if ops.sign[ops.order[i]] > 0:
            slots[kept] = ops.slots[ops.order[i]]
            kept += 1
    return kept


@inner
def edit_sorted(ops: Ops, a: int, b: int, slots: npt.NDArray[np.uint32], n: int) -> int:
    """As `edit_list`; the slots are in order afterwards."""
    kept = edit_list(ops, a, b, slots, n)
    sort(slots, kept)
    return kept


@inner
def write_leaf(spec: Spec, w: Working, n: int, totals: npt.NDArray[np.int64]) -> int:
    """Make a leaf from totals; returns its place."""
    place = w.top[TOP_LEAF]
    leaf = w.leaves[place:]
    leaf[0] = n
    if spec.classes == 0:
        leaf[1], leaf[2], leaf[3] = 1, 0, totals[1]
        w.top[TOP_LEAF] += 4
        return place
    m = ZERO
    for c in range(spec.classes):
        if totals[c] > 0:
            leaf[2 + 2 * m], leaf[3 + 2 * m] = c, totals[c]
            m += 1
    leaf[1] = m
    w.top[TOP_LEAF] += 2 + 2 * m
    return place


@inner
def make_bucket(
    spec: Spec, w: Working, place: tuple[int, np.uint64, int, int], slots: npt.NDArray[np.uint32], leaf: int, stamp: int
) -> None:
    """Put a bucket at `place` (tree, path, parent, point); tagged, or one leaf if `leaf` is its place."""
    tree, path, parent, at = place
    row = new_bucket(w)
    bucket, point = w.buckets[row], w.points[at]
    bucket.path, bucket.tree, bucket.parent, bucket.point = path, tree, parent, at
    bucket.n, bucket.stamp = slots.size, stamp
    copy(slots, ZERO, slots.size, w.slots[row], ZERO)
    point.owner = -2 - row
    if leaf >= 0:
        bucket.kind, point.feature, point.child = SPLIT, LEAF_POINT, leaf
    else:
        bucket.kind, point.feature = TAG, TAGGED
        w.top[TAGS] += 1
        w.top[TAGGINGS] += 1
        raise_tags(w, tree, path, parent)
    touch_bucket(w, row)


@inner
def make_list(spec: Spec, w: Working, row: int, slots_at: int, n: int, leaf: bool) -> None:
    """Turn line `row` into a leaf or a tag whose samples are `lists[slots_at : slots_at + n]`."""
    node = w.nodes[row]
    point = w.points[node.point]
    w.stats.head[row].n = n
    tags_below = node.tags
    node.list_at, node.fresh, node.tags = slots_at, 1, 0
    w.top[TOP_LIST] = slots_at + n
    point.owner = row
    if leaf:
        node.kind, point.feature = LEAF, LEAF_POINT
        point.child = write_leaf(spec, w, n, w.stats.totals[row])
        if tags_below:
            lower_tags(w, node.tree, node.path, node.parent)
    else:
        node.kind, point.feature = TAG, TAGGED
        w.top[TAGS] += 1
        w.top[TAGGINGS] += 1
        raise_tags(w, node.tree, node.path, node.parent)
    touch_node(w, row)


@inner
def void(spec: Spec, w: Working, ops: Ops, row: int, a: int, b: int, leaf: bool) -> int:
    """Replace a split by its samples, changed by ops a..b: a tag, a leaf, or a tagged bucket. Everything below must be
    in memory.

    Returns the number of samples, or -1 if a removed one was not there.
    """
    node = w.nodes[row]
    at, tree, path, parent, stamp = node.point, node.tree, node.path, node.parent, node.stamp
    start = w.top[TOP_LIST]
    slots = w.lists[start:]
    n = edit_sorted(ops, a, b, slots, gather_below(w, at, slots))
    if n < 0:
        return -1
    point = w.points[at]
    child = np.int64(point.child)
    free_below(w, child)
    free_below(w, child + 1)
    clear_records(w, tree, path)
    if n > spec.bucket:
        make_list(spec, w, row, start, n, leaf)
    else:
        free_node(w, row)
        make_bucket(spec, w, (tree, path, parent, at), slots[:n], NOT_A_LEAF, stamp)
    return n
