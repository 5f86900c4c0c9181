"""What a change does to the statistics of one split, exactly as a fresh search would leave them.

Most changes only move a count: each candidate knows how many samples sit at its least and greatest value, so only a
multiplicity that reaches zero, or a value outside, moves the range and with it every threshold. `foresee` finds that
out without changing anything, so that the samples below can be brought into memory first. `recount` then does it:

    range unmoved          one count per changed sample
    range moved            that feature is counted anew, over the samples below
    became constant        it joins the skipped constants; the walk along the order goes on behind the last candidate
    no longer constant     it becomes a candidate without a scan, as the old samples all sit at one value; the last
                           candidate may drop out
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.collect import Ops, edit_list, gather_below
from dynfrsdb_engine.hashing import ORDER, place, restore, step, thresholds
from dynfrsdb_engine.intervals import interval
from dynfrsdb_engine.kernel import Record, inlined, inner, maker
from dynfrsdb_engine.prefetch import bring_row
from dynfrsdb_engine.reference import Layout
from dynfrsdb_engine.rows import FIRST_FEATURE, Rows, intact, look_ahead
from dynfrsdb_engine.search import (
    Scratch,
    Stats,
    count_candidate,
    count_totals,
    make_scratch,
    make_stats,
    zero,
)
from dynfrsdb_engine.spec import EXAMPLE, Spec
from dynfrsdb_engine.working import TOP_LIST, Working

STILL, MOVED, CONSTANT_NOW = 0, 1, 2
FINE, LOST, BAD_ROW = 0, 1, 2
NEW, OLD_SKIP = -1, -2
ZERO = ONLY = np.int64(0)
"""In `Foresight.place`: a feature the node has not looked at; skipped constant i is OLD_SKIP - i."""


class Foresight(NamedTuple):
    """What a change will do to a split: per candidate, per skipped constant, and to the range of the targets."""

    moved: npt.NDArray[np.int8]
    at_lo: npt.NDArray[np.int64]
    at_hi: npt.NDArray[np.int64]
    ended: npt.NDArray[np.int8]
    target: npt.NDArray[np.int64]
    place: npt.NDArray[np.int32]


class Below(NamedTuple):
    """The samples below a node after the change, in any order, gathered for recounting; empty if no recount is
    needed."""

    slots: npt.NDArray[np.uint32]
    y: npt.NDArray[np.int64]
    column: npt.NDArray[np.float32]
    places: npt.NDArray[np.int32]


class Bench(NamedTuple):
    """Everything `recount` works with beside the node; made once and lent to every change.

    `soon` is the line of a node that comes a little later, or less than 0.
    """

    foresight: Foresight
    scratch: Scratch
    spare: Stats
    nothing: Below
    soon: npt.NDArray[np.int64]


def make_bench(spec: Spec) -> Bench:
    """A bench for the nodes of one forest."""
    p, d = spec.candidates, spec.features
    foresight = Foresight(
        np.zeros(p, np.int8),
        np.zeros(p, np.int64),
        np.zeros(p, np.int64),
        np.zeros(d, np.int8),
        np.zeros(3, np.int64),
        np.full(d, NEW, np.int32),
    )
    nothing = Below(np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.int32))
    return Bench(foresight, make_scratch(spec, 1), make_stats(spec, 1), nothing, np.full(1, -1, np.int64))


BENCH = Layout(make_bench(EXAMPLE))
bench_at = BENCH.reader()


@inner
def foresee_candidate(ops: Ops, a: int, b: int, candidate: Record, sight: Foresight, c: int) -> bool:
    """Whether the range of candidate `c` moves; notes its new multiplicities."""
    f, lo, hi = candidate.feature, candidate.lo, candidate.hi
    at_lo, at_hi, outside = candidate.at_lo, candidate.at_hi, False
    for i in range(a, b):
        o = ops.order[i]
        x, sign = ops.X[o, f], np.int64(ops.sign[o])
        at_lo += sign * np.int64(x == lo)
        at_hi += sign * np.int64(x == hi)
        outside |= (x < lo) | (x > hi)
    moved = outside or at_lo == 0 or at_hi == 0
    sight.moved[c] = MOVED if moved else STILL
    sight.at_lo[c], sight.at_hi[c] = at_lo, at_hi
    return moved


@inner
def foresee_target(ops: Ops, a: int, b: int, totals: npt.NDArray[np.int64], sight: Foresight) -> bool:
    """Whether the range of a regression node's targets moves; notes the new multiplicities."""
    least, most, outside = totals[2], totals[3], False
    at_least, at_most = totals[4], totals[5]
    for i in range(a, b):
        v, sign = ops.y[ops.order[i]], np.int64(ops.sign[ops.order[i]])
        if v == least:
            at_least += sign
        if v == most:
            at_most += sign
        outside = outside or v < least or v > most
    moved = outside or at_least == 0 or at_most == 0
    sight.target[0], sight.target[1], sight.target[2] = moved, at_least, at_most
    return moved


