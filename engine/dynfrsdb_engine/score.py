"""Score a candidate split from the counts of its two sides.

Counts are integers, so a score depends only on which samples are present, never on the order they came or went. That
is what lets a removal prove a node unchanged: same counts, same score, same bits. The form of each formula is part of
F: equivalent ones round differently and pick other splits.

A candidate's counts are kept per *interval*: row j holds the samples with threshold j-1 < x <= threshold j, so a
change touches one row and the left side of threshold j is the sum of rows 0..j. An empty interval repeats its
neighbour's score and is passed over: ties go to the lower threshold anyway.

Entropy is integers only: X(m) = floor(m * log2(m) * 2^24) with a log2 of 56 binary digits, made by squaring. No libm,
which would tie a store to a machine. X of small m is looked up."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.kernel import Record, inner, kernel
from dynfrsdb_engine.local import ROOM, local_doubles, local_words
from dynfrsdb_engine.ordered import bits_of, float_of, turned

GINI, ENTROPY, SQUARED_ERROR = 0, 1, 2
ONE = np.int64(1)
U0, U1, U32, U63 = np.uint64(0), np.uint64(1), np.uint64(32), np.uint64(63)
LOW = np.uint64(0xFFFFFFFF)
XLOG_TABLE = 1 << 16
INFINITE = np.float64(np.inf).view(np.uint64)
AT_ONCE = 8
"""Scores that an instruction makes."""
FIRST, SECOND, HIGHEST = np.int32(0xFFFF), np.uint32(16), np.int32(0x7FFFFFFF)
A_LITTLE_MORE = 1.0 + 2.0**-40
"""As a factor: more than some dozen roundings to 53 bits change."""


@inner
def square_high(x: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The 128-bit square of `x` as (high, low) words."""
    a, b = x >> U32, x & LOW
    ab = a * b
    low = b * b
    middle = (low >> U32) + (ab & LOW) + (ab & LOW)
    high = a * a + (ab >> U32) + (ab >> U32) + (middle >> U32)
    return high, x * x


@inner
def xlogx(m: int) -> int:
    """X(m) = floor(m * log2(m) * 2^24), log2 with 56 binary digits."""
    if m < 2:
        return 0
    e = 63
    while (m >> e) == 0:
        e -= 1
    x = np.uint64(m) << np.uint64(63 - e)
    log = np.uint64(e) << np.uint64(56)
    for b in range(55, -1, -1):
        high, low = square_high(x)
        if high >> U63:
            x = high
            log |= U1 << np.uint64(b)
        else:
            x = (high << U1) | (low >> U63)
    return np.int64(np.uint64(m) * (log >> U32) + ((np.uint64(m) * (log & LOW)) >> U32))


@kernel
def entropy_table() -> npt.NDArray[np.int64]:
    """X(m) for m below `XLOG_TABLE`."""
    table = np.empty(XLOG_TABLE, np.int64)
    for m in range(XLOG_TABLE):
        table[m] = xlogx(m)
    return table


@inner
def looked_up(table: npt.NDArray[np.int64], m: int) -> int:
    """X(m), from the table where it reaches."""
    return table[m] if m < table.size else xlogx(m)


@inner
def best_gini(
    counts: npt.NDArray[np.uint32], totals: npt.NDArray[np.int64], n: int, limit: float, sides: npt.NDArray[np.uint32]
) -> tuple[float, int, int]:
    """The lowest Gini score below `limit` with its threshold and left size; threshold -1 if none is lower.

    Products of counts are whole numbers of eight bytes, so they may be added in any order, several to an instruction.
    """
    best, cut, n_left, at = limit, -1, 0, 0
    left, right = sides[0], sides[1]
    for c in range(totals.size):
        left[c], right[c] = 0, totals[c]
    for j in range(counts.shape[0]):
        here, squares_left, squares_right = np.int64(0), U0, U0
        for c in range(totals.size):
            count = counts[j, c]
            one, other = np.uint32(left[c] + count), np.uint32(right[c] - count)
            left[c], right[c] = one, other
            here += np.int64(count)
            squares_left += np.uint64(one) * np.uint64(one)
            squares_right += np.uint64(other) * np.uint64(other)
        if here == 0:
            continue
        n_left += here
        n_right = n - n_left
        a, b = n_left * n_left - np.int64(squares_left), n_right * n_right - np.int64(squares_right)
        score = np.float64(a) / n_left + np.float64(b) / n_right
        if score < best:
            best, cut, at = score, j, n_left
    return best, cut, at


