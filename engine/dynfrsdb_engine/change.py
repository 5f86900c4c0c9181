"""Add and remove samples: one walk from the roots down, one visit per node, however many samples change.

The samples that come and go (`Ops`) are sorted into their trees and partitioned on the way down. At a split

    1. totals and counts are brought up to date, as if the node had always had these samples (recount);
    2. the best split is chosen again from the counts;
    3. the same split, or the same feature with another threshold that leaves both sides as they were: go on to the
       children, removed samples by the *old* split, where they live, added ones by the *new*;
    4. otherwise the node is tagged: everything below is void (collect).

Left sides of one feature are nested, so two thresholds part the remaining samples alike iff their left sides count
alike:

    left_old - |removed <= w_old|  ==  left_new - |added <= w_new|

What happens where samples are listed, in buckets and long lists, is told in `lists`.

A visit either happens as a whole or not at all. If it needs a record that is not in memory it waits: the item goes to
`waiting`, the caller brings what is missing and calls again. If an array has no room left, the kernel returns with the
item still to be done.

Trees are walked level by level, all at once: what the next items need is on its way from memory while one is done."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.collect import Ops, all_below, void
from dynfrsdb_engine.grow import LEFT, RIGHT
from dynfrsdb_engine.hashing import spread
from dynfrsdb_engine.kernel import Record, inlined, inner, kernel
from dynfrsdb_engine.lists import (
    MISPLACED,
    NEED_LISTS,
    NEED_RECORD,
    NO_ROOM,
    OVER,
    ROTTEN,
    WAIT,
    count_signs,
    visit_bucket,
    visit_list,
)
from dynfrsdb_engine.prefetch import bring_row
from dynfrsdb_engine.records import SPLIT
from dynfrsdb_engine.recount import (
    FINE,
    LOST,
    Below,
    Bench,
    apply_totals,
    bench_at,
    foresee,
    recount,
    recount_target,
    samples_below,
)
from dynfrsdb_engine.reference import Address, refer
from dynfrsdb_engine.rows import Rows
from dynfrsdb_engine.search import choose_again, pure
from dynfrsdb_engine.spec import Spec, spec_at
from dynfrsdb_engine.working import (
    CLEARS,
    EDITS,
    FREE_BUCKET,
    FREE_NODE,
    MISSING,
    NOBODY,
    TOP_BUCKET,
    TOP_LEAF,
    TOP_LIST,
    TOP_NODE,
    Working,
    bring_node,
    touch_node,
    working_at,
)

CHANGE = np.dtype(
    [("path", "u8"), ("start", "i8"), ("end", "i8"), ("point", "i8"), ("tree", "i8"), ("task", "i8"), ("need", "i8")],
    align=True,
)
VISIT, VOID, VOID_LEAF = 0, 1, 2
"""What to do at an item's point: visit it, or replace it by its samples, as a tag or as a leaf."""
NOW, THEN, TURN, AT, WAITING, VISITED, VOIDED, RESPLIT = range(8)
"""In `fill`: items of this level and of the next, which of the two queues is this level's and how far it is done, items
that wait; nodes visited, nodes voided, nodes whose best split is another."""
FILL = 8
GONE, COME = np.int64(-1), np.int64(1)
LATER, SOON = 5, 2
"""How many items ahead lines are asked for, and counts (by `recount`). Points are asked for a level ahead."""


@inner
def has_room(spec: Spec, w: Working, n: int, changed: int) -> bool:
    """Whether one visit to a node of `n` samples that changes `changed` of them fits into every array."""
    top = w.top
    return bool(
        (top[FREE_NODE] >= 0 or top[TOP_NODE] < w.nodes.size)
        and (top[FREE_BUCKET] >= 0 or top[TOP_BUCKET] < w.buckets.size)
        and top[TOP_LEAF] + 4 + 2 * spec.columns <= w.leaves.size
        and top[TOP_LIST] + n + 2 * changed <= w.lists.size
        and top[CLEARS] < w.cleared.size
        and top[EDITS] + changed <= w.edits.size
    )


@inner
def count_left(ops: Ops, a: int, b: int, sign: int, feature: int, cut: float) -> int:
    """How many of ops a..b with this sign go left."""
    left = 0
    for i in range(a, b):
        o = ops.order[i]
        left += ops.sign[o] == sign and ops.X[o, feature] <= cut
    return left


@inner
def part_ops(ops: Ops, a: int, b: int, feature: int, old_cut: float, new_cut: float) -> int:
    """Partition ops a..b, removed ones by the old threshold and added ones by the new.

    Returns where the right side begins.
    """
    left, right = a, b
    while left < right:
        o = ops.order[left]
        cut = new_cut if ops.sign[o] > 0 else old_cut
        if ops.X[o, feature] <= cut:
            left += 1
        else:
            right -= 1
            ops.order[left], ops.order[right] = ops.order[right], o
    return left


