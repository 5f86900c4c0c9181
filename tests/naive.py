"""The naive twin: the forest function F, written from its definition.

    forest = F(seed, settings, the set of live samples {(id, x, y)})

Every kernel and every stored record is compared with this file, so it must be right by inspection. It uses Python
integers (which cannot overflow), lists, and numpy float32 scalars where a float32 is meant. It shares no line with the
product: a mistake in the engine cannot repeat itself here by import.

A worked example. One feature, one tree, s = 1, max_depth = 1, four samples:

    id  x    y
    0   0.0  0        the range is [0, 1]; whichever threshold w in [0, 1) the hash
    1   0.0  0        gives, `x <= w` sends 0 and 1 left, 2 and 3 right:
    2   1.0  1
    3   1.0  1        Split(feature 0, w, n=4, (2, 2))
                      |- Leaf(n=2, (2, 0), ids 0 1)
                      `- Leaf(n=2, (0, 2), ids 2 3)

What must stay true
    Nothing here has a state: the same samples in any order give the same forest.
    A score is computed in exactly the form DESIGN gives; an equivalent formula picks other splits now and then.

Not done here: no validation of input, no speed, no updating. To remove a sample, call `Forest` without it.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

import numpy as np

Criterion = Literal["gini", "entropy", "squared_error"]

# Class counts (one int per class), or for regression the sum S of the fixed-point targets.
Counts = tuple[int, ...] | int

WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15
ORDER = 65535  # stands in the feature's place when the hash shuffles features; real features are below it


class EmptyForest(Exception):
    """No tree holds a sample, so there is nothing to predict from."""


@dataclass(frozen=True)
class Settings:
    """Everything besides samples that F reads, plus the seed."""

    seed: bytes
    n_trees: int
    k: int
    p: int
    s: int
    max_depth: int
    min_samples_split: int
    criterion: Criterion
    n_features: int
    n_classes: int  # 0 for regression
    target_offset: float = 0.0
    target_step: float = 1.0


class Sample(NamedTuple):
    """One training row; y is a class index, or the fixed-point target v for regression."""

    id: int
    x: tuple[np.float32, ...]
    y: int


class Side(NamedTuple):
    """How many samples a side of a split holds, and their counts."""

    n: int
    counts: Counts


class Candidate(NamedTuple):
    """A feature a node considers: its range, its sorted thresholds, and the left side of each."""

    feature: int
    lo: np.float32
    hi: np.float32
    thresholds: tuple[np.float32, ...]
    left: tuple[Side, ...]


@dataclass(frozen=True)
class Leaf:
    n: int
    counts: Counts
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Split:
    feature: int
    threshold: np.float32
    n: int
    counts: Counts
    left: "Node"
    right: "Node"
    candidates: list[Candidate]


Node = Leaf | Split


def as_row(values: Iterable[float | np.float32]) -> tuple[np.float32, ...]:
    """Round to float32 and turn -0.0 into 0.0, as the store does with samples and queries alike."""
    return tuple(np.float32(value) + np.float32(0.0) for value in values)


def as_samples(rows: Iterable[Iterable[float | np.float32]], y: Iterable[int], ids: Iterable[int]) -> list[Sample]:
    """Samples from raw rows; the three must be equally long."""
    return [Sample(int(i), as_row(row), int(label)) for i, row, label in zip(ids, rows, y, strict=True)]


def mix(z: int) -> int:
    """The splitmix64 finaliser."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % WORD
    return z ^ (z >> 31)


def step(h: int, v: int) -> int:
    """Take one more value into a hash."""
    return mix(((h ^ v) + GOLDEN) % WORD)


def hash64(key: int, path: int, feature: int, i: int) -> int:
    """The stateless source of everything random inside a tree."""
    return step(step(step(key, path), feature), i)


def below(h: int, m: int) -> int:
    """An integer in 0 .. m-1 from the upper half of a hash."""
    return ((h >> 32) * m) >> 32


def derived_key(seed: bytes, purpose: bytes, tree: int) -> int:
    """A 64-bit key for one purpose and tree."""
    digest = hashlib.blake2b(purpose + tree.to_bytes(4, "little"), key=seed, digest_size=8).digest()
    return int.from_bytes(digest, "little")


def occupancy_key(seed: bytes) -> int:
    return derived_key(seed, b"occupancy", 0)


def tree_key(seed: bytes, tree: int) -> int:
    return derived_key(seed, b"tree", tree)


def occupancy(settings: Settings, sample_id: int) -> set[int]:
    """The k trees that hold a sample: the front of a shuffle keyed by its id."""
    key = occupancy_key(settings.seed)
    trees = list(range(settings.n_trees))
    for j in range(settings.k):
        r = j + below(step(step(key, sample_id), j), settings.n_trees - j)
        trees[j], trees[r] = trees[r], trees[j]
    return set(trees[: settings.k])


