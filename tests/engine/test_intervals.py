"""What is done eight at a time is what one at a time would give."""

from __future__ import annotations

import numpy as np
import pytest

from dynfrsdb_engine.intervals import intervals, sort
from dynfrsdb_engine.local import ROOM
from dynfrsdb_engine.ordered import least_and_greatest, next_below
from dynfrsdb_engine.score import best_gini, best_gini_of_two, fill_up, score_sides, sides_of, still_best
from dynfrsdb_engine.search import CANDIDATE
from dynfrsdb_engine.spec import EXAMPLE
from tests.engine.doors import candidate_stats, door, weigh_up

range_of, one_below = door(least_and_greatest), door(next_below)
count_below, in_order, of_many, of_two = door(intervals), door(sort), door(best_gini), door(best_gini_of_two)
write_sides, write_rest, score_all, stays = door(sides_of), door(fill_up), door(score_sides), door(still_best)


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
        assert of_two(np.zeros(m, CANDIDATE), left, m, totals) == expected
        words, scores = np.zeros(264, np.uint64), np.zeros(264)
        size = write_rest(words, write_sides(left[expected[0]], s, words, 0))
        score_all(words, size, totals, scores)
        assert scores[expected[1]] == scores[:size].min() == best


@pytest.mark.parametrize("people", [4, 30, 1000, (1 << 32) - 1])
@pytest.mark.parametrize("s", [1, 5, 30, 255])
@pytest.mark.parametrize("m", [1, 4, 10])
def test_a_split_is_called_still_the_best_only_if_a_search_would_find_it(m: int, s: int, people: int) -> None:
    chance, said, was = np.random.default_rng(people + s), 0, 0
    for _ in range(100):
        counts = chance.integers(0, max(2, people // (2 * s + 2)), (s + 1, 2)) * (chance.random((s + 1, 1)) < 0.4)
        counts[[0, -1], chance.integers(0, 2, 2)] += 1
        inner = [counts[1:-1][chance.permutation(s - 1)] for _ in range(m)]
        left, totals = np.array([[counts[0], *rows] for rows in inner], np.uint32).reshape(m, s, 2), counts.sum(axis=0)
        found, several = of_two(np.zeros(m, CANDIDATE), left, m, totals), np.zeros(m, CANDIDATE)

        others = zip(chance.integers(0, m, 9).tolist(), chance.integers(0, s, 9).tolist(), strict=True)
        for best, cut in [found[:2], *others]:
            still, n_left = stays(several, left, m, totals, best, cut)
            assert n_left == left[best, : cut + 1].sum()
            assert not still or (best, cut, n_left) == found
        rivals = {tuple(sums) for sums in left.cumsum(axis=1).reshape(-1, 2).tolist()}
        was += len(rivals) > 1
        said += len(rivals) > 1 and stays(several, left, m, totals, *found[:2])[0]

    assert said >= was // 2 or people < 1000, "or every change would search"


@pytest.mark.parametrize("m", [2, 5, 40])
@pytest.mark.parametrize("s", [2, 5, 30, 255])
def test_of_two_values_one_threshold_tells_whether_a_split_is_still_the_best(s: int, m: int) -> None:
    """It is told wherever all thresholds would tell it, and for no other split."""
    chance, said = np.random.default_rng(s), 0
    for _ in range(100):
        left, totals = np.array(chance.integers(0, 20, (m, s, 2)), np.uint32), np.array([6000, 6000])
        left[:, 0] += 1
        two = chance.random(m) < 0.5
        left[two, 1:] = 0
        cand = np.zeros(m, CANDIDATE)
        cand["at_lo"][two] = left[two, 0].sum(axis=1)
        cand["at_hi"][two] = totals.sum() - cand["at_lo"][two]
        found = of_two(np.zeros(m, CANDIDATE), left, m, totals)

        others = zip(chance.integers(0, m, 9).tolist(), chance.integers(0, s, 9).tolist(), strict=True)
        for best, cut in [found[:2], *others]:
            still, n_left = stays(cand, left, m, totals, best, cut)
            assert n_left == left[best, : cut + 1].sum()
            assert not still or (best, cut, n_left) == found
            assert still >= stays(np.zeros(m, CANDIDATE), left, m, totals, best, cut)[0]
            said += still
        assert of_two(cand, left, m, totals) == found

    assert said > 50


@pytest.mark.parametrize("s", [1, 7, 8, 9, 16, 17, 32, 33, 41, 257])
@pytest.mark.parametrize("n", [0, 1, 13, 500])
def test_the_weights_of_all_values_that_do_not_exceed_a_threshold_are_summed(s: int, n: int) -> None:
    chance = np.random.default_rng(s * n)
    cuts, sums = np.full(ROOM, 5, np.float32), np.full(ROOM, -1, np.int32)
    cuts[:s] = chance.integers(-9, 9, s)
    values, weights = chance.integers(-9, 9, n).astype(np.float32), chance.integers(0, 1 << 20, n).astype(np.int32)
    wanted = [int(weights[values <= cut].sum()) for cut in cuts[:s]]

    weigh_up(cuts, s, values, weights, sums)

    assert sums[:s].tolist() == wanted


@pytest.mark.parametrize("kind", ["many values", "two values", "two values at first"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("n", [2, 40, 65_535, 65_536, 200_000])
def test_every_sample_of_a_node_is_counted_in_its_interval_however_many_there_are(
    n: int, classes: int, kind: str
) -> None:
    chance = np.random.default_rng(n)
    spec = EXAMPLE._replace(features=9, thresholds=6, classes=classes, columns=classes, totals=classes)
    values, targets = np.round(chance.normal(size=n), 1).astype(np.float32), chance.integers(0, classes, n)
    values[:2] = -4, 4
    two = {"many values": 2, "two values": n, "two values at first": max(2, n // 2)}[kind]
    values[2:two] = np.where(values[2:two] > 1, 4, -4)

    stats = candidate_stats(spec, values, targets)

    places = (stats.cuts[0, 0][None, :] < values[:, None]).sum(axis=1)
    wanted = [[int(((places == j) & (targets == c)).sum()) for c in range(classes)] for j in range(6)]
    assert stats.counts[0, 0].tolist() == wanted
    assert stats.cand[0, 0]["at_lo"] == (values == values.min()).sum()
    assert stats.cand[0, 0]["at_hi"] == (values == values.max()).sum()


TINY = float(np.finfo(np.float32).smallest_subnormal)
LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("x", [0.0, TINY, -TINY, 1.0, -1.0, 2.0**-126, -(2.0**-126), 0.1, LARGEST])
def test_the_next_float_below_is_what_numpy_says(x: float) -> None:
    number = np.float32(x)

    below = np.float32(one_below(number))

    assert below.tobytes() == np.nextafter(number, np.float32(-np.inf)).tobytes()


@pytest.mark.parametrize("n", [1, 7, 64, 1001])
@pytest.mark.parametrize("about", [-3.0, 0.0, 3.0])
def test_the_range_of_values_is_their_least_and_greatest(n: int, about: float) -> None:
    values = (np.random.default_rng(n).normal(size=n) + about).astype(np.float32)

    assert range_of(values) == (values.min(), values.max())
