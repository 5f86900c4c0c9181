"""Looking at LMDB's pages before LMDB walks over them.

py-lmdb's LMDB checks the pages that a search goes down through. Four things it leaves unchecked:

    a branch on the way that has lost all records but one                      an assertion ends the process
    a step to a neighbouring leaf that is not the kind of page it should be    an assertion ends the process
    the last records of a page, hidden by a damaged header                     nobody notices
    the length of a value that has pages of its own                            read behind the file's end: SIGBUS

A reading process must survive and notice all four. So before it gets a value, the headers of the branches on the way
are looked at; and before anybody walks, says that a key is not there, or gets a value that may be a long one, all pages
on the way are read as plain bytes and held against what every sound page fulfils:

    its own number in its header; a branch above the tree's depth, a leaf at it
    16 <= lower <= upper <= page size; at least one record, in a branch two
    each record within the page, and all of them together exactly what lies behind `upper`
    keys ascending, and between those that the branch above has for this page and the next
    a long value has exactly the pages that its length takes, and they are in the file

The way starts at the meta page of the snapshot's own transaction, which is read when the snapshot begins: LMDB keeps
the last two only. What was looked at is remembered for as long as a snapshot of that transaction is open, and for the
newest one.

What a write transaction needs beside that is in before_writing.py.
"""

import os
import resource
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dynfrsdb_storage.layout import PAGE_BYTES, PAGE_HEADER
from dynfrsdb_storage.looked import Range

_META = struct.Struct("<IIQQ48s48sQQ")
_TREE = struct.Struct("<IHHQQQQQ")
_HEADER = struct.Struct("<QHHHH")
_NODE = struct.Struct("<HHHH")
_OFFSET = struct.Struct("<H")
_LAST_NODE = PAGE_BYTES - _NODE.size
_NO_PAGE = 0xFFFFFFFFFFFFFFFF
_BRANCH, _LEAF, _LONG = 1, 2, 4
_WHOSE = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
_FEWEST = {_BRANCH: 2, _LEAF: 1}
"""Records that a page of each kind has at least."""
_BIG, _SUBTREE = 1, 2

Branch = tuple[list[bytes], list[int]]
EVERYTHING: Range = b"", None
Keys = Sequence[bytes]


class Unsound(Exception):
    """A page is not what it should be."""


class Tree(NamedTuple):
    """One sub-database, as LMDB notes it."""

    root: int
    depth: int
    leaves: int
    long_pages: int
    """Pages of values that have pages of their own."""
    records: int


@dataclass(eq=False)
class Known:
    """What was looked at in one transaction: databases by name, branches and leaves by page."""

    transaction: int
    last_page: int
    free_root: int
    main_root: int
    trees: dict[bytes, Tree] | None = None
    branches: dict[int, Branch] = field(default_factory=dict)
    leaves: dict[int, list[bytes]] = field(default_factory=dict)
    """The first and the last key of each."""
    pages: dict[int, bytes] = field(default_factory=dict)
    """Branches of which only the header was looked at."""
    headers: dict[int, int] = field(default_factory=dict)
    """Free bytes of pages of which the header was looked at."""
    from_disk: bool = False
    """Whether pages were seen to come from the disk and not from memory."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What snapshots of this transaction found out, for each other."""


