"""Add and remove samples where they are listed: in buckets, long leaves and tags.

A bucket that changes is tagged, unless it is one leaf and stays one; a leaf that stays a leaf is never tagged. Whether
it does can mostly be told from counts:

    only removals, or as deep as it may be, or too few to split, or one class      a leaf still
    otherwise                                                                      look at its samples: all alike?

A bucket that grows beyond B becomes a long list, and a long list that shrinks to B a bucket. A long list on disk is not
loaded to change it: which slots leave and enter is noted (`Working.edits`), and the commit rewrites their chunks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.collect import (
    NOT_A_LEAF,
    Ops,
    edit_sorted,
    make_bucket,
    make_list,
    place_in_order,
    take_out,
    write_leaf,
)
from dynfrsdb_engine.grow import depth_of
from dynfrsdb_engine.install import leaf_totals
from dynfrsdb_engine.kernel import Record, inner
from dynfrsdb_engine.records import LEAF, TAG
from dynfrsdb_engine.recount import ZERO, Bench, apply_totals
from dynfrsdb_engine.rows import FIRST_FEATURE, Rows, intact
from dynfrsdb_engine.search import pure
from dynfrsdb_engine.slots import copy
from dynfrsdb_engine.spec import Spec
from dynfrsdb_engine.working import (
    EDITS,
    LEAF_POINT,
    NOTHING,
    TAGGED,
    TAGGINGS,
    TAGS,
    TOP_LIST,
    Working,
    clear_records,
    free_bucket,
    free_node,
    new_node,
    raise_tags,
    touch_bucket,
    touch_node,
)

NEED_RECORD, NEED_LISTS = 1, 2
"""What a waiting item needs: the record at its path, or all samples below it."""
OVER, WAIT, NO_ROOM, MISPLACED, ROTTEN = 0, 1, 2, 3, 4
"""Outcome of a visit, and of `change`.

Done; something is missing; an array is full; a removed sample is not in its place; a row is bad.
"""


@inner
def count_signs(ops: Ops, a: int, b: int) -> tuple[int, int]:
    """How many of ops a..b are removed and added."""
    added = 0
    for i in range(a, b):
        added += ops.sign[ops.order[i]] > 0
    return b - a - added, added


@inner
def alike(rows: Rows, slots: npt.NDArray[np.uint32], d: int) -> tuple[bool, bool]:
    """Whether all samples have the same features, and the same target; a bad row is like no other."""
    first = np.int64(slots[0])
    same_x, same_y = True, True
    for i in range(slots.size):
        slot = np.int64(slots[i])
        if not intact(rows, slot):
            return False, False
        same_y = same_y and rows.words[slot, 2] == rows.words[first, 2]
        for f in range(d):
            if not same_x:
                break
            same_x = rows.floats[slot, FIRST_FEATURE + f] == rows.floats[first, FIRST_FEATURE + f]
        if not (same_x or same_y):
            break
    return same_x, same_y


@inner
def surely_leaf(spec: Spec, depth: int, n: int, added: int, totals: npt.NDArray[np.int64]) -> bool:
    """Whether what was a leaf stays one, as far as it can be told without looking at its samples."""
    if added == 0 or depth >= spec.max_depth or n < spec.min_split:
        return True
    return bool(spec.classes > 0 and pure(spec.classes, totals, n))


@inner
def still_leaf(spec: Spec, rows: Rows, slots: npt.NDArray[np.uint32]) -> bool:
    """Whether samples that no cheaper rule decides make a leaf: all alike in their features, or all in their target."""
    same_x, same_y = alike(rows, slots, spec.features)
    return same_x or same_y


@inner
def copy_totals(source: npt.NDArray[np.int64], target: npt.NDArray[np.int64]) -> None:
    """Copy a node's totals."""
    for c in range(source.size):
        target[c] = source[c]


