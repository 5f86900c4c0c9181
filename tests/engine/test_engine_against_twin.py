"""The kernels against the naive twin: the same hashes, trees, statistics and answers, bit for bit.

The twin is written from the definition and shares no line with the engine. Three kinds of comparison: frozen vectors of
algorithm 1, trees grown from nasty data over a grid of settings, and histories in which samples come and go at random.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dynfrsdb_engine import hashing, score
from dynfrsdb_engine.forest import Forest
from dynfrsdb_engine.records import SPLIT
from tests import naive, nasty
from tests.engine.doors import door, split_stats
from tests.engine.shelf import ShelvedForest
from tests.vectors import (
    GAIN_VECTORS,
    HASH_VECTORS,
    OCCUPANCY_KEY,
    OCCUPANCY_VECTORS,
    ORDER_VECTORS,
    SPLITMIX_VECTORS,
    THRESHOLD_VECTORS,
    X_VECTORS,
)

HISTORIES = range(48)
STEPS = 12


hash_step, place, thresholds = door(hashing.step), door(hashing.place), door(hashing.thresholds)
put_back, best_squares, xlogx = door(hashing.restore), door(score.best_squares), door(score.xlogx)


def step(h: int, *values: int) -> np.uint64:
    """Draw values into a hash; a kernel gives a Python int, which must be made 64 bits without sign again."""
    state = np.uint64(h)
    for value in values:
        state = np.uint64(hash_step(state, np.uint64(value)))
    return state


def bits(value: int) -> Any:
    """The float32 with these bits."""
    return np.array([value], np.uint32).view(np.float32)[0]


def test_the_hash_is_splitmix64() -> None:
    states = [(1234567 + i * naive.GOLDEN) % naive.WORD for i in range(len(SPLITMIX_VECTORS))]

    assert [int(step(state, 0)) for state in states] == SPLITMIX_VECTORS


@pytest.mark.parametrize(("key", "path", "feature", "i", "expected"), HASH_VECTORS)
def test_kernels_hash_as_the_frozen_vectors_say(key: int, path: int, feature: int, i: int, expected: int) -> None:
    assert int(step(key, path, feature, i)) == expected


@pytest.mark.parametrize(("key", "path", "feature", "lo", "hi", "expected"), THRESHOLD_VECTORS)
def test_kernels_cut_as_the_frozen_vectors_say(
    key: int, path: int, feature: int, lo: int, hi: int, expected: list[int]
) -> None:
    out = np.empty(len(expected), np.float32)

    thresholds(step(key, path), feature, bits(lo), bits(hi), out)

    assert out.view(np.uint32).tolist() == expected


@pytest.mark.parametrize(("key", "path", "d", "expected"), ORDER_VECTORS)
def test_kernels_order_features_as_the_frozen_vectors_say(key: int, path: int, d: int, expected: list[int]) -> None:
    order_hash = step(key, path, int(hashing.ORDER))
    shuffled, swaps = np.arange(d, dtype=np.int32), np.empty(d, np.int32)

    for j in range(d):
        swaps[j] = place(order_hash, j, d)
        shuffled[[j, swaps[j]]] = shuffled[[swaps[j], j]]

    assert shuffled.tolist() == expected
    put_back(shuffled, swaps, d)
    assert shuffled.tolist() == list(range(d))


@pytest.mark.parametrize(("sample", "trees", "k", "expected"), OCCUPANCY_VECTORS)
def test_kernels_place_samples_as_the_frozen_vectors_say(sample: int, trees: int, k: int, expected: list[int]) -> None:
    identity = np.arange(trees, dtype=np.int32)
    out, swaps = np.empty(k, np.int32), np.empty(k, np.int32)

    hashing.occupancy(np.uint64(OCCUPANCY_KEY), np.uint64(sample), k, identity, swaps, out)

    assert out.tolist() == expected
    assert identity.tolist() == list(range(trees)), "the identity that was lent must come back as one"


@pytest.mark.parametrize(("m", "expected"), X_VECTORS)
def test_kernels_know_m_log_m_as_the_frozen_vectors_say(m: int, expected: int) -> None:
    assert xlogx(m) == expected


def test_the_table_of_m_log_m_is_the_twins() -> None:
    table = score.entropy_table()
    tried = {*range(3000), *(2**e + i for e in range(16) for i in (-1, 0, 1)), len(table) - 1}

    assert {m: int(table[m]) for m in tried if 0 <= m < len(table)} == {
        m: naive.m_log2_m(m) for m in tried if 0 <= m < len(table)
    }


@pytest.mark.parametrize(("n_left", "sum_left", "n_right", "sum_right", "expected"), GAIN_VECTORS)
def test_kernels_score_regression_as_the_frozen_vectors_say(
    n_left: int, sum_left: int, n_right: int, sum_right: int, expected: str
) -> None:
    counts, sums = np.array([[n_left]], np.uint32), np.array([sum_left], np.int64)

    gain, cut, left = best_squares(counts, sums, sum_left + sum_right, n_left + n_right, -1.0)

    assert (gain, cut, left) == (float.fromhex(expected), 0, n_left)


def on_a_shelf(settings: naive.Settings, samples: list[naive.Sample], bucket: int) -> ShelvedForest:
    """A forest that was never changed: all its samples came at once."""
    forest = ShelvedForest(settings, bucket, capacity=512)
    forest.change([], samples)
    return forest


@pytest.mark.parametrize("bucket", [2, 64])
@pytest.mark.parametrize("task", nasty.TASKS)
def test_every_shape_of_the_grid_grows_the_twins_trees(task: nasty.Task, bucket: int) -> None:
    seed = 1000 + bucket
    for i, shape in enumerate(nasty.SHAPES[bucket % 3 :: 3]):
        data = nasty.make(seed + i % 17, task, n=5 + i % 31)
        criterion = nasty.CRITERIA[task][i % len(nasty.CRITERIA[task])]
        settings = nasty.fit(shape, bytes([i % 256] * 16), task, criterion, data.rows.shape[1])
        forest = on_a_shelf(settings, data.samples(), bucket)

        assert forest.fresh_digests() == naive.Forest(settings, data.samples()).tree_digests(), (shape, i)
        assert forest.tree_digests() == forest.fresh_digests(), (shape, i)


class History:
    """A random history of one forest; everything in it follows from its seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        task = nasty.TASKS[seed % 3]
        self.data = nasty.make(seed, task, n=int(self.rng.integers(1, 60)))
        self.settings = nasty.make_settings(seed, task, self.data.rows.shape[1])
        self.pool = self.data.samples()
        self.forest = ShelvedForest(self.settings, int(self.rng.choice([2, 3, 8, 64])))

    def steps(self) -> Iterator[int]:
        """Samples come and go; now and then the working set is dropped or everything is settled."""
        for step in range(STEPS):
            if self.chance(0.15):
                self.forest.reload()
            self.forest.change(self.leavers(), self.newcomers(first=step == 0))
            if self.chance(0.2):
                self.forest.settle()
            yield step

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def leavers(self) -> list[int]:
        live = list(self.forest.live)
        most = 4 if self.chance(0.8) else 40
        return [live[i] for i in self.rng.permutation(len(live))[: self.rng.integers(0, min(len(live), most) + 1)]]

    def newcomers(self, first: bool) -> list[naive.Sample]:
        gone = [sample for sample in self.pool if sample.id not in self.forest.live]
        most = 60 if first or self.chance(0.3) else 4
        return [gone[i] for i in self.rng.permutation(len(gone))[: self.rng.integers(0, min(len(gone), most) + 1)]]


