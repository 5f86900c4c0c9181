"""The best split of a node, from its samples.

Features are tried in the node's own order until p of them are not constant. Each gets s thresholds between its least
and greatest value; one pass over the samples counts which interval each falls into (no sorting of samples). The counts
decide the split and, at a node that is stored, stay with it.

Of a node inside a bucket only the split is kept. With two classes and Gini its thresholds are then scored as they are
drawn, unsorted: the least score wins, and the lowest threshold that has it.

A feature that is constant at a node is constant below it. `Scratch.known` remembers at which node a constancy was
seen, so growing never looks at that feature again further down."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.hashing import ORDER, draw, lowest_draw, place, restore, step, thresholds
from dynfrsdb_engine.intervals import intervals, tally
from dynfrsdb_engine.kernel import Record, inner
from dynfrsdb_engine.local import local_floats, local_ints
from dynfrsdb_engine.ordered import least_and_greatest, next_below
from dynfrsdb_engine.score import GINI, INFINITE, best_split, lowest_gini, still_best
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
TWO, LOW, HIGH = np.int64(2), np.uint32(0xFFFF), np.uint32(16)
FEW = 4
"""Values that are looked at before it is asked whether a feature has two of them only."""
AT_ONCE = np.int64(0xFFFF)
"""Samples that one sum of two counts has room for."""
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
    spare: npt.NDArray[np.uint32]
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
        spare=np.empty(samples, np.uint32),
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
    if classes == TWO:
        for y in targets:
            totals[1] += y
        totals[0] = targets.size - totals[1]
        return
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
def weigh(columns: int, targets: npt.NDArray[np.int64], weights: npt.NDArray[np.int32]) -> None:
    """Give each sample of two classes a weight: 1, and 2^16 besides if it is of the second, so that one sum counts
    both."""
    if columns == TWO:
        for i in range(targets.size):
            weights[i] = np.int32(np.int32(targets[i]) << np.int32(16)) | np.int32(1)


@inner
def count_two(
    values: npt.NDArray[np.float32],
    weights: npt.NDArray[np.int32],
    candidate: Record,
    cuts: npt.NDArray[np.float32],
    counts: npt.NDArray[np.uint32],
) -> None:
    """Add up to `AT_ONCE` samples of two classes to `counts`, and to those that have the least and those that have the
    greatest value, for which there are two thresholds more."""
    s, n = cuts.size, values.size
    limits, sums = local_floats(), local_ints()
    for j in range(s):
        limits[j] = cuts[j]
    limits[s], limits[s + 1] = candidate.lo, next_below(candidate.hi)
    tally(limits, s + 2, values, weights, sums)
    candidate.at_lo += np.int64(sums[s]) & LOW
    candidate.at_hi += n - (np.int64(sums[s + 1]) & LOW)
    before = np.uint32(0)
    for j in range(s):
        both = np.uint32(sums[j])
        here = np.uint32(both - before)
        ones = np.uint32(here >> HIGH)
        counts[j, 0] += np.uint32(np.uint32(here & LOW) - ones)
        counts[j, 1] += ones
        before = both


@inner
def may_have_two(values: npt.NDArray[np.float32], lo: float, hi: float) -> bool:
    """Whether the first few values are all the least or the greatest."""
    between = 0
    for i in range(min(values.size, FEW)):
        between += (values[i] != lo) & (values[i] != hi)
    return between == 0


@inner
def count_ends(
    values: npt.NDArray[np.float32], weights: npt.NDArray[np.int32], candidate: Record, least: npt.NDArray[np.uint32]
) -> bool:
    """Count up to `AT_ONCE` samples of two classes that have one of two values: those at the lower one are left of
    every threshold, and counted by class in `least`. If some have a third one nothing is changed, and False returned.
    """
    lo, hi, at_lo, at_hi, ones = candidate.lo, candidate.hi, np.int32(0), np.int32(0), np.int32(0)
    for i in range(values.size):
        is_lo = np.int32(values[i] == lo)
        at_lo += is_lo
        at_hi += np.int32(values[i] == hi)
        ones += is_lo * np.int32(weights[i] >> np.int32(16))
    if at_lo + at_hi != values.size:
        return False
    least[0], least[1] = at_lo - ones, ones
    candidate.at_lo, candidate.at_hi = np.int64(at_lo), np.int64(at_hi)
    return True


@inner
def count_weighed(
    columns: int,
    node_hash: np.uint64,
    values: npt.NDArray[np.float32],
    targets: npt.NDArray[np.int64],
    places: npt.NDArray[np.int32],
    stats: Stats,
    row: int,
    c: int,
) -> None:
    """As `count_candidate`, where `places` has the weights of samples of two classes already."""
    candidate, cuts = stats.cand[row, c], stats.cuts[row, c]
    counts, sums, n = stats.counts[row, c], stats.sums[row, c], values.size
    thresholds(node_hash, candidate.feature, candidate.lo, candidate.hi, cuts)
    zero(stats, row, c, columns)
    candidate.at_lo, candidate.at_hi = 0, 0
    if columns == TWO:
        ends = n <= AT_ONCE and may_have_two(values, candidate.lo, candidate.hi)
        if ends and count_ends(values, places, candidate, counts[0]):
            return
        start = ZERO
        while start < n:
            end = min(start + AT_ONCE, n)
            count_two(values[start:end], places[start:end], candidate, cuts, counts)
            start = end
        return
    count_extremes(values, candidate)
    if candidate.at_lo + candidate.at_hi == n:
        for i in range(n):
            places[i] = 0 if values[i] == candidate.lo else cuts.size
    else:
        intervals(cuts, values, places)
    for i in range(n):
        j = np.int64(places[i])
        if j < cuts.size:
            if sums.size == 0:
                counts[j, targets[i]] += 1
            else:
                counts[j, 0] += 1
                sums[j] += targets[i]


@inner
def count_extremes(values: npt.NDArray[np.float32], candidate: Record) -> None:
    """Count the samples that have exactly the least, and the greatest, value."""
    lo, hi, at_lo, at_hi = candidate.lo, candidate.hi, ZERO, ZERO
    for i in range(values.size):
        at_lo += values[i] == lo
        at_hi += values[i] == hi
    candidate.at_lo, candidate.at_hi = at_lo, at_hi


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

    Counts are in the first `columns`. `places` is lent for a number of each sample.
    """
    weigh(columns, targets, places)
    count_weighed(columns, node_hash, values, targets, places, stats, row, c)