@inner
def best_gini_of_two(
    cand: npt.NDArray[np.void], counts: npt.NDArray[np.uint32], m: int, totals: npt.NDArray[np.int64]
) -> tuple[int, int, int]:
    """As `best_split`, for two classes and Gini: the same numbers as `best_gini`, eight thresholds to an instruction.

    (a + b)^2 - a^2 - b^2 is 2ab, and a product of integers rounds to the same double whether it is rounded before or
    after it becomes one. Both sides of a threshold hold a sample. No score is negative, so their bits as whole numbers
    are in the order of the scores, and the least of whole numbers may be looked for in any order.
    """
    lefts, scores = local_words(), local_doubles()
    bits, thresholds, n = scores.view(np.uint64), counts.shape[1], totals[0] + totals[1]
    least, winner, cut, n_left = INFINITE, -1, -1, np.int64(0)
    first, size = 0, 0
    for c in range(m):
        size = sides_of(counts[c], unlike(cand[c], n, thresholds), lefts, size)
        if c < m - 1 and size + thresholds + AT_ONCE <= ROOM:
            continue
        size = fill_up(lefts, size)
        score_sides(lefts, size, totals, scores)
        lowest = least
        for i in range(size):
            lowest = min(lowest, bits[i])
        if lowest < least:
            i = first_of(bits, lowest)
            n_left = np.int64(lefts[i] & LOW) + np.int64(lefts[i] >> U32)
            while i >= unlike(cand[first], n, thresholds):
                i -= unlike(cand[first], n, thresholds)
                first += 1
            least, winner, cut = lowest, first, i
        first, size = c + 1, 0
    return winner, cut, n_left


@inner
def unlike(candidate: Record, n: int, thresholds: int) -> int:
    """How many of a candidate's thresholds part the samples of a node in ways that may be unlike: of two values, all
    of them part in the same way."""
    return ONE if candidate.at_lo + candidate.at_hi == n else thresholds


@inner
def first_of(words: npt.NDArray[np.uint64], word: np.uint64) -> int:
    """Where a word that is there comes first."""
    i = 0
    while words[i] != word:
        i += 1
    return i


@inner
def sides_of(intervals: npt.NDArray[np.uint32], thresholds: int, lefts: npt.NDArray[np.uint64], at: int) -> int:
    """Write how many of both classes, one in each half of a word, each of the first thresholds of a candidate has on
    its left, from `at` on; returns where that ends."""
    left, mine = U0, lefts[at:]
    for j in range(thresholds):
        left += np.uint64(intervals[j, 0]) | np.uint64(intervals[j, 1]) << U32
        mine[j] = left
    return at + thresholds


@inner
def fill_up(lefts: npt.NDArray[np.uint64], size: int) -> int:
    """Repeat the last until they fill whole instructions; returns how many there are then."""
    last = lefts[size - 1]
    while size % AT_ONCE:
        lefts[size] = last
        size += 1
    return size


@inner
def gini_of_two(a: float, b: float, c: float, d: float) -> float:
    """The score of `a` and `b` samples of two classes on one side and `c` and `d` on the other."""
    return 2.0 * a * b / (a + b) + 2.0 * c * d / (c + d)


@inner
def score_sides(
    lefts: npt.NDArray[np.uint64], size: int, totals: npt.NDArray[np.int64], scores: npt.NDArray[np.float64]
) -> None:
    """The Gini score of each of the first `size` left sides of two classes."""
    all_zeros, all_ones = np.float64(totals[0]), np.float64(totals[1])
    for i in range(size):
        a, b = np.float64(lefts[i] & LOW), np.float64(lefts[i] >> U32)
        scores[i] = gini_of_two(a, b, all_zeros - a, all_ones - b)


