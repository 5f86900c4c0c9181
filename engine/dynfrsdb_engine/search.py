"""The best split of a node, from its samples.

Features are tried in the node's own order until p of them are not constant. Each gets s thresholds between its least
and greatest value; one pass over the samples counts which interval each falls into (no sorting of samples). The counts
decide the split and, at a node that is stored, stay with it.

A feature that is constant at a node is constant below it. `Scratch.known` remembers at which node a constancy was
seen, so growing never looks at that feature again further down."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.hashing import ORDER, place, restore, step, thresholds
from dynfrsdb_engine.intervals import intervals
from dynfrsdb_engine.kernel import Record, inner
from dynfrsdb_engine.score import best_split
from dynfrsdb_engine.spec import Spec

HEAD = np.dtype(
    [("n", "i8"), ("n_left", "i8"), ("m", "i8"), ("skipped", "i8"), ("best", "i8"), ("cut", "i8")],
    align=True,
)
"""A node's size, left size, number of candidates and of skipped constants, best candidate and threshold."""
CANDIDATE = np.dtype([("feature", "i8"), ("lo", "f4"), ("hi", "f4"), ("at_lo", "i8"), ("at_hi", "i8")], align=True)
"""One feature that a node considers: its range and how many samples have exactly the least and the greatest value."""
CONSTANT = np.dtype([("feature", "i4"), ("value", "f4")], align=True)
"""One feature that a node passed over because all its samples have this value."""
ZERO = np.int64(0)
KNOWN = np.dtype([("path", "u8"), ("depth", "i8"), ("job", "i8")], align=True)


class Stats(NamedTuple):
    """Statistics of nodes, one line each. `counts` are most of what a process has in memory, so they take four bytes.
    `sums` are there for regression only."""

    head: npt.NDArray[np.void]
    cand: npt.NDArray[np.void]
    cuts: npt.NDArray[np.float32]
    counts: npt.NDArray[np.uint32]
    sums: npt.NDArray[np.int64]
    totals: npt.NDArray[np.int64]
    skip: npt.NDArray[np.void]


class Scratch(NamedTuple):
    """What a search needs beside its samples; lent by the caller, one per thread."""

    shuffled: npt.NDArray[np.int32]
    swaps: npt.NDArray[np.int32]
    sides: npt.NDArray[np.uint32]
    few: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    known: npt.NDArray[np.void]
    spare: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    targets: npt.NDArray[np.int64]
    places: npt.NDArray[np.int32]


def make_stats(spec: Spec, rows: int) -> Stats:
    """Room for the statistics of `rows` nodes."""
    p, s = spec.candidates, spec.thresholds
    return Stats(
        head=np.zeros(rows, HEAD),
        cand=np.zeros((rows, p), CANDIDATE),
        cuts=np.zeros((rows, p, s), np.float32),
        counts=np.zeros((rows, p, s, spec.columns), np.uint32),
        sums=np.zeros((rows, p, 0 if spec.classes else s), np.int64),
        totals=np.zeros((rows, spec.totals), np.int64),
        skip=np.zeros((rows, spec.features), CONSTANT),
    )


def make_scratch(spec: Spec, samples: int) -> Scratch:
    """Scratch for searches over up to `samples` samples."""
    known = np.zeros(spec.features, KNOWN)
    known["job"] = -1
    return Scratch(
        shuffled=np.arange(spec.features, dtype=np.int32),
        swaps=np.zeros(spec.features, np.int32),
        sides=np.zeros((2, spec.columns), np.uint32),
        few=np.zeros(spec.columns, np.int64),
        numbers=np.zeros(spec.columns, np.int64),
        known=known,
        spare=np.empty(samples, np.int32),
        values=np.empty(samples, np.float32),
        targets=np.empty(samples, np.int64),
        places=np.empty(samples, np.int32),
    )


@inner
def zero(stats: Stats, row: int, c: int, columns: int) -> None:
    """Set the first columns of a candidate's counts to zero."""
    counts, sums = stats.counts[row, c], stats.sums[row, c]
    for j in range(counts.shape[0]):
        for k in range(columns):
            counts[j, k] = 0
    for j in range(sums.size):
        sums[j] = 0


@inner
def count_totals(classes: int, targets: npt.NDArray[np.int64], totals: npt.NDArray[np.int64]) -> None:
    """Fill a node's totals from its samples."""
    for c in range(totals.size):
        totals[c] = 0
    if classes > 0:
        for y in targets:
            totals[y] += 1
        return
    totals[0] = targets.size
    for i in range(targets.size):
        y = targets[i]
        totals[1] += y
        if i == 0 or y < totals[2]:
            totals[2], totals[4] = y, 0
        if i == 0 or y > totals[3]:
            totals[3], totals[5] = y, 0
        if y == totals[2]:
            totals[4] += 1
        if y == totals[3]:
            totals[5] += 1


@inner
def pure(classes: int, totals: npt.NDArray[np.int64], n: int) -> bool:
    """Whether all samples share one class, or one target."""
    if classes == 0:
        return bool(totals[2] == totals[3])
    for c in range(classes):
        if totals[c] > 0:
            return bool(totals[c] == n)
    return True


