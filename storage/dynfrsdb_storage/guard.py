"""Looking at LMDB's pages before a cursor walks over them.

py-lmdb's LMDB checks the pages that a search goes down through. A cursor that steps from one leaf to the next checks
less: a neighbour that is not the kind of page it should be ends the process in an assertion, and one whose last
records are hidden by a damaged header goes unnoticed. A reading process must survive both. So before a reader walks,
or says that a key is not there, the pages on its way (and one to each side) are read as plain bytes and held against
what every sound page fulfils:

    its own number in its header; a branch above the tree's depth, a leaf at it
    16 <= lower <= upper <= page size; at least one record
    each record within the page, and all of them together exactly what lies behind `upper`
    keys ascending, and between those that the branch above has for this page and the next; a large value no longer
    than its pages

The way starts at the meta page of the snapshot's own transaction. LMDB keeps the last two; for an older snapshot there
is nothing to start from, and nothing is looked at. What was looked at is remembered as long as the transaction stays
the same.

Not done here: guarding writers, who may be stopped by LMDB's assertions, and single searches.
"""

import os
import struct
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from dynfrsdb_storage.layout import PAGE_BYTES, PAGE_HEADER

_META = struct.Struct("<IIQQ48s48sQQ")
_TREE = struct.Struct("<IHHQQQQQ")
_HEADER = struct.Struct("<QHHHH")
_NODE = struct.Struct("<HHHH")
_NO_PAGE = 0xFFFFFFFFFFFFFFFF
_BRANCH, _LEAF = 1, 2
_BIG, _SUBTREE = 1, 2
_TRANSIENT = 0xC010
"""Flags of a page in memory, which mean nothing on disk."""

Branch = tuple[list[bytes], list[int]]
Range = tuple[bytes, bytes | None]


class Unsound(Exception):
    """A page is not what it should be."""


@dataclass
class Known:
    """What was looked at in one transaction: roots and depths by database, branches and leaves by page."""

    transaction: int
    last_page: int
    trees: dict[bytes, tuple[int, int]]
    branches: dict[int, Branch] = field(default_factory=dict)
    leaves: dict[int, list[bytes]] = field(default_factory=dict)
    """The first and the last key of each."""


