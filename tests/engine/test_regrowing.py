"""A bucket that has lost samples is grown along the way of those samples; the rest of its small tree stays.

Whatever is kept must be what a search would have found, and must really be kept: an engine that searched everything
would be exact too, and slower.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dynfrsdb_engine.working import LEAF_POINT
from tests import naive
from tests.engine.shelf import ShelvedForest
from tests.engine.test_change_rules import LINE, assert_exact, planted

CROWD = replace(LINE, p=2, s=4, n_features=3)
ONE_BUCKET = 128


def crowd(seed: int, n: int = 100) -> list[naive.Sample]:
    """Samples with three features of which some are alike, and labels that only trees of several levels tell apart."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 12, (n, 3)).astype(np.float32)
    return naive.as_samples(
        X.tolist(), ((X.sum(axis=1) + rng.integers(0, 4, n)) % 3 > 1).astype(int).tolist(), range(n)
    )


def grown(seed: int) -> ShelvedForest:
    """One grown bucket, in memory."""
    forest = planted(replace(CROWD, seed=bytes([seed] * 16)), crowd(seed), ONE_BUCKET)
    forest.forest.load_tree(0)
    return forest


@pytest.mark.parametrize("seed", range(12))
def test_what_is_grown_before_the_commit_is_what_is_grown_after_it(seed: int) -> None:
    """Byte for byte; after the commit nothing is known any more of the small tree as it was."""
    gone = np.random.default_rng(seed).permutation(100)[: 1 + seed % 3].tolist()
    before, after = grown(seed), grown(seed)

    before.change(gone, [], commit=False)
    before.settle()
    after.change(gone, [])
    after.reload()
    after.settle()

    assert before.shelf.buckets == after.shelf.buckets
    assert_exact(before)


@pytest.mark.parametrize("seed", range(4))
def test_a_query_before_the_commit_grows_the_same(seed: int) -> None:
    """A query that meets a tag notes in its point that it was there."""
    forest = grown(seed)

    forest.change([seed, 50], [], commit=False)
    forest.forest.predict(np.array([sample.x for sample in forest.samples()], np.float32))
    assert not forest.forest.tags().size
    forest.settle()

    assert_exact(forest)


def test_the_side_that_lost_nothing_is_not_searched_again() -> None:
    """A threshold there that no search would choose is still there afterwards."""
    kept = 0
    for seed in range(12):
        forest = grown(seed)
        w = forest.forest.w
        root = w.points[0].copy()
        sides = [w.points[root["child"]], w.points[root["child"] + 1]]
        side = next((side for side in (0, 1) if sides[side]["feature"] >= 0), None)
        if side is None:
            continue
        sides[side]["cut"] = odd = np.float32(3.3125)
        other = next(s.id for s in forest.samples() if (s.x[root["feature"]] > root["cut"]) != bool(side))

        forest.change([other], [], commit=False)
        forest.forest.grow_tags(forest.forest.tags())

        now = forest.forest.w.points[0]
        if (now["feature"], now["cut"]) == (root["feature"], root["cut"]):
            assert forest.forest.w.points[now["child"] + side]["cut"] == odd
            kept += 1
    assert kept > 3


def test_as_many_as_before_are_not_the_same_if_one_has_come() -> None:
    """One sample goes, another one comes into the same leaf: every size is as it was."""
    for seed in range(12):
        forest = grown(seed)
        w = forest.forest.w
        leaves = {at for at in range(w.points.size) if w.points[at]["feature"] == LEAF_POINT}
        assert len(leaves) > 3, "the bucket was to have a tree"
        gone = forest.samples()[seed]
        newcomer = naive.Sample(500, tuple(np.float32(x + 0.25) for x in gone.x), 1 - gone.y)

        forest.change([gone.id], [], commit=False)
        forest.change([], [newcomer], commit=False)
        forest.settle()

        assert_exact(forest)
