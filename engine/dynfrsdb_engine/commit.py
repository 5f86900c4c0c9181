"""Turn what changed in the working set into records, and make it clean, or drop it.

A commit writes every dirty line as one record. Between two commits a working set is either brought up to date with
what was written (`mark_clean`) or, after a rollback, loses every line that differs from the disk (`drop_dirty`): they
are missing then, and are loaded again when somebody needs them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.collect import free_below
from dynfrsdb_engine.grow import NONE
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
from dynfrsdb_engine.sealing import (
    BUCKET_KEY,
    CHECKSUM,
    FIRST,
    NODE_KEY,
    Sealed,
    close_value,
    first_parts,
    put_key,
    put_slots,
    room_for,
    sealed_size,
)
from dynfrsdb_engine.spec import Spec, spec_at
from dynfrsdb_engine.unaligned import put16, put32, put64, put_float
from dynfrsdb_engine.working import (
    CLEARS,
    DIRTY_BUCKETS,
    DIRTY_NODES,
    EDITS,
    LEAF_POINT,
    MISSING,
    NOBODY,
    NOTHING,
    Working,
    bring_node,
    working_at,
)

LATE = np.int64(2**63 - 1)
SOON = 5
"""How many records ahead lines are asked for."""


class Room(NamedTuple):
    """For each database: how many records, and how many bytes."""

    nodes: npt.NDArray[np.int64]
    buckets: npt.NDArray[np.int64]


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
def measure_dirty(spec_address: Address[Spec], w_address: Address[Working], chunk: int, room: Room) -> None:
    """Add up how many records there are for each database, and the bytes that they take at the most."""
    spec, w, room = spec_at(spec_address), working_at(w_address), refer(room)
    room.nodes[:] = 0
    room.buckets[:] = 0
    for i in range(w.top[DIRTY_NODES]):
        row = np.int64(w.dirty_nodes[i])
        room.nodes[0] += w.nodes[row].kind != 0
        if w.nodes[row].kind != 0 and w.nodes[row].fresh:
            n = w.stats.head[row].n
            chunks = (n + chunk - 1) // chunk
            room.buckets[0] += chunks
            room.buckets[1] += 4 * n + CHECKSUM * chunks
    room.nodes[1] = room.nodes[0] * sealed_size(split_room(spec))
    for i in range(w.top[DIRTY_BUCKETS]):
        bucket = w.buckets[w.dirty_buckets[i]]
        room.buckets[0] += bucket.kind != 0
        room.buckets[1] += sealed_size(bucket_room(bucket.n))


@inner
def put_list(seed: np.uint64, w: Working, row: int, chunk: int, of: int, out: Sealed) -> int:
    """Write a long list in chunks, as records from `of` on; returns how many there are then."""
    node, n = w.nodes[row], w.stats.head[row].n
    for first in range(NONE, n, chunk):
        slots = w.lists[node.list_at + first : node.list_at + min(first + chunk, n)]
        put_key(out.keys, of, node.tree, node.path, np.int64(slots[0]))
        put_slots(seed, slots, of, out)
        of += 1
    return of


@kernel
def seal_dirty(
    spec_address: Address[Spec],
    w_address: Address[Working],
    chunk: int,
    seeds: tuple[np.uint64, np.uint64],
    nodes: Sealed,
    buckets: Sealed,
    fill: npt.NDArray[np.int64],
) -> None:
    """Write all dirty lines, and long lists that are new, as records; `fill` is how many nodes and buckets there are,
    and the least stamp among them."""
    spec, w, nodes, buckets = spec_at(spec_address), working_at(w_address), refer(nodes), refer(buckets)
    of_nodes, of_buckets, least = NONE, NONE, LATE
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
        least = min(least, node.stamp)
        put_key(nodes.keys, of_nodes, node.tree, node.path, FIRST)
        begin = nodes.ends[of_nodes - 1] if of_nodes else NONE
        end = pack_node(spec, w, row, nodes.values, begin + CHECKSUM)
        close_value(seeds[0], nodes, of_nodes, begin, end)
        of_nodes += 1
        if node.fresh:
            of_buckets = put_list(seeds[1], w, row, chunk, of_buckets, buckets)
    for i in range(w.top[DIRTY_BUCKETS]):
        if i + SOON < w.top[DIRTY_BUCKETS]:
            bring_row(w.buckets, np.int64(w.dirty_buckets[i + SOON]))
            bring_row(w.slots, np.int64(w.dirty_buckets[i + SOON]))
        row = np.int64(w.dirty_buckets[i])
        bucket = w.buckets[row]
        if bucket.kind == 0:
            continue
        least = min(least, bucket.stamp)
        put_key(buckets.keys, of_buckets, bucket.tree, bucket.path, FIRST)
        begin = buckets.ends[of_buckets - 1] if of_buckets else NONE
        end = pack_bucket(spec, w, row, buckets.values, begin + CHECKSUM)
        close_value(seeds[1], buckets, of_buckets, begin, end)
        of_buckets += 1
    fill[0], fill[1], fill[2] = of_nodes, of_buckets, least


class Changed(NamedTuple):
    """Every changed record, ready to be written, and the least stamp among them."""

    nodes: Sealed
    buckets: Sealed
    stamp: int


def _enough(room: Room) -> tuple[Sealed, Sealed]:
    """Room for nodes and buckets, all bytes in one piece. When it is given back, LMDB needs memory: out of one large
    piece it gets pages that are there, while of several small ones the C library returns some to the system, and each
    page that has to be asked for again takes two microseconds."""
    (nodes, size), (buckets, more) = room.nodes.tolist(), room.buckets.tolist()
    values = np.empty(size + more, np.uint8)
    first, second = room_for(nodes, NODE_KEY, 0), room_for(buckets, BUCKET_KEY, 0)
    return first._replace(values=values[:size]), second._replace(values=values[size:])


def changed_records(spec: Held[Spec], working: Held[Working], seeds: tuple[int, int], chunk: int) -> Changed:
    """Every changed record, with long lists that are new in chunks of so many slots; `seeds` are those of the two
    databases."""
    room = Room(np.empty(2, np.int64), np.empty(2, np.int64))
    measure_dirty(spec.address, working.address, chunk, room)
    nodes, buckets = _enough(room)
    fill, both = np.empty(3, np.int64), (np.uint64(seeds[0]), np.uint64(seeds[1]))
    seal_dirty(spec.address, working.address, chunk, both, nodes, buckets, fill)
    of_nodes, of_buckets, stamp = fill.tolist()
    return Changed(first_parts(nodes, of_nodes), first_parts(buckets, of_buckets), stamp)


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
