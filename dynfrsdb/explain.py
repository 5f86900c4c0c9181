"""Why a prediction is what it is: how far each feature moved it, along the paths of one row.

In every tree a row goes from the root, where all samples of the tree vote, to a leaf, where a few of them do. Each
split on the way changes the vote, and the change is put down to the feature that was asked:

    root       n=90   yes 0.40
    age <= 30  n=25   yes 0.56      age moved it by +0.16
    job=cook   n=9    yes 1.00      job=cook moved it by +0.44
                                    0.40 + 0.16 + 0.44 = 1.00, what the leaf says

Averaged over the trees, these parts and the mean of the roots add up to the prediction, and nothing is left over.
(Saabas, "Interpreting random forests", 2014.)

Records are read one at a time, in plain Python. What is tagged is grown in memory, as far as the rows ask. This takes
about a millisecond per row.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dynfrsdb.errors import EmptyForest
from dynfrsdb.settings import Settings
from dynfrsdb.shelf import Shelf
from dynfrsdb.view import in_words, rows_of
from dynfrsdb_engine.jobs import Job, grow_jobs
from dynfrsdb_engine.records import BUCKET_HEADER, LEAF_MARK, LIST_HEADER, SPLIT, SPLIT_HEADER, TAG, WIDE
from dynfrsdb_engine.spec import Spec
from dynfrsdb_storage import Snapshot

_SPLIT = struct.Struct("<IfH")
_SMALL_LEAF = struct.Struct("<HHH")
_CUT = struct.Struct("<f")
_SUM = struct.Struct("<q")
_PAIR, _WIDE_PAIR = struct.Struct("<HH"), struct.Struct("<HI")


@dataclass(frozen=True)
class Explanation:
    """One prediction, and what moved it."""

    prediction: Any
    """The class, or the value."""
    value: float
    """The frequency of the class, or the value: what is explained."""
    base: float
    """The same before any feature is looked at: the mean over the roots."""
    answer: tuple[float, ...]
    """What `predict_proba` gives for the row, or the value alone."""
    moved: dict[str, float]
    """By how much each feature on the row's paths moved it, strongest first; `base` and these add up to `value`."""


class _Node:
    """A node of one tree, as far as this needs it."""

    __slots__ = ("children", "counts", "cut", "feature", "n", "path", "sizes", "tree", "votes")

    def __init__(self, tree: int, path: int, n: int) -> None:
        self.tree, self.path, self.n = tree, path, n
        self.counts: dict[int, int] = {}
        self.votes: dict[int, float] = {}
        self.feature, self.cut = -1, 0.0
        self.sizes = (0, 0)
        self.children: list[_Node | None] = [None, None]


