"""Follow the store from commit to commit, and stay within a budget of memory.

A commit changes the records on the paths of its samples and nothing else; stamps say which. `renew` takes the new
record of a split that is in memory: if it still splits in the same way, the line is brought up to date in place, and of
its children only those with another stamp are looked at next. Everything below an unchanged stamp stays, and so does
what was grown there privately.

    commit 7 changed *      renew: root* -> left* (same split) -> its bucket* is dropped
    root*                          right: stamp unchanged, kept as it is
    |-left*
    | |-bucket*
    | `-bucket
    `-right ...

What was dropped is noted, so that the caller can bring it anew at once: left to the queries that need it, it would cost
each of them a round. So are tags, in memory still, that somebody has grown and written: no stamp tells of that, but the
store counts how often it happens, and its roots say which trees have tags.

Memory only grows until `compact` copies what was used lately into new arrays and leaves the rest, and all gaps, behind.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.commit import drop_point
from dynfrsdb_engine.grow import depth_of
from dynfrsdb_engine.install import GOOD, WRONG_SIZE, WRONG_STAMP, expected
from dynfrsdb_engine.kernel import Record, inner, kernel, maker
from dynfrsdb_engine.records import (
    AT_LEFT_STAMP,
    AT_RIGHT_STAMP,
    AT_STAMP,
    LEFT_TAGS,
    RIGHT_TAGS,
    SPLIT,
    TAG,
    unpack_split,
)
from dynfrsdb_engine.recount import copy_candidate
from dynfrsdb_engine.reference import Address
from dynfrsdb_engine.scan import note_found
from dynfrsdb_engine.slots import copy
from dynfrsdb_engine.spec import Spec, spec_at
from dynfrsdb_engine.unaligned import get16, get32, get64, get_float
from dynfrsdb_engine.working import (
    MISSING,
    TAGGED,
    TOP_BUCKET,
    TOP_LEAF,
    TOP_LIST,
    TOP_NODE,
    Working,
    locate,
    new_bucket,
    new_node,
    new_pair,
    working_at,
)

ZERO = np.int64(0)
FOUND_SPLIT, FOUND_GONE = np.int64(3), np.int64(4)
Bytes = npt.NDArray[np.uint8]


@inner
def same_split(w: Working, record: Record, data: Bytes, at: int) -> bool:
    """Whether a point in memory splits as the new record does."""
    point = w.points[at]
    if record.bucket or point.owner < 0 or point.feature < 0 or data[record.at] != SPLIT:
        return False
    return bool(point.feature == get16(data, record.at + 40) and point.cut == get_float(data, record.at + 36))


@inner
def renew_split(spec: Spec, w: Working, record: Record, data: Bytes, at: int) -> tuple[bool, bool]:
    """Bring a split in memory up to date with its new record; returns whether the left and the right child changed."""
    offset, row = record.at, np.int64(w.points[at].owner)
    node = w.nodes[row]
    left, right = get64(data, offset + AT_LEFT_STAMP), get64(data, offset + AT_RIGHT_STAMP)
    changed = (node.left_stamp != left, node.right_stamp != right)
    node.stamp, node.left_stamp, node.right_stamp = get64(data, offset + AT_STAMP), left, right
    node.tags = data[offset + 1] & (LEFT_TAGS | RIGHT_TAGS)
    n = get32(data, offset + 4)
    w.stats.head[row].n = n
    node.left_n = get32(data, offset + 32)
    node.right_n = n - node.left_n
    if w.stats.cand.shape[1] > 0:
        unpack_split(spec, record.tree, record.path, data, offset, w.stats, row)
    return changed


@kernel
def renew(
    spec_address: Address[Spec],
    w_address: Address[Working],
    records: npt.NDArray[np.void],
    data: Bytes,
    found: npt.NDArray[np.void],
) -> tuple[int, int, int]:
    """Bring points up to date with new records, or drop them; notes in `found` children to look at next, and what was
    dropped.

    Returns (what became of the last record looked at, its index, how many were noted).
    """
    spec, w = spec_at(spec_address), working_at(w_address)
    count = ZERO
    for i in range(records.size):
        record = records[i]
        at, parent = locate(w, record.tree, record.path, depth_of(record.path))
        if at < 0 or w.points[at].feature == MISSING:
            continue
        stamp, n = expected(w, record.tree, record.path, parent)
        if not same_split(w, record, data, at):
            drop_point(w, at)
            count = note_found(found, count, record.tree, record.path, at, n, FOUND_GONE)
            continue
        if get64(data, record.at + AT_STAMP) != stamp:
            return WRONG_STAMP, i, count
        if get32(data, record.at + 4) != n:
            return WRONG_SIZE, i, count
        changed = renew_split(spec, w, record, data, at)
        child = np.int64(w.points[at].child)
        node = w.nodes[w.points[at].owner]
        sizes = (node.left_n, node.right_n)
        for side in range(2):
            if not changed[side] or w.points[child + side].feature == MISSING:
                continue
            point, what = w.points[child + side], FOUND_SPLIT
            if sizes[side] <= spec.bucket or point.owner < 0 or point.feature < 0:
                drop_point(w, child + side)
                what = FOUND_GONE
            path = record.path * np.uint64(2) + np.uint64(side)
            count = note_found(found, count, record.tree, path, child + side, sizes[side], what)
    return GOOD, -1, count


@kernel
def drop_nodes(w_address: Address[Working], trees: npt.NDArray[np.int64], paths: npt.NDArray[np.uint64]) -> None:
    """Let go of these nodes and everything below them."""
    w = working_at(w_address)
    for i in range(trees.size):
        drop_point(w, locate(w, trees[i], paths[i], depth_of(paths[i]))[0])


@kernel
def drop_settled_tags(w_address: Address[Working], found: npt.NDArray[np.void]) -> int:
    """Let go of tags that somebody else has grown, or may have; notes them in `found` and returns how many.

    Those of a tree that has no tag any more are grown on disk. Those whose list is only on disk may be grown, and then
    the list is there no more.
    """
    w = working_at(w_address)
    count = ZERO
    for row in range(w.top[TOP_NODE]):
        node = w.nodes[row]
        if node.kind == TAG and (node.list_at < 0 or not w.roots[node.tree].tags):
            n = w.stats.head[row].n
            drop_point(w, node.point)
            count = note_found(found, count, node.tree, node.path, node.point, n, FOUND_GONE)
    for row in range(w.top[TOP_BUCKET]):
        bucket = w.buckets[row]
        if bucket.kind == TAG and not w.roots[bucket.tree].tags:
            drop_point(w, bucket.point)
            count = note_found(found, count, bucket.tree, bucket.path, bucket.point, bucket.n, FOUND_GONE)
    return count


@kernel
def mark_used(w_address: Address[Working]) -> None:
    """A node was used when something below it was."""
    w = working_at(w_address)
    for row in range(w.top[TOP_BUCKET]):
        if w.buckets[row].kind:
            climb(w, w.buckets[row].parent, w.buckets[row].used)
    for row in range(w.top[TOP_NODE]):
        if w.nodes[row].kind:
            climb(w, w.nodes[row].parent, w.nodes[row].used)


@inner
def climb(w: Working, row: int, used: int) -> None:
    """Tell ancestors when something below them was used."""
    while row >= 0 and w.nodes[row].used < used:
        w.nodes[row].used = used
        row = w.nodes[row].parent


@inner
def copy_leaf(old: Working, new: Working, place: int) -> int:
    """Copy a leaf's counts; returns their new place."""
    at = new.top[TOP_LEAF]
    size = 2 + 2 * old.leaves[place + 1]
    for i in range(size):
        new.leaves[at + i] = old.leaves[place + i]
    new.top[TOP_LEAF] += size
    return at


