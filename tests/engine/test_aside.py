"""Tags that are grown aside, while the forest goes on: what still fits is taken, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dynfrsdb_engine.jobs import Growth, grow_work
from tests.engine.shelf import ShelvedForest
from tests.engine.test_change_rules import assert_exact, planted
from tests.engine.test_regrowing import CROWD, crowd

SEEDS = range(12)
SETTINGS = replace(CROWD, n_trees=3, k=2)
FEW = 4
"""Samples of a bucket: most of the tree are nodes and long lists."""


def tagged(seed: int) -> tuple[ShelvedForest, Growth]:
    """A forest with large tags on the shelf, none of it in memory; and what they become, grown aside."""
    forest = planted(replace(SETTINGS, seed=bytes([seed] * 16)), crowd(seed), FEW)
    forest.change(np.random.default_rng(seed).permutation(100)[:8].tolist(), [])
    found = forest.forest.tags()
    assert found["n"].max() > 2 * FEW
    growth = grow_work(forest.spec, forest.table.rows, forest.forest.set_aside(found))
    forest.reload()
    return forest, growth


def take(forest: ShelvedForest, growth: Growth) -> int:
    """Write what fits; returns how many samples are left below tags."""
    forest.forest.tags()
    forest.forest.take_what_fits(growth)
    forest.shelf.commit(forest.forest)
    assert_exact(forest)
    return int(forest.forest.tags()["n"].sum())


def ask(forest: ShelvedForest) -> None:
    """One query, which grows its way through every tree and leaves the rest."""
    forest.forest.predict(np.array([forest.samples()[5].x], np.float32))


def ask_and_write(forest: ShelvedForest) -> None:
    ask(forest)
    forest.shelf.commit(forest.forest)


def remove(forest: ShelvedForest) -> None:
    forest.change([forest.samples()[7].id], [])


def remove_after_a_query(forest: ShelvedForest) -> None:
    ask(forest)
    remove(forest)


def replace_a_sample(forest: ShelvedForest) -> None:
    """As many samples as before, and others."""
    gone = forest.samples()[7]
    forest.change([gone.id], [gone._replace(id=900, y=1 - gone.y)])


def settle(forest: ShelvedForest) -> None:
    forest.settle()


def settle_and_remove(forest: ShelvedForest) -> None:
    forest.settle()
    remove(forest)


@pytest.mark.parametrize("seed", SEEDS)
def test_if_nothing_happened_everything_is_settled(seed: int) -> None:
    """And the records are those that settling would have written, byte for byte."""
    forest, growth = tagged(seed)
    twin, _ = tagged(seed)
    twin.settle()

    assert take(forest, growth) == 0
    assert (forest.shelf.nodes, forest.shelf.buckets) == (twin.shelf.nodes, twin.shelf.buckets)
    assert {place: slots.tolist() for place, slots in forest.shelf.lists.items()} == {
        place: slots.tolist() for place, slots in twin.shelf.lists.items()
    }


@pytest.mark.parametrize(
    "meanwhile",
    [ask, ask_and_write, remove, remove_after_a_query, replace_a_sample, settle, settle_and_remove],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happened_meanwhile_the_forest_is_that_of_its_samples(
    seed: int, meanwhile: Callable[[ShelvedForest], None]
) -> None:
    forest, growth = tagged(seed)
    meanwhile(forest)

    take(forest, growth)

    forest.settle()
    forest.reload()
    assert_exact(forest)


def test_what_a_query_left_of_a_tag_is_taken() -> None:
    """The query grew its own way; the tags beside it have the samples that they had."""
    left = 0
    for seed in SEEDS:
        forest, growth = tagged(seed)
        ask(forest)
        left += int(forest.forest.tags()["n"].sum())

        assert take(forest, growth) == 0

    assert left > 100


def test_what_a_removal_came_by_stays_a_tag() -> None:
    """Its samples are no longer those that it was grown from."""
    met = 0
    for seed in SEEDS:
        forest, growth = tagged(seed)
        remove(forest)
        changed = {place for place, stamp in tags(forest).items() if stamp == forest.commits}
        met += len(changed)

        take(forest, growth)

        assert changed == tags(forest).keys()
    assert met > 10


def tags(forest: ShelvedForest) -> dict[tuple[int, int], int]:
    """The stamps of all tags, by (tree, path)."""
    found, w = forest.forest.tags(), forest.forest.w
    owners = w.points["owner"][found["point"]].tolist()
    stamps = [(w.nodes[owner] if owner >= 0 else w.buckets[-2 - owner])["stamp"] for owner in owners]
    return dict(zip(found[["tree", "path"]].tolist(), map(int, stamps), strict=True))


def test_what_is_settled_on_the_shelf_and_not_in_memory_is_not_written_again() -> None:
    """Its place is missing in memory; a record that was grown aside would be put beside chunks of an older list."""
    forest, growth = tagged(3)
    forest.settle()
    forest.reload()
    before = dict(forest.shelf.nodes), dict(forest.shelf.buckets)

    forest.forest.tags()
    forest.forest.take_what_fits(growth)

    assert not forest.forest.changed((1, 2), 3).nodes.ends.size
    forest.shelf.commit(forest.forest)
    assert (forest.shelf.nodes, forest.shelf.buckets) == before