class Explainer:
    """Explains rows from one snapshot."""

    def __init__(self, settings: Settings, spec: Spec, snapshot: Snapshot) -> None:
        self._settings, self._spec, self._snapshot = settings, spec, snapshot
        self._shelf = Shelf()
        self._shelf.snapshot = snapshot
        self._grown: dict[tuple[int, int], bytes] = {}

    def explain(self, X: npt.NDArray[np.float32], means: npt.NDArray[np.float64]) -> list[Explanation]:
        """Why the answers for the rows of X are `means`."""
        path = self._snapshot.generation.store
        if not len(X):
            return []  # nothing would be grown of a tag, for nobody
        self._asked = X
        with in_words(path):
            _, sizes, _ = self._snapshot.roots()
            roots = [self._read(tree, 1, int(n)) for tree, n in enumerate(sizes) if n]
            if not roots:
                raise EmptyForest(f"'{path}' holds no samples; add some first")
            return [self._row(roots, row, mean) for row, mean in zip(X.tolist(), means, strict=True)]

    def _row(self, roots: list[_Node], row: list[float], mean: npt.NDArray[np.float64]) -> Explanation:
        chosen = int(mean.argmax())
        base = 0.0
        moved: dict[int, float] = defaultdict(float)
        for node in roots:
            value = node.votes.get(chosen, 0.0)
            base += value
            while node.feature >= 0:
                feature = node.feature
                node = self._child(node, 0 if row[feature] <= node.cut else 1)
                before, value = value, node.votes.get(chosen, 0.0)
                moved[feature] += value - before
        trees, classes = len(roots), self._settings.classes
        order = sorted(moved.items(), key=lambda item: (-abs(item[1]), item[0]))
        return Explanation(
            classes[chosen] if classes else float(mean[0]),
            float(mean[chosen]),
            base / trees,
            tuple(mean.tolist()),
            {self._name(feature): change / trees for feature, change in order},
        )

    def _name(self, feature: int) -> str:
        names = self._settings.feature_names
        return names[feature] if names else f"x{feature}"

    def _child(self, node: _Node, side: int) -> _Node:
        child = node.children[side]
        if child is None:
            child = node.children[side] = self._read(node.tree, 2 * node.path + side, node.sizes[side])
        return child

    # Records (storage/FORMAT.md, "Tree records")

    def _read(self, tree: int, path: int, n: int) -> _Node:
        small = n <= self._spec.bucket
        data = self._grown.get((tree, path)) or self._shelf.records([(tree, path, small)])[0]
        if data[0] == TAG:
            self._grow(tree, path, data, small)
            data = self._grown[tree, path]
        if small:
            return self._small_tree(tree, data)
        node = _Node(tree, path, n)
        if data[0] == SPLIT:
            left, node.cut, node.feature = _SPLIT.unpack_from(data, 32)
            node.sizes = (left, n - left)
            node.counts = self._totals(data)
        else:
            node.counts = self._pairs(data, int.from_bytes(data[2:4], "little"), LIST_HEADER, _WIDE_PAIR)
        self._vote(node)
        return node

    def _grow(self, tree: int, path: int, data: bytes, small: bool) -> None:
        """Grow a tag, as far as the rows that are explained ask for it."""
        if small:
            slots = np.frombuffer(data, "<u4", int.from_bytes(data[2:4], "little"), BUCKET_HEADER).astype(np.uint32)
        else:
            (slots,) = self._shelf.long_lists([(tree, path)])
        asking = np.arange(len(self._asked), dtype=np.int32)
        growth = grow_jobs(self._spec, rows_of(self._snapshot), [Job(tree, path, 0, slots, asking)], self._asked)
        for record in growth.records:
            payload = growth.data[record["at"] : record["at"] + record["size"]].tobytes()
            self._grown[tree, int(record["path"])] = payload

    def _totals(self, data: bytes) -> dict[int, int]:
        if not self._settings.classes:
            return {0: _SUM.unpack_from(data, SPLIT_HEADER)[0]}
        width = "<u4" if data[1] & WIDE else "<u2"
        counts = np.frombuffer(data, width, self._settings.n_classes, SPLIT_HEADER)
        return {int(c): int(counts[c]) for c in np.flatnonzero(counts)}

    def _pairs(self, data: bytes, m: int, at: int, pair: struct.Struct) -> dict[int, int]:
        """The counts of a leaf that has m classes."""
        if not self._settings.classes:
            return {0: _SUM.unpack_from(data, at)[0]}
        return dict(pair.iter_unpack(data[at : at + m * pair.size]))

    def _small_tree(self, tree: int, data: bytes) -> _Node:
        """The whole tree of a bucket, its counts added up from the leaves."""
        at = BUCKET_HEADER + 4 * int.from_bytes(data[2:4], "little")

        def read() -> _Node:
            nonlocal at
            feature, n, m = _SMALL_LEAF.unpack_from(data, at)
            if feature == LEAF_MARK:
                leaf = _Node(tree, 0, n)
                if self._settings.classes:
                    leaf.counts = self._pairs(data, m, at + 6, _PAIR)
                    at += 6 + _PAIR.size * m
                else:
                    leaf.counts = self._pairs(data, 0, at + 4, _PAIR)
                    at += 4 + _SUM.size
                self._vote(leaf)
                return leaf
            cut = _CUT.unpack_from(data, at + 2)[0]
            at += 6
            left, right = read(), read()
            node = _Node(tree, 0, left.n + right.n)
            node.feature, node.cut, node.children = feature, cut, [left, right]
            node.counts = {c: left.counts.get(c, 0) + right.counts.get(c, 0) for c in {**left.counts, **right.counts}}
            self._vote(node)
            return node

        return read()

    def _vote(self, node: _Node) -> None:
        """What a node says: class frequencies, or the mean target."""
        settings = self._settings
        if settings.classes:
            node.votes = {c: count / node.n for c, count in node.counts.items()}
        else:
            node.votes = {0: settings.target_offset + settings.target_step * (node.counts[0] / node.n)}