@pytest.mark.parametrize("seed", HISTORIES)
def test_a_history_ends_in_the_forest_of_its_survivors(seed: int) -> None:
    history = History(seed)
    forest = history.forest

    for step in history.steps():
        assert forest.tree_digests() == forest.fresh_digests(), f"step {step}"
        if step % 5 == 4:
            twin = naive.Forest(history.settings, forest.samples())
            assert forest.tree_digests() == twin.tree_digests(), f"step {step}"
            if forest.live:
                assert_same_answers(forest, twin, history.pool[:5])


def assert_same_answers(forest: ShelvedForest, twin: naive.Forest, samples: list[naive.Sample]) -> None:
    said = forest.forest.predict(np.array([sample.x for sample in samples], np.float32))
    for row, sample in zip(said.tolist(), samples, strict=True):
        assert row == (twin.predict_proba(sample.x) if twin.settings.n_classes else [twin.predict_value(sample.x)])


@pytest.mark.parametrize("seed", range(24))
def test_many_rows_get_the_answers_that_each_gets_alone(seed: int) -> None:
    """Trees are copied for many rows; what is missing or tagged, and leaves of any number of classes, must be, too."""
    history = History(seed)
    forest, rows = history.forest, history.data.rows.astype(np.float32)
    asked = np.ascontiguousarray(np.resize(rows, (int(history.rng.integers(1, 200)), rows.shape[1])))

    for step in history.steps():
        if forest.live:
            alone = Forest(forest.spec, forest.shelf, forest.table.rows, changeable=False)
            alone.w.roots[:] = forest.shelf.roots
            each = np.vstack([alone.predict(row[None]) for row in asked])
            assert forest.forest.predict(asked).tobytes() == each.tobytes(), f"step {step}"
            ready = alone.predict_if_ready(asked)
            assert ready is not None, f"step {step}"
            assert ready.tobytes() == each.tobytes(), f"step {step}"


