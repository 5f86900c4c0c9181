"""The rules of a change that random histories rarely hit, each by itself.

Every test builds the situation on purpose, lets the twin confirm that it is the situation, and then asserts two
things: the tree is the one that training on the survivors gives, and the rule was really used (children kept, or no tag
made). An engine that tags everything would be exact too, and useless.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dynfrsdb_engine.records import LEAF, SPLIT, TAG
from dynfrsdb_engine.working import TOP_LIST
from tests import naive
from tests.engine.doors import split_stats
from tests.engine.shelf import ShelvedForest

LINE = naive.Settings(
    seed=bytes(16),
    n_trees=1,
    k=1,
    p=1,
    s=1,
    max_depth=56,
    min_samples_split=2,
    criterion="gini",
    n_features=1,
    n_classes=2,
)
ROOT = (0, 1)


def line(values: Any, labels: Any) -> list[naive.Sample]:
    """Samples with one feature."""
    return naive.as_samples([[value] for value in values], labels, range(len(values)))


def planted(settings: naive.Settings, samples: Sequence[naive.Sample], bucket: int = 2) -> ShelvedForest:
    """A settled forest of these samples, everything on the shelf, nothing in memory."""
    forest = ShelvedForest(settings, bucket, capacity=4096)
    forest.change([], list(samples))
    forest.settle()
    forest.reload()
    return forest


def assert_exact(forest: ShelvedForest) -> None:
    assert forest.tree_digests() == naive.Forest(forest.settings, forest.samples()).tree_digests()


def root_of(settings: naive.Settings, samples: Sequence[naive.Sample]) -> naive.Split:
    """The root with its two sides; a root does not depend on how deep the tree may go on."""
    root = naive.grow_tree(replace(settings, max_depth=1), 0, samples)
    assert isinstance(root, naive.Split)
    return root


def seeds() -> Iterator[bytes]:
    return (bytes([i % 256, i // 256] * 8) for i in range(3000))


def kinds(forest: ShelvedForest) -> dict[int, int]:
    """Path -> kind of record, for all records of the tree; a bucket that is not tagged counts as SPLIT."""
    records = {**forest.shelf.buckets, **forest.shelf.nodes}
    return {path: data[0] for (_, path), data in records.items()}


# A threshold that moves

GAP = line([*np.linspace(0, 1, 12), *np.linspace(9, 10, 12)], [0, 1, 1] * 8)


def moved_within_the_gap(removed: int) -> naive.Settings:
    """Settings under which removing this sample moves the root's threshold inside the gap of the data."""
    left = [sample for sample in GAP if sample.id != removed]
    for seed in seeds():
        settings = replace(LINE, seed=seed)
        old, new = root_of(settings, GAP).threshold, root_of(settings, left).threshold
        if old != new and 1 < old < 9 and 1 < new < 9:
            return settings
    raise AssertionError("no seed gives the situation")


@pytest.mark.parametrize(("removed", "kept"), [(0, (0, 3)), (23, (0, 2))])
def test_a_moved_threshold_with_equal_sides_keeps_the_children(removed: int, kept: tuple[int, int]) -> None:
    """The sample at the end of the range goes, on the left or on the right; the other child is not even rewritten."""
    forest = planted(moved_within_the_gap(removed), GAP)
    before = {**forest.shelf.nodes}

    forest.change([removed], [])

    assert forest.shelf.nodes[ROOT][0] == SPLIT
    assert forest.shelf.nodes[ROOT][36:40] != before[ROOT][36:40], "the threshold was to move"
    assert forest.shelf.nodes[kept] == before[kept]
    assert_exact(forest)


def test_equal_left_counts_do_not_mean_equal_sides() -> None:
    """One sample leaves the left side and the moved threshold wins another: equal counts, other children."""
    found = 0
    for seed in seeds():
        rng = np.random.default_rng(list(seed))
        samples = line(rng.integers(0, 60, 24), rng.integers(0, 2, 24))
        lowest = min(samples, key=lambda sample: sample.x[0])
        rest = [sample for sample in samples if sample is not lowest]
        settings = replace(LINE, seed=seed)
        old, new = root_of(settings, samples), root_of(settings, rest)
        if old.threshold == new.threshold or old.left.n != new.left.n:
            continue
        forest = planted(settings, samples)

        forest.change([lowest.id], [])

        assert_exact(forest)
        found += 1
        if found == 5:
            return
    raise AssertionError("no seed gives the situation")