@inner
def foresee(spec: Spec, w: Working, ops: Ops, a: int, b: int, row: int, added: int, sight: Foresight) -> bool:
    """Whether ops a..b, of which so many are `added`, need the samples below node `row`. Changes nothing in the working
    set."""
    head, stats = w.stats.head[row], w.stats
    scan = False
    for c in range(head.m):
        scan = foresee_candidate(ops, a, b, stats.cand[row, c], sight, c) or scan
    for i in range(head.skipped):
        sight.ended[i] = 0
    if added > 0:  # removing ends no constancy, so their values need not be brought from memory
        for i in range(head.skipped):
            constant = stats.skip[row, i]
            for j in range(a, b):
                o = ops.order[j]
                if ops.sign[o] > 0 and ops.X[o, constant.feature] != constant.value:
                    sight.ended[i] = 1
    if spec.classes == 0:
        scan = foresee_target(ops, a, b, stats.totals[row], sight) or scan
    return scan


@inner
def apply_totals(spec: Spec, ops: Ops, a: int, b: int, totals: npt.NDArray[np.int64]) -> None:
    """Add and take away the changed samples; leaves the range of regression targets as it was."""
    for i in range(a, b):
        o = ops.order[i]
        sign = np.int64(ops.sign[o])
        if spec.classes:
            totals[ops.y[o]] += sign
        else:
            totals[0] += sign
            totals[1] += sign * ops.y[o]


@maker
def samples_below(w: Working, rows: Rows, ops: Ops, a: int, b: int, row: int) -> tuple[int, Below]:
    """The samples of a node after the change, with their targets; the first is a status."""
    slots = w.lists[w.top[TOP_LIST] :]
    n = edit_list(ops, a, b, slots, gather_below(w, w.nodes[row].point, slots))
    size = max(n, 0)
    below = Below(slots[:size], np.empty(size, np.int64), np.empty(size, np.float32), np.empty(size, np.int32))
    if n < 0:
        return LOST, below
    for i in range(n):
        slot = np.int64(slots[i])
        look_ahead(rows, below.slots, i)
        if not intact(rows, slot):
            return BAD_ROW, below
        below.y[i] = np.int64(rows.words[slot, 2])
    return FINE, below


@inner
def read_column(rows: Rows, below: Below, feature: int) -> tuple[float, float]:
    """Copy one feature of the samples below into `below.column`; returns its range."""
    lo = rows.floats[below.slots[0], FIRST_FEATURE + feature]
    hi = lo
    for i in range(below.slots.size):
        x = rows.floats[below.slots[i], FIRST_FEATURE + feature]
        below.column[i] = x
        lo = min(lo, x)
        hi = max(hi, x)
    return lo, hi


@inner
def move_counts(spec: Spec, ops: Ops, a: int, b: int, stats: Stats, row: int, c: int) -> None:
    """Apply the change to the counts of a candidate whose range stayed.

    No threshold is below the least value or reaches the greatest, so that the interval of those two is known, and most
    often the thresholds stay where they are in memory.
    """
    candidate, cuts, counts = stats.cand[row, c], stats.cuts[row, c], stats.counts[row, c]
    f, lo, hi = candidate.feature, candidate.lo, candidate.hi
    for i in range(a, b):
        o = ops.order[i]
        x, sign, j = ops.X[o, f], np.int64(ops.sign[o]), ZERO
        least = x == lo
        if least or x == hi:
            sign *= np.int64(least)
        else:
            j = interval(cuts, x)
        if j < cuts.size:
            if spec.classes:
                counts[j, ops.y[o]] += sign
            else:
                counts[j, 0] += sign
                stats.sums[row, c, j] += sign * ops.y[o]


