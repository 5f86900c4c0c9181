"""Tree records as bytes (storage/FORMAT.md, "Tree records", is the treaty).

Records are little endian and unaligned. There are four kinds:

    split   a node with n > B: split, totals, counts of all candidates, skipped constants
    leaf    a leaf with n > B: counts; its sorted slots are a long list, kept in chunks
    tag     a tagged node with n > B: nothing but its size; its samples are a long list
    bucket  n <= B: slots and, unless tagged, the small finished tree below, in pre-order

Thresholds are not stored, only the one that was chosen: the rest is a function of the node's name and range. Counts
take two bytes where n < 65,536. A candidate with only two values keeps just the counts at the lower one. Skipped
constants are a list of those that are not zero, and for zeros a list or a bit map, whichever is shorter."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.hashing import step, thresholds
from dynfrsdb_engine.kernel import anywhere, inner
from dynfrsdb_engine.search import Stats, zero
from dynfrsdb_engine.spec import Spec
from dynfrsdb_engine.unaligned import (
    Bytes,
    get16,
    get32,
    get64,
    get_count,
    get_float,
    put16,
    put32,
    put64,
    put_count,
    put_float,
    put_many16,
)

SPLIT, LEAF, TAG = np.int64(1), np.int64(2), np.int64(3)
WIDE, LEFT_TAGS, RIGHT_TAGS, BITMAP = 1, 2, 4, 8
"""Flags of a split record.

