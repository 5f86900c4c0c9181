"""The naive twin against hand-computed cases and against the definition."""

import struct
from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from hashlib import sha256
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as effort
from hypothesis import strategies as st

from tests import nasty
from tests.naive import (
    GOLDEN,
    Candidate,
    Criterion,
    EmptyForest,
    Forest,
    Leaf,
    Node,
    Sample,
    Settings,
    Side,
    Split,
    as_row,
    as_samples,
    below,
    derived_key,
    feature_order,
    gain,
    grow_tree,
    hash64,
    leaf_of,
    m_log2_m,
    occupancy,
    score,
    step,
    threshold,
    thresholds,
    tree_digest,
    tree_key,
    walk,
)
from tests.vectors import (
    GAIN_VECTORS,
    HASH_VECTORS,
    KEY_VECTORS,
    OCCUPANCY_VECTORS,
    ORDER_VECTORS,
    SEED,
    SPLITMIX_VECTORS,
    THRESHOLD_VECTORS,
    TREE_0,
    TREE_DIGESTS,
    X_VECTORS,
)

ONE_TREE = Settings(SEED, 1, 1, 5, 4, 56, 2, "gini", 5, 2)
LINE = replace(ONE_TREE, p=1, n_features=1, s=30)  # one feature: trees that can be worked out by hand


