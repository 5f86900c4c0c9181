"""How good a cut is.

    score      what F compares: the same integers, divisions and ties as the engine's, so the same choice
    impurity   what people compare: Gini, entropy or variance of a set of samples, times its size

A cut with a *better* score wins: the smallest for a classification, the largest for a regression.
"""

from __future__ import annotations

import math
from functools import cache

from dynfrsdb.inside.records import Totals, minus
from dynfrsdb.settings import Settings

GINI_PER_REMOVAL = 2
"""One sample more or less on a side moves its part of a Gini score by less than this (tests/inside/test_numbers.py)."""


def score(settings: Settings, n_left: int, left: Totals, n: int, totals: Totals) -> float:
    """The score of a cut, from the samples on its left side."""
    n_right, right = n - n_left, minus(totals, left)
    if settings.criterion == "gini":
        return _pairs(n_left, left) / n_left + _pairs(n_right, right) / n_right
    if settings.criterion == "entropy":
        return _bits(n_left, left) + _bits(n_right, right)
    distance = float(left[0]) / n_left - float(right[0]) / n_right
    return distance * distance * float(n_left * n_right)


def loss(settings: Settings, value: float) -> float:
    """A score turned so that less is better."""
    return value if settings.n_classes else -value


def decrease(settings: Settings, n_left: int, left: Totals, n: int, totals: Totals) -> float:
    """By how much a cut lowers the impurity of a node, times its size; for a regression in squared target steps."""
    n_right, right = n - n_left, minus(totals, left)
    if settings.n_classes:
        both = impurity(settings, n_left, left) + impurity(settings, n_right, right)
        return max(0.0, impurity(settings, n, totals) - both)
    distance = left[0] / n_left - right[0] / n_right
    return distance * distance * n_left * n_right / n


def impurity(settings: Settings, n: int, totals: Totals) -> float:
    """Gini impurity or entropy of class counts, times their sum."""
    if settings.criterion == "gini":
        return n - sum(count * count for count in totals) / n
    return math.fsum(count * math.log2(n / count) for count in totals if count)


def _pairs(n: int, counts: Totals) -> float:
    return float(n * n - sum(count * count for count in counts))


def _bits(n: int, counts: Totals) -> int:
    return _x(n) - sum(map(_x, counts))


@cache
def _x(m: int) -> int:
    """X(m) of algorithm 1: m * log2(m) with 24 binary digits, without a logarithm of the machine's."""
    if m < 2:
        return 0
    e = m.bit_length() - 1
    x, log = m << (63 - e), e << 56
    for b in range(55, -1, -1):
        x = (x * x) >> 63
        if x >= 1 << 64:
            x >>= 1
            log |= 1 << b
    return (m * log) >> 32
