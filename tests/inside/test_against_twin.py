"""What `dynfrsdb.inside` reads in a store is the forest that the naive twin grows from the same samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynfrsdb
from dynfrsdb.inside import candidates, people
from dynfrsdb.inside.importance import importances
from dynfrsdb.inside.nodes import Node, Trees, parse_path
from dynfrsdb.inside.scores import loss
from dynfrsdb.inside.size import tree_sizes
from dynfrsdb.inside.store import Inside, look
from tests import naive, nasty
from tests.survivors import twin_settings

KINDS: dict[str, tuple[nasty.Task, dict[str, Any]]] = {
    "gini": ("binary", {"criterion": "gini"}),
    "entropy": ("binary", {"criterion": "entropy"}),
    "many classes": ("multiclass", {}),
    "regression": ("regression", {"task": "regression", "target_offset": 0.5, "target_step": 0.25}),
}
LIVE = range(20, 160)


class Case:
    """A store in which samples came and went, with the trees that the twin grows from those that live."""

    def __init__(self, path: Path, kind: str) -> None:
        task, options = KINDS[kind]
        data = nasty.make(5, task, n=160, d=5)
        shape: dict[str, Any] = {"n_estimators": 4, "q": 0.5, "n_thresholds": 4, "min_samples_split": 3, "_bucket": 9}
        y = data.y * 0.25 + 0.5 if task == "regression" else data.y
        self.path = path
        with dynfrsdb.create(path, data.rows, y, seed=3, **shape, **options) as db:
            db.remove(range(20))
            db.settle()
        self.samples = [sample for sample in data.samples() if sample.id in LIVE]
        self.settings = look(path, lambda inside: twin_settings(inside.settings))
        self.trees = [naive.grow_tree(self.settings, t, self.samples) for t in range(4)]

    def pairs(self, trees: Trees) -> Iterator[tuple[Node, naive.Node]]:
        """Every node as it is read, beside the twin's."""
        for tree, root in enumerate(self.trees):
            for read, (path, grown) in zip(trees.walk(tree), naive.walk(root), strict=True):
                assert read.path == path
                yield read, grown


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("inside") / "a.forest", request.param)


def test_every_node_is_the_twins(case: Case) -> None:
    def compare(inside: Inside) -> int:
        ids = inside.snapshot.rows.words[:, 1]
        for read, grown in case.pairs(inside.trees):
            assert (read.n, read.totals) == (grown.n, _totals(grown.counts))
            if isinstance(grown, naive.Leaf):
                assert (read.kind, sorted(ids[list(inside.trees.slots(read))])) == ("leaf", list(grown.ids))
            else:
                assert (read.kind, read.feature, read.threshold) == ("split", grown.feature, float(grown.threshold))
                left = inside.trees.left_totals(read)
                assert left == (grown.left.n, _totals(grown.left.counts))
        return sum(1 for _ in case.pairs(inside.trees))

    assert look(case.path, compare) > 50


def test_every_split_considered_what_the_twin_considers_and_chose_as_it_does(case: Case) -> None:
    kinds = set()

    def compare(inside: Inside) -> None:
        for read, grown in case.pairs(inside.trees):
            found = candidates.considered(inside.trees, read)
            if isinstance(grown, naive.Leaf):
                assert found == []
                continue
            kinds.add(read.stored)
            assert [_candidate(each) for each in found] == [
                _twins(case.settings, grown, each) for each in grown.candidates
            ]
            best = candidates.ranked(inside.settings, found)[0]
            assert (best.feature, best.threshold) == (grown.feature, float(grown.threshold))
            assert [loss(inside.settings, cut.score) for each in found for cut in each.cuts] == [
                naive.score(case.settings.criterion, left, _rest(grown, left))
                for each in grown.candidates
                for left in each.left
            ]

    look(case.path, compare)

    assert kinds == {"node", "bucket", "small tree"}


def test_every_sample_is_found_in_the_leaves_that_hold_it(case: Case) -> None:
    def where(inside: Inside) -> dict[int, list[tuple[int, int]]]:
        found = {sample.id: people.sample(inside, sample.id) for sample in case.samples}
        return {id: [(at["tree"], parse_path(at["path"])) for at in each["places"]] for id, each in found.items()}

    expected: dict[int, list[tuple[int, int]]] = {sample.id: [] for sample in case.samples}
    for tree, root in enumerate(case.trees):
        for path, node in naive.walk(root):
            for id in node.ids if isinstance(node, naive.Leaf) else ():
                expected[id].append((tree, path))
    assert look(case.path, where) == expected