def feature_order(key: int, path: int, n_features: int) -> list[int]:
    """The order in which the node `path` of the tree with this key looks at the features."""
    order = list(range(n_features))
    for j in range(n_features):
        r = j + below(hash64(key, path, ORDER, j), n_features - j)
        order[j], order[r] = order[r], order[j]
    return order


def threshold(h: int, lo: np.float32, hi: np.float32) -> np.float32:
    """A cut in [lo, hi), so that both sides hold a sample; never -0.0."""
    u = float(h >> 11) * 2.0**-53
    w = np.float32(float(lo) + u * (float(hi) - float(lo)))
    if w >= hi:
        w = np.nextafter(hi, np.float32(-np.inf))
    if w < lo:
        w = lo
    return w + np.float32(0.0)


def thresholds(key: int, path: int, feature: int, s: int, lo: np.float32, hi: np.float32) -> tuple[np.float32, ...]:
    """The s thresholds of a feature at a node, ascending; equal ones stay."""
    return tuple(sorted(threshold(hash64(key, path, feature, i), lo, hi) for i in range(s)))


def log2_fixed(m: int) -> int:
    """log2(m) with 56 fraction bits, for 1 <= m < 2^32: square the mantissa, read off one bit, repeat."""
    e = m.bit_length() - 1
    x = m << (63 - e)
    log = e << 56
    for b in range(55, -1, -1):
        x = (x * x) >> 63
        if x >= WORD:
            x >>= 1
            log |= 1 << b
    return log


@cache
def m_log2_m(m: int) -> int:
    """X(m): m*log2(m) with 24 fraction bits, in integers."""
    return 0 if m < 2 else (m * log2_fixed(m)) >> 32


def tally(settings: Settings, samples: Sequence[Sample]) -> Side:
    """Count samples by class, or sum their targets."""
    if settings.n_classes == 0:
        return Side(len(samples), sum(sample.y for sample in samples))
    counts = [0] * settings.n_classes
    for sample in samples:
        counts[sample.y] += 1
    return Side(len(samples), tuple(counts))


def gini(side: Side) -> float:
    assert isinstance(side.counts, tuple)
    return float(side.n * side.n - sum(c * c for c in side.counts)) / float(side.n)


def entropy(side: Side) -> int:
    assert isinstance(side.counts, tuple)
    return m_log2_m(side.n) - sum(m_log2_m(c) for c in side.counts)


def gain(left: Side, right: Side) -> float:
    """How far apart the means of the two sides are, weighted.

    S is made a float before the division: Python's int / int rounds once, a kernel's division rounds twice.
    """
    assert isinstance(left.counts, int)
    assert isinstance(right.counts, int)
    d = float(left.counts) / float(left.n) - float(right.counts) / float(right.n)
    return d * d * float(left.n * right.n)


def score(criterion: Criterion, left: Side, right: Side) -> float | int:
    """Lower is better under each criterion; the gain of regression is negated, which is exact."""
    if criterion == "gini":
        return gini(left) + gini(right)
    if criterion == "entropy":
        return entropy(left) + entropy(right)
    return -gain(left, right)


def divide(samples: Sequence[Sample], feature: int, w: np.float32) -> tuple[list[Sample], list[Sample]]:
    """The samples that go left and those that go right."""
    left = [sample for sample in samples if sample.x[feature] <= w]
    right = [sample for sample in samples if not sample.x[feature] <= w]
    return left, right


def candidate(settings: Settings, key: int, path: int, samples: Sequence[Sample], feature: int) -> Candidate | None:
    """What the node knows of one feature, or None if the feature is constant there."""
    values = [sample.x[feature] for sample in samples]
    lo, hi = min(values), max(values)
    if lo == hi:
        return None
    cuts = thresholds(key, path, feature, settings.s, lo, hi)
    return Candidate(feature, lo, hi, cuts, tuple(tally(settings, divide(samples, feature, w)[0]) for w in cuts))


def candidates(settings: Settings, key: int, path: int, samples: Sequence[Sample]) -> list[Candidate]:
    """The first p features in the node's order that are not constant over its samples."""
    found: list[Candidate] = []
    for feature in feature_order(key, path, settings.n_features):
        if len(found) == settings.p:
            break
        one = candidate(settings, key, path, samples, feature)
        if one is not None:
            found.append(one)
    return found


def best_split(settings: Settings, samples: Sequence[Sample], found: list[Candidate]) -> tuple[int, np.float32]:
    """The split with the lowest score; only a strictly lower one replaces an earlier one, which settles ties."""
    best: tuple[float | int, int, np.float32] | None = None
    for one in found:
        for w in one.thresholds:
            left, right = divide(samples, one.feature, w)
            value = score(settings.criterion, tally(settings, left), tally(settings, right))
            if best is None or value < best[0]:
                best = (value, one.feature, w)
    assert best is not None, "a node without candidates is a leaf"
    return best[1], best[2]