@inner
def gather_column(
    column: npt.NDArray[np.float32], index: npt.NDArray[np.uint32], values: npt.NDArray[np.float32]
) -> tuple[float, float]:
    """Copy one feature of the samples in `index`; returns its least and greatest value."""
    for i in range(index.size):
        values[i] = column[index[i]]
    return least_and_greatest(values)


@inner
def is_known(known: Record, path: np.uint64, depth: int, job: int) -> bool:
    """Whether a constancy was seen at this node or above it."""
    return bool(known.job == job and known.depth <= depth and (path >> np.uint64(depth - known.depth)) == known.path)


@inner
def choose(spec: Spec, stats: Stats, row: int, totals: npt.NDArray[np.int64], scratch: Scratch) -> tuple[int, int, int]:
    """The best split of line `row` from its counts, as (candidate, threshold, left size)."""
    cand, counts, sums = stats.cand[row], stats.counts[row], stats.sums[row]
    return best_split(spec.criterion, cand, counts, sums, stats.head[row].m, totals, scratch.sides, spec.xlog)


@inner
def choose_again(spec: Spec, stats: Stats, row: int, scratch: Scratch) -> tuple[int, int, int]:
    """As `choose`, for a node whose counts have changed a little: its best split most often stays the best."""
    head, totals = stats.head[row], stats.totals[row]
    if spec.criterion == GINI and totals.size == TWO and head.best < head.m:
        stays, n_left = still_best(stats.cand[row], stats.counts[row], head.m, totals, head.best, head.cut)
        if stays:
            return head.best, head.cut, n_left
    return choose(spec, stats, row, totals, scratch)