def test_importances_are_those_of_the_definition(case: Case) -> None:
    found = look(case.path, lambda inside: importances(inside.trees))

    mean = np.zeros(5)
    for root in case.trees:
        mine = np.zeros(5)
        for _, node in naive.walk(root):
            if isinstance(node, naive.Split):
                below = _impurity(case, node.left) + _impurity(case, node.right)
                mine[node.feature] += _impurity(case, node) - below
        mean += mine / mine.sum()
    assert np.allclose(found.features, mean / mean.sum(), atol=1e-9)
    assert (found.tags, found.tagged_share) == (0, 0.0)


def test_sizes_add_up_to_what_the_store_holds(case: Case) -> None:
    sizes, nodes = look(case.path, lambda inside: (tree_sizes(inside), inside.snapshot.count("nodes")))

    assert [size.samples for size in sizes] == [root.n for root in case.trees]
    assert sum(size.nodes for size in sizes) == nodes
    assert sum(size.tags for size in sizes) == 0


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_counts_of_four_bytes_are_read(tmp_path: Path, task: str) -> None:
    """More than 65,535 samples in a node."""
    x = np.random.default_rng(1).integers(0, 1000, size=(70_000, 2)).astype(np.float32)
    y = (x[:, 0] > 300).astype(np.int64)
    shape: dict[str, Any] = {"n_estimators": 1, "q": 1.0, "max_depth": 1, "n_thresholds": 3}
    step: dict[str, Any] = {"target_step": 1.0} if task == "regression" else {}
    dynfrsdb.create(tmp_path / "wide.forest", x, y, task=task, **shape, **step).close()

    def read(inside: Inside) -> tuple[Node, tuple[int, Any], candidates.Cut]:
        root = inside.trees.root(0)
        best = candidates.ranked(inside.settings, candidates.considered(inside.trees, root))[0]
        return root, inside.trees.left_totals(root), best

    root, left, best = look(tmp_path / "wide.forest", read)

    assert root.feature is not None
    goes_left = x[:, root.feature] <= np.float32(root.threshold)
    ones, ones_left = int(y.sum()), int(y[goes_left].sum())
    n_left = int(goes_left.sum())
    counted = (ones_left,) if task == "regression" else (n_left - ones_left, ones_left)
    assert root.totals == ((ones,) if task == "regression" else (70_000 - ones, ones))
    assert left == (n_left, counted)
    assert (best.feature, best.threshold, best.left) == (root.feature, root.threshold, n_left)


def _totals(counts: naive.Counts) -> tuple[int, ...]:
    return (counts,) if isinstance(counts, int) else counts


def _candidate(each: candidates.Considered) -> tuple[Any, ...]:
    counted = each.counted
    left = [(n, totals) for n, totals in counted.left]
    return counted.feature, counted.low, counted.high, [cut.threshold for cut in each.cuts], left


def _twins(settings: naive.Settings, node: naive.Split, each: naive.Candidate) -> tuple[Any, ...]:
    left = [(side.n, _totals(side.counts)) for side in each.left]
    return each.feature, float(each.lo), float(each.hi), [float(w) for w in each.thresholds], left


def _rest(node: naive.Split, left: naive.Side) -> naive.Side:
    if isinstance(node.counts, int):
        assert isinstance(left.counts, int)
        return naive.Side(node.n - left.n, node.counts - left.counts)
    assert isinstance(left.counts, tuple)
    return naive.Side(node.n - left.n, tuple(a - b for a, b in zip(node.counts, left.counts, strict=True)))


def _impurity(case: Case, node: naive.Node) -> float:
    """Times the number of samples: Gini, entropy, or the variance of the targets."""
    ids = {id for _, each in naive.walk(node) if isinstance(each, naive.Leaf) for id in each.ids}
    y = np.array([sample.y for sample in case.samples if sample.id in ids], np.float64)
    if case.settings.criterion == "squared_error":
        return float(((y - y.mean()) ** 2).sum())
    shares = np.unique(y, return_counts=True)[1] / y.size
    if case.settings.criterion == "gini":
        return float(y.size * (1 - (shares**2).sum()))
    return float(-y.size * (shares * np.log2(shares)).sum())