Counts of four bytes, tags below the left and the right child, zero constants as a bit map.
"""
SPLIT_HEADER, LIST_HEADER, BUCKET_HEADER = 48, 16, 14
AT_STAMP, AT_LEFT_STAMP, AT_RIGHT_STAMP = 8, 16, 24
BUCKET_STAMP = 4
TWO_VALUED = 1
LEAF_MARK = np.int64(0xFFFF)
"""Stands where a feature would at a leaf inside a bucket."""
_SIZE, _CHOSEN = struct.Struct("<I"), struct.Struct("<IfH")
"""How many samples a split has; how many go left, by which threshold of which feature."""


def way_down(record: bytes, x: Sequence[float]) -> tuple[int, int] | None:
    """To which child of a node (0 or 1) a row goes, and how many samples that child has; None if it is no split, or
    none that can be right: who installs it says so."""
    if len(record) < SPLIT_HEADER or record[0] != SPLIT:
        return None
    left, cut, feature = _CHOSEN.unpack_from(record, 32)
    if feature >= len(x):
        return None
    if x[feature] <= cut:
        return 0, left
    return 1, _SIZE.unpack_from(record, 4)[0] - left


@anywhere
def split_room(spec: Spec) -> int:
    """The most bytes that a split record can take."""
    totals = 8 * max(spec.totals, 6)
    candidate = 19 + spec.thresholds * (4 * spec.columns + (0 if spec.classes else 8))
    return SPLIT_HEADER + totals + spec.candidates * candidate + 2 + 6 * spec.features


@anywhere
def bucket_room(n: int) -> int:
    """The most bytes that a bucket of n samples can take: a leaf for each sample."""
    return BUCKET_HEADER + 4 * n + 8 * n + 12 * (n + 1)


@inner
def pack_candidate(spec: Spec, out: Bytes, at: int, stats: Stats, row: int, c: int) -> int:
    """Write one candidate; returns the offset behind it."""
    n = stats.head[row].n
    wide = n > 0xFFFF
    candidate, counts = stats.cand[row, c], stats.counts[row, c]
    two_valued = candidate.at_lo + candidate.at_hi == n
    at = put16(out, at, candidate.feature)
    out[at] = TWO_VALUED if two_valued else 0
    at = put_float(out, at + 1, candidate.lo)
    at = put_float(out, at, candidate.hi)
    at = put_count(out, at, candidate.at_lo, wide)
    at = put_count(out, at, candidate.at_hi, wide)
    lines = 1 if two_valued else spec.thresholds
    if spec.classes and not wide and lines * spec.columns >= 32:  # fewer are written sooner one by one
        return put_many16(out, at, counts, lines * spec.columns)
    for j in range(lines):
        for k in range(spec.columns):
            at = put_count(out, at, np.int64(counts[j, k]), wide)
        if spec.classes == 0:
            at = put64(out, at, stats.sums[row, c, j])
    return at


@inner
def count_zeros(stats: Stats, row: int) -> int:
    """How many skipped constants are zero."""
    zeros = np.int64(0)
    for i in range(stats.head[row].skipped):
        if stats.skip[row, i].value == 0.0:
            zeros += 1
    return zeros


@inner
def pack_constants(spec: Spec, out: Bytes, at: int, stats: Stats, row: int, bitmap: bool) -> int:
    """Write the skipped constants, zeros first, then those with a value; returns the offset behind them."""
    head = stats.head[row]
    zeros = count_zeros(stats, row)
    if bitmap:
        size = (spec.features + 7) // 8
        for i in range(size):
            out[at + i] = 0
        for i in range(head.skipped):
            f = np.int64(stats.skip[row, i].feature)
            if stats.skip[row, i].value == 0.0:
                out[at + (f >> 3)] |= np.uint8(1 << (f & 7))
        at += size
    else:
        at = put16(out, at, zeros)
        for i in range(head.skipped):
            if stats.skip[row, i].value == 0.0:
                at = put16(out, at, np.int64(stats.skip[row, i].feature))
    for i in range(head.skipped):
        if stats.skip[row, i].value != 0.0:
            at = put16(out, at, np.int64(stats.skip[row, i].feature))
            at = put_float(out, at, stats.skip[row, i].value)
    return at


@inner
def pack_totals(spec: Spec, out: Bytes, at: int, totals: npt.NDArray[np.int64], wide: bool) -> int:
    """Write the class counts, or sum and range of the targets; returns the offset behind them."""
    if spec.classes:
        for c in range(spec.classes):
            at = put_count(out, at, totals[c], wide)
        return at
    for i in range(1, 4):
        at = put64(out, at, totals[i])
    at = put_count(out, at, totals[4], wide)
    return put_count(out, at, totals[5], wide)


@inner
def pack_split(spec: Spec, out: Bytes, at: int, stats: Stats, row: int, stamps: tuple[int, int, int], tags: int) -> int:
    """Write a split record.

    `stamps` are its own and its children's, `tags` the flags for tags below; returns the offset behind it.
    """
    head = stats.head[row]
    zeros = count_zeros(stats, row)
    wide = head.n > 0xFFFF
    bitmap = 2 + 2 * zeros > (spec.features + 7) // 8
    out[at] = SPLIT
    out[at + 1] = tags | (WIDE if wide else 0) | (BITMAP if bitmap else 0)
    put16(out, at + 2, head.m)
    put32(out, at + 4, head.n)
    put64(out, at + AT_STAMP, stamps[0])
    put64(out, at + AT_LEFT_STAMP, stamps[1])
    put64(out, at + AT_RIGHT_STAMP, stamps[2])
    put32(out, at + 32, head.n_left)
    put_float(out, at + 36, stats.cuts[row, head.best, head.cut])
    put16(out, at + 40, stats.cand[row, head.best].feature)
    put16(out, at + 42, head.best)
    out[at + 44] = head.cut
    out[at + 45] = 0
    put16(out, at + 46, head.skipped - zeros)
    at = pack_totals(spec, out, at + SPLIT_HEADER, stats.totals[row], wide)
    for c in range(head.m):
        at = pack_candidate(spec, out, at, stats, row, c)
    return pack_constants(spec, out, at, stats, row, bitmap)


@inner
def pack_leaf(spec: Spec, out: Bytes, at: int, n: int, stamp: int, totals: npt.NDArray[np.int64]) -> int:
    """Write the record of a leaf with a long list; returns the offset behind it."""
    m = np.int64(0)
    end = at + LIST_HEADER
    if spec.classes:
        for c in range(spec.classes):
            if totals[c] > 0:
                end = put32(out, put16(out, end, np.int64(c)), totals[c])
                m += 1
    else:
        end = put64(out, end, totals[1])
    pack_list_header(out, at, LEAF, m, n, stamp)
    return end


@inner
def pack_list_header(out: Bytes, at: int, kind: int, m: int, n: int, stamp: int) -> int:
    """Write the header of a node whose samples are a long list; returns the offset behind it."""
    out[at], out[at + 1] = kind, 0
    put16(out, at + 2, m)
    put32(out, at + 4, n)
    return put64(out, at + AT_STAMP, stamp)


@inner
def pack_bucket_header(out: Bytes, at: int, kind: int, n: int, stamp: int, nodes: int) -> int:
    """Write a bucket's header; returns where its slots begin."""
    out[at], out[at + 1] = kind, 0
    put16(out, at + 2, n)
    put64(out, at + BUCKET_STAMP, stamp)
    return put16(out, at + 12, nodes)


