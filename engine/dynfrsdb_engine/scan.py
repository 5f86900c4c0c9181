"""Find things in the working set: tags to grow, laid out as work; records and lists that are not in memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.grow import depth_of
from dynfrsdb_engine.install import expected
from dynfrsdb_engine.jobs import Work
from dynfrsdb_engine.kernel import inner, kernel, maker
from dynfrsdb_engine.records import LEFT_TAGS, RIGHT_TAGS, TAG
from dynfrsdb_engine.reference import Address, refer
from dynfrsdb_engine.slots import copy
from dynfrsdb_engine.spec import Spec, spec_at
from dynfrsdb_engine.working import (
    DIRTY_BUCKETS,
    DIRTY_NODES,
    MISSING,
    NOTHING,
    TAGGED,
    Working,
    locate,
    working_at,
)

FOUND = np.dtype([("path", "u8"), ("n", "i8"), ("tree", "i8"), ("point", "i8"), ("what", "i8")], align=True)
FOUND_TAG, FOUND_MISSING, FOUND_LIST = np.int64(0), np.int64(1), np.int64(2)
ALL, TAGS_ONLY, ZERO = np.int64(0), np.int64(1), np.int64(0)


@inner
def note_found(
    found: npt.NDArray[np.void], count: int, tree: int, path: np.uint64, point: int, n: int, what: int
) -> int:
    """Enter one finding if there is room; returns the new count."""
    if count < found.size:
        entry = found[count]
        entry.tree, entry.path, entry.point, entry.n, entry.what = tree, path, point, n, what
    return count + 1


@maker
def scan_tree(
    w: Working, tree: int, path: np.uint64, root: int, tags_only: int, found: npt.NDArray[np.void], count: int
) -> int:
    """Walk below point `root`; notes tags, missing records and (unless `tags_only`) long lists that are not in memory.

    With `tags_only` it goes only where a tag is known to be. Returns the number of findings, which may be more than
    fit."""
    stack, paths = np.empty(128, np.int32), np.empty(128, np.uint64)
    stack[0], paths[0], height = root, path, 1
    while height > 0:
        height -= 1
        at, here = np.int64(stack[height]), paths[height]
        point = w.points[at]
        if point.feature == MISSING:
            count = note_found(found, count, tree, here, at, ZERO, FOUND_MISSING)
        elif point.feature == TAGGED and (tags_only or point.owner < 0 or w.nodes[point.owner].list_at >= 0):
            n = w.stats.head[point.owner].n if point.owner >= 0 else w.buckets[-2 - point.owner].n
            count = note_found(found, count, tree, here, at, n, FOUND_TAG)
        elif point.owner >= 0 and point.feature < 0:
            if not tags_only and w.nodes[point.owner].list_at < 0:
                count = note_found(found, count, tree, here, at, w.stats.head[point.owner].n, FOUND_LIST)
        elif point.owner >= 0:
            tags = w.nodes[point.owner].tags
            for right in (1, 0):
                if not tags_only or tags & (RIGHT_TAGS if right else LEFT_TAGS):
                    stack[height], paths[height] = point.child + right, here * np.uint64(2) + np.uint64(right)
                    height += 1
    return count


@kernel
def scan_below(
    w_address: Address[Working],
    trees: npt.NDArray[np.int64],
    paths: npt.NDArray[np.uint64],
    found: npt.NDArray[np.void],
) -> int:
    """Note everything at and below these nodes that is a tag, or not in memory; returns how many there are."""
    w = working_at(w_address)
    count = ZERO
    for i in range(trees.size):
        point, _ = locate(w, trees[i], paths[i], depth_of(paths[i]))
        count = scan_tree(w, trees[i], paths[i], point, ALL, found, count)
    return count


@kernel
def scan_tags(spec_address: Address[Spec], w_address: Address[Working], found: npt.NDArray[np.void]) -> int:
    """Find all tags of the forest, and what is missing on the way to one."""
    spec, w = spec_at(spec_address), working_at(w_address)
    count = ZERO
    for t in range(spec.trees):
        if w.roots[t].tags:
            count = scan_tree(w, t, np.uint64(1), t, TAGS_ONLY, found, count)
    return count


@kernel
def scan_dirty_tags(w_address: Address[Working], stamp: int, limit: int, found: npt.NDArray[np.void]) -> int:
    """Find the tags that the open transaction made or changed, so that they carry its `stamp`, with at most `limit`
    samples. Others are dirty, too, if a query grew what was around them."""
    w = working_at(w_address)
    count = ZERO
    for i in range(w.top[DIRTY_NODES]):
        row = w.dirty_nodes[i]
        node = w.nodes[row]
        if node.kind == TAG and node.stamp == stamp and w.stats.head[row].n <= limit:
            count = note_found(found, count, node.tree, node.path, node.point, w.stats.head[row].n, FOUND_TAG)
    for i in range(w.top[DIRTY_BUCKETS]):
        bucket = w.buckets[w.dirty_buckets[i]]
        if bucket.kind == TAG and bucket.stamp == stamp and bucket.n <= limit:
            count = note_found(found, count, bucket.tree, bucket.path, bucket.point, bucket.n, FOUND_TAG)
    return count


@kernel
def expected_sizes(
    w_address: Address[Working],
    trees: npt.NDArray[np.int64],
    paths: npt.NDArray[np.uint64],
    sizes: npt.NDArray[np.int64],
) -> None:
    """How many samples each missing node must have, as its parent says; -1 if its parent is not in memory."""
    w = working_at(w_address)
    for i in range(trees.size):
        at, parent = locate(w, trees[i], paths[i], depth_of(paths[i]))
        sizes[i] = expected(w, trees[i], paths[i], parent)[1] if at >= 0 else -1


@kernel
def tag_sizes(w_address: Address[Working], points: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> int:
    """How many samples the tags at these points have; returns how many of their lists are not in memory: those have a
    size of less than 0."""
    w, absent = working_at(w_address), ZERO
    for i in range(points.size):
        owner = np.int64(w.points[points[i]].owner)
        sizes[i] = w.stats.head[owner].n if owner >= 0 else w.buckets[-2 - owner].n
        if owner >= 0 and w.nodes[owner].list_at < 0:
            sizes[i] = -sizes[i]
            absent += 1
    return absent


@kernel
def lay_out(
    w_address: Address[Working], points: npt.NDArray[np.int64], asked_to: npt.NDArray[np.int64], work: Work
) -> None:
    """Make the tags at these points work to be done; `asked_to` is where the queries of each end."""
    w, work = working_at(w_address), refer(work)
    at, asked = ZERO, ZERO
    for i in range(points.size):
        item, owner = work.items[points.size - 1 - i], np.int64(w.points[points[i]].owner)
        item.start, item.q_start, item.q_end, item.job = at, asked, asked_to[i], i
        item.old, item.same = NOTHING, 0
        if owner >= 0:
            node, n = w.nodes[owner], w.stats.head[owner].n
            item.path, item.stamp, item.tree = node.path, node.stamp, node.tree
            copy(w.lists, node.list_at, n, work.slots, at)
        else:
            bucket = w.buckets[-2 - owner]
            n = bucket.n
            item.path, item.stamp, item.tree = bucket.path, bucket.stamp, bucket.tree
            if bucket.was != NOTHING:
                item.old, item.was, item.children = bucket.point, bucket.was, bucket.children
            copy(w.slots[-2 - owner], ZERO, n, work.slots, at)
        at += n
        item.end = at
        asked = asked_to[i]
