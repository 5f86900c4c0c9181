"""The working set: the part of a forest that is in memory.

One process holds one set of flat arrays for all trees, so that one kernel call serves all trees of a request.

    points    16 bytes each: the trees as queries walk them. Roots are points 0 .. T-1; children are adjacent.
                feature >= 0   a split: x <= cut goes to `child`, else to `child + 1`
                LEAF_POINT     a leaf: `child` is its place in `leaves`
                MISSING        not in memory
                TAGGED         void: must be grown before a query can pass
    leaves    per leaf: n, m, then m pairs (column, count); for regression the one pair is (0, sum)
    nodes     one line per record with n > B, with its statistics in the same line of `stats`
    buckets   one line per bucket, its slots in the same line of `slots`
    lists     long lists that are in memory

A point's `owner` is the line in `nodes`, or -2 - the line in `buckets`, which all points of its small tree share.

What a commit has to write is noted as it happens: dirty lines; `cleared`, nodes whose old records and everything below
are to be deleted; `edits`, single slots to take from or put into a long list whose chunks stay where they are.

Growth only ever moves the tops forward; what is dropped leaves a gap until the set is emptied or compacted. `ensure`
makes room before a kernel runs, so kernels never allocate."""

from __future__ import annotations

import math
import mmap
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.kernel import inner, kernel
from dynfrsdb_engine.prefetch import bring_row
from dynfrsdb_engine.records import LEFT_TAGS, RIGHT_TAGS
from dynfrsdb_engine.reference import Address, Layout
from dynfrsdb_engine.search import Stats, make_stats
from dynfrsdb_engine.spec import EXAMPLE, Spec

POINT = np.dtype([("feature", "i4"), ("cut", "f4"), ("child", "i4"), ("owner", "i4")], align=True)
NODE = np.dtype(
    [
        ("path", "u8"),
        ("stamp", "i8"),
        ("left_stamp", "i8"),
        ("right_stamp", "i8"),
        ("left_n", "i8"),
        ("right_n", "i8"),
        ("list_at", "i8"),
        ("used", "i8"),
        ("tree", "i8"),
        ("parent", "i8"),
        ("point", "i8"),
        ("kind", "i1"),
        ("dirty", "i1"),
        ("fresh", "i1"),
        ("tags", "i1"),
    ],
    align=True,
)
"""What a node says of its children (stamps and sizes) is changed only once the child is in memory, so that a record
that is brought from disk in the middle of a change can still be held against it. `list_at` is -1 while a long list is
only on disk; `fresh` means that it is only in memory; `kind` 0 is a free line."""
BUCKET = np.dtype(
    [
        ("path", "u8"),
        ("stamp", "i8"),
        ("tree", "i8"),
        ("parent", "i8"),
        ("point", "i8"),
        ("n", "i8"),
        ("used", "i8"),
        ("was", "i4"),
        ("children", "i4"),
        ("kind", "i1"),
        ("dirty", "i1"),
    ],
    align=True,
)
"""A bucket that the open transaction has tagged, and that has lost samples only, has its small tree still in memory:
`was` is the feature of its root and `children` are that one's. (Who meets a tag may note something in its point.)
`was` is NOTHING otherwise."""
ROOT = np.dtype([("stamp", "i8"), ("n", "i8"), ("tags", "i1")], align=True)
CLEARED = np.dtype([("path", "u8"), ("tree", "i8")], align=True)
EDIT = np.dtype([("path", "u8"), ("tree", "i8"), ("row", "i8"), ("slot", "u4"), ("sign", "i4")], align=True)

LEAF_POINT, MISSING, TAGGED = -1, -2, -3
NOBODY = NOTHING = -1
TOP_POINT, TOP_LEAF, TOP_LIST, TOP_NODE, TOP_BUCKET, FREE_NODE, FREE_BUCKET = 0, 1, 2, 3, 4, 5, 6
CLEARS, EDITS, DIRTY_NODES, DIRTY_BUCKETS, TAGS, CLOCK, TAGGINGS = 7, 8, 9, 10, 11, 12, 13
TOPS = 14
LARGE, SPARE = 1 << 18, 1 << 30
"""Bytes from which on an array is memory of its own, and that it may have for later."""


class Working(NamedTuple):
    """The arrays; see the module's text."""

    points: npt.NDArray[np.void]
    leaves: npt.NDArray[np.int64]
    lists: npt.NDArray[np.uint32]
    nodes: npt.NDArray[np.void]
    stats: Stats
    buckets: npt.NDArray[np.void]
    slots: npt.NDArray[np.uint32]
    roots: npt.NDArray[np.void]
    cleared: npt.NDArray[np.void]
    edits: npt.NDArray[np.void]
    dirty_nodes: npt.NDArray[np.int32]
    dirty_buckets: npt.NDArray[np.int32]
    top: npt.NDArray[np.int64]


