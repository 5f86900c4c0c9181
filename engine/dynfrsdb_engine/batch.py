"""Answer many rows at once: tree by tree, each copied out of the working set first.

The points of a tree lie scattered, in the order in which they were loaded and grown. Copied in one piece, level by
level, a tree fits the nearest cache while thousands of rows walk through it, and the copy is made for walking. A step
is four words, and whoever stands at word `at` goes to `words[at + CHILD]`, four words further if x > cut:

    CUT        a leaf's is infinite                     so all walks take as many steps as the tree is deep
    FEATURE    times eight                              where that feature of a block of rows begins
    CHILD      times four; a leaf's is the leaf         a walk that is over stays
    SAID       where in `shares` what a leaf says is    it ends where that of the next step begins

Rows come in blocks of eight, feature by feature, and walk side by side, so that their waits for memory overlap. What a
leaf says is divided out once, not for every row. Shares come in pairs, the last maybe nothing for column 0, because an
odd one would be a branch that nobody can foresee; of two classes each leaf has both, in their order. What is not in
memory, or tagged, says NaN; no leaf does, so a row that went there is known by its answer, and the caller answers in
another way (predict.py).

Nothing is kept from call to call, so there is nothing that a change could leave behind."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.kernel import Record, inner, kernel, maker
from dynfrsdb_engine.predict import begin, divide
from dynfrsdb_engine.reference import Address
from dynfrsdb_engine.spec import Spec, spec_at
from dynfrsdb_engine.working import LEAF_POINT, TOP_LEAF, TOP_POINT, Working, working_at

LANES = 8
"""Rows that walk side by side."""
PAIR = 2
CUT, FEATURE, CHILD, SAID, WORDS = (np.uint64(word) for word in range(5))
SHARE = np.dtype([("value", "f8"), ("column", "u8")], align=True)
ENDLESS, NOTHING = np.float32(np.inf), np.float64(0.0)
ZERO, ONE, TWO, THREE, FOUR, FIVE, SIX, SEVEN = (np.uint64(v) for v in range(8))
Words = npt.NDArray[np.uint32]
Blocks = npt.NDArray[np.float32]
Shares = npt.NDArray[np.void]


@maker
def in_blocks(X: npt.NDArray[np.float32]) -> Blocks:
    """The rows by eights, feature by feature; the last block is filled up with the last row."""
    n, features = X.shape
    blocks = np.empty((-(-n // LANES), features * LANES), np.float32)
    for i in range(blocks.shape[0] * LANES):
        for f in range(features):
            blocks[i // LANES, f * LANES + i % LANES] = X[min(i, n - 1), f]
    return blocks


@inner
def put_share(shares: Shares, k: int, column: int, value: float) -> int:
    """Note one share; returns how many there are."""
    shares[k].column, shares[k].value = column, value
    return k + 1


@inner
def put_shares(spec: Spec, w: Working, point: Record, shares: Shares, k: int) -> int:
    """Note what a leaf says, in pairs; NaN if the point is none. Returns how many shares there are."""
    if point.feature != LEAF_POINT:
        return put_share(shares, put_share(shares, k, 0, np.nan), 0, NOTHING)
    place = np.int64(point.child)
    n, m = np.float64(w.leaves[place]), w.leaves[place + 1]
    if spec.classes == PAIR:
        put_share(shares, put_share(shares, k, 0, NOTHING), 1, NOTHING)
        for c in range(place + 2, place + 2 + 2 * m, 2):
            shares[k + w.leaves[c]].value = np.float64(w.leaves[c + 1]) / n
        return k + PAIR
    for c in range(place + 2, place + 2 + 2 * m, 2):
        mean = np.float64(w.leaves[c + 1]) / n
        k = put_share(shares, k, w.leaves[c], mean if spec.classes else spec.offset + spec.step * mean)
    return put_share(shares, k, 0, NOTHING) if m & 1 else k


@inner
def copy_tree(spec: Spec, w: Working, root: int, words: Words, shares: Shares) -> tuple[int, bool]:
    """Copy a tree for walking; returns how deep it is, and whether anything is missing."""
    cuts = words.view(np.float32)
    words[SAID] = root  # until its turn comes, a step knows the point it is copied from
    at, top, level = ZERO, WORDS, WORDS
    k, depth, holes = 0, 0, False
    while at < top:
        if at == level:
            depth, level = depth + 1, top
        point = w.points[words[at + SAID]]
        words[at + SAID] = k
        if point.feature >= 0:
            cuts[at + CUT], words[at + FEATURE], words[at + CHILD] = point.cut, point.feature * LANES, top
            words[top + SAID], words[top + WORDS + SAID] = point.child, point.child + 1
            top += TWO * WORDS
        else:
            cuts[at + CUT], words[at + FEATURE], words[at + CHILD] = ENDLESS, 0, at
            k = put_shares(spec, w, point, shares, k)
            holes = holes or point.feature != LEAF_POINT
        at += WORDS
    words[top + SAID] = k
    return depth, holes


@inner
def go(words: Words, cuts: Blocks, blocks: Blocks, lane: np.uint64, at: np.uint64) -> np.uint64:
    """One step of a walk. Unsigned, because numba looks whether a signed index is negative."""
    right = blocks[np.uint64(words[at + FEATURE]) + lane] > cuts[at + CUT]
    return np.uint64(words[at + CHILD]) + np.uint64(right) * WORDS


@inner
def walk(words: Words, cuts: Blocks, depth: int, blocks: Blocks, at: np.uint64, ends: npt.NDArray[np.uint64]) -> None:
    """Where the eight rows of the block at `at` end."""
    a = b = c = d = e = f = g = h = ZERO
    for _ in range(depth):
        a, b = go(words, cuts, blocks, at, a), go(words, cuts, blocks, at + ONE, b)
        c, d = go(words, cuts, blocks, at + TWO, c), go(words, cuts, blocks, at + THREE, d)
        e, f = go(words, cuts, blocks, at + FOUR, e), go(words, cuts, blocks, at + FIVE, f)
        g, h = go(words, cuts, blocks, at + SIX, g), go(words, cuts, blocks, at + SEVEN, h)
    ends[0], ends[1], ends[2], ends[3], ends[4], ends[5], ends[6], ends[7] = a, b, c, d, e, f, g, h


@inner
def add_pairs(
    words: Words, ends: npt.NDArray[np.uint64], lanes: np.uint64, shares: Shares, out: npt.NDArray[np.float64]
) -> None:
    """Add what the leaves say where rows have ended, of two classes."""
    for j in range(lanes):
        k = np.uint64(words[ends[j] + SAID])
        out[j, ZERO] += shares[k].value
        out[j, ONE] += shares[k + ONE].value


@inner
def add_shares(
    words: Words, ends: npt.NDArray[np.uint64], lanes: np.uint64, shares: Shares, out: npt.NDArray[np.float64]
) -> None:
    """The same of any number of classes, or of targets."""
    for j in range(lanes):
        said = ends[j] + SAID
        for k in range(np.uint64(words[said]), np.uint64(words[said + WORDS]), TWO):
            out[j, shares[k].column] += shares[k].value
            out[j, shares[k + ONE].column] += shares[k + ONE].value


@maker
def add_tree(words: Words, depth: int, shares: Shares, blocks: Blocks, out: npt.NDArray[np.float64]) -> None:
    """Add what a tree says to all answers."""
    cuts, ends = words.view(np.float32), np.empty(LANES, np.uint64)
    n = np.uint64(out.shape[0])
    width = np.uint64(blocks.shape[1])
    flat = blocks.reshape(blocks.size)
    for block in range(np.uint64(blocks.shape[0])):
        walk(words, cuts, depth, flat, block * width, ends)
        first = block * np.uint64(LANES)
        lanes = min(np.uint64(LANES), n - first)
        if out.shape[1] == PAIR:
            add_pairs(words, ends, lanes, shares, out[first:])
        else:
            add_shares(words, ends, lanes, shares, out[first:])


@inner
def any_lost(out: npt.NDArray[np.float64]) -> bool:
    """Whether a row has met something that is not in memory, or a tag."""
    lost = 0
    for i in range(out.shape[0]):
        lost += np.isnan(out[i, 0])
    return lost > 0


@kernel
def answer_many(
    spec_address: Address[Spec],
    w_address: Address[Working],
    X: npt.NDArray[np.float32],
    out: npt.NDArray[np.float64],
) -> bool:
    """As `answer`, but copies every tree first."""
    spec, w = spec_at(spec_address), working_at(w_address)
    blocks, holding = in_blocks(X), begin(out, w.roots)
    points = w.top[TOP_POINT]  # no tree has more; what a tree does not use is never touched
    words = np.empty(4 * points + 8, np.uint32)
    shares = np.empty(w.top[TOP_LEAF] // 2 + points + 2, SHARE)
    for t in range(w.roots.size):
        if w.roots[t].n > 0:
            depth, holes = copy_tree(spec, w, t, words, shares)
            add_tree(words, depth, shares, blocks, out)
            if holes and any_lost(out):
                return False
    divide(out, holding)
    return holding > 0