@maker
def copy_bucket(old: Working, new: Working, at: int, to: int, parent: int) -> None:
    """Copy a bucket, with its small tree, to point `to`."""
    row = -2 - np.int64(old.points[at].owner)
    line = new_bucket(new)
    new.buckets[line] = old.buckets[row]
    new.buckets[line].parent, new.buckets[line].point = parent, to
    copy(old.slots[row], ZERO, old.buckets[row].n, new.slots[line], ZERO)
    stack = np.empty((64, 2), np.int64)
    stack[0, 0], stack[0, 1], height = at, to, 1
    while height > 0:
        height -= 1
        source, target = stack[height]
        new.points[target] = old.points[source]
        new.points[target].owner = -2 - line
        feature, child = old.points[source].feature, np.int64(old.points[source].child)
        if feature >= 0:
            pair = new_pair(new)
            new.points[target].child = pair
            for side in range(2):
                stack[height, 0], stack[height, 1] = child + side, pair + side
                height += 1
        elif feature != TAGGED:
            new.points[target].child = copy_leaf(old, new, child)


@inner
def copy_node(old: Working, new: Working, at: int, to: int, parent: int) -> int:
    """Copy a split, or the head of a long list with its list, to point `to`; returns its line."""
    row = np.int64(old.points[at].owner)
    line = new_node(new)
    new.nodes[line] = old.nodes[row]
    new.points[to] = old.points[at]
    new.stats.head[line] = old.stats.head[row]
    if old.stats.cand.shape[1] > 0:
        for c in range(old.stats.head[row].m if old.nodes[row].kind == SPLIT else 0):
            copy_candidate(old.stats, row, c, new.stats, line, c)
        for c in range(old.stats.totals.shape[1]):
            new.stats.totals[line, c] = old.stats.totals[row, c]
        for c in range(old.stats.head[row].skipped if old.nodes[row].kind == SPLIT else 0):
            new.stats.skip[line, c] = old.stats.skip[row, c]
    node = new.nodes[line]
    node.parent, node.point, new.points[to].owner = parent, to, line
    if node.kind != SPLIT and node.list_at >= 0:
        copy(old.lists, node.list_at, old.stats.head[row].n, new.lists, new.top[TOP_LIST])
        node.list_at = new.top[TOP_LIST]
        new.top[TOP_LIST] += old.stats.head[row].n
    if node.kind != SPLIT and node.kind != TAG:
        new.points[to].child = copy_leaf(old, new, np.int64(old.points[at].child))
    return line


