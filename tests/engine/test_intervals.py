"""What is done eight at a time is what one at a time would give."""

from __future__ import annotations

import numpy as np
import pytest

from dynfrsdb_engine.intervals import intervals, sort
from dynfrsdb_engine.score import best_gini, best_gini_of_two, left_sides, score_sides
from tests.engine.doors import door

count_below, in_order, of_many, of_two = door(intervals), door(sort), door(best_gini), door(best_gini_of_two)
sides_of, score_all = door(left_sides), door(score_sides)


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
@pytest.mark.parametrize("s", [1, 4, 5, 30, 255])
@pytest.mark.parametrize("m", [1, 3, 10])
def test_two_classes_score_as_many_do(m: int, s: int, people: int) -> None:
    chance = np.random.default_rng(people + s)
    for _ in range(100):
        counts = chance.integers(0, max(2, people // (2 * s + 2)), (s + 1, 2)) * (chance.random((s + 1, 1)) < 0.6)
        counts[0, 0] += 1
        counts[-1, 1] += 1
        totals, n = counts.sum(axis=0), int(counts.sum())
        inner = [counts[1:-1][chance.permutation(s - 1)] for _ in range(m)]
        left = np.array([[counts[0], *rows] for rows in inner], np.uint32).reshape(m, s, 2)

        best, expected = np.inf, (-1, -1, 0)
        for c in range(m):
            best, cut, n_left = of_many(left[c], totals, n, best, np.zeros((2, 2), np.uint32))
            expected = (c, cut, n_left) if cut >= 0 else expected
        assert of_two(left, m, totals) == expected
        words, scores = np.zeros(264, np.uint64), np.zeros(264)
        size = sides_of(left[expected[0] :], 0, 1, words)
        score_all(words, size, totals, scores)
        assert scores[expected[1]] == scores[:size].min() == best