def golden_forest(criterion: Criterion) -> tuple[Settings, list[Sample]]:
    """Forty samples made by integer arithmetic, so that no version of numpy changes them."""
    classes = 0 if criterion == "squared_error" else 3
    rows = [[((i * (j + 3) * 7 + j * j) % (11 + j)) / 4 - 1 for j in range(5)] for i in range(40)]
    fixed = [(i * 7919 % 101 - 50) * 2**33 + i for i in range(40)]
    labels = [(i * i // 3 + i) % 3 for i in range(40)]
    settings = Settings(SEED, 3, 2, 3, 5, 6, 2, criterion, 5, classes)
    return settings, as_samples(rows, labels if classes else fixed, range(40))


def from_bits(bits: int) -> np.float32:
    return np.uint32(bits).view(np.float32)


def bits_of(value: np.float32) -> int:
    return int(value.view(np.uint32))


def root_of(settings: Settings, samples: list[Sample]) -> Split:
    root = grow_tree(settings, 0, samples)
    assert isinstance(root, Split)
    return root


def ids_below(node: Node) -> list[int]:
    return [i for _, one in walk(node) if isinstance(one, Leaf) for i in one.ids]


def test_step_reproduces_the_published_splitmix64_stream() -> None:
    stream = [step((1234567 + i * GOLDEN) % 2**64, 0) for i in range(5)]

    assert stream == SPLITMIX_VECTORS


@pytest.mark.parametrize(("purpose", "tree", "key"), KEY_VECTORS)
def test_keys_are_keyed_blake2b_of_purpose_and_tree(purpose: bytes, tree: int, key: int) -> None:
    assert derived_key(SEED, purpose, tree) == key


@pytest.mark.parametrize(("key", "path", "feature", "i", "expected"), HASH_VECTORS)
def test_the_hash_gives_its_frozen_values(key: int, path: int, feature: int, i: int, expected: int) -> None:
    assert hash64(key, path, feature, i) == expected


def test_below_takes_the_upper_half_of_the_hash_and_stays_below() -> None:
    assert below(0, 7) == 0
    assert below(2**64 - 1, 7) == 6
    assert below(2**63, 7) == 3
    assert below(2**32 - 1, 65535) == 0
    assert below(2**64 - 1, 1) == 0


@pytest.mark.parametrize(("sample_id", "n_trees", "k", "trees"), OCCUPANCY_VECTORS)
def test_occupancy_gives_its_frozen_trees(sample_id: int, n_trees: int, k: int, trees: list[int]) -> None:
    assert occupancy(replace(ONE_TREE, n_trees=n_trees, k=k), sample_id) == set(trees)


@given(sample_id=nasty.sample_ids(), settings=nasty.settings("binary", 3))
def test_a_sample_lives_in_k_distinct_trees(sample_id: int, settings: Settings) -> None:
    trees = occupancy(settings, sample_id)

    assert len(trees) == settings.k
    assert trees <= set(range(settings.n_trees))


def test_occupancy_spreads_samples_evenly_over_trees() -> None:
    """3000 of 7000 samples are expected in each tree; five standard deviations are about 207."""
    settings = replace(ONE_TREE, n_trees=7, k=3)

    trees = [t for i in range(7000) for t in occupancy(settings, i)]

    assert all(abs(trees.count(t) - 3000) < 207 for t in range(7))


@pytest.mark.parametrize(("key", "path", "d", "order"), ORDER_VECTORS)
def test_the_feature_order_gives_its_frozen_values(key: int, path: int, d: int, order: list[int]) -> None:
    assert feature_order(key, path, d) == order


@pytest.mark.parametrize(("key", "path", "feature", "lo", "hi", "bits"), THRESHOLD_VECTORS)
def test_thresholds_give_their_frozen_bits(
    key: int, path: int, feature: int, lo: int, hi: int, bits: list[int]
) -> None:
    cuts = thresholds(key, path, feature, 4, from_bits(lo), from_bits(hi))

    assert [bits_of(w) for w in cuts] == bits


@given(h=st.integers(0, 2**64 - 1), one=nasty.values(), other=nasty.values())
def test_a_threshold_lies_from_lo_to_below_hi_and_is_never_negative_zero(h: int, one: float, other: float) -> None:
    lo, hi = sorted(as_row([one, other]))
    assume(lo < hi)

    w = threshold(h, lo, hi)

    assert lo <= w < hi
    assert bits_of(w) != 0x80000000


def test_the_greatest_hash_gives_the_float_below_hi() -> None:
    w = threshold(2**64 - 1, np.float32(0.0), np.float32(1.0))

    assert bits_of(w) == 0x3F7FFFFF


@pytest.mark.parametrize(
    ("left", "right", "by_hand"),
    [
        ((3, 1), (0, 2), (16 - 10) / 4 + (4 - 4) / 2),
        ((2, 1, 1), (1, 1, 0), (16 - 6) / 4 + (4 - 2) / 2),
        ((1, 0), (0, 9), 0.0),
        ((1, 2), (1, 0), 4 / 3),
    ],
)
def test_gini_matches_hand_computed_values(left: tuple[int, ...], right: tuple[int, ...], by_hand: float) -> None:
    assert score("gini", Side(sum(left), left), Side(sum(right), right)) == by_hand


def test_gini_counts_in_integers_until_the_division() -> None:
    """At n near 2^32 the squares pass 2^63; only their difference may be rounded to a float64."""
    n = 2**32 - 1

    assert score("gini", Side(n, (n - 1, 1)), Side(1, (1, 0))) == float(2 * (n - 1)) / float(n)


@pytest.mark.parametrize(("m", "x"), X_VECTORS)
def test_x_gives_its_frozen_values(m: int, x: int) -> None:
    assert m_log2_m(m) == x


def test_x_is_exact_at_powers_of_two() -> None:
    assert [m_log2_m(2**e) for e in range(32)] == [e * 2 ** (e + 24) for e in range(32)]


@given(m=st.integers(2, 2**32 - 1) | st.integers(2, 5000) | st.integers(2**32 - 5000, 2**32 - 1))
def test_x_is_at_most_one_below_the_true_floor(m: int) -> None:
    """A power of two is exact and has a test of its own; for the others 60 digits decide the floor."""
    with localcontext() as context:
        context.prec = 60
        true = m * Decimal(m).ln() / Decimal(2).ln() * 2**24
        floor = int((true + Decimal("1e-30")).to_integral_value(rounding=ROUND_FLOOR))

    assert floor - m_log2_m(m) in (0, 1)


def test_entropy_matches_hand_computed_values() -> None:
    """Two even classes cost one bit a sample; a pure side costs nothing."""
    assert score("entropy", Side(2, (1, 1)), Side(1, (0, 1))) == 2 * 2**24
    assert score("entropy", Side(8, (2, 2, 2, 2)), Side(5, (0, 0, 5, 0))) == 16 * 2**24
    assert score("entropy", Side(3, (1, 2)), Side(1, (1, 0))) == 79773774 - 33554432


@pytest.mark.parametrize(("n_left", "s_left", "n_right", "s_right", "expected"), GAIN_VECTORS)
def test_regression_scores_give_their_frozen_bits(
    n_left: int, s_left: int, n_right: int, s_right: int, expected: str
) -> None:
    assert gain(Side(n_left, s_left), Side(n_right, s_right)) == float.fromhex(expected)


def test_a_tie_goes_to_the_earlier_feature_and_then_to_the_lower_threshold() -> None:
    """With two samples all splits are equally good; the order at this root is 2, 3, 4, 0, 1."""
    root = root_of(ONE_TREE, as_samples([[0.0] * 5, [1.0] * 5], [0, 1], [0, 1]))

    assert root.feature == 2
    assert root.threshold == min(thresholds(TREE_0, 1, 2, 4, np.float32(0.0), np.float32(1.0)))


def test_candidates_are_the_first_p_features_that_are_not_constant() -> None:
    samples = as_samples([[0.0, 0.0, 7.0, 0.0, 0.0], [1.0, 1.0, 7.0, 1.0, 1.0]], [0, 1], [0, 1])

    root = root_of(replace(ONE_TREE, p=2), samples)

    assert [one.feature for one in root.candidates] == [3, 4]
    assert root.feature == 3


@pytest.mark.parametrize(
    ("change", "rows", "y"),
    [
        pytest.param({"min_samples_split": 4}, [[0.0], [1.0], [2.0]], [0, 1, 0], id="too few samples"),
        pytest.param({}, [[0.0], [1.0], [2.0]], [1, 1, 1], id="one class"),
        pytest.param({"criterion": "squared_error", "n_classes": 0}, [[0.0], [1.0]], [-9, -9], id="one target"),
        pytest.param({}, [[3.0], [3.0]], [0, 1], id="equal rows, different labels"),
        pytest.param({}, [[0.0], [-0.0]], [0, 1], id="zeros of both signs are equal"),
        pytest.param({}, [], [], id="no samples"),
    ],
)
def test_a_node_that_may_not_split_is_a_leaf(change: dict[str, Any], rows: list[list[float]], y: list[int]) -> None:
    tree = grow_tree(replace(LINE, **change), 0, as_samples(rows, y, range(len(y))))

    assert isinstance(tree, Leaf)
    assert tree.ids == tuple(range(len(y)))


def test_rows_and_queries_lose_the_sign_of_zero_and_what_a_float32_cannot_hold() -> None:
    assert [bits_of(value) for value in as_row([-0.0, 1.0 + 2.0**-30, -(2.0**-160)])] == [0, 0x3F800000, 0]


@pytest.mark.parametrize("max_depth", [1, 2, 4])
def test_no_node_lies_deeper_than_max_depth(max_depth: int) -> None:
    samples = as_samples([[float(i)] for i in range(32)], [i % 2 for i in range(32)], range(32))

    tree = grow_tree(replace(LINE, max_depth=max_depth), 0, samples)

    assert max(path.bit_length() - 1 for path, _ in walk(tree)) == max_depth


def test_a_tree_on_neighbouring_floats_is_the_one_worked_out_by_hand() -> None:
    """The only thresholds between three neighbours are the lower two; the first separates the classes."""
    a, b, c = from_bits(0x3F800000), from_bits(0x3F800001), from_bits(0x3F800002)

    root = root_of(LINE, as_samples([[b], [c], [a]], [1, 1, 0], [8, 5, 9]))

    assert (root.feature, root.threshold, root.n, root.counts) == (0, a, 3, (1, 2))
    assert root.left == Leaf(1, (1, 0), (9,))
    assert root.right == Leaf(2, (0, 2), (5, 8))
    assert [(one.lo, one.hi, set(one.thresholds)) for one in root.candidates] == [(a, c, {a, b})]


def test_the_digest_of_a_classification_tree_is_the_one_packed_by_hand() -> None:
    tree = Split(3, np.float32(1.0), 3, (1, 2), Leaf(1, (1, 0), (9,)), Leaf(2, (0, 2), (5, 2**64 - 1)), [])
    head = "01 0300 0000803f 03000000 01000000 02000000"
    left = "00 01000000 01000000 00000000 0900000000000000"
    right = "00 02000000 00000000 02000000 0500000000000000 ffffffffffffffff"

    assert tree_digest(tree) == sha256(bytes.fromhex(head + left + right)).digest()


def test_the_digest_of_a_regression_leaf_holds_its_signed_sum() -> None:
    assert tree_digest(Leaf(1, -2, (7,))) == sha256(struct.pack("<BIqQ", 0, 1, -2, 7)).digest()


def test_an_empty_tree_is_one_leaf_without_samples() -> None:
    assert tree_digest(grow_tree(replace(LINE, n_classes=3), 0, [])) == sha256(bytes(5 + 12)).digest()


@pytest.mark.parametrize("criterion", TREE_DIGESTS)
def test_golden_forests_keep_their_digests(criterion: Criterion) -> None:
    forest = Forest(*golden_forest(criterion))

    assert [digest.hex() for digest in forest.tree_digests()] == TREE_DIGESTS[criterion]


def gini_by_the_book(y: list[int]) -> Fraction:
    return len(y) - Fraction(sum(y.count(c) ** 2 for c in set(y)), len(y))


def entropy_by_the_book(y: list[int]) -> Fraction:
    return -sum((Fraction(y.count(c) * float(np.log2(y.count(c) / len(y)))) for c in set(y)), Fraction(0))


def squares_by_the_book(y: list[int]) -> Fraction:
    mean = Fraction(sum(y), len(y))
    return sum(((v - mean) ** 2 for v in y), Fraction(0))


BY_THE_BOOK: dict[Criterion, Callable[[list[int]], Fraction]] = {
    "gini": gini_by_the_book,
    "entropy": entropy_by_the_book,
    "squared_error": squares_by_the_book,
}


def losses(settings: Settings, live: dict[int, Sample], ids: list[int], found: list[Candidate]) -> list[list[Fraction]]:
    """The textbook impurity of every candidate split of a node, by candidate and threshold."""
    impurity = BY_THE_BOOK[settings.criterion]

    def loss(feature: int, w: np.float32) -> Fraction:
        left = [live[i].y for i in ids if live[i].x[feature] <= w]
        right = [live[i].y for i in ids if live[i].x[feature] > w]
        return impurity(left) + impurity(right)

    return [[loss(one.feature, w) for w in one.thresholds] for one in found]


@pytest.mark.parametrize("task", nasty.TASKS)
def test_every_chosen_split_is_best_by_the_textbook_impurity(task: nasty.Task) -> None:
    """Up to the rounding that the fixed form of the score allows: 2^-12 of a mean of targets below 2^40."""
    for seed in range(25):
        data = nasty.make(seed, task, n=25)
        settings = replace(nasty.make_settings(seed, task, data.rows.shape[1]), s=5)
        live = {sample.id: sample for sample in data.samples()}
        spread = int(data.y.max()) - int(data.y.min())
        slack = spread / 2**10 if task == "regression" else 1e-6

        for tree in Forest(settings, live.values()).trees:
            for _, node in walk(tree):
                if isinstance(node, Split):
                    table = losses(settings, live, ids_below(node), node.candidates)
                    column = [one.feature for one in node.candidates].index(node.feature)
                    chosen = table[column][node.candidates[column].thresholds.index(node.threshold)]
                    assert chosen <= min(min(row) for row in table) + node.n * slack


@given(case=nasty.cases())
@effort(deadline=None, max_examples=60)
def test_every_node_of_a_nasty_forest_keeps_the_definition(case: tuple[Settings, nasty.Data]) -> None:
    settings, data = case
    live = {sample.id: sample for sample in data.samples()}

    for t, tree in enumerate(Forest(settings, live.values()).trees):
        assert sorted(ids_below(tree)) == [i for i in live if t in occupancy(settings, i)]
        for path, node in walk(tree):
            if isinstance(node, Split):
                check_split(settings, tree_key(settings.seed, t), path, node, live)


def check_split(settings: Settings, key: int, path: int, node: Split, live: dict[int, Sample]) -> None:
    """Both sides hold samples, lie on their side, and the candidates are the definition's with recounted counts."""
    ids = ids_below(node)
    x = np.array([live[i].x for i in ids])
    y = np.array([live[i].y for i in ids], dtype=np.int64)
    varying = [f for f in feature_order(key, path, settings.n_features) if len(np.unique(x[:, f])) > 1]
    assert node.left.n > 0
    assert node.right.n > 0
    assert node.left.n + node.right.n == node.n == len(ids)
    assert all(live[i].x[node.feature] <= node.threshold for i in ids_below(node.left))
    assert all(live[i].x[node.feature] > node.threshold for i in ids_below(node.right))
    assert [one.feature for one in node.candidates] == varying[: settings.p]
    for one in node.candidates:
        column = x[:, one.feature]
        assert (one.lo, one.hi) == (column.min(), column.max())
        assert list(one.thresholds) == sorted(one.thresholds)
        assert len(one.thresholds) == settings.s
        assert [side.n for side in one.left] == [int((column <= w).sum()) for w in one.thresholds]
        assert [side.counts for side in one.left] == [recount(settings, y[column <= w]) for w in one.thresholds]


def recount(settings: Settings, y: nasty.Ints) -> tuple[int, ...] | int:
    if settings.n_classes == 0:
        return int(y.sum())
    return tuple(int(count) for count in np.bincount(y, minlength=settings.n_classes))


@given(case=nasty.cases(), shuffle=st.randoms(use_true_random=False))
@effort(deadline=None, max_examples=40)
def test_the_order_of_samples_does_not_matter(case: tuple[Settings, nasty.Data], shuffle: Random) -> None:
    settings, data = case
    shuffled = data.samples()
    shuffle.shuffle(shuffled)

    assert Forest(settings, shuffled).tree_digests() == Forest(settings, data.samples()).tree_digests()


@pytest.mark.parametrize("task", nasty.TASKS)
def test_nasty_data_is_valid_and_as_nasty_as_it_claims(task: nasty.Task) -> None:
    made = [nasty.make(seed, task) for seed in range(200)]
    columns = [column for data in made for column in data.rows.T if len(column) > 1]
    limit = nasty.CLASSES[task] or 2**40

    assert all(data.rows.dtype == np.float32 and np.isfinite(data.rows).all() for data in made)
    assert all((np.abs(data.y) < limit).all() for data in made)
    assert any(len(data.y) == 0 for data in made)
    assert any((column == column[0]).all() for column in columns)
    assert any((np.signbit(column) & (column == 0)).any() for column in columns)
    assert any(np.abs(column).max() > 3e38 for column in columns)
    assert any(0 < np.abs(column).max() < 1e-40 for column in columns)
    assert any(labels_differ_on_equal_rows(data) for data in made)


def labels_differ_on_equal_rows(data: nasty.Data) -> bool:
    pairs = {(sample.x, sample.y) for sample in data.samples()}
    return len(pairs) > len({x for x, _ in pairs})


def test_the_grid_of_settings_holds_every_combination_once() -> None:
    """With T = 1 the three values of q agree, with T = 3 and 7 they do not: 7 pairs of T and k, 3 p, 18 of the rest."""
    grid = list(nasty.settings_grid(SEED, "regression", 9))

    assert len(grid) == len(set(grid)) == 7 * 3 * 18
    assert {(one.n_trees, one.k) for one in grid} == {(1, 1), (3, 3), (3, 1), (3, 2), (7, 7), (7, 1), (7, 4)}
    assert {one.p for one in grid} == {1, 4, 9}


def test_probabilities_are_the_mean_over_trees_that_hold_samples() -> None:
    """Sample 0 lives in trees 3, 0 and 6 of 7, sample 1 in 4, 3 and 5; so five trees count, and tree 3 holds both."""
    settings = replace(LINE, n_trees=7, k=3, max_depth=1)
    forest = Forest(settings, as_samples([[2.0], [2.0]], [0, 1], [0, 1]))

    assert forest.predict_proba([2.0]) == [(1.0 + 0.5 + 1.0) / 5.0, (0.5 + 1.0 + 1.0) / 5.0]
    assert forest.predict_class([2.0]) == 0


def test_a_regression_forest_predicts_in_the_users_unit() -> None:
    settings = replace(LINE, criterion="squared_error", n_classes=0, target_offset=100.0, target_step=0.5, s=1)
    forest = Forest(settings, as_samples([[0.0], [0.0], [1.0]], [3, 4, -8], range(3)))

    assert forest.predict_value([-1.0]) == 100.0 + 0.5 * 3.5
    assert forest.predict_value([2.0]) == 96.0


def test_a_query_equal_to_the_threshold_goes_left() -> None:
    tree = Split(0, np.float32(0.5), 2, (1, 1), Leaf(1, (1, 0), (0,)), Leaf(1, (0, 1), (1,)), [])

    assert leaf_of(tree, as_row([0.5])).ids == (0,)
    assert leaf_of(tree, as_row([0.5 + 2.0**-24])).ids == (1,)


def test_an_empty_forest_refuses_to_predict() -> None:
    with pytest.raises(EmptyForest, match="holds no samples"):
        Forest(LINE, []).predict_proba([0.0])