class Guard:
    """Reads data.mdb beside LMDB."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def begin(self, transaction: int) -> Known | None:
        """Where a transaction's trees begin; None if it is not one of the last two."""
        for number in (transaction & 1, ~transaction & 1):
            raw = os.pread(self._descriptor, _META.size, number * PAGE_BYTES + PAGE_HEADER)
            if len(raw) == _META.size:
                *_, free, main, last_page, found = _META.unpack(raw)
                if found == transaction:
                    return Known(transaction, last_page, _TREE.unpack(free)[7], _TREE.unpack(main)[7])
        return None

    def tree(self, known: Known, database: str) -> Tree | None:
        """A database; None if there is none of this name, or nothing in it."""
        if known.trees is None:
            known.trees = self._trees(known)
        tree = known.trees.get(database.encode())
        return None if tree is None or tree.root == _NO_PAGE else tree

    def look(self, known: Known, database: str, first: bytes, last: bytes | None) -> None:
        """Raise Unsound if a walk from before `first` to behind `last` (None: to the end) meets a bad page."""
        tree = self.tree(known, database)
        if tree is not None:
            self._visit(known, tree.root, tree.depth, (first, last), EVERYTHING)

    def has_long(self, known: Known, database: str) -> bool:
        """Whether values of a database have pages of their own."""
        tree = self.tree(known, database)
        return tree is not None and tree.long_pages > 0

    def look_for(self, known: Known, database: str, keys: Keys) -> None:
        """Raise Unsound if a search for one of `keys` meets a bad page."""
        tree = self.tree(known, database)
        if tree is None:
            return
        seen: Range = b"", b""  # by the leaf that was looked at last
        for key in keys:
            if not _covers(seen, key, key):
                seen = self._descend(known, tree, key)

    def look_at_branches(self, known: Known, database: str, keys: Keys) -> None:
        """Raise Unsound if a search for one of `keys` meets a branch whose header is bad.

        Where pages come from the disk, those of all keys are asked for at once: LMDB would wait for one after another.
        """
        tree = self.tree(known, database)
        if tree is None or tree.depth == 1:
            return
        before, lowest = _blocks_read(), list[int]()
        seen: Range = b"", b""  # by the lowest branch that was found last
        for key in keys:
            if not _covers(seen, key, key):
                number, seen = self._way_down(known, tree, key, tree.depth - 2)
            lowest.append(number)
        unread = {number for number in lowest if number not in known.pages}
        self._ask_for(unread)
        for number in unread:
            self._header_of_branch(known, number)
        known.from_disk |= _blocks_read() > before
        if known.from_disk:
            self._ask_for(
                {self.below(known, number, EVERYTHING, key)[0] for key, number in zip(keys, lowest, strict=True)}
            )

    def _ask_for(self, pages: Iterable[int]) -> None:
        """Have the system read pages that are needed soon."""
        for number in pages:
            os.posix_fadvise(self._descriptor, number * PAGE_BYTES, PAGE_BYTES, os.POSIX_FADV_WILLNEED)

    def count(self, known: Known, database: str) -> tuple[int, int]:
        """How many records the leaves of a database have by their headers, and how many LMDB has noted."""
        tree = self.tree(known, database)
        if tree is None:
            return 0, 0
        level = [tree.root]
        for _ in range(tree.depth - 1):
            level = [child for number in level for child in self.branch_at(known, number, EVERYTHING)[1]]
        headers = (self._page(number, known.last_page, PAGE_HEADER) for number in level)
        return sum((_HEADER.unpack(header)[3] - PAGE_HEADER) // 2 for header in headers), tree.records

    def free_list(self, known: Known) -> int:
        """The checksum of the list of free pages; raises Unsound if one of its own pages is bad."""
        check, waiting = 0, [known.free_root] if known.free_root != _NO_PAGE else []
        while waiting:
            number = waiting.pop()
            page = self._page(number, known.last_page)
            check = zlib.crc32(page, check)
            for at, _, size, flags in _records(page, number):
                if page[10] & _BRANCH:
                    waiting.append(size | flags << 32)
                elif flags & _BIG:
                    there = int.from_bytes(page[at : at + 8], "little")
                    self._look_at_long(known, number, there, size)
                    check = zlib.crc32(os.pread(self._descriptor, PAGE_HEADER + size, there * PAGE_BYTES), check)
        return check

    def _descend(self, known: Known, tree: Tree, key: bytes) -> Range:
        """Look at the leaf that a search for `key` ends at, and at what is above it; returns its bounds."""
        number, bounds = self._way_down(known, tree, key, tree.depth - 1)
        self.look_at_leaf(known, number, bounds)
        return bounds

    def _way_down(self, known: Known, tree: Tree, key: bytes, levels: int) -> tuple[int, Range]:
        """The page that a search for `key` comes to after so many levels, and its bounds; all above are looked at."""
        number, bounds = tree.root, EVERYTHING
        for _ in range(levels):
            keys, children = self.branch_at(known, number, bounds)
            i = bisect_right(keys, key) - 1
            number, bounds = children[i], _between(keys, i, bounds)
        return number, bounds

    def below(self, known: Known, number: int, bounds: Range, key: bytes, joining: bool = False) -> tuple[int, Range]:
        """The child of a branch that LMDB's search for `key` takes, and its bounds; the headers of its neighbours are
        looked at, too, if pages may be joined."""
        if number in known.branches:
            return self._below_known(known, number, bounds, key, joining)
        page = self._header_of_branch(known, number)
        at, count = _search(page, number, key)
        if joining:
            self.look_at_headers(known, [_child(page, number, i)[1] for i in range(max(at - 1, 0), min(at + 2, count))])
        above = _child(page, number, at + 1)[0] if at + 1 < count else bounds[1]
        low, child = _child(page, number, at)
        return child, (low if at else bounds[0], above)

    def _below_known(self, known: Known, number: int, bounds: Range, key: bytes, joining: bool) -> tuple[int, Range]:
        """The same in a branch whose records were all looked at."""
        keys, children = self.branch_at(known, number, bounds)
        at = bisect_right(keys, key) - 1
        if joining:
            self.look_at_headers(known, children[max(at - 1, 0) : at + 2])
        return children[at], _between(keys, at, bounds)

    def _header_of_branch(self, known: Known, number: int) -> bytes:
        """A branch of which only the header was looked at."""
        page = known.pages.get(number)
        if page is None:
            page = known.pages[number] = self._page(number, known.last_page)
            if not page[10] & _BRANCH:
                raise Unsound(f"page {number} is no branch")
        return page

    def look_at_headers(self, known: Known, numbers: Iterable[int]) -> None:
        """Look at the headers of pages, once."""
        for number in numbers:
            if number not in known.headers:
                _, _, _, lower, upper = _HEADER.unpack(self._page(number, known.last_page, PAGE_HEADER))
                known.headers[number] = upper - lower

    def _trees(self, known: Known) -> dict[bytes, Tree]:
        """All sub-databases; they fit one page."""
        page = self._page(known.main_root, known.last_page)
        if not page[10] & _LEAF:
            raise Unsound(f"page {known.main_root} is no leaf")
        trees = {}
        for at, key, size, flags in _records(page, known.main_root):
            if flags & _SUBTREE and size == _TREE.size:
                _, _, depth, _, leaves, long_pages, records, root = _TREE.unpack_from(page, at)
                trees[key] = Tree(root, depth, leaves, long_pages, records)
        return trees

    def _visit(self, known: Known, number: int, levels: int, wanted: Range, bounds: Range) -> None:
        """Look at a page, whose keys must lie within `bounds`, and at what is below it and near `wanted`."""
        if levels <= 1:
            self.look_at_leaf(known, number, bounds)
            return
        keys, children = self.branch_at(known, number, bounds)
        begin = max(bisect_right(keys, wanted[0]) - 2, 0)
        end = len(children) if wanted[1] is None else min(bisect_right(keys, wanted[1]) + 1, len(children))
        self._ask_for(child for child in children[begin:end] if child not in known.leaves)
        for i in range(begin, end):
            self._visit(known, children[i], levels - 1, wanted, _between(keys, i, bounds))

    def look_at_leaf(self, known: Known, number: int, bounds: Range) -> None:
        if number not in known.leaves:
            known.leaves[number] = self._leaf(known, number)
        _refuse_outside(known.leaves[number], bounds, number)

    def branch_at(self, known: Known, number: int, bounds: Range) -> Branch:
        if number not in known.branches:
            known.branches[number] = self._branch(known, number)
        keys, children = known.branches[number]
        _refuse_outside(keys[1:], bounds, number)
        return keys, children

    def _branch(self, known: Known, number: int) -> Branch:
        page = self._page(number, known.last_page)
        if not page[10] & _BRANCH:
            raise Unsound(f"page {number} is no branch")
        keys, children = [], []
        for _, key, low, high in _records(page, number):
            keys.append(key)
            children.append(low | high << 32)
        keys[0] = b""
        _refuse_unordered(keys, number)
        return keys, children

    def _leaf(self, known: Known, number: int) -> list[bytes]:
        page = self._page(number, known.last_page)
        if not page[10] & _LEAF:
            raise Unsound(f"page {number} is no leaf")
        keys = []
        for at, key, size, flags in _records(page, number):
            keys.append(key)
            if flags & _BIG:
                self._look_at_long(known, number, int.from_bytes(page[at : at + 8], "little"), size)
        _refuse_unordered(keys, number)
        return [keys[0], keys[-1]]

    def _look_at_long(self, known: Known, number: int, there: int, size: int) -> None:
        """Refuse a value that does not have, from page `there` on, exactly the pages that its `size` takes."""
        pages = (size + PAGE_HEADER + PAGE_BYTES - 1) // PAGE_BYTES
        if not 1 < there <= known.last_page + 1 - pages:
            raise Unsound(f"a record of page {number} refers to pages that do not exist")
        own, _, flags, low, high = _HEADER.unpack(os.pread(self._descriptor, PAGE_HEADER, there * PAGE_BYTES))
        if (own, flags, low | high << 16) != (there, _LONG, pages):
            raise Unsound(f"a record of page {number} is not as long as its pages")

    def _page(self, number: int, last_page: int, size: int = PAGE_BYTES) -> bytes:
        """The first `size` bytes of a tree page, if its header can be right."""
        page = os.pread(self._descriptor, size, number * PAGE_BYTES) if number <= last_page else b""
        if len(page) < size:
            raise Unsound(f"page {number} does not exist")
        own, _, flags, lower, upper = _HEADER.unpack_from(page)
        if (
            own != number
            or flags not in _FEWEST
            or lower % 2
            or not PAGE_HEADER + 2 * _FEWEST[flags] <= lower <= upper <= PAGE_BYTES
        ):
            raise Unsound(f"page {number} has a bad header")
        return page


def _search(page: bytes, number: int, key: bytes) -> tuple[int, int]:
    """Which child of a branch LMDB's search for `key` takes, step by step as LMDB does it, and how many there are."""
    count = (_HEADER.unpack_from(page)[3] - PAGE_HEADER) // 2
    low, high = 1, count - 1
    while low <= high:
        middle = (low + high) >> 1
        place = PAGE_HEADER + 2 * middle
        at = page[place] | page[place + 1] << 8
        if at > _LAST_NODE:
            raise Unsound(f"a record of page {number} is not in it")
        found = page[at + 8 : at + 8 + (page[at + 6] | page[at + 7] << 8)]
        if found == key:
            return middle, count
        if found < key:
            low = middle + 1
        else:
            high = middle - 1
    return low - 1, count


def _child(page: bytes, number: int, i: int) -> tuple[bytes, int]:
    """The key and the page number of a child of a branch."""
    (at,) = _OFFSET.unpack_from(page, PAGE_HEADER + 2 * i)
    if at > _LAST_NODE:
        raise Unsound(f"a record of page {number} is not in it")
    low, middle, high, key_size = _NODE.unpack_from(page, at)
    return page[at + 8 : at + 8 + key_size], low | middle << 16 | high << 32


def _blocks_read() -> int:
    """Blocks that the disk has read so far because this thread wanted them, or asked for them."""
    return resource.getrusage(_WHOSE).ru_inblock


def _covers(bounds: Range, first: bytes, last: bytes) -> bool:
    return bounds[0] <= first and (bounds[1] is None or last < bounds[1])


def _between(keys: list[bytes], i: int, bounds: Range) -> Range:
    """The bounds of the i-th child of a branch whose own are `bounds`."""
    return keys[i] if i else bounds[0], keys[i + 1] if i + 1 < len(keys) else bounds[1]


def _refuse_outside(keys: list[bytes], bounds: Range, number: int) -> None:
    low, high = bounds
    if keys and (keys[0] < low or (high is not None and keys[-1] >= high)):
        raise Unsound(f"page {number} is not where its keys belong")


def _records(page: bytes, number: int) -> list[tuple[int, bytes, int, int]]:
    """The (offset of the value, key, size, flags) of each record; in a branch, the last two are a number."""
    _, _, kind, lower, upper = _HEADER.unpack_from(page)
    leaf, found, total = not kind & _BRANCH, [], 0
    unpack, last = _NODE.unpack_from, PAGE_BYTES - _NODE.size
    for at in struct.unpack_from(f"<{(lower - PAGE_HEADER) // 2}H", page, PAGE_HEADER):
        if not upper <= at <= last:
            raise Unsound(f"a record of page {number} is not in it")
        low, high, flags, key_size = unpack(page, at)
        begin = at + 8
        value = end = begin + key_size
        size = low | high << 16
        if leaf:
            end += 8 if flags & _BIG else size
        if end > PAGE_BYTES:
            raise Unsound(f"a record of page {number} is longer than the page")
        total += (end - at + 1) & ~1
        found.append((value, page[begin:value], size, flags))
    if total != PAGE_BYTES - upper:
        raise Unsound(f"page {number} has lost records")
    return found


def _refuse_unordered(keys: list[bytes], number: int) -> None:
    if sorted(keys) != keys or len(set(keys)) < len(keys):
        raise Unsound(f"the keys of page {number} do not ascend")
