"""How large each tree is, and how much of it is tagged: one pass over the records, looking at their first bytes."""

from __future__ import annotations

from dataclasses import dataclass

from dynfrsdb.inside.records import TAG
from dynfrsdb.inside.store import Inside
from dynfrsdb_storage import layout


@dataclass
class TreeSize:
    """One tree in numbers."""

    tree: int
    samples: int
    nodes: int = 0
    buckets: int = 0
    bytes: int = 0
    tags: int = 0
    tagged_samples: int = 0


def tree_sizes(inside: Inside) -> list[TreeSize]:
    """All trees; reads every tree record."""
    return [_size(inside, tree) for tree in range(inside.settings.n_trees)]


def _size(inside: Inside, tree: int) -> TreeSize:
    size = TreeSize(tree, inside.snapshot.root(tree)[1])
    first, last = layout.tree_range(tree)
    nodes = set()
    for key, data in inside.snapshot.scan("nodes", first, last):
        nodes.add(key)
        size.nodes += 1
        _count(size, data, slice(4, 8))
    for key, data in inside.snapshot.scan("buckets", first, last):
        if key[: layout.NODE_KEY_BYTES] in nodes:
            size.bytes += len(data)  # a chunk of that node's long list
        else:
            size.buckets += 1
            _count(size, data, slice(2, 4))
    return size


def _count(size: TreeSize, data: bytes, n: slice) -> None:
    size.bytes += len(data)
    if data[0] == TAG:
        size.tags += 1
        size.tagged_samples += int.from_bytes(data[n], "little")
