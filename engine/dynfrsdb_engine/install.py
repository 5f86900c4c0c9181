"""Bring records into the working set, whether they come from disk or were just grown.

A record finds its place by walking its path from the root, so parents come first. What a parent says of its child (size
and stamp) must be what the child says of itself: a record that lies is corrupt, even with a valid checksum.

A large tag may be grown *aside*, while others ask and change the forest. Then what was grown is a function of samples
that may not be there any more, and only what fits is brought in:

    set aside        meanwhile                     brought in
    tag 1            a query grew 1 and 3,         nothing for 1 and 3, which are there;
                     a change came by 3            2, whose samples are the same: its stamp says so;
                                                   of 6 and 7, which 3 left as tags, the one without a new stamp"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.grow import depth_of
from dynfrsdb_engine.kernel import Record, inlined, inner, kernel, maker
from dynfrsdb_engine.records import (
    AT_LEFT_STAMP,
    AT_RIGHT_STAMP,
    AT_STAMP,
    BUCKET_HEADER,
    BUCKET_STAMP,
    LEAF,
    LEAF_MARK,
    LEFT_TAGS,
    LIST_HEADER,
    RIGHT_TAGS,
    SPLIT,
    TAG,
    unpack_split,
)
from dynfrsdb_engine.reference import Address
from dynfrsdb_engine.spec import Spec, spec_at
from dynfrsdb_engine.unaligned import get16, get32, get64, get_float
from dynfrsdb_engine.working import (
    LEAF_POINT,
    MISSING,
    TAGGED,
    TAGS,
    TOP_LEAF,
    TOP_LIST,
    Working,
    clear_records,
    ensure,
    free_bucket,
    free_node,
    locate,
    lower_tags,
    new_bucket,
    new_node,
    new_pair,
    raise_tags,
    touch_bucket,
    touch_node,
    working_at,
)

SMALL, LARGE = np.int64(2), np.int64(4)
STORED, GROWN, GROWN_ASIDE = 0, 1, 2
"""Where records come from: a store, or growing."""
GOOD, WRONG_STAMP, WRONG_SIZE = 0, 1, 2
"""What became of the records: all well, or one is not what its parent says."""
Bytes = npt.NDArray[np.uint8]


@inner
def expected(w: Working, tree: int, path: np.uint64, parent: int) -> tuple[int, int]:
    """The stamp and size that a node must have, as its parent says."""
    if parent < 0:
        return w.roots[tree].stamp, w.roots[tree].n
    node = w.nodes[parent]
    return (node.right_stamp, node.right_n) if path & np.uint64(1) else (node.left_stamp, node.left_n)


@inner
def read_leaf(spec: Spec, w: Working, data: Bytes, at: int, n: int, m: int, width: int) -> tuple[int, int]:
    """Read a leaf's `m` counts, each of `width` bytes, into `leaves`.

    Returns (its place there, the offset behind it).
    """
    place = w.top[TOP_LEAF]
    leaf = w.leaves[place:]
    leaf[0] = n
    if spec.classes == 0:
        leaf[1], leaf[2], leaf[3] = 1, 0, get64(data, at)
        w.top[TOP_LEAF] += 4
        return place, at + 8
    leaf[1] = m
    for i in range(m):
        leaf[2 + 2 * i] = get16(data, at)
        leaf[3 + 2 * i] = get16(data, at + 2) if width == SMALL else get32(data, at + 2)
        at += 2 + width
    w.top[TOP_LEAF] += 2 + 2 * m
    return place, at


@inner
def read_small_leaf(spec: Spec, w: Working, data: Bytes, at: int) -> tuple[int, int]:
    """Read a leaf inside a bucket, behind its mark; returns (its place, the offset behind it)."""
    n = get16(data, at)
    if spec.classes == 0:
        return read_leaf(spec, w, data, at + 2, n, n, SMALL)
    return read_leaf(spec, w, data, at + 4, n, get16(data, at + 2), SMALL)


@maker
def read_small_tree(spec: Spec, w: Working, data: Bytes, at: int, root: int, owner: int) -> None:
    """Read a bucket's tree, in pre-order, below point `root`."""
    stack = np.empty(64, np.int32)
    stack[0], height = root, 1
    while height > 0:
        height -= 1
        here = stack[height]
        point = w.points[here]
        point.owner = owner
        feature = get16(data, at)
        if feature == LEAF_MARK:
            place, at = read_small_leaf(spec, w, data, at + 2)
            point.feature, point.child = LEAF_POINT, place
            continue
        pair = new_pair(w)
        point.feature, point.cut, point.child = feature, get_float(data, at + 2), pair
        at += 6
        stack[height], stack[height + 1] = pair + 1, pair
        height += 2


@inlined
def install_bucket(spec: Spec, w: Working, record: Record, data: Bytes, at: int, parent: int) -> int:
    """Bring a bucket to point `at`; returns its line."""
    offset = record.at
    row = new_bucket(w)
    bucket = w.buckets[row]
    bucket.path, bucket.tree, bucket.parent, bucket.point = record.path, record.tree, parent, at
    bucket.n, bucket.stamp = get16(data, offset + 2), get64(data, offset + BUCKET_STAMP)
    bucket.kind = data[offset]
    for i in range(bucket.n):
        w.slots[row, i] = get32(data, offset + BUCKET_HEADER + 4 * i)
    if bucket.kind == TAG:
        w.points[at].feature, w.points[at].owner = TAGGED, -2 - row
    else:
        read_small_tree(spec, w, data, offset + BUCKET_HEADER + 4 * bucket.n, at, -2 - row)
    return row