class Guard:
    """Reads data.mdb beside LMDB."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._known: Known | None = None

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def look(self, transaction: int, database: str, first: bytes, last: bytes | None) -> None:
        """Raise Unsound if a walk from before `first` to behind `last` (None: to the end) meets a bad page."""
        known = self._known
        if known is None or known.transaction != transaction:
            known = self._known = self._begin(transaction)
        if known is not None:
            root, depth = known.trees.get(database.encode(), (_NO_PAGE, 0))
            if root != _NO_PAGE:
                self._visit(known, root, depth, (first, last), (b"", None))

    def _begin(self, transaction: int) -> Known | None:
        for number in (0, 1):
            raw = os.pread(self._descriptor, _META.size, number * PAGE_BYTES + PAGE_HEADER)
            if len(raw) == _META.size:
                *_, main, last_page, found = _META.unpack(raw)
                if found == transaction:
                    return Known(transaction, last_page, self._trees(_TREE.unpack(main)[7], last_page))
        return None

    def _trees(self, root: int, last_page: int) -> dict[bytes, tuple[int, int]]:
        """The (root, depth) of each sub-database; they fit one page."""
        page = self._page(root, last_page)
        if not page[10] & _LEAF:
            return {}
        trees = {}
        for at, key, size, flags in _records(page, root):
            if flags & _SUBTREE and size == _TREE.size:
                tree = _TREE.unpack_from(page, at)
                trees[key] = tree[7], tree[2]
        return trees

    def _visit(self, known: Known, number: int, levels: int, wanted: Range, bounds: Range) -> None:
        """Look at a page, whose keys must lie within `bounds`, and at what is below it and near `wanted`."""
        if levels <= 1:
            if number not in known.leaves:
                known.leaves[number] = self._leaf(known, number)
            _refuse_outside(known.leaves[number], bounds, number)
            return
        if number not in known.branches:
            known.branches[number] = self._branch(known, number)
        keys, children = known.branches[number]
        _refuse_outside(keys[1:], bounds, number)
        begin = max(bisect_right(keys, wanted[0]) - 2, 0)
        end = len(children) if wanted[1] is None else min(bisect_right(keys, wanted[1]) + 1, len(children))
        edges: list[bytes | None] = [bounds[0], *keys[1:], bounds[1]]
        for i in range(begin, end):
            self._visit(known, children[i], levels - 1, wanted, (edges[i] or b"", edges[i + 1]))

    def _branch(self, known: Known, number: int) -> Branch:
        page = self._page(number, known.last_page)
        if not page[10] & _BRANCH:
            raise Unsound(f"page {number} is no branch")
        keys, children = [], []
        for at, key, _, flags in _records(page, number):
            low, high, _, _ = _NODE.unpack_from(page, at - len(key) - _NODE.size)
            keys.append(key)
            children.append(low | high << 16 | flags << 32)
        keys[0] = b""
        if any(a >= b for a, b in pairwise(keys)):
            raise Unsound(f"the keys of page {number} do not ascend")
        return keys, children

    def _leaf(self, known: Known, number: int) -> list[bytes]:
        page = self._page(number, known.last_page)
        if not page[10] & _LEAF:
            raise Unsound(f"page {number} is no leaf")
        keys = []
        for at, key, size, flags in _records(page, number):
            keys.append(key)
            if flags & _BIG:
                there = int.from_bytes(page[at : at + 8], "little")
                if there > known.last_page:
                    raise Unsound(f"page {number} refers to a page that does not exist")
                pages = int.from_bytes(os.pread(self._descriptor, 16, there * PAGE_BYTES)[12:16], "little")
                if size > pages * PAGE_BYTES - PAGE_HEADER or there + pages - 1 > known.last_page:
                    raise Unsound(f"a record of page {number} is longer than its pages")
        if any(a >= b for a, b in pairwise(keys)):
            raise Unsound(f"the keys of page {number} do not ascend")
        return [keys[0], keys[-1]]

    def _page(self, number: int, last_page: int) -> bytes:
        """A tree page, if its header can be right."""
        page = os.pread(self._descriptor, PAGE_BYTES, number * PAGE_BYTES) if number <= last_page else b""
        if len(page) < PAGE_BYTES:
            raise Unsound(f"page {number} does not exist")
        own, _, flags, lower, upper = _HEADER.unpack_from(page)
        if (
            own != number
            or flags & ~_TRANSIENT not in (_BRANCH, _LEAF)
            or lower % 2
            or not PAGE_HEADER < lower <= upper <= PAGE_BYTES
        ):
            raise Unsound(f"page {number} has a bad header")
        return page


def _refuse_outside(keys: list[bytes], bounds: Range, number: int) -> None:
    low, high = bounds
    if keys and (keys[0] < low or (high is not None and keys[-1] >= high)):
        raise Unsound(f"page {number} is not where its keys belong")


def _records(page: bytes, number: int) -> list[tuple[int, bytes, int, int]]:
    """The (offset of the value, key, size, flags) of each record; in a branch, size and flags are part of a number."""
    _, _, kind, lower, upper = _HEADER.unpack_from(page)
    branch, found, total = kind & _BRANCH, [], 0
    for (at,) in struct.iter_unpack("<H", page[PAGE_HEADER:lower]):
        if not upper <= at <= PAGE_BYTES - _NODE.size:
            raise Unsound(f"a record of page {number} is not in it")
        low, high, flags, key_size = _NODE.unpack_from(page, at)
        value, size = at + _NODE.size + key_size, low | high << 16
        inside = 0 if branch else 8 if flags & _BIG else size
        if value + inside > PAGE_BYTES:
            raise Unsound(f"a record of page {number} is longer than the page")
        total += (_NODE.size + key_size + inside + 1) & ~1
        found.append((value, page[value - key_size : value], size, flags))
    if total != PAGE_BYTES - upper:
        raise Unsound(f"page {number} has lost records")
    return found