def moving_batches(between: str) -> Iterator[tuple[naive.Settings, list[naive.Sample], list[int], list[naive.Sample]]]:
    """Changes that move the root's threshold past no sample but a removed or an added one."""
    for seed in seeds():
        rng = np.random.default_rng(list(seed))
        samples = line(rng.integers(0, 1000, 40), rng.integers(0, 2, 40))
        added = naive.as_samples(rng.integers(-200, 1200, (4, 1)), rng.integers(0, 2, 4), range(100, 104))
        removed = samples[:6]
        rest = samples[6:]
        settings = replace(LINE, seed=seed)
        old, new = root_of(settings, samples).threshold, root_of(settings, rest + added).threshold
        low, high = min(old, new), max(old, new)
        moved = {"removed": removed, "added": added}[between]
        if not any(low < sample.x[0] <= high for sample in rest) and any(low < sample.x[0] <= high for sample in moved):
            yield settings, samples, [sample.id for sample in removed], added


@pytest.mark.parametrize("between", ["removed", "added"])
def test_removed_samples_go_down_by_the_old_split_and_added_ones_by_the_new(between: str) -> None:
    for found, (settings, samples, removed, added) in enumerate(moving_batches(between), 1):
        forest = planted(settings, samples)

        forest.change(removed, added)

        assert forest.shelf.nodes[ROOT][0] == SPLIT, "the children were to stay"
        assert_exact(forest)
        if found == 5:
            return
    raise AssertionError("no seed gives the situation")


# Constancy

PLANE = replace(LINE, n_features=4, p=2, s=30)


def constancy(first: str) -> tuple[naive.Settings, list[naive.Sample], naive.Sample]:
    """Samples whose root looks at (a, best, b, c) in this order; `best` tells the classes apart.

    a is constant but for one odd sample. With it the candidates are a and best; without it, best and the next that
    varies: b, or c if b is constant.
    """
    settings = replace(PLANE, seed=b"constancy begins")
    a, best, b, c = naive.feature_order(naive.tree_key(settings.seed, 0), 1, 4)
    rows = np.zeros((30, 4))
    rows[:, a] = 7.0
    rows[:, best] = np.repeat([0.0, 10.0], 15) + np.arange(30) % 3
    rows[:, b] = 5.0 if first == "c" else np.arange(30) % 4
    rows[:, c] = np.arange(30) % 5
    samples = naive.as_samples(rows, np.repeat([0, 1], 15), range(30))
    odd = list(samples[4].x)
    odd[a] = np.float32(9.0)
    strange = naive.Sample(99, tuple(odd), 0)
    with_it, without = root_of(settings, [*samples, strange]), root_of(settings, samples)
    assert [one.feature for one in with_it.candidates] == [a, best]
    assert [one.feature for one in without.candidates] == [best, b if first == "b" else c]
    assert with_it.feature == without.feature == best
    return settings, samples, strange


def stored_features(forest: ShelvedForest) -> tuple[list[int], dict[int, float]]:
    """The root's candidates in order, and its skipped constants with their values."""
    stats = split_stats(forest.spec, 0, 1, forest.shelf.nodes[ROOT])
    head = stats.head[0]
    skipped = stats.skip[0, : head["skipped"]]
    constants = dict(zip(skipped["feature"].tolist(), skipped["value"].tolist(), strict=True))
    return stats.cand[0, : head["m"]]["feature"].tolist(), constants


def fresh_root(forest: ShelvedForest) -> bytes:
    """The root record of a forest that always had these samples, without its stamps."""
    return planted(forest.settings, sorted(forest.samples())).shelf.nodes[ROOT][32:]


@pytest.mark.parametrize("first", ["b", "c"])
def test_a_candidate_that_becomes_constant_gives_its_place_to_the_next_and_takes_it_back(first: str) -> None:
    settings, samples, odd = constancy(first)
    order = naive.feature_order(naive.tree_key(settings.seed, 0), 1, 4)
    forest = planted(settings, [*samples, odd])
    with_it = forest.shelf.nodes[ROOT][32:]
    assert stored_features(forest) == (order[:2], {})

    forest.change([99], [])

    constants = {order[0]: 7.0} if first == "b" else {order[0]: 7.0, order[2]: 5.0}
    assert stored_features(forest) == ([order[1], order[2] if first == "b" else order[3]], constants)
    assert forest.shelf.nodes[ROOT][32:] == fresh_root(forest)
    assert_exact(forest)

    forest.change([], [odd])

    assert stored_features(forest) == (order[:2], {}), (
        "the last candidate drops out, and so do constants behind the new last one"
    )
    assert forest.shelf.nodes[ROOT][32:] == with_it == fresh_root(forest)
    assert_exact(forest)


