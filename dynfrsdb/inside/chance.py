"""Everything random, by `algorithm 1` of storage/FORMAT.md, in Python's integers.

A choice is a hash of a key and a place; there is no generator. The engine has the same as kernels.
"""

from __future__ import annotations

from dynfrsdb.inside.floats import below, rounded
from dynfrsdb.settings import Settings
from dynfrsdb_storage.layout import GOLDEN, mix_one

_ORDER = 65_535
"""Stands where a feature would in the hash that makes a node's feature order."""


def occupancy(settings: Settings, id: int) -> list[int]:
    """The trees that a sample lives in, ascending."""
    start = _step(settings.occupancy_key(), id)
    return sorted(_shuffled(settings.n_trees, settings.k, start))


def feature_order(settings: Settings, tree: int, path: int) -> list[int]:
    """All features in the order in which a node considers them."""
    start = _step(_step(settings.tree_key(tree), path), _ORDER)
    return _shuffled(settings.n_features, settings.n_features, start)


def thresholds(settings: Settings, tree: int, path: int, feature: int, low: float, high: float) -> list[float]:
    """The cuts of a candidate whose values reach from low to high, ascending; low <= cut < high."""
    start = _step(_step(settings.tree_key(tree), path), feature)
    return sorted(_between(_step(start, i), low, high) for i in range(settings.s))


def _between(h: int, low: float, high: float) -> float:
    w = rounded(low + (h >> 11) * 2.0**-53 * (high - low))
    if w >= high:
        w = below(high)
    return max(w, low) + 0.0


def _shuffled(size: int, count: int, start: int) -> list[int]:
    """The first `count` of a shuffled 0 .. size-1."""
    items = list(range(size))
    for j in range(count):
        r = j + (((_step(start, j) >> 32) * (size - j)) >> 32)
        items[j], items[r] = items[r], items[j]
    return items[:count]


def _step(h: int, v: int) -> int:
    return mix_one((h ^ v) + GOLDEN)