@inner
def lowest_gini(
    lefts: npt.NDArray[np.int32],
    size: int,
    totals: npt.NDArray[np.int64],
    thresholds: npt.NDArray[np.float32],
    limit: np.uint64,
) -> tuple[np.uint64, float]:
    """The lowest score of the first `size` left sides of two classes, as bits, and the lowest threshold that has it, if
    it is below `limit`.

    A left side is the samples on it, and 2^16 times those of the second class besides. All arrays are of local.py.
    """
    scores = local_doubles()
    bits, lowest, least = scores.view(np.uint64), INFINITE, HIGHEST
    all_zeros, all_ones = np.float64(totals[0]), np.float64(totals[1])
    for i in range(size, size + AT_ONCE):
        lefts[i] = lefts[size - 1]
    for i in range((size + AT_ONCE - 1) // AT_ONCE * AT_ONCE):
        ones = np.int32(np.uint32(lefts[i]) >> SECOND)
        a, b = np.float64(np.int32((lefts[i] & FIRST) - ones)), np.float64(ones)
        scores[i] = gini_of_two(a, b, all_zeros - a, all_ones - b)
    for i in range(size):
        lowest = min(lowest, bits[i])
    if lowest < limit:
        for i in range(size):
            least = min(least, turned(bits_of(thresholds[i])) if bits[i] == lowest else HIGHEST)
    return lowest, float_of(turned(least))


@inner
def still_best(
    cand: npt.NDArray[np.void],
    counts: npt.NDArray[np.uint32],
    m: int,
    totals: npt.NDArray[np.int64],
    best: int,
    cut: int,
) -> tuple[bool, int]:
    """Whether a split of two classes is beyond doubt the one that `best_gini_of_two` would find, and its left size.

    A score is compared with that of this split without the divisions that make it, and must be greater by more than
    all rounding together could be. A threshold behind this one that leaves the same on its left has the same score.
    """
    lefts, scores, thresholds = local_words(), local_doubles(), counts.shape[1]
    n, left = totals[0] + totals[1], U0
    for j in range(cut + 1):
        left += np.uint64(counts[best, j, 0]) | np.uint64(counts[best, j, 1]) << U32
    lefts[0] = left
    score_sides(lefts, 1, totals, scores)
    near, limit, size, place = np.int64(0), scores[0] * A_LITTLE_MORE, 0, ROOM
    for c in range(m):
        if c == best:
            place = size + cut
        size = sides_of(counts[c], unlike(cand[c], n, thresholds), lefts, size)
        if c == m - 1 or size + thresholds + AT_ONCE > ROOM:
            size = fill_up(lefts, size)
            near += rivals(lefts, size, totals, limit, left, place)
            size, place = 0, 0 if c >= best else ROOM
    return near == 0, np.int64(left & LOW) + np.int64(left >> U32)


@inner
def rivals(
    lefts: npt.NDArray[np.uint64], size: int, totals: npt.NDArray[np.int64], limit: float, same: np.uint64, place: int
) -> int:
    """How many of the first `size` left sides score no more than `limit`, without those from `place` on that are the
    `same`."""
    all_zeros, all_ones, near = np.float64(totals[0]), np.float64(totals[1]), np.int64(0)
    for i in range(size):
        a, b = np.float64(lefts[i] & LOW), np.float64(lefts[i] >> U32)
        c, d = all_zeros - a, all_ones - b
        low = 2.0 * a * b * (c + d) + 2.0 * c * d * (a + b) <= limit * ((a + b) * (c + d))
        near += np.int64(low & ((lefts[i] != same) | (i < place)))
    return near


@inner
def best_entropy(
    counts: npt.NDArray[np.uint32],
    totals: npt.NDArray[np.int64],
    n: int,
    limit: int,
    left: npt.NDArray[np.uint32],
    table: npt.NDArray[np.int64],
) -> tuple[int, int, int]:
    """As `best_gini`, in integers."""
    best, cut, n_left, at = limit, -1, 0, 0
    classes = totals.size
    for c in range(classes):
        left[c] = 0
    for j in range(counts.shape[0]):
        here = 0
        for c in range(classes):
            here += counts[j, c]
            left[c] += counts[j, c]
        if here == 0:
            continue
        n_left += here
        score = looked_up(table, n_left) + looked_up(table, n - n_left)
        for c in range(classes):
            score -= looked_up(table, np.int64(left[c])) + looked_up(table, totals[c] - left[c])
        if score < best:
            best, cut, at = score, j, n_left
    return best, cut, at


@inner
def best_squares(
    counts: npt.NDArray[np.uint32], sums: npt.NDArray[np.int64], total: int, n: int, limit: float
) -> tuple[float, int, int]:
    """The largest drop of squared error above `limit` with its threshold and left size.

    Threshold -1 if none is larger.
    """
    best, cut, n_left, sum_left, at = limit, -1, 0, 0, 0
    for j in range(counts.shape[0]):
        if counts[j, 0] == 0:
            continue
        n_left += counts[j, 0]
        sum_left += sums[j]
        n_right = n - n_left
        d = np.float64(sum_left) / n_left - np.float64(total - sum_left) / n_right
        score = d * d * np.float64(n_left * n_right)
        if score > best:
            best, cut, at = score, j, n_left
    return best, cut, at


@inner
def best_split(
    criterion: int,
    cand: npt.NDArray[np.void],
    counts: npt.NDArray[np.uint32],
    sums: npt.NDArray[np.int64],
    m: int,
    totals: npt.NDArray[np.int64],
    sides: npt.NDArray[np.uint32],
    table: npt.NDArray[np.int64],
) -> tuple[int, int, int]:
    """The best of `m` candidates as (candidate, threshold, left size).

    Ties to the earlier candidate, then the lower threshold.
    """
    if criterion == GINI and totals.size == 2:
        return best_gini_of_two(cand, counts, m, totals)
    winner, cut, n_left, n = -1, -1, 0, totals[0]
    if criterion != SQUARED_ERROR:
        for c in range(1, totals.size):
            n += totals[c]
    low, whole, high = np.inf, np.int64(0x7FFFFFFFFFFFFFFF), -1.0
    for c in range(m):
        if criterion == GINI:
            low, j, size = best_gini(counts[c], totals, n, low, sides)
        elif criterion == ENTROPY:
            whole, j, size = best_entropy(counts[c], totals, n, whole, sides[0], table)
        else:
            high, j, size = best_squares(counts[c], sums[c], totals[1], n, high)
        if j >= 0:
            winner, cut, n_left = c, j, size
    return winner, cut, n_left