def test_two_constancies_may_end_at_once() -> None:
    settings, samples, odd = constancy("c")
    order = naive.feature_order(naive.tree_key(settings.seed, 0), 1, 4)
    other = list(samples[7].x)
    other[order[2]] = np.float32(-1.0)
    forest = planted(settings, samples)

    forest.change([], [odd, naive.Sample(98, tuple(other), 0)])

    assert stored_features(forest) == (order[:2], {})
    assert forest.shelf.nodes[ROOT][32:] == fresh_root(forest)
    assert_exact(forest)


# Ranges

RANGE = line([0.0, 0.0, *np.linspace(1, 9, 18), 10.0, 10.0], [0] * 11 + [1] * 11)


def range_settings() -> naive.Settings:
    """Settings under which the root keeps its children while both ends of its range go and come."""
    for seed in seeds():
        settings = replace(LINE, seed=seed, s=30)
        states = [RANGE, RANGE[1:], RANGE[2:], RANGE[2:-1], RANGE[2:-2]]
        splits = [root_of(settings, state) for state in states]
        if all(set(leaf_ids(split.left)) - {0, 1} == set(range(2, 11)) for split in splits):
            return settings
    raise AssertionError("no seed gives the situation")


def leaf_ids(node: naive.Node) -> list[int]:
    return [id for _, one in naive.walk(node) if isinstance(one, naive.Leaf) for id in one.ids]


def ends(forest: ShelvedForest) -> tuple[float, float, int, int]:
    candidate = split_stats(forest.spec, 0, 1, forest.shelf.nodes[ROOT]).cand[0, 0]
    return float(candidate["lo"]), float(candidate["hi"]), int(candidate["at_lo"]), int(candidate["at_hi"])


def test_a_range_moves_when_the_last_sample_at_its_end_goes_and_not_before() -> None:
    forest = planted(range_settings(), RANGE)
    second, last = float(RANGE[2].x[0]), float(RANGE[-3].x[0])
    seen = [ends(forest)]

    for id in (0, 1, 21, 20):
        forest.change([id], [])
        seen.append(ends(forest))
        assert forest.shelf.nodes[ROOT][32:] == fresh_root(forest)

    assert seen == [(0, 10, 2, 2), (0, 10, 1, 2), (second, 10, 1, 2), (second, 10, 1, 1), (second, last, 1, 1)]
    assert_exact(forest)


