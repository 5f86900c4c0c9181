"""Grow subtrees from their samples, as records.

A *job* is one node to grow: (tree, path, its samples). Jobs share one block of gathered samples, one line per feature,
and an index that is partitioned as the trees grow. The partition is stable and samples come in the order of their
slots, so every list that comes out is sorted without sorting.

    job (tree 3, path 1, 900 samples)
      -> split record 1      n=900
      -> bucket record 2     n=120, its small tree inside
      -> split record 3      n=780
      ...                    in pre-order, which is the order of keys on disk

Growing everything is one mode. In the other a job carries query rows, and only nodes that a query reaches are grown;
the rest is left tagged with its list. Both give the same nodes, because each is a function of its samples.

For the same reason a bucket that has just lost samples is not searched through as a whole. Where its small tree, as it
was, is still in memory, a node of it that has kept all its samples has kept its split as well:

    was        n=90                       now        n=89    searched: the same split
               |-n=60                                |-n=60  as it was, with all below it
               `-n=30                                `-n=29  searched: another split, and so is all below it

Output goes into a `Sink`. When it is full the kernel returns with its stack intact, the caller makes room and calls
again.

Not done here: putting together what is to be grown, and the memory to grow in (jobs.py)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.kernel import Record, inlined, inner, kernel
from dynfrsdb_engine.local import local_ints
from dynfrsdb_engine.records import (
    SPLIT,
    TAG,
    bucket_room,
    pack_bucket_header,
    pack_leaf,
    pack_list_header,
    pack_small_leaf,
    pack_split,
    split_room,
)
from dynfrsdb_engine.reference import Address, refer
from dynfrsdb_engine.search import Scratch, Stats, count_totals, pure, search
from dynfrsdb_engine.spec import Spec
from dynfrsdb_engine.unaligned import put16, put32, put_float
from dynfrsdb_engine.working import LEAF_POINT, NOTHING, Working, working_at

ITEM = np.dtype(
    [
        ("path", "u8"),
        ("stamp", "i8"),
        ("start", "i8"),
        ("end", "i8"),
        ("q_start", "i8"),
        ("q_end", "i8"),
        ("tree", "i8"),
        ("job", "i8"),
        ("old", "i8"),
        ("was", "i8"),
        ("children", "i8"),
        ("same", "i8"),
    ],
    align=True,
)
"""A node to grow. `old` is its point in the small tree of its bucket as it was, or NOTHING; `was` and `children` are
what that point had as feature and child, and `same` means that the node has the samples that it had then."""
RECORD = np.dtype(
    [
        ("path", "u8"),
        ("at", "i8"),
        ("size", "i8"),
        ("list_at", "i8"),
        ("list_size", "i8"),
        ("tree", "i8"),
        ("bucket", "i8"),
        ("stamp", "i8"),
    ],
    align=True,
)
"""Where a record's bytes are, and its long list if it has one; `bucket` is 1 for the buckets database, 0 for nodes."""
DONE, FULL = 0, 1
IN_NODES, IN_BUCKETS = np.int64(0), np.int64(1)
LEFT, RIGHT, NO_TAGS, NONE, ONLY, IN_HAND, INSIDE = (np.int64(v) for v in (0, 1, 0, 0, 0, 1, 2))
ZERO, ONE = np.uint64(0), np.uint64(1)


class Samples(NamedTuple):
    """Gathered samples: features (one line each) and slots as they came, and an index into them. It is partitioned,
    the targets with it."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    slots: npt.NDArray[np.uint32]
    index: npt.NDArray[np.uint32]


class Sink(NamedTuple):
    """Where records go; `fill` is (bytes used, records used, items on the stack)."""

    data: npt.NDArray[np.uint8]
    records: npt.NDArray[np.void]
    fill: npt.NDArray[np.int64]


class Queries(NamedTuple):
    """Rows that ask for growth, and an index into them that is partitioned along; `all` grows everything."""

    X: npt.NDArray[np.float32]
    index: npt.NDArray[np.int32]
    all: bool


@inner
def depth_of(path: np.uint64) -> int:
    """The root's path is 1 and has depth 0."""
    depth = 0
    while path > np.uint64(1):
        path >>= np.uint64(1)
        depth += 1
    return depth


