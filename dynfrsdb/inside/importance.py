"""Which features the forest decides by: mean decrease in impurity.

Every split lowers the impurity of its samples by some amount; a tree's importance of a feature is the sum over its
splits by that feature, each weighted by its share of the tree's samples, and the forest's is the mean over trees,
scaled to add up to 1. (This is the usual definition; like all of its kind it flatters features with many
values.)

What lies below a tag is not grown and decides nothing yet, so it is left out, and how much that is, is said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dynfrsdb.inside.nodes import Trees
from dynfrsdb.inside.scores import decrease

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Importances:
    """One number per feature, and how much of the forest they do not speak for."""

    features: list[float]
    tags: int
    tagged_share: float
    """Which share of all places of samples in trees lies below tags."""


def importances(trees: Trees, progress: Progress | None = None) -> Importances:
    """Read every tree."""
    settings = trees.settings
    sums = [0.0] * settings.n_features
    tags = below_tags = samples = 0
    for tree in range(settings.n_trees):
        mine, n, tagged, below = _tree(trees, tree)
        total = sum(mine)
        for feature, value in enumerate(mine):
            sums[feature] += value / total if total else 0.0
        samples, tags, below_tags = samples + n, tags + tagged, below_tags + below
        if progress is not None:
            progress("reading trees", tree + 1, settings.n_trees)
    whole = sum(sums)
    share = below_tags / samples if samples else 0.0
    return Importances([value / whole if whole else 0.0 for value in sums], tags, share)


def _tree(trees: Trees, tree: int) -> tuple[list[float], int, int, int]:
    """One tree's importances, not scaled; its samples; its tags, and the samples below them."""
    mine = [0.0] * trees.settings.n_features
    n = tags = below = 0
    for node in trees.walk(tree):
        if node.path == 1:
            n = node.n
        if node.kind == "tag":
            tags, below = tags + 1, below + node.n
        if node.kind == "split":
            assert node.feature is not None, "a split has a feature"
            assert node.totals is not None, "a split has counts"
            mine[node.feature] += decrease(trees.settings, *trees.left_totals(node), node.n, node.totals)
    return mine, n, tags, below