@kernel
def compact(
    spec_address: Address[Spec], old_address: Address[Working], new_address: Address[Working], oldest: int
) -> None:
    """Copy everything that was used since `oldest` into the empty working set `new`, which has room for all of it."""
    spec, old, new = spec_at(spec_address), working_at(old_address), working_at(new_address)
    stack = np.empty((128, 3), np.int64)
    for t in range(spec.trees):
        new.roots[t] = old.roots[t]
        stack[0, 0], stack[0, 1], stack[0, 2], height = t, t, -1, 1
        while height > 0:
            height -= 1
            at, to, parent = stack[height]
            point = old.points[at]
            if point.feature == MISSING:
                continue
            if point.owner < 0:
                if old.buckets[-2 - point.owner].used >= oldest:
                    copy_bucket(old, new, at, to, parent)
                continue
            if old.nodes[point.owner].used < oldest:
                continue
            line = copy_node(old, new, at, to, parent)
            if old.nodes[point.owner].kind == SPLIT:
                pair = new_pair(new)
                new.points[to].child = pair
                for side in range(2):
                    stack[height, 0], stack[height, 1] = np.int64(point.child) + side, pair + side
                    stack[height, 2] = line
                    height += 1


@kernel
def sample_uses(w_address: Address[Working], sample: npt.NDArray[np.int64]) -> int:
    """Fill `sample` with times of use of buckets and long lists, spread over all; returns how many."""
    w = working_at(w_address)
    count = ZERO
    lines = w.top[TOP_BUCKET] + w.top[TOP_NODE]
    stride = max(1, lines // sample.size)
    for at in range(0, lines, stride):
        if count == sample.size:
            break
        if at < w.top[TOP_BUCKET]:
            if w.buckets[at].kind:
                sample[count] = w.buckets[at].used
                count += 1
        elif w.nodes[at - w.top[TOP_BUCKET]].kind > SPLIT:
            sample[count] = w.nodes[at - w.top[TOP_BUCKET]].used
            count += 1
    return count