@pytest.mark.parametrize("id", [0, 21])
def test_a_range_that_does_not_move_needs_no_look_at_the_samples_below(
    id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    forest = planted(range_settings(), RANGE)

    def refuse(*place: int) -> Any:
        raise AssertionError(f"looked below {place}")

    monkeypatch.setattr(forest.shelf, "below", refuse)
    monkeypatch.setattr(forest.shelf, "long_lists", refuse)
    forest.change([id], [])
    forest.change([], [naive.Sample(50, RANGE[id].x, RANGE[id].y)])

    monkeypatch.undo()
    assert_exact(forest)


def test_a_value_outside_moves_the_range_and_one_at_its_end_does_not() -> None:
    forest = planted(range_settings(), RANGE[2:-2])
    seen = []

    for sample in (RANGE[0], RANGE[1], RANGE[20], RANGE[21]):
        forest.change([], [sample])
        seen.append(ends(forest))
        assert forest.shelf.nodes[ROOT][32:] == fresh_root(forest)

    last = float(RANGE[-3].x[0])
    assert seen == [(0, last, 1, 1), (0, last, 2, 1), (0, 10, 2, 1), (0, 10, 2, 2)]
    assert_exact(forest)


def test_an_end_that_goes_and_comes_in_one_batch_does_not_move_the_range() -> None:
    forest = planted(range_settings(), RANGE)

    forest.change([0, 1], [naive.Sample(50, RANGE[0].x, 0)])

    assert ends(forest) == (0, 10, 1, 2)
    assert forest.shelf.nodes[ROOT][32:] == fresh_root(forest)
    assert_exact(forest)


# Leaves

PURE = line(np.arange(20.0), [0] * 20)


def test_the_last_sample_of_a_class_makes_a_leaf_and_its_return_ends_it() -> None:
    odd = naive.Sample(99, (np.float32(7.5),), 1)
    forest = planted(LINE, [*PURE, odd])
    assert forest.shelf.nodes[ROOT][0] == SPLIT

    forest.change([99], [])

    assert kinds(forest) == {1: LEAF}
    assert_exact(forest)

    forest.change([], [odd])

    assert kinds(forest) == {1: TAG}
    assert_exact(forest)


def test_a_regression_node_whose_targets_become_one_is_a_leaf() -> None:
    settings = replace(LINE, criterion="squared_error", n_classes=0)
    samples = line(np.arange(20.0), [5] * 18 + [4, 6])
    forest = planted(settings, samples)

    forest.change([18], [])
    assert forest.shelf.nodes[ROOT][0] != LEAF
    assert_exact(forest)

    forest.settle()
    forest.change([19], [])
    assert kinds(forest) == {1: LEAF}
    assert_exact(forest)


def test_a_leaf_crosses_between_bucket_and_long_list_at_exactly_b() -> None:
    forest = planted(LINE, PURE[:4], bucket=4)
    assert list(forest.shelf.buckets) == [ROOT]

    forest.change([], [PURE[4]])
    assert (list(forest.shelf.buckets), list(forest.shelf.nodes)) == ([], [ROOT])
    assert forest.shelf.lists[ROOT].size == 5
    assert_exact(forest)

    forest.reload()
    forest.change([2], [])
    assert (list(forest.shelf.buckets), list(forest.shelf.nodes), list(forest.shelf.lists)) == ([ROOT], [], [])
    assert_exact(forest)
    assert not forest.forest.tags().size, "it was a leaf all the time"


def test_removals_from_a_tag_in_memory_take_no_more_memory() -> None:
    samples = line(np.arange(40.0), [0, 1] * 20)
    forest = planted(LINE, samples[:39], bucket=4)
    forest.forest.load_below([ROOT])
    while kinds(forest) != {1: TAG}:  # until a change of the root's split makes everything below it void
        forest.change([min(forest.live)], [])
    used, left = forest.forest.w.top[TOP_LIST], sorted(forest.live)

    for id in (left[5], left[0], left[-1]):
        forest.change([id], [])
        assert kinds(forest) == {1: TAG}

    assert forest.forest.w.top[TOP_LIST] == used
    assert forest.shelf.lists[ROOT].tolist() == sorted(slot for slot, _ in forest.live.values())
    assert_exact(forest)


def test_a_split_crosses_between_bucket_and_node_at_exactly_b() -> None:
    samples = line(np.arange(6.0), [0, 1, 0, 1, 0, 1])
    forest = planted(LINE, samples[:4], bucket=4)
    assert list(forest.shelf.buckets) == [ROOT]

    forest.change([], [samples[4]])
    assert (list(forest.shelf.buckets), list(forest.shelf.lists)) == ([], [ROOT])
    assert kinds(forest) == {1: TAG}
    assert_exact(forest)

    forest.settle()
    assert forest.shelf.nodes[ROOT][0] == SPLIT
    forest.change([0], [])
    assert (list(forest.shelf.buckets), list(forest.shelf.nodes), list(forest.shelf.lists)) == ([ROOT], [], [])
    assert_exact(forest)


SAME = [[3.0]] * 12
STAYING = {
    "pure": (
        LINE,
        naive.as_samples(np.arange(12.0).reshape(-1, 1), [1] * 12, range(12)),
        naive.Sample(50, (np.float32(3.3),), 1),
    ),
    "as deep as may be": (
        replace(LINE, max_depth=1),
        line([*np.arange(6.0), *np.arange(100.0, 106.0)], [0, 1] * 6),
        naive.Sample(50, (np.float32(3.3),), 1),
    ),
    "without a feature that varies": (
        LINE,
        naive.as_samples(SAME, [0, 1] * 6, range(12)),
        naive.Sample(50, (np.float32(3.0),), 1),
    ),
    "too small to split": (
        replace(LINE, min_samples_split=30),
        line(np.arange(12.0), [0, 1] * 6),
        naive.Sample(50, (np.float32(0.5),), 1),
    ),
}


# A bucket that holds more than one leaf is tagged as a whole, so the deep leaves are tried outside of buckets only.
@pytest.mark.parametrize(
    ("why", "bucket"), [(why, b) for why in STAYING for b in (2, 5, 64) if (why, b) != ("as deep as may be", 64)]
)
def test_a_leaf_that_stays_a_leaf_is_not_tagged(why: str, bucket: int) -> None:
    settings, samples, newcomer = STAYING[why]
    forest = planted(settings, samples, bucket)

    forest.change([], [newcomer])
    assert not forest.forest.tags().size
    assert_exact(forest)

    forest.reload()
    forest.change([3], [])
    assert not forest.forest.tags().size
    assert_exact(forest)


def test_a_leaf_that_ends_is_tagged_whether_bucket_or_long_list() -> None:
    for bucket in (2, 64):
        forest = planted(LINE, PURE, bucket)

        forest.change([], [naive.Sample(50, (np.float32(3.3),), 1)])

        assert kinds(forest) == {1: TAG}
        assert_exact(forest)