@inner
def recount_candidate(
    columns: int, node_hash: np.uint64, rows: Rows, below: Below, stats: Stats, row: int, c: int
) -> bool:
    """Count a candidate anew from the samples below; False if it became constant (its value is then in `lo`)."""
    candidate = stats.cand[row, c]
    lo, hi = read_column(rows, below, candidate.feature)
    candidate.lo, candidate.hi = lo, hi
    if lo == hi:
        return False
    count_candidate(columns, node_hash, below.column, below.y, below.places, stats, row, c)
    return True


@inlined
def not_added(spec: Spec, ops: Ops, a: int, b: int, totals: npt.NDArray[np.int64]) -> int:
    """How many samples of a node were there before its change and still are; `totals` are those after it."""
    old = totals[0]
    for c in range(1, spec.classes):
        old += totals[c]
    for i in range(a, b):
        old -= ops.sign[ops.order[i]] > 0
    return old


@inlined
def widened(ops: Ops, a: int, b: int, constant: Record, old: int) -> tuple[float, float]:
    """The range of a feature that had one value in `old` samples, with the samples that are added."""
    first, lo, hi = old == 0, constant.value, constant.value
    for i in range(a, b):
        o = ops.order[i]
        if ops.sign[o] > 0:
            x = ops.X[o, constant.feature]
            lo, hi = (x, x) if first else (min(lo, x), max(hi, x))
            first = False
    return lo, hi


@inner
def end_constancy(
    spec: Spec,
    node_hash: np.uint64,
    ops: Ops,
    a: int,
    b: int,
    constant: Record,
    totals: npt.NDArray[np.int64],
    spare: Stats,
    m: int,
) -> tuple[bool, float]:
    """Make candidate `m` of `spare` from a feature that was constant: the old samples sit at its value, the added ones
    anywhere.

    Returns whether it varies now, and its least value. `totals` are those after the change.
    """
    f, value = constant.feature, constant.value
    old = not_added(spec, ops, a, b, totals)
    lo, hi = widened(ops, a, b, constant, old)
    candidate = spare.cand[0, m]
    candidate.feature, candidate.lo, candidate.hi = f, lo, hi
    if lo == hi:
        return False, lo
    cuts, counts, sums = spare.cuts[0, m], spare.counts[0, m], spare.sums[0, m]
    thresholds(node_hash, np.int64(f), lo, hi, cuts)
    zero(spare, ONLY, m, spec.columns)
    home = interval(cuts, value)
    candidate.at_lo = old if value == lo else 0
    candidate.at_hi = old if value == hi else 0
    if old > 0 and home < cuts.size:
        for c in range(spec.columns):
            counts[home, c] = totals[c]
        if spec.classes == 0:
            sums[home] = totals[1]
    for i in range(a, b):
        o = ops.order[i]
        if ops.sign[o] < 0:
            continue
        x = ops.X[o, f]
        candidate.at_lo += x == lo
        candidate.at_hi += x == hi
        j = interval(cuts, x)
        column = ops.y[o] if spec.classes else ZERO
        if old > 0 and home < cuts.size:
            counts[home, column] -= 1
            if spec.classes == 0:
                sums[home] -= ops.y[o]
        if j < cuts.size:
            counts[j, column] += 1
            if spec.classes == 0:
                sums[j] += ops.y[o]
    return True, lo


@inner
def copy_candidate(source: Stats, i: int, c: int, target: Stats, j: int, d: int) -> None:
    """Copy candidate `c` of line `i` to candidate `d` of line `j`."""
    target.cand[j, d] = source.cand[i, c]
    for t in range(source.cuts.shape[2]):
        target.cuts[j, d, t] = source.cuts[i, c, t]
        for k in range(source.counts.shape[3]):
            target.counts[j, d, t, k] = source.counts[i, c, t, k]
    for t in range(source.sums.shape[2]):
        target.sums[j, d, t] = source.sums[i, c, t]