@inlined
def install_node(spec: Spec, w: Working, record: Record, data: Bytes, at: int, parent: int) -> int:
    """Bring a split, or the head of a long list, to point `at`; returns its line."""
    offset = record.at
    row = new_node(w)
    node, point = w.nodes[row], w.points[at]
    node.path, node.tree, node.parent, node.point = record.path, record.tree, parent, at
    node.kind, node.stamp = data[offset], get64(data, offset + AT_STAMP)
    n = get32(data, offset + 4)
    w.stats.head[row].n = n
    keep_stats = w.stats.cand.shape[1] > 0
    point.owner = row
    if node.kind == SPLIT:
        node.left_stamp, node.right_stamp = get64(data, offset + AT_LEFT_STAMP), get64(data, offset + AT_RIGHT_STAMP)
        node.tags = data[offset + 1] & (LEFT_TAGS | RIGHT_TAGS)
        node.left_n = get32(data, offset + 32)
        node.right_n = n - node.left_n
        if keep_stats:
            unpack_split(spec, record.tree, record.path, data, offset, w.stats, row)
        point.child = new_pair(w)
        point.cut = get_float(data, offset + 36)
        point.feature = get16(data, offset + 40)
    elif node.kind == LEAF:
        place, _ = read_leaf(spec, w, data, offset + LIST_HEADER, n, get16(data, offset + 2), LARGE)
        point.feature, point.child = LEAF_POINT, place
        if keep_stats:
            leaf_totals(spec, w.leaves, place, w.stats.totals[row])
    else:
        point.feature = TAGGED
    return row


@inner
def leaf_totals(spec: Spec, leaves: npt.NDArray[np.int64], place: int, totals: npt.NDArray[np.int64]) -> None:
    """Spread a leaf's counts."""
    for c in range(totals.size):
        totals[c] = 0
    if spec.classes == 0:
        totals[0], totals[1] = leaves[place], leaves[place + 3]
        return
    for i in range(leaves[place + 1]):
        totals[leaves[place + 2 + 2 * i]] = leaves[place + 3 + 2 * i]


@inlined
def release_tag(w: Working, at: int, changed: bool) -> None:
    """Let go of a tag that is about to be replaced by what grew from it."""
    owner = np.int64(w.points[at].owner)
    w.top[TAGS] -= 1
    if owner >= 0:
        node = w.nodes[owner]
        if changed:
            clear_records(w, node.tree, node.path)
        free_node(w, owner)
    else:
        free_bucket(w, -2 - owner)


@inner
def lies_below(record: Record, top: Record) -> bool:
    """Whether a record's node lies below that of another."""
    levels = depth_of(record.path) - depth_of(top.path)
    return bool(record.tree == top.tree and levels > 0 and record.path >> np.uint64(levels) == top.path)


@kernel
def install(
    spec_address: Address[Spec],
    w_address: Address[Working],
    records: npt.NDArray[np.void],
    data: Bytes,
    lists: npt.NDArray[np.uint32],
    origin: int,
    changed: bool,
) -> tuple[int, int]:
    """Bring `records` into the working set; returns (what became of the last one looked at, its index).

    Grown records replace a tag, the others what is missing. One whose place is taken, or lies below a node that the
    open transaction made void, is passed over; so is one that was grown aside and does not fit any more. `changed`
    marks what is brought in as to be written."""
    spec, w = spec_at(spec_address), working_at(w_address)
    top, aside = -1, origin == GROWN_ASIDE
    for i in range(records.size):
        record = records[i]
        at, parent = locate(w, record.tree, record.path, depth_of(record.path))
        if at < 0:
            continue
        here = w.points[at].feature
        tagged = origin != STORED and here == TAGGED
        if here != MISSING and not tagged:
            continue
        if aside and not tagged and (top < 0 or not lies_below(record, records[top])):
            continue  # what is missing there is in the store
        stamp, n = expected(w, record.tree, record.path, parent)
        own = get64(data, record.at + (BUCKET_STAMP if record.bucket else AT_STAMP))
        size = get16(data, record.at + 2) if record.bucket else get32(data, record.at + 4)
        if aside and (own != stamp or size != n):
            continue
        if own != stamp:
            return WRONG_STAMP, i
        if size != n:
            return WRONG_SIZE, i
        if tagged:
            top = i
            release_tag(w, at, changed)
        if record.bucket:
            row = install_bucket(spec, w, record, data, at, parent)
            kind = np.int64(w.buckets[row].kind)
            if changed:
                touch_bucket(w, row)
        else:
            row = install_node(spec, w, record, data, at, parent)
            kind = np.int64(w.nodes[row].kind)
            if record.list_size > 0:
                keep_list(w, row, lists[record.list_at : record.list_at + record.list_size])
                w.nodes[row].fresh = 1
            if changed:
                touch_node(w, row)
        if origin != STORED:
            if kind == TAG:
                w.top[TAGS] += 1
                raise_tags(w, record.tree, record.path, parent)
            elif tagged:
                lower_tags(w, record.tree, record.path, parent)
    return GOOD, -1


@inner
def keep_list(w: Working, row: int, slots: npt.NDArray[np.uint32]) -> None:
    """Put a long list into memory."""
    at = w.top[TOP_LIST]
    for i in range(slots.size):
        w.lists[at + i] = slots[i]
    w.nodes[row].list_at = at
    w.top[TOP_LIST] += slots.size


def make_room(w: Working, records: npt.NDArray[np.void], size: int, lists: int) -> Working:
    """Room for `records` of `size` bytes together with `lists` slots of long lists; bounds, not exact needs."""
    count = len(records)
    return ensure(
        w,
        points=size // 3 + 2 * count,
        leaves=size + 8 * count,
        lists=lists,
        nodes=count,
        buckets=count,
        cleared=count + 1,
    )
