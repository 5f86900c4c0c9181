"""Nodes: a tree read as far as somebody looks.

A node is (tree, path). To people a path is the way down from the root, one letter a step:

    .      the root          0b1
    L      its left child    0b10       the samples with x <= threshold
    LR     ...               0b101

Three things in a store look like a node to whoever walks down, and are one here: a record of its own (n > B), a bucket
(n <= B), and a node of the small tree inside a bucket. A tag is where a walk ends: everything below is void until
somebody grows it, which this package does not.

As in the engine, a record must have the stamp and the size that its parent says; what has not is corrupt.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dynfrsdb.errors import CorruptStore, PlaceNotFound
from dynfrsdb.inside import records
from dynfrsdb.inside.floats import shortest
from dynfrsdb.inside.records import Small, SplitRecord, Totals, plus
from dynfrsdb.settings import Settings
from dynfrsdb_storage import Snapshot, layout

ROOT = 1


def path_text(path: int) -> str:
    """A path in letters; the root is a dot."""
    return bin(path)[3:].replace("0", "L").replace("1", "R") or "."


def parse_path(text: str) -> int:
    """The path that letters name, or the number that an error message names (0b101); ValueError if it is neither."""
    if text == ".":
        return ROOT
    bits = text[3:] if text.startswith("0b1") else text.upper().replace("L", "0").replace("R", "1")
    if set(bits) - {"0", "1"} or (text[:1] in "01" and not text.startswith("0b1")):
        raise ValueError(f"'{text}' is no path; write L and R for the steps down from the root, or . for the root")
    if len(bits) > layout.MAX_DEPTH:
        raise ValueError(f"'{text}' has {len(bits)} steps; no tree is deeper than {layout.MAX_DEPTH}")
    return int("1" + bits, 2)


@dataclass(slots=True)
class Node:
    """One node as a walker sees it."""

    tree: int
    path: int
    kind: str
    """split, leaf or tag"""
    stored: str
    """node, bucket, or small tree: what kind of record it is, or is in"""
    n: int
    totals: Totals | None
    """None for a tag, whose samples nobody has counted."""
    feature: int | None = None
    threshold: float = 0.0
    slots: Sequence[int] = ()
    """Of a bucket and of what is in it; a long list is read by `Trees.slots`."""
    record: SplitRecord | None = None
    below: tuple[Node, Node] | None = None
    """The children, if they are in the same bucket."""

    @property
    def depth(self) -> int:
        """Steps from the root."""
        return self.path.bit_length() - 1


class Trees:
    """The trees of one snapshot."""

    def __init__(self, snapshot: Snapshot, settings: Settings) -> None:
        self.snapshot, self.settings = snapshot, settings

    def root(self, tree: int) -> Node:
        """The root of a tree."""
        if not 0 <= tree < self.settings.n_trees:
            raise PlaceNotFound(f"there is no tree {tree} in '{self._store}'; it has 0 to {self.settings.n_trees - 1}")
        stamp, n, _ = self.snapshot.root(tree)
        return self._read(tree, ROOT, n, stamp)

    def find(self, tree: int, path: int) -> Node:
        """The node at a path."""
        node = self.root(tree)
        for bit in bin(path)[3:]:
            if node.kind != "split":
                raise PlaceNotFound(self._no_way_down(node, path))
            node = self.children(node)[bit == "1"]
        return node

    def children(self, node: Node) -> tuple[Node, Node]:
        """The left and the right child of a split."""
        if node.below is not None:
            return node.below
        assert node.record is not None, "only a split has children"
        head = node.record.head
        return (
            self._read(node.tree, 2 * node.path, head.n_left, head.left_stamp),
            self._read(node.tree, 2 * node.path + 1, head.n - head.n_left, head.right_stamp),
        )

    def walk(self, tree: int) -> Iterator[Node]:
        """All nodes of a tree, in pre-order."""
        waiting = [self.root(tree)]
        while waiting:
            node = waiting.pop()
            yield node
            if node.kind == "split":
                waiting.extend(reversed(self.children(node)))

    def left_totals(self, node: Node) -> tuple[int, Totals]:
        """The (n, totals) of the left side of a split, without reading the child."""
        if node.below is not None:
            left = node.below[0]
            assert left.totals is not None, "the nodes of a small tree are counted"
            return left.n, left.totals
        assert node.record is not None, "only a split has a left side"
        return node.record.head.n_left, node.record.best_left()

    def slots(self, node: Node) -> Sequence[int]:
        """The slots of the samples in a bucket, a leaf or a tag, or anywhere below a split."""
        if node.stored != "node":
            return node.slots
        if node.kind == "split":
            return [slot for child in self.children(node) for slot in self.slots(child)]
        slots, key = array("I"), layout.node_key(node.tree, node.path)
        for _, chunk in self.snapshot.scan("buckets", key + bytes(4), key + b"\xff" * 4):
            slots.extend(records.slots(chunk))
        return slots

    @property
    def _store(self) -> str:
        return self.snapshot.generation.store

    def _read(self, tree: int, path: int, n: int, stamp: int) -> Node:
        small = n <= self.settings.bucket
        database, key_of = ("buckets", layout.bucket_key) if small else ("nodes", layout.node_key)
        data = self.snapshot.get(database, [key_of(tree, path)])[0]
        if data is None:
            raise self._damaged(tree, path, "is missing")
        try:
            node, found = self._bucket(tree, path, data) if small else self._node(tree, path, data)
        except (struct.error, IndexError, AssertionError) as error:
            raise self._damaged(tree, path, "cannot be read") from error
        if (node.n, found) != (n, stamp):
            raise self._damaged(tree, path, "is not what its parent says: it has another size or stamp")
        return node

    def _node(self, tree: int, path: int, data: bytes) -> tuple[Node, int]:
        if data[0] == records.SPLIT:
            split = SplitRecord(self.settings, data)
            head = split.head
            node = Node(tree, path, "split", "node", head.n, split.totals, head.feature, head.threshold, record=split)
            return node, head.stamp
        found = records.listed(self.settings, data)
        return Node(tree, path, _KINDS[found.kind], "node", found.n, found.totals), found.stamp

    def _bucket(self, tree: int, path: int, data: bytes) -> tuple[Node, int]:
        found = records.bucket(self.settings, data)
        if found.kind == records.TAG:
            return Node(tree, path, "tag", "bucket", found.n, None, slots=found.slots), found.stamp
        node = _small(tree, path, iter(found.tree), iter(found.slots))
        node.stored = "bucket"
        assert len(node.slots) == len(found.slots)
        return node, found.stamp

    def _no_way_down(self, node: Node, path: int) -> str:
        here = f"tree {node.tree} of '{self._store}' has no node {path_text(path)}: {path_text(node.path)} is"
        if node.kind == "leaf":
            return f"{here} a leaf"
        return f"{here} tagged, and nothing below it is grown; run 'dynfrsdb settle {self._store}'"

    def _damaged(self, tree: int, path: int, what: str) -> CorruptStore:
        return CorruptStore(
            f"tree {tree}, node {path:#b} in '{self._store}' {what}; no answer was given. "
            f"Run 'dynfrsdb check {self._store}'"
        )


def described(settings: Settings, node: Node) -> dict[str, Any]:
    """A node as plain values, without its children."""
    found: dict[str, Any] = {"path": path_text(node.path), "kind": node.kind, "samples": node.n}
    if node.feature is not None:
        found |= {"feature": settings.feature_name(node.feature), "threshold": shortest(node.threshold)}
    if node.totals is not None and settings.n_classes:
        found["counts"] = list(node.totals)
    elif node.totals is not None:
        found["mean"] = settings.target_offset + settings.target_step * (node.totals[0] / node.n) if node.n else None
    return found | {"stored_as": node.stored}


def _small(tree: int, path: int, nodes: Iterator[Small], slots: Iterator[int]) -> Node:
    """The next node of a small tree, with everything below it."""
    small = next(nodes, None)
    assert small is not None, "the small tree ends too early"
    if small.feature is None:
        mine = tuple(slot for _, slot in zip(range(small.n), slots, strict=False))
        return Node(tree, path, "leaf", "small tree", small.n, small.totals, slots=mine)
    left = _small(tree, 2 * path, nodes, slots)
    right = _small(tree, 2 * path + 1, nodes, slots)
    assert left.totals is not None
    assert right.totals is not None
    return Node(
        tree,
        path,
        "split",
        "small tree",
        left.n + right.n,
        plus(left.totals, right.totals),
        small.feature,
        small.threshold,
        (*left.slots, *right.slots),
        below=(left, right),
    )


_KINDS = {records.LEAF: "leaf", records.TAG: "tag"}
