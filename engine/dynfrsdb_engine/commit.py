"""Turn what changed in the working set into records, and make it clean, or drop it.

A commit writes every dirty line as one record. Between two commits a working set is either brought up to date with
what was written (`mark_clean`) or, after a rollback, loses every line that differs from the disk (`drop_dirty`): they
are missing then, and are loaded again when somebody needs them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.collect import free_below
from dynfrsdb_engine.grow import NONE, RECORD, Growth, Sink
from dynfrsdb_engine.kernel import inlined, inner, kernel
from dynfrsdb_engine.prefetch import bring_row
from dynfrsdb_engine.records import (
    LEAF,
    LEAF_MARK,
    SPLIT,
    TAG,
    bucket_room,
    pack_bucket_header,
    pack_leaf,
    pack_list_header,
    pack_split,
    split_room,
)
from dynfrsdb_engine.reference import Address, Held, refer
from dynfrsdb_engine.sealing import BUCKET_KEY, put_key
from dynfrsdb_engine.spec import Spec, spec_at
from dynfrsdb_engine.unaligned import put16, put32, put64, put_float
from dynfrsdb_engine.working import (
    CLEARS,
    DIRTY_BUCKETS,
    DIRTY_NODES,
    EDIT,
    EDITS,
    LEAF_POINT,
    MISSING,
    NOBODY,
    NOTHING,
    Working,
    bring_node,
    working_at,
)

SOON = 5
"""How many records ahead lines are asked for."""


@inner
def pack_point_leaf(spec: Spec, out: npt.NDArray[np.uint8], at: int, leaves: npt.NDArray[np.int64], place: int) -> int:
    """Write a leaf inside a bucket from its counts in `leaves`; returns the offset behind it."""
    at = put16(out, put16(out, at, LEAF_MARK), leaves[place])
    if spec.classes == 0:
        return put64(out, at, leaves[place + 3])
    m = leaves[place + 1]
    at = put16(out, at, m)
    for i in range(m):
        at = put16(out, put16(out, at, leaves[place + 2 + 2 * i]), leaves[place + 3 + 2 * i])
    return at


@inlined
def pack_bucket(spec: Spec, w: Working, row: int, out: npt.NDArray[np.uint8], begin: int) -> int:
    """Write a bucket; returns the offset behind it."""
    bucket = w.buckets[row]
    at = pack_bucket_header(out, begin, np.int64(bucket.kind), bucket.n, bucket.stamp, NONE)
    for i in range(bucket.n):
        at = put32(out, at, np.int64(w.slots[row, i]))
    if bucket.kind == TAG:
        return at
    stack = np.empty(128, np.int32)
    stack[0], height, nodes = bucket.point, 1, NONE
    while height > 0:
        height -= 1
        nodes += 1
        point = w.points[stack[height]]
        if point.feature == LEAF_POINT:
            at = pack_point_leaf(spec, out, at, w.leaves, np.int64(point.child))
        else:
            at = put_float(out, put16(out, at, np.int64(point.feature)), point.cut)
            stack[height], stack[height + 1] = point.child + 1, point.child
            height += 2
    put16(out, begin + 12, nodes)
    return at


@inlined
def pack_node(spec: Spec, w: Working, row: int, out: npt.NDArray[np.uint8], at: int) -> int:
    """Write a split, or the head of a long list; returns the offset behind it."""
    node, n = w.nodes[row], w.stats.head[row].n
    if node.kind == SPLIT:
        stamps = (node.stamp, node.left_stamp, node.right_stamp)
        return pack_split(spec, out, at, w.stats, row, stamps, np.int64(node.tags))
    if node.kind == LEAF:
        return pack_leaf(spec, out, at, n, node.stamp, w.stats.totals[row])
    return pack_list_header(out, at, TAG, NONE, n, node.stamp)


@kernel
def pack_dirty(spec_address: Address[Spec], w_address: Address[Working], sink: Sink) -> None:
    """Write all dirty lines as records; a fresh long list is named by its place in `lists`."""
    spec, w, sink = spec_at(spec_address), working_at(w_address), refer(sink)
    for i in range(w.top[DIRTY_NODES]):
        if i + SOON < w.top[DIRTY_NODES]:
            soon = np.int64(w.dirty_nodes[i + SOON])
            bring_node(w, soon)
            bring_row(w.stats.counts, soon)
            bring_row(w.stats.skip, soon)
        row = np.int64(w.dirty_nodes[i])
        node = w.nodes[row]
        if node.kind == 0:
            continue
        record = sink.records[sink.fill[1]]
        record.path, record.tree, record.bucket, record.at = node.path, node.tree, 0, sink.fill[0]
        record.list_at, record.stamp = node.list_at, node.stamp
        record.list_size = w.stats.head[row].n if node.fresh else 0
        sink.fill[0] = pack_node(spec, w, row, sink.data, sink.fill[0])
        record.size = sink.fill[0] - record.at
        sink.fill[1] += 1
    for i in range(w.top[DIRTY_BUCKETS]):
        if i + SOON < w.top[DIRTY_BUCKETS]:
            bring_row(w.buckets, np.int64(w.dirty_buckets[i + SOON]))
            bring_row(w.slots, np.int64(w.dirty_buckets[i + SOON]))
        row = np.int64(w.dirty_buckets[i])
        bucket = w.buckets[row]
        if bucket.kind == 0:
            continue
        record = sink.records[sink.fill[1]]
        record.path, record.tree, record.bucket, record.at = bucket.path, bucket.tree, 1, sink.fill[0]
        record.list_at, record.list_size, record.stamp = -1, 0, bucket.stamp
        sink.fill[0] = pack_bucket(spec, w, row, sink.data, sink.fill[0])
        record.size = sink.fill[0] - record.at
        sink.fill[1] += 1


def dirty_records(spec: Held[Spec], working: Held[Working]) -> Growth:
    """Every changed record, ready to be written."""
    w = working.value
    nodes, buckets = int(w.top[DIRTY_NODES]), int(w.top[DIRTY_BUCKETS])
    data = np.empty(nodes * split_room(spec.value) + buckets * bucket_room(spec.value.bucket) + 1, np.uint8)
    sink = Sink(data, np.zeros(nodes + buckets, RECORD), np.zeros(3, np.int64))
    pack_dirty(spec.address, working.address, sink)
    return Growth(sink.records[: sink.fill[1]], sink.data[: sink.fill[0]], w.lists)


class Edits(NamedTuple):
    """Slots to take out of, or put into, long lists that stay on disk, and the keys of where they belong: that of a
    chunk which begins with the slot."""

    edits: npt.NDArray[np.void]
    keys: npt.NDArray[np.uint8]


@kernel
def pick_edits(w_address: Address[Working], out: Edits) -> int:
    """Copy those edits whose lists are not written wholly anyway; returns how many."""
    w, out = working_at(w_address), refer(out)
    found = NONE
    for i in range(w.top[EDITS]):
        edit = w.edits[i]
        node = w.nodes[edit.row]
        if node.kind != 0 and node.tree == edit.tree and node.path == edit.path and not node.fresh:
            put_key(out.keys, found, edit.tree, edit.path, np.int64(edit.slot))
            out.edits[found] = edit
            found += 1
    return found


def list_edits(working: Held[Working]) -> Edits:
    """What changes in long lists that stay on disk."""
    most = int(working.value.top[EDITS])
    room = Edits(np.empty(most, EDIT), np.empty((most, BUCKET_KEY), np.uint8))
    found = pick_edits(working.address, room)
    return Edits(room.edits[:found], room.keys[:found])


@inner
def forget_notes(w: Working) -> None:
    """Empty the lists of what to write."""
    for counter in (CLEARS, EDITS, DIRTY_NODES, DIRTY_BUCKETS):
        w.top[counter] = 0


@kernel
def mark_clean(w_address: Address[Working]) -> None:
    """After a commit: memory and disk agree."""
    w = working_at(w_address)
    for i in range(w.top[DIRTY_NODES]):
        row = np.int64(w.dirty_nodes[i])
        w.nodes[row].dirty = 0
        w.nodes[row].fresh = 0
    for i in range(w.top[DIRTY_BUCKETS]):
        bucket = w.buckets[w.dirty_buckets[i]]
        bucket.dirty, bucket.was = 0, NOTHING
    forget_notes(w)


@inner
def drop_point(w: Working, at: int) -> None:
    """Let go of everything at and below a point; it is missing afterwards."""
    free_below(w, at)
    w.points[at].feature = MISSING
    w.points[at].owner = NOBODY


@kernel
def drop_dirty(w_address: Address[Working]) -> None:
    """After a rollback: let go of every line that differs from the disk. `roots` must be read again by the caller."""
    w = working_at(w_address)
    for i in range(w.top[DIRTY_NODES]):
        row = np.int64(w.dirty_nodes[i])
        if w.nodes[row].kind != 0 and w.nodes[row].dirty:
            drop_point(w, w.nodes[row].point)
        w.nodes[row].dirty = 0
    for i in range(w.top[DIRTY_BUCKETS]):
        row = np.int64(w.dirty_buckets[i])
        if w.buckets[row].kind != 0 and w.buckets[row].dirty:
            drop_point(w, w.buckets[row].point)
        w.buckets[row].dirty = 0
    forget_notes(w)