def follow(reader: Forest, forest: ShelvedForest, settled: bool) -> None:
    roots = forest.shelf.roots
    stamps, n, tags = (roots[name].astype(kind) for name, kind in (("stamp", "u8"), ("n", "u4"), ("tags", "u1")))
    reader.follow(stamps, n, tags, settled)


@pytest.mark.parametrize("ask_between", [False, True])
@pytest.mark.parametrize("seed", range(24))
def test_who_follows_a_commit_has_all_that_it_changed_in_memory(seed: int, ask_between: bool) -> None:
    """Also what was tagged when it was met, was partly grown there, and is settled now."""
    history = History(seed)
    forest, rows = history.forest, history.data.rows.astype(np.float32)
    reader = Forest(forest.spec, forest.shelf, forest.table.rows, changeable=False)
    ready = 0

    for step in history.steps():
        in_all_trees = bool(reader.w.roots["n"].all())
        if ask_between:
            follow(reader, forest, settled=False)
            if forest.live:
                reader.predict(rows[:1])
        forest.settle()
        follow(reader, forest, settled=True)
        if forest.live:
            said = reader.predict_if_ready(rows)
            assert said is not None or not in_all_trees, f"step {step}"
            assert reader.predict(rows).tobytes() == forest.forest.predict(rows).tobytes(), f"step {step}"
            ready += said is not None

    assert ready or len(history.pool) < 12


@pytest.mark.parametrize("seed", range(100, 124))
def test_every_stored_split_has_the_statistics_of_the_twins_node(seed: int) -> None:
    history = History(seed)
    looked_at = 0

    for _ in history.steps():
        twin = naive.Forest(history.settings, history.forest.samples())
        looked_at += sum(assert_same_statistics(history.forest, tree, node) for tree, node in enumerate(twin.trees))

    bucket = history.forest.spec.bucket
    assert looked_at or bucket >= 8 or history.settings.min_samples_split > 2 or len(history.pool) < 12


def assert_same_statistics(forest: ShelvedForest, tree: int, root: naive.Node) -> int:
    """Hold all split records of a tree against the twin's nodes; returns how many there were."""
    nodes, samples = dict(naive.walk(root)), forest.samples()
    splits = {path: data for (t, path), data in forest.shelf.nodes.items() if t == tree and data[0] == SPLIT}
    for path, data in splits.items():
        node = nodes[path]
        assert isinstance(node, naive.Split)
        stats = split_stats(forest.spec, tree, path, data)
        head = stats.head[0]
        assert (int(head["n"]), int(head["m"])) == (node.n, len(node.candidates))
        best = stats.cand[0, head["best"]]["feature"], stats.cuts[0, head["best"], head["cut"]]
        assert (int(best[0]), best[1].tobytes()) == (node.feature, node.threshold.tobytes())
        for c, one in enumerate(node.candidates):
            stored = stats.cand[0, c]
            assert (int(stored["feature"]), stored["lo"], stored["hi"]) == (one.feature, one.lo, one.hi)
            assert stats.cuts[0, c].tobytes() == np.array(one.thresholds, np.float32).tobytes()
            sums = [] if forest.spec.classes else [stats.sums[0, c]]
            left = np.cumsum(np.column_stack([stats.counts[0, c], *sums]), axis=0).tolist()
            assert left == [
                list(side.counts) if isinstance(side.counts, tuple) else [side.n, side.counts] for side in one.left
            ]
            column = [sample.x[one.feature] for sample in below(nodes[1], path, samples)]
            assert (int(stored["at_lo"]), int(stored["at_hi"])) == (column.count(one.lo), column.count(one.hi))
        assert_same_constants(forest, tree, path, node, [int(f) for f in stats.skip[0, : head["skipped"]]["feature"]])
    return len(splits)


def below(root: naive.Node, path: int, samples: list[naive.Sample]) -> list[naive.Sample]:
    """The samples at a node of a tree."""
    ids = {
        id
        for place, node in naive.walk(root)
        if isinstance(node, naive.Leaf) and lies_below(place, path)
        for id in node.ids
    }
    return [sample for sample in samples if sample.id in ids]


def lies_below(place: int, path: int) -> bool:
    shift = place.bit_length() - path.bit_length()
    return shift >= 0 and place >> shift == path


def assert_same_constants(forest: ShelvedForest, tree: int, path: int, node: naive.Split, skipped: list[int]) -> None:
    """The skipped constants are the features before the last candidate, or all, that are no candidates."""
    order = naive.feature_order(naive.tree_key(forest.settings.seed, tree), path, forest.settings.n_features)
    candidates = [one.feature for one in node.candidates]
    looked_at = order[: order.index(candidates[-1]) + 1] if len(candidates) == forest.settings.p else order
    assert sorted(skipped) == sorted(set(looked_at) - set(candidates))