@inner
def number_classes(totals: npt.NDArray[np.int64], targets: npt.NDArray[np.int64], scratch: Scratch) -> int:
    """Number the classes that a node has; its targets so renamed, and their totals, are in `scratch` afterwards.

    Returns how many there are. A class that is not there adds nothing to a score.
    """
    columns = ZERO
    for c in range(totals.size):
        if totals[c] > 0:
            scratch.few[columns], scratch.numbers[c] = totals[c], columns
            columns += 1
    for i in range(targets.size):
        scratch.targets[i] = scratch.numbers[targets[i]]
    return columns


@inner
def at_lower_end(values: npt.NDArray[np.float32], weights: npt.NDArray[np.int32], lo: float, hi: float) -> int:
    """The weights of the samples at the lower of two values, added up; 0 if some sample has a third."""
    left, ends = np.int32(0), np.int32(0)
    for i in range(values.size):
        is_lo = np.int32(values[i] == lo)
        left += is_lo * weights[i]
        ends += is_lo | np.int32(values[i] == hi)
    return left if ends == values.size else np.int32(0)


@inner
def challenge(
    feature_hash: np.uint64,
    lo: float,
    hi: float,
    values: npt.NDArray[np.float32],
    weights: npt.NDArray[np.int32],
    totals: npt.NDArray[np.int64],
    count: int,
    least: np.uint64,
) -> tuple[np.uint64, float]:
    """The lowest score of the `count` thresholds of one feature, as bits, and the lowest threshold that has it, if that
    score is below `least`. The samples, of two classes, are up to `AT_ONCE`."""
    drawn, sums = local_floats(), local_ints()
    both = at_lower_end(values, weights, lo, hi) if may_have_two(values, lo, hi) else np.int32(0)
    if both != 0:
        sums[0] = both
        drawn[0] = lowest_draw(feature_hash, lo, hi, count)
        return lowest_gini(sums, 1, totals, drawn, least)
    draw(feature_hash, lo, hi, drawn[:count])
    tally(drawn, count, values, weights, sums)
    return lowest_gini(sums, count, totals, drawn, least)


@inner
def search(
    spec: Spec,
    node: tuple[int, np.uint64, int, int],
    X: npt.NDArray[np.float32],
    index: npt.NDArray[np.uint32],
    targets: npt.NDArray[np.int64],
    stats: Stats,
    row: int,
    scratch: Scratch,
) -> bool:
    """Fill line `row` of `stats`; False if every feature is constant.

    `node` is (tree, path, depth, job); X holds one line per feature; `index` names the node's samples, whose totals
    are in `stats` already. The counts of a node inside a bucket are not stored; they have only columns for classes that
    are there, and with two classes and Gini there are none: candidate 0 and its first threshold are the best split.
    """
    tree, path, depth, job = node
    values, places = scratch.values[: index.size], scratch.places[: index.size]
    totals, columns = stats.totals[row], spec.columns
    inside, least = index.size <= spec.bucket, INFINITE
    unsorted = inside and spec.criterion == GINI and columns == TWO
    if inside and spec.classes > 2:
        columns = number_classes(totals, targets, scratch)
        totals, targets = scratch.few[:columns], scratch.targets[: index.size]
    weigh(columns, targets, places)
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
            if lo < hi and unsorted:
                feature_hash = step(node_hash, np.uint64(f))
                score, cut = challenge(feature_hash, lo, hi, values, places, totals, spec.thresholds, least)
                if score < least:
                    least, stats.cand[row, ZERO].feature, stats.cuts[row, ZERO, ZERO] = score, f, cut
                m += 1
                continue
            if lo < hi:
                candidate = stats.cand[row, m]
                candidate.feature, candidate.lo, candidate.hi = f, lo, hi
                count_weighed(columns, node_hash, values, targets, places, stats, row, m)
                m += 1
                continue
            known.path, known.depth, known.job = path, depth, job
        constant = stats.skip[row, skipped]
        constant.feature, constant.value = f, X[f, index[0]]
        skipped += 1
    restore(scratch.shuffled, scratch.swaps, drawn)
    head = stats.head[row]
    head.n, head.m, head.skipped = index.size, m, skipped
    head.best, head.cut, head.n_left = ZERO, ZERO, ZERO
    if not unsorted:
        head.best, head.cut, head.n_left = choose(spec, stats, row, totals, scratch)
    return m > 0