def grow(settings: Settings, key: int, path: int, samples: Sequence[Sample]) -> Node:
    """Grow the subtree of the node `path` from its samples; the root's path is 1, its depth 0."""
    depth = path.bit_length() - 1
    n, counts = tally(settings, samples)
    leaf = Leaf(n, counts, tuple(sorted(sample.id for sample in samples)))
    pure = len({sample.y for sample in samples}) <= 1
    if depth == settings.max_depth or n < settings.min_samples_split or pure:
        return leaf
    found = candidates(settings, key, path, samples)
    if not found:
        return leaf
    feature, w = best_split(settings, samples, found)
    left, right = divide(samples, feature, w)
    below_left = grow(settings, key, 2 * path, left)
    below_right = grow(settings, key, 2 * path + 1, right)
    return Split(feature, w, n, counts, below_left, below_right, found)


def grow_tree(settings: Settings, t: int, samples: Iterable[Sample]) -> Node:
    """Tree t of the forest of these live samples; those that do not live in tree t are passed over."""
    mine = [sample for sample in samples if t in occupancy(settings, sample.id)]
    return grow(settings, tree_key(settings.seed, t), 1, mine)


def walk(node: Node, path: int = 1) -> Iterator[tuple[int, Node]]:
    """Every node with its path, in pre-order."""
    yield path, node
    if isinstance(node, Split):
        yield from walk(node.left, 2 * path)
        yield from walk(node.right, 2 * path + 1)


def pack_counts(counts: Counts) -> bytes:
    if isinstance(counts, int):
        return struct.pack("<q", counts)
    return struct.pack(f"<{len(counts)}I", *counts)


def pack_node(node: Node) -> bytes:
    """What the digest reads of one node."""
    if isinstance(node, Split):
        head = struct.pack("<BHfI", 1, node.feature, float(node.threshold), node.n)
        return head + pack_counts(node.counts)
    head = struct.pack("<BI", 0, node.n)
    return head + pack_counts(node.counts) + struct.pack(f"<{node.n}Q", *node.ids)


def tree_digest(node: Node) -> bytes:
    """sha256 over the tree in pre-order."""
    return hashlib.sha256(b"".join(pack_node(one) for _, one in walk(node))).digest()


def leaf_of(node: Node, row: Sequence[np.float32]) -> Leaf:
    """The leaf a query ends in."""
    while isinstance(node, Split):
        node = node.left if row[node.feature] <= node.threshold else node.right
    return node


class Forest:
    """The forest of a set of live samples."""

    def __init__(self, settings: Settings, samples: Iterable[Sample]) -> None:
        self.settings = settings
        self.samples = list(samples)
        self.trees = [grow_tree(settings, t, self.samples) for t in range(settings.n_trees)]

    def tree_digests(self) -> list[bytes]:
        return [tree_digest(tree) for tree in self.trees]

    def digest(self, canonical_settings: bytes) -> bytes:
        """The forest's digest; the canonical bytes of the settings are the caller's, the twin does not know them."""
        return hashlib.sha256(canonical_settings + b"".join(self.tree_digests())).digest()

    def leaves_of(self, x_row: Iterable[float | np.float32]) -> list[Leaf]:
        """The query's leaf in each tree that holds any sample, in tree order."""
        row = as_row(x_row)
        leaves = [leaf_of(tree, row) for tree in self.trees if tree.n > 0]
        if not leaves:
            raise EmptyForest("the forest holds no samples; add some before predicting")
        return leaves

    def predict_proba(self, x_row: Iterable[float | np.float32]) -> list[float]:
        """The mean over trees of the leaf's class frequencies."""
        total = [0.0] * self.settings.n_classes
        leaves = self.leaves_of(x_row)
        for leaf in leaves:
            assert isinstance(leaf.counts, tuple)
            for c, count in enumerate(leaf.counts):
                total[c] += float(count) / float(leaf.n)
        return [value / float(len(leaves)) for value in total]

    def predict_class(self, x_row: Iterable[float | np.float32]) -> int:
        """The class with the largest mean; ties go to the earlier one."""
        mean = self.predict_proba(x_row)
        return mean.index(max(mean))

    def predict_value(self, x_row: Iterable[float | np.float32]) -> float:
        """The mean over trees of the leaf's target, in the user's unit."""
        total = 0.0
        leaves = self.leaves_of(x_row)
        for leaf in leaves:
            assert isinstance(leaf.counts, int)
            mean = float(leaf.counts) / float(leaf.n)
            total += self.settings.target_offset + self.settings.target_step * mean
        return total / float(len(leaves))
