"""Everything random, as a stateless hash (algorithm 1).

There is no generator whose state moves on: a threshold is a function of (tree key, path, feature, i), a feature order
of (tree key, path), the trees of a sample of (occupancy key, id). So a node looks the same whoever grows it, whenever.

    step(h, v) = mix((h ^ v) + GOLDEN)                 mix is the finaliser of splitmix64
    hash(key, path, feature, i) = step(step(step(key, path), feature), i)

Feature orders and occupancies are the beginning of a Fisher-Yates shuffle, drawn as far as needed. The shuffled array
is an identity that is lent by the caller and put back in order afterwards, so that a node costs what it looks at, not
all features."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.intervals import sort
from dynfrsdb_engine.kernel import inner, kernel
from dynfrsdb_engine.local import local_floats
from dynfrsdb_engine.ordered import next_below

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_A = np.uint64(0xBF58476D1CE4E5B9)
MIX_B = np.uint64(0x94D049BB133111EB)
ORDER = np.uint64(65535)
"""Stands where a feature would in the hash of a feature order; features go up to 65,534."""
S11, S27, S30, S31, S32 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
UNIT = 2.0**-53


@inner
def mix(z: np.uint64) -> np.uint64:
    """The finaliser of splitmix64."""
    z = (z ^ (z >> S30)) * MIX_A
    z = (z ^ (z >> S27)) * MIX_B
    return z ^ (z >> S31)


@inner
def step(h: np.uint64, v: np.uint64) -> np.uint64:
    """Draw one more word into the hash."""
    return mix((h ^ v) + GOLDEN)


@inner
def below(h: np.uint64, m: int) -> int:
    """An integer in 0 .. m-1 from the high half of `h`."""
    return np.int64(((h >> S32) * np.uint64(m)) >> S32)


@inner
def place(order_hash: np.uint64, j: int, d: int) -> int:
    """Which place of the shuffle is swapped into place `j`."""
    return j + below(step(order_hash, np.uint64(j)), d - j)


@inner
def restore(shuffled: npt.NDArray[np.int32], swaps: npt.NDArray[np.int32], n: int) -> None:
    """Undo the first `n` swaps, so that `shuffled` is the identity again."""
    for j in range(n - 1, -1, -1):
        r = swaps[j]
        shuffled[j], shuffled[r] = shuffled[r], shuffled[j]


@inner
def threshold(word: np.uint64, lo: float, hi: float, below_hi: float) -> float:
    """The threshold between `lo` and `hi` that a hash stands for; a larger hash never gives a smaller one.

    `below_hi` is the next float below `hi`, for those that rounding would take there."""
    u = np.float64(word >> S11) * UNIT
    w = np.float32(np.float64(lo) + u * (np.float64(hi) - np.float64(lo)))
    w = max(min(w, below_hi), lo)
    return np.float32(w + np.float32(0.0))


@inner
def draw(feature_hash: np.uint64, lo: float, hi: float, out: npt.NDArray[np.float32]) -> None:
    """Fill `out` with the thresholds of one candidate, in the order in which they are drawn; each leaves a sample on
    both sides."""
    below_hi = next_below(hi)
    for i in range(out.size):
        out[i] = threshold(step(feature_hash, np.uint64(i)), lo, hi, below_hi)


@inner
def lowest_draw(feature_hash: np.uint64, lo: float, hi: float, count: int) -> float:
    """The lowest of `count` thresholds of one candidate."""
    least = step(feature_hash, np.uint64(0))
    for i in range(1, count):
        least = min(least, step(feature_hash, np.uint64(i)))
    return threshold(least, lo, hi, next_below(hi))


@inner
def thresholds(node_hash: np.uint64, feature: int, lo: float, hi: float, out: npt.NDArray[np.float32]) -> None:
    """Fill `out` with the thresholds of one candidate, ascending."""
    drawn = local_floats()[: out.size]
    draw(step(node_hash, np.uint64(feature)), lo, hi, drawn)
    sort(drawn, out)


@kernel
def occupancy(
    key: np.uint64,
    sample: np.uint64,
    k: int,
    shuffled: npt.NDArray[np.int32],
    swaps: npt.NDArray[np.int32],
    out: npt.NDArray[np.int32],
) -> None:
    """Fill `out` with the k trees of one sample.

    `shuffled` is an identity over the trees, and is one again afterwards.
    """
    h = step(key, sample)
    for j in range(k):
        r = place(h, j, shuffled.size)
        swaps[j] = r
        shuffled[j], shuffled[r] = shuffled[r], shuffled[j]
        out[j] = shuffled[j]
    restore(shuffled, swaps, k)


@kernel
def spread(
    key: np.uint64, ids: npt.NDArray[np.uint64], k: int, starts: npt.NDArray[np.int64], members: npt.NDArray[np.int32]
) -> None:
    """Sort samples into their trees.

    Tree t holds `members[starts[t]:starts[t + 1]]`, each an index into `ids`, ascending.
    """
    trees = starts.size - 1
    shuffled, swaps = np.empty(trees, np.int32), np.empty(k, np.int32)
    homes, fill = np.empty((ids.size, k), np.int32), np.empty(trees, np.int64)
    for t in range(trees):
        shuffled[t], starts[t + 1] = t, 0
    starts[0] = 0
    for i in range(ids.size):
        occupancy(key, ids[i], k, shuffled, swaps, homes[i])
        for j in range(k):
            starts[homes[i, j] + 1] += 1
    for t in range(trees):
        fill[t] = starts[t]
        starts[t + 1] += starts[t]
    for i in range(ids.size):
        for j in range(k):
            t = homes[i, j]
            members[fill[t]] = i
            fill[t] += 1
