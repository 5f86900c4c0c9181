"""A settled tree as the bytes that its digest hashes.

Pre-order, little endian. A split is u8 1, u16 feature, u32 threshold bits, u32 n, counts; a leaf is u8 0, u32 n,
counts, and the ids of its samples, ascending. Counts are one u32 per class, or the sum of the targets as i64. Nothing
here depends on slots, buckets, history or threads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.kernel import inner, kernel
from dynfrsdb_engine.reference import Address, Held, refer
from dynfrsdb_engine.rows import Rows, intact
from dynfrsdb_engine.slots import sort
from dynfrsdb_engine.spec import Spec, spec_at
from dynfrsdb_engine.unaligned import put16, put32, put64, put_float
from dynfrsdb_engine.working import LEAF_POINT, NOBODY, Working, working_at

NOT_SETTLED, BAD_SLOT = -1, -2


class NotSettled(Exception):
    """The tree has tags, or parts of it are not in memory."""


@kernel
def list_points(
    w_address: Address[Working], root: int, order: npt.NDArray[np.int32], parents: npt.NDArray[np.int32]
) -> int:
    """Points of a tree in pre-order, each with the place of its parent; returns how many, or NOT_SETTLED."""
    w = working_at(w_address)
    stack = np.empty((256, 2), np.int32)
    stack[0, 0], stack[0, 1], height, n = root, -1, 1, 0
    while height > 0:
        height -= 1
        at, parent = stack[height]
        point = w.points[at]
        if point.feature < LEAF_POINT or n == order.size:
            return NOT_SETTLED
        order[n], parents[n] = at, parent
        if point.feature >= 0:
            stack[height, 0], stack[height, 1] = point.child + 1, n
            stack[height + 1, 0], stack[height + 1, 1] = point.child, n
            height += 2
        n += 1
    return n


@kernel
def sum_counts(
    w_address: Address[Working],
    order: npt.NDArray[np.int32],
    parents: npt.NDArray[np.int32],
    counts: npt.NDArray[np.int64],
) -> None:
    """Counts of every point (n in the last column), summed up from the leaves."""
    w = working_at(w_address)
    last = counts.shape[1] - 1
    for i in range(order.size - 1, -1, -1):
        point = w.points[order[i]]
        if point.feature == LEAF_POINT:
            place = point.child
            counts[i, last] = w.leaves[place]
            for j in range(w.leaves[place + 1]):
                counts[i, w.leaves[place + 2 + 2 * j]] = w.leaves[place + 3 + 2 * j]
        if parents[i] >= 0:
            for c in range(last + 1):
                counts[parents[i], c] += counts[i, c]


@inner
def put_counts(spec: Spec, out: npt.NDArray[np.uint8], at: int, counts: npt.NDArray[np.int64]) -> int:
    """Write n and the counts of one point."""
    at = put32(out, at, counts[counts.size - 1])
    if spec.classes == 0:
        return put64(out, at, counts[0])
    for c in range(spec.classes):
        at = put32(out, at, counts[c])
    return at


@inner
def leaf_ids(rows: Rows, slots: npt.NDArray[np.uint32], ids: npt.NDArray[np.uint64]) -> bool:
    """Fill `ids` with the ids of the samples in `slots`, ascending; False if a row is bad."""
    for i in range(slots.size):
        slot = np.int64(slots[i])
        if not intact(rows, slot):
            return False
        ids[i] = rows.words[slot, 1]
    sort(ids, slots.size)
    return True


@kernel
def write_tree(
    spec_address: Address[Spec],
    w_address: Address[Working],
    rows: Rows,
    order: npt.NDArray[np.int32],
    counts: npt.NDArray[np.int64],
    out: npt.NDArray[np.uint8],
) -> int:
    """Write the tree's bytes; returns how many, or BAD_SLOT."""
    spec, w, rows = spec_at(spec_address), working_at(w_address), refer(rows)
    at, bucket, used = 0, np.int64(NOBODY), 0
    ids = np.empty(counts[0, counts.shape[1] - 1], np.uint64)
    for i in range(order.size):
        point = w.points[order[i]]
        n = counts[i, counts.shape[1] - 1]
        if point.owner < NOBODY and bucket != -2 - point.owner:
            bucket, used = -2 - np.int64(point.owner), 0
        out[at] = 1 if point.feature >= 0 else 0
        at += 1
        if point.feature >= 0:
            at = put_float(out, put16(out, at, np.int64(point.feature)), point.cut)
            at = put_counts(spec, out, at, counts[i])
            continue
        at = put_counts(spec, out, at, counts[i])
        if point.owner >= 0:
            begin = w.nodes[point.owner].list_at
            good = leaf_ids(rows, w.lists[begin : begin + n], ids)
        else:
            good = leaf_ids(rows, w.slots[bucket, used : used + n], ids)
            used += n
        if not good:
            return BAD_SLOT
        for j in range(n):
            at = put64(out, at, np.int64(ids[j]))
    return at


def tree_bytes(spec: Held[Spec], w: Held[Working], rows: Rows, tree: int) -> bytes:
    """The bytes of a settled tree that is wholly in memory, its long lists too."""
    n = int(w.value.roots[tree]["n"])
    order, parents = np.empty(2 * max(n, 1), np.int32), np.empty(2 * max(n, 1), np.int32)
    size = list_points(w.address, tree, order, parents)
    if size < 0:
        raise NotSettled(tree)
    order, parents = order[:size], parents[:size]
    columns = spec.value.classes or 1
    counts = np.zeros((size, columns + 1), np.int64)
    sum_counts(w.address, order, parents, counts)
    out = np.empty(size * (11 + max(4 * columns, 8)) + 8 * n, np.uint8)
    length = write_tree(spec.address, w.address, rows, order, counts, out)
    if length < 0:
        raise ValueError(f"a row of tree {tree} fails its hash")
    return out[:length].tobytes()
