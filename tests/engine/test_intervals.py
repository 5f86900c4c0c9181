"""What is done eight or four at a time is what one at a time would give."""

from __future__ import annotations

import numpy as np
import pytest

from dynfrsdb_engine.intervals import intervals, sort
from dynfrsdb_engine.score import best_gini, best_gini_of_two
from tests.engine.doors import door

count_below, in_order, of_many, of_two = door(intervals), door(sort), door(best_gini), door(best_gini_of_two)


@pytest.mark.parametrize("s", [1, 7, 8, 9, 30, 255])
@pytest.mark.parametrize("n", [1, 8, 13, 500])
def test_each_value_is_compared_with_every_threshold(s: int, n: int) -> None:
    chance = np.random.default_rng(s * n)
    cuts = chance.integers(-9, 9, s).astype(np.float32)
    values = chance.integers(-9, 9, n).astype(np.float32)
    passed = np.full(n, -1, np.int32)

    count_below(cuts, values, passed)

    assert passed.tolist() == (cuts[None, :] < values[:, None]).sum(axis=1).tolist()


@pytest.mark.parametrize("kinds", [1, 2, 40, 1_000_000])
@pytest.mark.parametrize("s", [1, 2, 8, 30, 255])
def test_thresholds_are_sorted_however_many_are_equal(s: int, kinds: int) -> None:
    drawn = np.random.default_rng(s).integers(-kinds, kinds, s).astype(np.float32)
    out = np.empty(s, np.float32)

    in_order(drawn, out)

    assert out.tolist() == sorted(drawn.tolist())


@pytest.mark.parametrize("people", [100, 1000, 1 << 20, (1 << 32) - 1])
@pytest.mark.parametrize("s", [1, 4, 5, 30])
def test_two_classes_score_as_many_do(s: int, people: int) -> None:
    chance = np.random.default_rng(people + s)
    for _ in range(200):
        counts = chance.integers(0, people // (2 * s + 2), (s + 1, 2)) * (chance.random((s + 1, 1)) < 0.6)
        counts[0, 0] += 1
        counts[-1, 1] += 1
        totals, n = counts.sum(axis=0), int(counts.sum())

        left = counts[:-1].astype(np.uint32)
        assert of_two(left, totals, np.inf) == of_many(left, totals, n, np.inf, np.zeros((2, 2), np.uint32))