@inner
def partition(samples: Samples, start: int, end: int, feature: int, cut: float, scratch: Scratch) -> int:
    """Bring the samples that go left to the front, keeping their order; returns where the others begin.

    Each is written to both sides and stays on one: a branch would be mispredicted half of the time.
    """
    column, index, targets = samples.X[feature], samples.index[start:end], samples.y[start:end]
    spare, spare_targets = scratch.spare, scratch.targets
    left, right = ZERO, ZERO
    for j in range(index.size):
        i, y = index[j], targets[j]
        index[left], targets[left] = i, y
        spare[right], spare_targets[right] = i, y
        goes_left = np.uint64(column[i] <= cut)
        left += goes_left
        right += ONE - goes_left
    for j in range(right):
        index[left + np.uint64(j)] = spare[j]
        targets[left + np.uint64(j)] = spare_targets[j]
    return start + np.int64(left)


@inner
def take_out(items: npt.NDArray[np.void], at: int, hand: int) -> Record:
    """Copy an item to the last or last but one line, out of reach of what is pushed next.

    A record is only a pointer.
    """
    items[items.size - hand] = items[at]
    return items[items.size - hand]


@inner
def push(
    items: npt.NDArray[np.void], fill: npt.NDArray[np.int64], parent: Record, right: int, cut: int, q_cut: int
) -> None:
    """Put one child of `parent` on the stack; its samples end (left) or begin (right) at `cut`."""
    item = items[fill[2]]
    item.path = parent.path * np.uint64(2) + np.uint64(right)
    item.stamp, item.tree, item.job = parent.stamp, parent.tree, parent.job
    item.start, item.end = (cut, parent.end) if right else (parent.start, cut)
    item.q_start, item.q_end = (q_cut, parent.q_end) if right else (parent.q_start, q_cut)
    item.old, item.same = NOTHING, 0
    fill[2] += 1


@inner
def size_of(w: Working, root: int) -> int:
    """How many samples a small tree in memory has."""
    stack = local_ints()
    stack[0], height, n = root, 1, NONE
    while height > 0:
        height -= 1
        point = w.points[stack[height]]
        if point.feature == LEAF_POINT:
            n += w.leaves[point.child]
        else:
            stack[height], stack[height + 1] = point.child, point.child + 1
            height += 2
    return n


@inner
def remind(w: Working, items: npt.NDArray[np.void], fill: npt.NDArray[np.int64], parent: Record) -> None:
    """Tell the two children of a node that splits as it did, which are on top of the stack, what they were.

    Samples only ever left: as many as before are the same as before.
    """
    for side in range(2):
        item, old = items[fill[2] - 1 - side], parent.children + side
        item.old, item.was, item.children = old, w.points[old].feature, w.points[old].child
        item.same = parent.same or size_of(w, old) == item.end - item.start


@inner
def is_leaf(spec: Spec, item: Record, depth: int, samples: Samples, stats: Stats, scratch: Scratch) -> bool:
    """Apply the leaf rule; if it is no leaf, the best split is in line 0 of `stats` afterwards."""
    n, index = item.end - item.start, samples.index[item.start : item.end]
    targets = samples.y[item.start : item.end]
    count_totals(spec.classes, targets, stats.totals[0])
    if depth >= spec.max_depth or n < spec.min_split or pure(spec.classes, stats.totals[0], n):
        return True
    node = (item.tree, item.path, depth, item.job)
    return not search(spec, node, samples.X, index, targets, stats, ONLY, scratch)


@inner
def choose(spec: Spec, w: Working, item: Record, samples: Samples, stats: Stats, scratch: Scratch) -> tuple[int, float]:
    """The split (feature, threshold) of a node in a small tree; of a leaf LEAF_POINT, and its counts in `stats`."""
    if item.same:
        if item.was == LEAF_POINT:
            count_totals(spec.classes, samples.y[item.start : item.end], stats.totals[0])
        return item.was, w.points[item.old].cut
    if is_leaf(spec, item, depth_of(item.path), samples, stats, scratch):
        return np.int64(LEAF_POINT), np.float32(0.0)
    head = stats.head[0]
    return stats.cand[0, head.best].feature, stats.cuts[0, head.best, head.cut]


@inner
def note(sink: Sink, item: Record, end: int, bucket: int, listed: int) -> None:
    """Enter the record that was just written up to `end`, with a list of so many samples."""
    record = sink.records[sink.fill[1]]
    record.path, record.tree, record.bucket, record.stamp = item.path, item.tree, bucket, item.stamp
    record.at, record.size = sink.fill[0], end - sink.fill[0]
    record.list_at = item.start
    record.list_size = listed
    sink.fill[0] = end
    sink.fill[1] += 1


