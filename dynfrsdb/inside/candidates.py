"""What a node considered, and how close the choice was.

A split record keeps the counts of all its candidates. What is inside a bucket, and a tag, keeps none: for those the
rows are read and counted again, by F's definition, which is also what the engine would do.

The *runner-up* is the best cut that would divide the samples in another way. (Two thresholds of one feature with the
same samples on the left are the same split to everything below.) Its distance from the best is the *margin*: how far
counts have to move before the node chooses anew. A score also changes when the last sample with a candidate's least or
greatest value goes, because that moves its range and with it all its thresholds; so how many samples are there is shown
beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dynfrsdb.errors import CorruptStore
from dynfrsdb.inside import chance
from dynfrsdb.inside.floats import shortest
from dynfrsdb.inside.nodes import Node, Trees
from dynfrsdb.inside.records import Counted
from dynfrsdb.inside.scores import GINI_PER_REMOVAL, loss, score
from dynfrsdb.settings import Settings

if TYPE_CHECKING:
    import numpy as np
else:
    from dynfrsdb_storage import lazynumpy as np


@dataclass(frozen=True)
class Cut:
    """One cut of one candidate."""

    feature: int
    threshold: float
    left: int
    right: int
    score: float


@dataclass(frozen=True)
class Considered:
    """One candidate with all its cuts."""

    counted: Counted
    cuts: list[Cut]


def considered(trees: Trees, node: Node) -> list[Considered]:
    """All candidates of a node, in its feature order; none for a leaf."""
    if node.kind == "leaf":
        return []
    if node.record is not None:
        n, totals, found = node.n, node.record.totals, node.record.candidates()
    else:
        samples = _Samples(trees, node)
        if samples.is_leaf():
            return []
        n, totals, found = node.n, samples.count(slice(None))[1], samples.candidates()
    settings = trees.settings
    return [
        Considered(
            each,
            [
                Cut(each.feature, w, n_left, n - n_left, score(settings, n_left, left, n, totals))
                for w, (n_left, left) in zip(
                    chance.thresholds(settings, node.tree, node.path, each.feature, each.low, each.high),
                    each.left,
                    strict=True,
                )
            ],
        )
        for each in found
    ]


def ranked(settings: Settings, candidates: list[Considered]) -> list[Cut]:
    """All cuts, best first; ties go to the earlier candidate, then to the lower threshold."""
    cuts = [cut for candidate in candidates for cut in candidate.cuts]
    return sorted(cuts, key=lambda cut: loss(settings, cut.score))


def judged(settings: Settings, candidates: list[Considered]) -> dict[str, Any]:
    """The best cut, the runner-up, and the margin between them."""
    cuts = ranked(settings, candidates)
    if not cuts:
        return {}
    best = cuts[0]
    rival = next((cut for cut in cuts if (cut.feature, cut.left) != (best.feature, best.left)), None)
    found: dict[str, Any] = {"best": described(settings, best), "runner_up": None, "margin": None}
    if rival is None:
        return found
    margin = abs(best.score - rival.score)
    found |= {"runner_up": described(settings, rival), "margin": margin}
    if settings.criterion == "gini":
        found["removals_at_least"] = max(1, math.ceil(margin / GINI_PER_REMOVAL))
    return found


def described(settings: Settings, cut: Cut) -> dict[str, Any]:
    """A cut as plain values."""
    return {
        "feature": settings.feature_name(cut.feature),
        "threshold": shortest(cut.threshold),
        "left": cut.left,
        "right": cut.right,
        "score": cut.score,
    }


def described_candidate(settings: Settings, each: Considered) -> dict[str, Any]:
    """A candidate as plain values, with its best cut and all of them."""
    best = ranked(settings, [each])[0]
    return {
        "feature": settings.feature_name(each.counted.feature),
        "low": shortest(each.counted.low),
        "high": shortest(each.counted.high),
        "at_low": each.counted.at_low,
        "at_high": each.counted.at_high,
        "best": described(settings, best),
        "cuts": [described(settings, cut) for cut in each.cuts],
    }


class _Samples:
    """The samples of a node that keeps no counts, read from the rows."""

    def __init__(self, trees: Trees, node: Node) -> None:
        self._settings, self._node = trees.settings, node
        rows, slots = trees.snapshot.rows, np.array(trees.slots(node), np.uint32)
        bad = rows.bad(slots, rows.words[slots, 1]) if slots.size else slots
        if bad.size:
            store = trees.snapshot.generation.store
            raise CorruptStore(
                f"the row in slot {slots[bad[0]]} of '{store}' fails its hash; no answer was given. "
                f"Run 'dynfrsdb check {store}'"
            )
        self._x = rows.floats[slots, 6 : 6 + self._settings.n_features]
        self._y = rows.words[slots, 2].astype(np.int64)

    def is_leaf(self) -> bool:
        """Whether F makes no split of these samples, whatever their features are."""
        settings, n = self._settings, len(self._y)
        small = n < settings.min_samples_split or self._node.depth == settings.max_depth
        return small or bool((self._y == self._y[0]).all())

    def candidates(self) -> Iterator[Counted]:
        """The first p features in the node's order that are not constant."""
        found = 0
        for feature in chance.feature_order(self._settings, self._node.tree, self._node.path):
            column = self._x[:, feature]
            low, high = float(column.min()), float(column.max())
            if low == high:
                continue
            cuts = chance.thresholds(self._settings, self._node.tree, self._node.path, feature, low, high)
            ends = int((column == low).sum()), int((column == high).sum())
            yield Counted(feature, low, high, *ends, [self.count(column <= np.float32(w)) for w in cuts])
            found += 1
            if found == self._settings.p:
                return

    def count(self, which: Any) -> tuple[int, tuple[int, ...]]:
        """The (n, totals) of some of the samples."""
        y = self._y[which]
        if not self._settings.n_classes:
            return len(y), (int(y.sum()),)
        return len(y), tuple(np.bincount(y, minlength=self._settings.n_classes).tolist())