def make_working(spec: Spec, keep_stats: bool) -> Working:
    """An empty working set. Without `keep_stats` it can answer queries but not be changed."""
    top = np.zeros(TOPS, np.int64)
    top[TOP_POINT] = spec.trees
    top[FREE_NODE] = top[FREE_BUCKET] = -1
    points = np.zeros(spec.trees + 64, POINT)
    points["feature"] = MISSING
    points["owner"] = NOBODY
    stats = make_stats(spec if keep_stats else spec._replace(candidates=0, totals=0, features=0), 4)
    return Working(
        points=points,
        leaves=np.zeros(256, np.int64),
        lists=np.zeros(256, np.uint32),
        nodes=np.zeros(4, NODE),
        stats=stats,
        buckets=np.zeros(4, BUCKET),
        slots=np.zeros((4, spec.bucket), np.uint32),
        roots=np.zeros(spec.trees, ROOT),
        cleared=np.zeros(16, CLEARED),
        edits=np.zeros(64, EDIT),
        dirty_nodes=np.zeros(4, np.int32),
        dirty_buckets=np.zeros(4, np.int32),
        top=top,
    )


WORKING = Layout(make_working(EXAMPLE, keep_stats=True))
working_at = WORKING.reader()


def _room(array: npt.NDArray[np.void], used: int, more: int, in_turn: bool = False) -> npt.NDArray[np.void]:
    """The array itself, or a copy of its `used` lines with room for so many more, and for one to three times all that,
    three where it is no more than `SPARE` bytes. What is not used yet takes no memory, only addresses, while a copy is
    a pause and takes the memory twice.

    Lines that are visited all over lie in large pages, which processors find sooner. An array that is filled `in_turn`
    does not: a large page may take the system 5 ms to find, and there would be one every now and then.
    """
    size = used + more
    if size <= array.shape[0]:
        return array
    spare = max(size, min(3 * size, SPARE // max(1, array[:1].nbytes)))
    wider = _zeros((size + spare, *array.shape[1:]), array.dtype, not in_turn)
    wider[:used] = array[:used]
    return wider


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any], large_pages: bool) -> npt.NDArray[np.void]:
    """Zeros. Large arrays take no memory where they were never touched, and give all of it back when they are dropped;
    in the interpreter's heap they would leave holes, because each is followed by a larger one."""
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE:
        return np.zeros(shape, dtype)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE if large_pages else mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype).reshape(shape)


def ensure(
    w: Working,
    *,
    points: int = 0,
    leaves: int = 0,
    lists: int = 0,
    nodes: int = 0,
    buckets: int = 0,
    cleared: int = 0,
    edits: int = 0,
) -> Working:
    """The same working set with room for that many more of each; itself, if there is room."""
    top = w.top.tolist()
    if (
        top[TOP_POINT] + points <= len(w.points)
        and top[TOP_LEAF] + leaves <= len(w.leaves)
        and top[TOP_LIST] + lists <= len(w.lists)
        and top[TOP_NODE] + nodes <= len(w.nodes)
        and top[TOP_BUCKET] + buckets <= len(w.buckets)
        and top[CLEARS] + cleared <= len(w.cleared)
        and top[EDITS] + edits <= len(w.edits)
    ):
        return w
    return Working(
        points=_room(w.points, top[TOP_POINT], points),
        leaves=_room(w.leaves, top[TOP_LEAF], leaves),
        lists=_room(w.lists, top[TOP_LIST], lists, in_turn=True),
        nodes=_room(w.nodes, top[TOP_NODE], nodes),
        stats=Stats(*(_room(array, top[TOP_NODE], nodes) for array in w.stats)),
        buckets=_room(w.buckets, top[TOP_BUCKET], buckets),
        slots=_room(w.slots, top[TOP_BUCKET], buckets),
        roots=w.roots,
        cleared=_room(w.cleared, top[CLEARS], cleared),
        edits=_room(w.edits, top[EDITS], edits),
        dirty_nodes=_room(w.dirty_nodes, top[TOP_NODE], nodes),
        dirty_buckets=_room(w.dirty_buckets, top[TOP_BUCKET], buckets),
        top=w.top,
    )


def used_bytes(w: Working) -> int:
    """How much memory the working set takes, gaps included, room for more not."""
    top = w.top
    lines = int(top[TOP_NODE]) * sum([array.strides[0] for array in (w.nodes, *w.stats)])
    lines += int(top[TOP_BUCKET]) * (w.buckets.strides[0] + w.slots.strides[0])
    return lines + 16 * int(top[TOP_POINT]) + 8 * int(top[TOP_LEAF]) + 4 * int(top[TOP_LIST])