@inlined
def grow_bucket(
    spec: Spec,
    w: Working,
    item: Record,
    samples: Samples,
    items: npt.NDArray[np.void],
    sink: Sink,
    stats: Stats,
    scratch: Scratch,
    grown: bool,
) -> None:
    """Write a bucket: its slots and, if `grown`, its small tree in pre-order."""
    out, fill = sink.data, sink.fill
    start, end, stamp = item.start, item.end, item.stamp
    begin = fill[0]
    at = pack_bucket_header(out, begin, SPLIT if grown else TAG, end - start, stamp, NONE) + 4 * (end - start)
    base, nodes = fill[2], NONE
    if grown:
        items[base] = item
        fill[2] += 1
    while fill[2] > base:
        fill[2] -= 1
        here = take_out(items, fill[2], INSIDE)
        nodes += 1
        f, cut = choose(spec, w, here, samples, stats, scratch)
        if f == LEAF_POINT:
            at = pack_small_leaf(spec, out, at, here.end - here.start, stats.totals[0])
            continue
        at = put_float(out, put16(out, at, f), cut)
        middle = partition(samples, here.start, here.end, f, cut, scratch)
        push(items, fill, here, RIGHT, middle, NONE)
        push(items, fill, here, LEFT, middle, NONE)
        if here.old >= 0 and f == here.was and cut == w.points[here.old].cut:
            remind(w, items, fill, here)
    put16(out, begin + 12, nodes)
    for i in range(start, end):
        put32(out, begin + 14 + 4 * (i - start), np.int64(samples.slots[samples.index[i]]))
    note(sink, item, at, IN_BUCKETS, NONE)


@inner
def route(queries: Queries, item: Record, feature: int, cut: float) -> int:
    """Partition the item's queries like its samples; returns where the right side begins."""
    left, right = item.q_start, item.q_end
    while left < right:
        i = queries.index[left]
        if queries.X[i, feature] <= cut:
            left += 1
        else:
            right -= 1
            queries.index[left], queries.index[right] = queries.index[right], i
    return left


@inlined
def grow_node(
    spec: Spec,
    item: Record,
    samples: Samples,
    queries: Queries,
    items: npt.NDArray[np.void],
    sink: Sink,
    stats: Stats,
    scratch: Scratch,
) -> None:
    """Write one record with n > B and put its children on the stack, right one first."""
    n = item.end - item.start
    if not (queries.all or item.q_end > item.q_start):
        note(sink, item, pack_list_header(sink.data, sink.fill[0], TAG, NONE, n, item.stamp), IN_NODES, n)
    elif is_leaf(spec, item, depth_of(item.path), samples, stats, scratch):
        note(sink, item, pack_leaf(spec, sink.data, sink.fill[0], n, item.stamp, stats.totals[0]), IN_NODES, n)
    else:
        head = stats.head[0]
        f, cut = stats.cand[0, head.best].feature, stats.cuts[0, head.best, head.cut]
        stamps = (item.stamp, item.stamp, item.stamp)
        note(sink, item, pack_split(spec, sink.data, sink.fill[0], stats, ONLY, stamps, NO_TAGS), IN_NODES, NONE)
        middle = partition(samples, item.start, item.end, f, cut, scratch)
        q_middle = route(queries, item, f, cut)
        push(items, sink.fill, item, RIGHT, middle, q_middle)
        push(items, sink.fill, item, LEFT, middle, q_middle)


@kernel
def grow(
    spec: Spec,
    w_address: Address[Working],
    samples: Samples,
    queries: Queries,
    items: npt.NDArray[np.void],
    sink: Sink,
    stats: Stats,
    scratch: Scratch,
) -> int:
    """Work off the stack of items; FULL asks for a larger sink and to be called again."""
    spec, samples, queries = refer(spec), refer(samples), refer(queries)
    sink, stats, scratch, w = refer(sink), refer(stats), refer(scratch), working_at(w_address)
    room = max(split_room(spec), bucket_room(spec.bucket))
    while sink.fill[2] > 0:
        if sink.fill[0] + room > sink.data.size or sink.fill[1] == sink.records.size:
            return FULL
        sink.fill[2] -= 1
        item = take_out(items, sink.fill[2], IN_HAND)
        if item.end - item.start <= spec.bucket:
            grown = queries.all or item.q_end > item.q_start
            grow_bucket(spec, w, item, samples, items, sink, stats, scratch, grown)
        else:
            grow_node(spec, item, samples, queries, items, sink, stats, scratch)
    return DONE