@inner
def count_candidate(
    columns: int,
    node_hash: np.uint64,
    values: npt.NDArray[np.float32],
    targets: npt.NDArray[np.int64],
    places: npt.NDArray[np.int32],
    stats: Stats,
    row: int,
    c: int,
) -> None:
    """Fill thresholds and counts of candidate `c`, whose feature, lo and hi are set, from its value in each sample.

    Counts are in the first `columns`. `places` is lent for the interval of each.
    """
    candidate, cuts = stats.cand[row, c], stats.cuts[row, c]
    counts, sums = stats.counts[row, c], stats.sums[row, c]
    lo, hi = candidate.lo, candidate.hi
    thresholds(node_hash, candidate.feature, lo, hi, cuts)
    zero(stats, row, c, columns)
    at_lo, at_hi = ZERO, ZERO
    for i in range(values.size):
        at_lo += values[i] == lo
        at_hi += values[i] == hi
    candidate.at_lo, candidate.at_hi = at_lo, at_hi
    if at_lo + at_hi == values.size:
        for i in range(values.size):
            places[i] = 0 if values[i] == lo else cuts.size
    else:
        intervals(cuts, values, places)
    for i in range(values.size):
        j = np.int64(places[i])
        if j < cuts.size:
            if sums.size == 0:
                counts[j, targets[i]] += 1
            else:
                counts[j, 0] += 1
                sums[j] += targets[i]


@inner
def gather_column(
    column: npt.NDArray[np.float32], index: npt.NDArray[np.int32], values: npt.NDArray[np.float32]
) -> tuple[float, float]:
    """Copy one feature of the samples in `index`; returns its least and greatest value."""
    lo = column[index[0]]
    hi = lo
    for i in range(index.size):
        x = column[index[i]]
        values[i] = x
        lo = min(lo, x)
        hi = max(hi, x)
    return lo, hi


@inner
def is_known(known: Record, path: np.uint64, depth: int, job: int) -> bool:
    """Whether a constancy was seen at this node or above it."""
    return bool(known.job == job and known.depth <= depth and (path >> np.uint64(depth - known.depth)) == known.path)


@inner
def choose(spec: Spec, stats: Stats, row: int, totals: npt.NDArray[np.int64], scratch: Scratch) -> tuple[int, int, int]:
    """The best split of line `row` from its counts, as (candidate, threshold, left size)."""
    head, counts, sums = stats.head[row], stats.counts[row], stats.sums[row]
    return best_split(spec.criterion, counts, sums, head.m, totals, head.n, scratch.sides, spec.xlog)


@inner
def number_classes(totals: npt.NDArray[np.int64], targets: npt.NDArray[np.int64], scratch: Scratch) -> int:
    """Number the classes that a node has, and rename its targets so; their totals are in `scratch.few` afterwards.

    Returns how many there are. A class that is not there adds nothing to a score.
    """
    columns = ZERO
    for c in range(totals.size):
        if totals[c] > 0:
            scratch.few[columns], scratch.numbers[c] = totals[c], columns
            columns += 1
    for i in range(targets.size):
        targets[i] = scratch.numbers[targets[i]]
    return columns


@inner
def search(
    spec: Spec,
    node: tuple[int, np.uint64, int, int],
    X: npt.NDArray[np.float32],
    index: npt.NDArray[np.int32],
    stats: Stats,
    row: int,
    scratch: Scratch,
) -> bool:
    """Fill line `row` of `stats`; False if every feature is constant.

    `node` is (tree, path, depth, job); X holds one line per feature; `index` names the node's samples, whose targets
    are in `scratch` and whose totals are in `stats` already. The counts of a node inside a bucket are not stored; they
    have only columns for classes that are there.
    """
    tree, path, depth, job = node
    values, targets, places = scratch.values[: index.size], scratch.targets[: index.size], scratch.places[: index.size]
    totals, columns = stats.totals[row], spec.columns
    if spec.classes > 2 and index.size <= spec.bucket:
        columns = number_classes(totals, targets, scratch)
        totals = scratch.few[:columns]
    node_hash = step(spec.tree_keys[tree], path)
    order_hash = step(node_hash, ORDER)
    m, skipped, drawn = ZERO, ZERO, ZERO
    while drawn < spec.features and m < spec.candidates:
        r = place(order_hash, drawn, spec.features)
        scratch.swaps[drawn] = r
        f = np.int64(scratch.shuffled[r])
        scratch.shuffled[r] = scratch.shuffled[drawn]
        scratch.shuffled[drawn] = f
        drawn += 1
        known = scratch.known[f]
        if not is_known(known, path, depth, job):
            lo, hi = gather_column(X[f], index, values)
            if lo < hi:
                candidate = stats.cand[row, m]
                candidate.feature, candidate.lo, candidate.hi = f, lo, hi
                count_candidate(columns, node_hash, values, targets, places, stats, row, m)
                m += 1
                continue
            known.path, known.depth, known.job = path, depth, job
        constant = stats.skip[row, skipped]
        constant.feature, constant.value = f, X[f, index[0]]
        skipped += 1
    restore(scratch.shuffled, scratch.swaps, drawn)
    head = stats.head[row]
    head.n, head.m, head.skipped = index.size, m, skipped
    best, cut, n_left = choose(spec, stats, row, totals, scratch)
    head.best, head.cut, head.n_left = best, cut, n_left
    return m > 0