@inner
def bring_node(w: Working, row: int) -> None:
    """Ask for a line in `nodes` and for its statistics, but for counts, thresholds and constants."""
    bring_row(w.nodes, row)
    bring_row(w.stats.head, row)
    bring_row(w.stats.totals, row)
    bring_row(w.stats.cand, row)


@inner
def new_node(w: Working) -> int:
    """A free line in `nodes`. It stays dirty if it was: a line is noted at most once between two commits."""
    row = w.top[FREE_NODE]
    if row >= 0:
        w.top[FREE_NODE] = w.nodes[row].parent
    else:
        row = w.top[TOP_NODE]
        w.top[TOP_NODE] += 1
    w.nodes[row].fresh = 0
    w.nodes[row].tags = 0
    w.nodes[row].list_at = -1
    w.nodes[row].used = w.top[CLOCK]
    return row


@inner
def new_bucket(w: Working) -> int:
    """A free line in `buckets`."""
    row = w.top[FREE_BUCKET]
    if row >= 0:
        w.top[FREE_BUCKET] = w.buckets[row].parent
    else:
        row = w.top[TOP_BUCKET]
        w.top[TOP_BUCKET] += 1
    w.buckets[row].used = w.top[CLOCK]
    w.buckets[row].was = NOTHING
    return row


@inner
def free_node(w: Working, row: int) -> None:
    """Give a line in `nodes` back."""
    w.nodes[row].kind = 0
    w.nodes[row].parent = w.top[FREE_NODE]
    w.top[FREE_NODE] = row


@inner
def free_bucket(w: Working, row: int) -> None:
    """Give a line in `buckets` back."""
    w.buckets[row].kind = 0
    w.buckets[row].parent = w.top[FREE_BUCKET]
    w.top[FREE_BUCKET] = row


@inner
def new_pair(w: Working) -> int:
    """Two adjacent points, both missing."""
    at = w.top[TOP_POINT]
    w.top[TOP_POINT] += 2
    for i in range(2):
        w.points[at + i].feature = MISSING
        w.points[at + i].owner = NOBODY
    return at


@inner
def touch_node(w: Working, row: int) -> None:
    """Note that a node must be written."""
    w.nodes[row].used = w.top[CLOCK]
    if not w.nodes[row].dirty:
        w.nodes[row].dirty = 1
        w.dirty_nodes[w.top[DIRTY_NODES]] = row
        w.top[DIRTY_NODES] += 1


@inner
def touch_bucket(w: Working, row: int) -> None:
    """Note that a bucket must be written."""
    w.buckets[row].used = w.top[CLOCK]
    if not w.buckets[row].dirty:
        w.buckets[row].dirty = 1
        w.dirty_buckets[w.top[DIRTY_BUCKETS]] = row
        w.top[DIRTY_BUCKETS] += 1


@inner
def clear_records(w: Working, tree: int, path: np.uint64) -> None:
    """Note that the old records of a node and of everything below it must be deleted."""
    note = w.cleared[w.top[CLEARS]]
    note.tree, note.path = tree, path
    w.top[CLEARS] += 1


@inner
def raise_tags(w: Working, tree: int, path: np.uint64, parent: int) -> None:
    """Tell all ancestors of a node that there is a tag at it or below it."""
    while parent >= 0:
        side = RIGHT_TAGS if path & np.uint64(1) else LEFT_TAGS
        if w.nodes[parent].tags & side:
            return
        w.nodes[parent].tags |= side
        touch_node(w, parent)
        path >>= np.uint64(1)
        parent = w.nodes[parent].parent
    w.roots[tree].tags = 1


@inner
def lower_tags(w: Working, tree: int, path: np.uint64, parent: int) -> None:
    """Tell the ancestors of a node that there is no tag at it or below it any more."""
    while parent >= 0:
        side = RIGHT_TAGS if path & np.uint64(1) else LEFT_TAGS
        w.nodes[parent].tags &= ~side
        touch_node(w, parent)
        if w.nodes[parent].tags:
            return
        path >>= np.uint64(1)
        parent = w.nodes[parent].parent
    w.roots[tree].tags = 0


@inner
def locate(w: Working, tree: int, path: np.uint64, depth: int) -> tuple[int, int]:
    """The point of a node and its parent's line in `nodes`; (-1, -1) if an ancestor is not a split in memory."""
    at, parent = tree, -1
    for level in range(depth - 1, -1, -1):
        point = w.points[at]
        if point.feature < 0 or point.owner < 0:
            return -1, -1
        parent = np.int64(point.owner)
        at = np.int64(point.child) + np.int64((path >> np.uint64(level)) & np.uint64(1))
    return at, parent


@kernel
def point_of(w_address: Address[Working], tree: int, path: np.uint64, depth: int) -> int:
    """The point of a node; -1 if an ancestor is not a split in memory."""
    return locate(working_at(w_address), tree, path, depth)[0]