@inner
def pack_small_leaf(spec: Spec, out: Bytes, at: int, n: int, totals: npt.NDArray[np.int64]) -> int:
    """Write a leaf inside a bucket; returns the offset behind it."""
    at = put16(out, put16(out, at, LEAF_MARK), n)
    if spec.classes == 0:
        return put64(out, at, totals[1])
    entries, m = at, np.int64(0)
    at += 2
    for c in range(spec.classes):
        if totals[c] > 0:
            at = put16(out, put16(out, at, np.int64(c)), totals[c])
            m += 1
    put16(out, entries, m)
    return at


@inner
def unpack_totals(spec: Spec, data: Bytes, at: int, totals: npt.NDArray[np.int64], n: int) -> int:
    """Read a split's totals; returns the offset behind them."""
    wide = n > 0xFFFF
    width = 4 if wide else 2
    if spec.classes:
        for c in range(spec.classes):
            totals[c] = get_count(data, at, wide)
            at += width
        return at
    totals[0] = n
    for i in range(1, 4):
        totals[i] = get64(data, at)
        at += 8
    totals[4] = get_count(data, at, wide)
    totals[5] = get_count(data, at + width, wide)
    return at + 2 * width


@inner
def unpack_candidate(spec: Spec, node_hash: np.uint64, data: Bytes, at: int, stats: Stats, row: int, c: int) -> int:
    """Read one candidate and make its thresholds again; returns the offset behind it."""
    wide = stats.head[row].n > 0xFFFF
    width = 4 if wide else 2
    candidate, counts = stats.cand[row, c], stats.counts[row, c]
    candidate.feature = get16(data, at)
    lines = 1 if data[at + 2] == TWO_VALUED else spec.thresholds
    candidate.lo = get_float(data, at + 3)
    candidate.hi = get_float(data, at + 7)
    candidate.at_lo = get_count(data, at + 11, wide)
    candidate.at_hi = get_count(data, at + 11 + width, wide)
    at += 11 + 2 * width
    thresholds(node_hash, candidate.feature, candidate.lo, candidate.hi, stats.cuts[row, c])
    zero(stats, row, c, spec.columns)
    for j in range(lines):
        for k in range(spec.columns):
            counts[j, k] = get_count(data, at, wide)
            at += width
        if spec.classes == 0:
            stats.sums[row, c, j] = get64(data, at)
            at += 8
    return at


@inner
def unpack_constants(spec: Spec, data: Bytes, at: int, stats: Stats, row: int, bitmap: bool, valued: int) -> None:
    """Read the skipped constants."""
    skipped = 0
    if bitmap:
        for f in range(spec.features):
            if data[at + (f >> 3)] & np.uint8(1 << (f & 7)):
                stats.skip[row, skipped].feature = f
                stats.skip[row, skipped].value = 0.0
                skipped += 1
        at += (spec.features + 7) // 8
    else:
        zeros = get16(data, at)
        at += 2
        for _ in range(zeros):
            stats.skip[row, skipped].feature = get16(data, at)
            stats.skip[row, skipped].value = 0.0
            skipped += 1
            at += 2
    for _ in range(valued):
        stats.skip[row, skipped].feature = get16(data, at)
        stats.skip[row, skipped].value = get_float(data, at + 2)
        skipped += 1
        at += 6
    stats.head[row].skipped = skipped


@inner
def unpack_split(spec: Spec, tree: int, path: np.uint64, data: Bytes, at: int, stats: Stats, row: int) -> None:
    """Read the statistics of a split record into line `row`."""
    head = stats.head[row]
    head.n, head.n_left = get32(data, at + 4), get32(data, at + 32)
    head.m, head.best, head.cut = get16(data, at + 2), get16(data, at + 42), np.int64(data[at + 44])
    node_hash = step(spec.tree_keys[tree], path)
    bitmap = (data[at + 1] & BITMAP) != 0
    valued = get16(data, at + 46)
    at = unpack_totals(spec, data, at + SPLIT_HEADER, stats.totals[row], head.n)
    for c in range(head.m):
        at = unpack_candidate(spec, node_hash, data, at, stats, row, c)
    unpack_constants(spec, data, at, stats, row, bitmap, valued)
