"""How records come into memory: few rounds, and nothing that nobody asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests import naive
from tests.engine.shelf import ShelvedForest

SETTINGS = naive.Settings(
    seed=bytes(16),
    n_trees=6,
    k=3,
    p=2,
    s=3,
    max_depth=20,
    min_samples_split=2,
    criterion="gini",
    n_features=3,
    n_classes=2,
)
ROWS = np.random.default_rng(7).normal(size=(300, 3)).astype(np.float32)


@pytest.fixture
def cold() -> ShelvedForest:
    """A settled forest with nothing in memory."""
    forest = ShelvedForest(SETTINGS, bucket=4)
    forest.change([], naive.as_samples(ROWS.tolist(), [i % 2 for i in range(len(ROWS))], range(len(ROWS))))
    forest.settle()
    forest.reload()
    return forest


def test_everything_on_a_rows_way_is_brought_at_once(cold: ShelvedForest) -> None:
    trees, roots = np.arange(SETTINGS.n_trees), np.ones(SETTINGS.n_trees, np.uint64)

    for row in ROWS[:20]:
        cold.forest.load(trees, roots, [row.tolist()] * SETTINGS.n_trees)

        assert cold.forest.predict_if_ready(row[None]) is not None


def test_a_load_without_rows_brings_the_nodes_alone(cold: ShelvedForest) -> None:
    trees, roots = np.arange(SETTINGS.n_trees), np.ones(SETTINGS.n_trees, np.uint64)
    cold.shelf.loads = 0

    cold.forest.load(trees, roots)

    assert cold.shelf.loads == SETTINGS.n_trees


def test_tags_that_a_query_left_are_not_those_of_the_next_transaction(cold: ShelvedForest) -> None:
    """A commit grows what it made void itself; what a query left of a tag can wait for a quiet moment."""
    cold.change(list(range(0, 150)), [])
    cold.forest.predict(ROWS[:1])
    left = cold.forest.dirty_tags(cold.commits, len(ROWS)).size

    cold.change([200], [], commit=False)
    made = cold.forest.dirty_tags(cold.commits, len(ROWS))

    assert left > 0
    assert 0 < made.size <= SETTINGS.k  # one sample, one way down each of its trees


def test_a_long_list_that_is_brought_has_what_its_transaction_changed_in_it() -> None:
    """One sample left and another came while the list was on disk; then somebody needs to see all of them."""
    settings = replace(SETTINGS, n_trees=1, k=1)
    forest = ShelvedForest(settings, bucket=2)
    samples = naive.as_samples(ROWS[:9].tolist(), [*([0] * 8), 1], range(9))
    forest.change([], samples[:7])
    forest.settle()
    forest.reload()
    before = forest.shelf.lists[0, 1].tolist()

    forest.change([3], [], commit=False)
    forest.change([], samples[7:8], commit=False)
    assert forest.forest.w.nodes["list_at"][0] < 0, "the list was to stay on disk"
    forest.change([], samples[8:])

    slots = sorted(slot for slot, _ in forest.live.values())
    assert forest.shelf.lists[0, 1].tolist() == slots != before
    forest.settle()
    assert forest.tree_digests() == naive.Forest(settings, forest.samples()).tree_digests()