@inner
def put_item(items: npt.NDArray[np.void], fill: npt.NDArray[np.int64], count: int, item: Record) -> None:
    """Put a copy of `item` behind those of the next level (THEN), or those that wait (WAITING)."""
    items[fill[count]] = item
    fill[count] += 1


@inlined
def update_split(spec: Spec, w: Working, rows: Rows, ops: Ops, item: Record, row: int, stamp: int, bench: Bench) -> int:
    """Bring a split up to date.

    Returns OVER, or WAIT, or the outcome of a failure; `item.task` says if it must be voided.
    """
    a, b = item.start, item.end
    head, totals, node = w.stats.head[row], w.stats.totals[row], w.nodes[row]
    removed, added = count_signs(ops, a, b)
    n = head.n + added - removed
    if n <= spec.bucket or n < spec.min_split or 2 * (b - a) > head.n:
        item.task = VOID_LEAF if n < spec.min_split else VOID
        scan = False
    else:
        scan = foresee(spec, w, ops, a, b, row, added, bench.foresight)
    nothing = bench.nothing
    below = Below(nothing.slots, nothing.y, nothing.column, nothing.places)
    if scan:
        if not all_below(w, node.point):
            item.need = NEED_LISTS
            return WAIT
        status, below = samples_below(w, rows, ops, a, b, row)
        if status != FINE:
            return MISPLACED if status == LOST else ROTTEN
    node.stamp = stamp
    touch_node(w, row)
    apply_totals(spec, ops, a, b, totals)
    if item.task != VISIT:
        return OVER
    head.n = n
    if spec.classes == 0:
        recount_target(spec, w, row, below, bench.foresight)
    if pure(spec.classes, totals, n):
        item.task = VOID_LEAF
        return OVER
    recount(spec, w, rows, ops, a, b, row, below, bench)
    if head.m == 0:
        item.task = VOID_LEAF
    return OVER


@inlined
def visit_split(
    spec: Spec,
    w: Working,
    rows: Rows,
    ops: Ops,
    item: Record,
    stamp: int,
    bench: Bench,
    then: npt.NDArray[np.void],
    fill: npt.NDArray[np.int64],
) -> int:
    """Visit a split and put its children, or the order to void it, on the next level."""
    point = w.points[item.point]
    row = np.int64(point.owner)
    status = update_split(spec, w, rows, ops, item, row, stamp, bench)
    if status != OVER:
        return status
    if item.task != VISIT:
        put_item(then, fill, THEN, item)
        return OVER
    a, b = item.start, item.end
    head, stats = w.stats.head[row], w.stats
    best, cut, n_left = choose_again(spec, stats, row, bench.scratch)
    feature, new_cut = stats.cand[row, best].feature, stats.cuts[row, best, cut]
    old_left = head.n_left - count_left(ops, a, b, GONE, np.int64(point.feature), point.cut)
    new_left = n_left - count_left(ops, a, b, COME, feature, new_cut)
    if feature != point.feature or new_cut != point.cut:
        fill[RESPLIT] += 1
    if feature != point.feature or (new_cut != point.cut and old_left != new_left):
        item.task = VOID
        put_item(then, fill, THEN, item)
        return OVER
    head.best, head.cut, head.n_left = best, cut, n_left
    middle = part_ops(ops, a, b, feature, point.cut, new_cut)
    point.cut = new_cut
    push_child(w, item, LEFT, a, middle, then, fill)
    push_child(w, item, RIGHT, middle, b, then, fill)
    return OVER


@inner
def push_child(
    w: Working,
    parent: Record,
    right: int,
    start: int,
    end: int,
    then: npt.NDArray[np.void],
    fill: npt.NDArray[np.int64],
) -> None:
    """Put one child on the next level if any sample of it changes."""
    if start == end:
        return
    item = then[fill[THEN]]
    item.path = parent.path * np.uint64(2) + np.uint64(right)
    item.start, item.end = start, end
    item.point = w.points[parent.point].child + right
    item.tree, item.task, item.need = parent.tree, VISIT, 0
    fill[THEN] += 1
    bring_row(w.points, item.point)


@inner
def tell_parent(w: Working, ops: Ops, item: Record, parent: int, stamp: int) -> None:
    """Note in the parent, or in `roots`, that a child changed."""
    removed, added = count_signs(ops, item.start, item.end)
    if parent < 0:
        w.roots[item.tree].stamp = stamp
        w.roots[item.tree].n += added - removed
    elif item.path & np.uint64(1):
        w.nodes[parent].right_stamp = stamp
        w.nodes[parent].right_n += added - removed
    else:
        w.nodes[parent].left_stamp = stamp
        w.nodes[parent].left_n += added - removed