@inner
def visit_bucket(spec: Spec, w: Working, rows: Rows, ops: Ops, item: Record, stamp: int, bench: Bench) -> int:
    """Change a bucket: one leaf that stays one, or a tag; too many samples make it a long list.

    What can fail is done to a copy of its slots; a single one is taken out of them as a whole or not at all.
    """
    point = w.points[item.point]
    row = -2 - np.int64(point.owner)
    bucket = w.buckets[row]
    _, added = count_signs(ops, item.start, item.end)
    at = w.top[TOP_LIST]
    slots, in_place = w.slots[row], added == 0 and item.end - item.start == 1
    if not in_place:
        slots = w.lists[at:]
        copy(w.slots[row], ZERO, bucket.n, slots, ZERO)
    n = edit_sorted(ops, item.start, item.end, slots, bucket.n)
    if n < 0:
        return MISPLACED
    leaf = point.feature == LEAF_POINT
    totals = bench.spare.totals[0]
    if leaf:
        leaf_totals(spec, w.leaves, np.int64(point.child), totals)
        apply_totals(spec, ops, item.start, item.end, totals)
        leaf = surely_leaf(spec, depth_of(item.path), n, added, totals) or still_leaf(spec, rows, slots[:n])
    was_tagged, parent, tree, path = bucket.kind == TAG, bucket.parent, bucket.tree, bucket.path
    if n > spec.bucket:
        w.top[TAGS] -= was_tagged
        free_bucket(w, row)
        clear_records(w, tree, path)
        line = new_node(w)
        node = w.nodes[line]
        node.path, node.tree, node.parent, node.point, node.stamp = path, tree, parent, item.point, stamp
        copy_totals(totals, w.stats.totals[line])
        make_list(spec, w, line, at, n, leaf)
        return OVER
    bucket.n, bucket.stamp = n, stamp
    if not in_place:
        copy(slots, ZERO, n, w.slots[row], ZERO)
    touch_bucket(w, row)
    if leaf:
        point.child = write_leaf(spec, w, n, totals)
        return OVER
    if added > 0:
        bucket.was = NOTHING
    elif not was_tagged:
        bucket.was, bucket.children = point.feature, point.child
    if not was_tagged:
        bucket.kind, point.feature = TAG, TAGGED
        w.top[TAGS] += 1
        w.top[TAGGINGS] += 1
        raise_tags(w, tree, path, parent)
    return OVER


@inner
def note_edits(w: Working, ops: Ops, a: int, b: int, row: int) -> None:
    """Note which slots leave and enter a long list that is on disk."""
    for i in range(a, b):
        o = ops.order[i]
        edit = w.edits[w.top[EDITS]]
        edit.path, edit.tree, edit.row = w.nodes[row].path, w.nodes[row].tree, row
        edit.slot, edit.sign = ops.slots[o], ops.sign[o]
        w.top[EDITS] += 1


@inner
def visit_list(spec: Spec, w: Working, rows: Rows, ops: Ops, item: Record, stamp: int, bench: Bench) -> int:
    """Change a leaf or a tag with a long list; too few samples make it a bucket.

    As in a bucket, a single slot is taken out where it is: a copy of the list for each would soon fill memory.
    """
    point = w.points[item.point]
    row = np.int64(point.owner)
    node, head = w.nodes[row], w.stats.head[row]
    removed, added = count_signs(ops, item.start, item.end)
    n = head.n + added - removed
    leaf = node.kind == LEAF
    totals = bench.spare.totals[0]
    sure = not leaf
    if leaf:
        copy_totals(w.stats.totals[row], totals)
        apply_totals(spec, ops, item.start, item.end, totals)
        sure = surely_leaf(spec, depth_of(item.path), n, added, totals)
    if (n <= spec.bucket or not sure) and node.list_at < 0:
        item.need = NEED_LISTS
        return WAIT
    in_memory, in_place = node.list_at >= 0, removed == 1 and added == 0
    at = node.list_at if in_memory and in_place else w.top[TOP_LIST]
    slots = w.lists[at:]
    if in_memory:
        if in_place:
            slot = ops.slots[ops.order[item.start]]
            left = take_out(slots, head.n, slot, place_in_order(slots, head.n, slot))
        else:
            copy(w.lists, node.list_at, head.n, slots, ZERO)
            left = edit_sorted(ops, item.start, item.end, slots, head.n)
        if left != n:
            return MISPLACED
        leaf = leaf and (sure or still_leaf(spec, rows, slots[:n]))
    was_tagged, parent, tree, path = node.kind == TAG, node.parent, node.tree, node.path
    if n <= spec.bucket:
        w.top[TAGS] -= was_tagged
        free_node(w, row)
        clear_records(w, tree, path)
        place = write_leaf(spec, w, n, totals) if leaf else NOT_A_LEAF
        make_bucket(spec, w, (tree, path, parent, item.point), slots[:n], place, stamp)
        return OVER
    if in_memory and not in_place:
        node.list_at = at
        w.top[TOP_LIST] = at + n
    if not node.fresh:
        note_edits(w, ops, item.start, item.end, row)
    head.n, node.stamp = n, stamp
    touch_node(w, row)
    if leaf:
        copy_totals(totals, w.stats.totals[row])
        point.child = write_leaf(spec, w, n, totals)
    elif not was_tagged:
        node.kind, point.feature = TAG, TAGGED
        w.top[TAGS] += 1
        w.top[TAGGINGS] += 1
        raise_tags(w, tree, path, parent)
    return OVER