@inlined
def reorder(spec: Spec, w: Working, rows: Rows, ops: Ops, a: int, b: int, row: int, below: Below, bench: Bench) -> None:
    """Walk the feature order again after a constancy began or ended, keeping every candidate that is still one."""
    stats, spare, scratch, sight = w.stats, bench.spare, bench.scratch, bench.foresight
    head, totals = stats.head[row], stats.totals[row]
    node_hash = step(spec.tree_keys[w.nodes[row].tree], w.nodes[row].path)
    order_hash = step(node_hash, ORDER)
    for c in range(head.m):
        sight.place[stats.cand[row, c].feature] = c
    for i in range(head.skipped):
        sight.place[stats.skip[row, i].feature] = OLD_SKIP - i
    m, skipped, drawn = ZERO, ZERO, ZERO
    while drawn < spec.features and m < spec.candidates:
        r = place(order_hash, drawn, spec.features)
        scratch.swaps[drawn] = r
        f = np.int64(scratch.shuffled[r])
        scratch.shuffled[r] = scratch.shuffled[drawn]
        scratch.shuffled[drawn] = f
        drawn += 1
        old = np.int64(sight.place[f])
        varies, value = True, np.float32(0.0)
        if old >= 0:
            varies, value = sight.moved[old] != CONSTANT_NOW, stats.cand[row, old].lo
            if varies:
                copy_candidate(stats, row, old, spare, ONLY, m)
        elif old <= OLD_SKIP and not sight.ended[OLD_SKIP - old]:
            varies, value = False, stats.skip[row, OLD_SKIP - old].value
        elif old <= OLD_SKIP:
            varies, value = end_constancy(spec, node_hash, ops, a, b, stats.skip[row, OLD_SKIP - old], totals, spare, m)
        else:
            spare.cand[0, m].feature = f
            varies = recount_candidate(spec.columns, node_hash, rows, below, spare, ONLY, m)
            value = spare.cand[0, m].lo
        if varies:
            m += 1
        else:
            spare.skip[0, skipped].feature, spare.skip[0, skipped].value = f, value
            skipped += 1
    restore(scratch.shuffled, scratch.swaps, drawn)
    for c in range(head.m):
        sight.place[stats.cand[row, c].feature] = NEW
    for i in range(head.skipped):
        sight.place[stats.skip[row, i].feature] = NEW
    for c in range(m):
        copy_candidate(spare, ONLY, c, stats, row, c)
    for i in range(skipped):
        stats.skip[row, i] = spare.skip[0, i]
    head.m, head.skipped = m, skipped


@inner
def recount_target(spec: Spec, w: Working, row: int, below: Below, sight: Foresight) -> None:
    """Bring the range of a regression node's targets up to date; n and sum are already."""
    totals = w.stats.totals[row]
    if sight.target[0]:
        count_totals(spec.classes, below.y, totals)
    else:
        totals[4], totals[5] = sight.target[1], sight.target[2]


@inner
def recount(spec: Spec, w: Working, rows: Rows, ops: Ops, a: int, b: int, row: int, below: Below, bench: Bench) -> None:
    """Bring candidates and skipped constants of a split up to date with ops a..b; totals and n are already."""
    stats, sight = w.stats, bench.foresight
    head = stats.head[row]
    node_hash = step(spec.tree_keys[w.nodes[row].tree], w.nodes[row].path)
    changed, soon = False, bench.soon[0]
    for c in range(head.m):
        if soon >= 0:  # one candidate at a time: of too many requests at once the processor forgets some
            bring_row(stats.counts[soon], c)
            bring_row(stats.cuts[soon], c)
        if sight.moved[c] == MOVED:
            if not recount_candidate(spec.columns, node_hash, rows, below, stats, row, c):
                sight.moved[c] = CONSTANT_NOW
                changed = True
        else:
            move_counts(spec, ops, a, b, stats, row, c)
            stats.cand[row, c].at_lo, stats.cand[row, c].at_hi = sight.at_lo[c], sight.at_hi[c]
    for i in range(head.skipped):
        changed = changed or sight.ended[i] != 0
    if changed:
        reorder(spec, w, rows, ops, a, b, row, below, bench)