@inlined
def do_item(
    spec: Spec,
    w: Working,
    rows: Rows,
    ops: Ops,
    item: Record,
    stamp: int,
    bench: Bench,
    then: npt.NDArray[np.void],
    fill: npt.NDArray[np.int64],
) -> int:
    """Do what one item asks for, as a whole or not at all."""
    point = w.points[item.point]
    if point.feature == MISSING:
        item.need = NEED_RECORD
        return WAIT
    n = w.stats.head[point.owner].n if point.owner >= 0 else w.buckets[-2 - point.owner].n
    if not has_room(spec, w, n, item.end - item.start):
        return NO_ROOM
    if item.task != VISIT:
        if not all_below(w, item.point):
            item.need = NEED_LISTS
            return WAIT
        fill[VOIDED] += 1
        return (
            MISPLACED
            if void(spec, w, ops, np.int64(point.owner), item.start, item.end, item.task == VOID_LEAF) < 0
            else OVER
        )
    if point.owner < 0:
        parent = w.buckets[-2 - point.owner].parent
        status = visit_bucket(spec, w, rows, ops, item, stamp, bench)
    else:
        parent = w.nodes[point.owner].parent
        if w.nodes[point.owner].kind == SPLIT:
            status = visit_split(spec, w, rows, ops, item, stamp, bench, then, fill)
        else:
            status = visit_list(spec, w, rows, ops, item, stamp, bench)
    if status == OVER:
        fill[VISITED] += 1
        tell_parent(w, ops, item, parent, stamp)
    return status


@inner
def bring_line(w: Working, item: Record) -> None:
    """Ask for what an item will need, but for its counts."""
    owner = np.int64(w.points[item.point].owner)
    if owner >= 0:
        bring_node(w, owner)
    elif owner < NOBODY:
        bring_row(w.buckets, -2 - owner)
        bring_row(w.slots, -2 - owner)


@inner
def look_ahead(
    w: Working, now: npt.NDArray[np.void], then: npt.NDArray[np.void], fill: npt.NDArray[np.int64], bench: Bench
) -> None:
    """Ask for what items further on will need, on this level or on the next, and note whose counts come soon."""
    at, bench.soon[0] = fill[AT] + LATER, NOBODY
    if at < fill[NOW]:
        bring_line(w, now[at])
    elif at - fill[NOW] < fill[THEN]:
        bring_line(w, then[at - fill[NOW]])
    at = fill[AT] + SOON
    if at < fill[NOW]:
        bench.soon[0] = w.points[now[at].point].owner
    elif at - fill[NOW] < fill[THEN]:
        bench.soon[0] = w.points[then[at - fill[NOW]].point].owner


@kernel
def change(
    spec_address: Address[Spec],
    w_address: Address[Working],
    bench_address: Address[Bench],
    rows: Rows,
    ops: Ops,
    stamp: int,
    queues: tuple[npt.NDArray[np.void], npt.NDArray[np.void]],
    waiting: npt.NDArray[np.void],
    fill: npt.NDArray[np.int64],
) -> int:
    """Work off the two `queues` in turns.

    Items that need something end in `waiting`. On NO_ROOM, MISPLACED or ROTTEN the item in hand is
    `queues[fill[TURN]][fill[AT]]`.
    """
    spec, w, bench = spec_at(spec_address), working_at(w_address), bench_at(bench_address)
    rows, ops = refer(rows), refer(ops)
    while fill[NOW] > 0:
        now, then = queues
        if fill[TURN]:
            then, now = queues
        while fill[AT] < fill[NOW]:
            look_ahead(w, now, then, fill, bench)
            item = now[fill[AT]]
            status = do_item(spec, w, rows, ops, item, stamp, bench, then, fill)
            if status == WAIT:
                put_item(waiting, fill, WAITING, item)
            elif status != OVER:
                return status
            fill[AT] += 1
        fill[NOW], fill[THEN], fill[AT], fill[TURN] = fill[THEN], 0, 0, 1 - fill[TURN]
    return WAIT if fill[WAITING] > 0 else OVER


@kernel
def start_items(
    spec_address: Address[Spec],
    ids: npt.NDArray[np.uint64],
    order: npt.NDArray[np.int32],
    now: npt.NDArray[np.void],
    fill: npt.NDArray[np.int64],
) -> None:
    """Sort the samples `ids` into their trees (`Ops.order`), and begin with the root of every tree that changes."""
    spec = spec_at(spec_address)
    starts = np.empty(spec.trees + 1, np.int64)
    spread(spec.occupancy_key, ids, spec.occupancy, starts, order)
    for t in range(starts.size - 1):
        if starts[t] == starts[t + 1]:
            continue
        item = now[fill[NOW]]
        item.path, item.start, item.end = np.uint64(1), starts[t], starts[t + 1]
        item.point, item.tree, item.task, item.need = t, t, VISIT, 0
        fill[NOW] += 1
