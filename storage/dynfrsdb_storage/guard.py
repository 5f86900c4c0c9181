"""Looking at LMDB's pages before LMDB walks over them.

py-lmdb's LMDB checks the pages that a search goes down through. Four things it leaves unchecked:

    a branch on the way that has lost all records but one                      an assertion ends the process
    a step to a neighbouring leaf that is not the kind of page it should be    an assertion ends the process
    the last records of a page, hidden by a damaged header                     nobody notices
    the length of a value that has pages of its own                            read behind the file's end: SIGBUS

A reading process must survive and notice all four. So before it gets a value, the headers of the branches on the way
are looked at, and where values may be long, the record that LMDB's search will end at. Before anybody walks or says
that a key is not there, all pages on the way are read as plain bytes and held against what every sound page fulfils:

    its own number in its header; a branch above the tree's depth, a leaf at it
    16 <= lower <= upper <= page size; at least one record, in a branch two
    each record within the page, and all of them together exactly what lies behind `upper`
    keys ascending, and between those that the branch above has for this page and the next
    a long value has exactly the pages that its length takes, and they are in the file

The way starts at the meta page of the snapshot's own transaction, which is read when the snapshot begins: LMDB keeps
the last two only. What was looked at is remembered for as long as a snapshot of that transaction is open, and for the
newest one; for snapshots that begin, a minute at most.

What a write transaction needs beside that is in before_writing.py.
"""

import mmap
import os
import resource
import struct
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dynfrsdb_storage import looked
from dynfrsdb_storage.layout import PAGE_BYTES, PAGE_HEADER
from dynfrsdb_storage.looked import Range
from dynfrsdb_storage.treepages import (
    BRANCH,
    HEADER,
    LEAF,
    LONG,
    LONG_VALUE,
    SUBTREE,
    Unsound,
    child_of,
    children_of,
    free_bytes,
    free_bytes_of_many,
    headers_of_many,
    number_at,
    place_of,
    records_of,
    refuse_unordered,
    search,
    value_of,
)

if TYPE_CHECKING:
    import numpy as np
else:
    from dynfrsdb_storage import lazynumpy as np

_META = struct.Struct("<IIQQ48s48sQQ")
_TREE = struct.Struct("<IHHQQQQQ")
NO_PAGE = 0xFFFFFFFFFFFFFFFF
_WHOSE = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
_METAS = 2
_MANY = 64
"""Pages from which on their headers are read through a map."""

Branch = tuple[list[bytes], list[int]]
EVERYTHING: Range = b"", None
Keys = Sequence[bytes]


class Tree(NamedTuple):
    """One sub-database, as LMDB notes it."""

    root: int
    depth: int
    leaves: int
    long_pages: int
    """Pages of values that have pages of their own."""
    records: int
    pages: int
    """All pages."""


@dataclass(eq=False)
class Known:
    """What was looked at in one transaction: databases by name, branches and leaves by page."""

    transaction: int
    last_page: int
    free_root: int
    main_root: int
    own_pages: int
    """Pages of meta, and of the two trees that hold free pages and databases."""
    main_page: bytes = b""
    """The page that names the databases."""
    trees: dict[bytes, Tree] | None = None
    long: dict[str, bool] = field(default_factory=dict)
    """Whether values of a database have pages of their own."""
    branches: dict[int, Branch] = field(default_factory=dict)
    leaves: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """The first and the last key of each."""
    pages: dict[int, bytes] = field(default_factory=dict)
    """Branches of which only the header was looked at."""
    headers: dict[int, int] = field(default_factory=dict)
    """Free bytes of pages of which the header was looked at."""
    from_disk: bool = False
    """Whether pages were seen to come from the disk and not from memory."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What snapshots of this transaction found out, for each other."""
    since: float = field(default_factory=time.monotonic)

    @property
    def end(self) -> int:
        """Where the last page ends."""
        return (self.last_page + 1) * PAGE_BYTES

    def doubt(self) -> None:
        """Believe nothing for long: forget what was looked at more than a minute ago."""
        if time.monotonic() >= self.since + looked.TRUSTED:
            self.since, self.trees, self.main_page = time.monotonic(), None, b""
            for pages in (self.long, self.branches, self.leaves, self.pages, self.headers):
                pages.clear()


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
                    own = [_TREE.unpack(free), _TREE.unpack(main)]
                    pages = _METAS + sum(sum(tree[3:6]) for tree in own)
                    return Known(transaction, last_page, own[0][7], own[1][7], pages)
        return None

    def tree(self, known: Known, database: str) -> Tree | None:
        """A database; None if there is none of this name, or nothing in it."""
        tree = self._trees_of(known).get(database.encode())
        return None if tree is None or tree.root == NO_PAGE else tree

    def look(self, known: Known, database: str, first: bytes, last: bytes | None) -> None:
        """Raise Unsound if a walk from before `first` to behind `last` (None: to the end) meets a bad page."""
        tree = self.tree(known, database)
        if tree is not None:
            self._visit(known, tree.root, tree.depth, (first, last), EVERYTHING)

    def read(self, known: Known, database: str, key: bytes) -> bytes | None:
        """A value that has no pages of its own, without LMDB; None if there is none."""
        tree = self.tree(known, database)
        if tree is None:
            return None
        number, _ = self._way_down(known, tree, key, tree.depth - 1)
        page = self.page(number, known.last_page)
        found = (page[at : at + size] for at, its, size, flags in records_of(page, number) if its == key and not flags)
        return next(found, None)

    def has_long(self, known: Known, database: str) -> bool:
        """Whether values of a database have pages of their own. Every change asks after the commit before it, so this
        searches for one record and does not look at the others."""
        if database not in known.long:
            by_search = known.trees is None
            tree = self._tree_by_search(known, database.encode()) if by_search else self.tree(known, database)
            known.long[database] = tree is not None and tree.long_pages > 0
        return known.long[database]

    def look_for(self, known: Known, database: str, keys: Keys) -> None:
        """Raise Unsound if a search for one of `keys` meets a branch whose header is bad or, where values may be long,
        ends at one that does not have the pages that it should.

        Where pages come from the disk, those of all keys are asked for at once: LMDB would wait for one after another.
        """
        tree = self.tree(known, database)
        if tree is None:
            return
        above = self._lowest_branches(known, tree, keys) if tree.depth > 1 else []
        if not known.from_disk and not tree.long_pages:
            return
        below = (self.below(known, number, EVERYTHING, key)[0] for number, key in zip(above, keys, strict=False))
        leaves = list(below) if above else [tree.root] * len(keys)
        if known.from_disk:
            self._ask_for((number, 1) for number in set(leaves))
        if tree.long_pages:
            self._look_at_values(known, leaves, keys)

    def _lowest_branches(self, known: Known, tree: Tree, keys: Keys) -> list[int]:
        """The branch right above the leaf of each of `keys`; its header is looked at, and all above it."""
        before, lowest = _blocks_read(), list[int]()
        seen: Range = b"", b""  # by the lowest branch that was found last
        for key in keys:
            if not _covers(seen, key, key):
                number, seen = self._way_down(known, tree, key, tree.depth - 2)
            lowest.append(number)
        unread = {number for number in lowest if number not in known.pages}
        self._ask_for((number, 1) for number in unread)
        for number in unread:
            self._header_of_branch(known, number)
        known.from_disk |= _blocks_read() > before
        return lowest

    def _look_at_values(self, known: Known, leaves: Sequence[int], keys: Keys) -> None:
        """Look at the records of `keys`, each in its leaf, and at the pages of those that are long."""
        long = []
        for number, key in zip(leaves, keys, strict=True):
            found = value_of(self.page(number, known.last_page), number, key)
            if found is not None:
                long.append((number, *found))
        if known.from_disk:
            self._ask_for((there, _pages_of(size)) for _, there, size in long if there <= known.last_page)
        for value in long:
            self._look_at_long(known, *value)

    def _ask_for(self, places: Iterable[tuple[int, int]]) -> None:
        """Have the system read (first page, pages) that are needed soon."""
        for number, count in places:
            at, size = number * PAGE_BYTES, count * PAGE_BYTES
            os.posix_fadvise(self._descriptor, at, size, os.POSIX_FADV_WILLNEED)

    def count(self, known: Known, database: str) -> tuple[int, int]:
        """How many records the leaves of a database have by their headers, and how many LMDB has noted."""
        tree = self.tree(known, database)
        if tree is None:
            return 0, 0
        level = [tree.root]
        for _ in range(tree.depth - 1):
            level = [child for number in level for child in self.branch_at(known, number, EVERYTHING)[1]]
        headers = (self.page(number, known.last_page, PAGE_HEADER) for number in level)
        return sum((HEADER.unpack(header)[3] - PAGE_HEADER) // 2 for header in headers), tree.records

    def long_value(self, known: Known, number: int, there: int, size: int) -> bytes:
        """A value from page `there` on that a record of page `number` refers to, behind the header of its first page;
        raises Unsound if it does not have the pages that it should."""
        self._look_at_long(known, number, there, size)
        return os.pread(self._descriptor, PAGE_HEADER + size, there * PAGE_BYTES)

    def look_at_number_of_pages(self, known: Known, free: int) -> None:
        """Refuse a last page that cannot be the last one, because each page is in use or free: LMDB would write its
        next pages on some that are in use, or far behind them all."""
        trees = self._trees_of(known).values()
        there, needed = known.last_page + 1, known.own_pages + free + sum(tree.pages for tree in trees)
        behind = there * PAGE_BYTES > os.fstat(self._descriptor).st_size
        if needed > there or (needed < there and behind):
            raise Unsound(f"there are {needed} pages, and not {there}")

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
        at, count = search(page, number, key)
        if joining:
            self.look_at_headers(
                known, [child_of(page, number, i)[1] for i in range(max(at - 1, 0), min(at + 2, count))]
            )
        above = child_of(page, number, at + 1)[0] if at + 1 < count else bounds[1]
        low, child = child_of(page, number, at)
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
            page = known.pages[number] = self.page(number, known.last_page)
            if not page[10] & BRANCH:
                raise Unsound(f"page {number} is no branch")
        return page

    def look_at_headers(self, known: Known, numbers: Iterable[int]) -> None:
        """Look at the headers of pages, once."""
        headers, last_page, descriptor = known.headers, known.last_page, self._descriptor
        for number in numbers:
            if number not in headers:
                raw = os.pread(descriptor, PAGE_HEADER, number * PAGE_BYTES) if number <= last_page else b""
                headers[number] = free_bytes(raw, number)

    def look_at_all(self, known: Known, tree: Tree) -> None:
        """Raise Unsound if a branch of a tree is bad, or the header of a leaf."""
        level: Iterable[tuple[int, Range]] = [(tree.root, EVERYTHING)]
        leaves = [tree.root]
        for _ in range(tree.depth - 1):
            branches = [(self.branch_at(known, number, bounds), bounds) for number, bounds in level]
            leaves = [child for (_, children), _ in branches for child in children]
            level = (
                (child, _between(keys, i, bounds))
                for (keys, children), bounds in branches
                for i, child in enumerate(children)
            )
        if len(leaves) < _MANY:
            self.look_at_headers(known, leaves)
        else:
            known.headers.update(zip(leaves, self._free_bytes(known, leaves), strict=True))

    def _free_bytes(self, known: Known, numbers: Sequence[int]) -> list[int]:
        """The free bytes of many pages, read through a map: one by one would take four times as long. (Only for pages
        that lie side by side: a map has the disk read megabytes around each that is not in memory.)

        A page that the disk cannot read ends the process here, as it does when LMDB reads it.
        """
        last = max(numbers)
        if last > known.last_page or (last + 1) * PAGE_BYTES > os.fstat(self._descriptor).st_size:
            raise Unsound(f"page {last} does not exist")
        places = np.array(numbers, np.uint64)
        with mmap.mmap(self._descriptor, (last + 1) * PAGE_BYTES, prot=mmap.PROT_READ) as mapped:
            headers = headers_of_many(mapped, places)
        return free_bytes_of_many(headers, places)

    def _trees_of(self, known: Known) -> dict[bytes, Tree]:
        """All sub-databases."""
        trees = known.trees
        if trees is None:
            trees = known.trees = self._trees(known)
        return trees

    def _trees(self, known: Known) -> dict[bytes, Tree]:
        """The same as they are on disk; they fit one page."""
        page, trees = self._main_page(known), {}
        for at, key, size, flags in records_of(page, known.main_root):
            if flags & SUBTREE and size == _TREE.size:
                trees[key] = _tree_at(page, at)
        return trees

    def _tree_by_search(self, known: Known, name: bytes) -> Tree | None:
        """One sub-database, found as LMDB finds it; None if there is none of this name."""
        page = self._main_page(known)
        at = place_of(page, known.main_root, name)
        return None if at is None or at > PAGE_BYTES - _TREE.size else _tree_at(page, at)

    def _main_page(self, known: Known) -> bytes:
        """The page that names all sub-databases."""
        if not known.main_page:
            page = self.page(known.main_root, known.last_page)
            if not page[10] & LEAF:
                raise Unsound(f"page {known.main_root} is no leaf")
            known.main_page = page
        return known.main_page

    def _visit(self, known: Known, number: int, levels: int, wanted: Range, bounds: Range) -> None:
        """Look at a page, whose keys must lie within `bounds`, and at what is below it and near `wanted`."""
        if levels <= 1:
            self.look_at_leaf(known, number, bounds)
            return
        keys, children = self.branch_at(known, number, bounds)
        begin = max(bisect_right(keys, wanted[0]) - 2, 0)
        end = len(children) if wanted[1] is None else min(bisect_right(keys, wanted[1]) + 1, len(children))
        self._ask_for((child, 1) for child in children[begin:end] if child not in known.leaves)
        for i in range(begin, end):
            self._visit(known, children[i], levels - 1, wanted, _between(keys, i, bounds))

    def look_at_leaf(self, known: Known, number: int, bounds: Range) -> None:
        if number not in known.leaves:
            known.leaves[number] = self._leaf(known, number)
        _refuse_outside(*known.leaves[number], bounds, number)

    def branch_at(self, known: Known, number: int, bounds: Range) -> Branch:
        if number not in known.branches:
            known.branches[number] = self._branch(known, number)
        keys, children = known.branches[number]
        _refuse_outside(keys[1], keys[-1], bounds, number)
        return keys, children

    def _branch(self, known: Known, number: int) -> Branch:
        page = self.page(number, known.last_page)
        if not page[10] & BRANCH:
            raise Unsound(f"page {number} is no branch")
        keys, children = children_of(page, number)
        refuse_unordered(keys, number)
        return keys, children

    def _leaf(self, known: Known, number: int) -> tuple[bytes, bytes]:
        page = self.page(number, known.last_page)
        if not page[10] & LEAF:
            raise Unsound(f"page {number} is no leaf")
        keys = []
        for at, key, size, flags in records_of(page, number):
            keys.append(key)
            if flags & LONG_VALUE:
                self._look_at_long(known, number, number_at(page, at), size)
        refuse_unordered(keys, number)
        return keys[0], keys[-1]

    def _look_at_long(self, known: Known, number: int, there: int, size: int) -> None:
        """Refuse a value that does not have, from page `there` on, exactly the pages that its `size` takes."""
        pages = _pages_of(size)
        if not 1 < there <= known.last_page + 1 - pages:
            raise Unsound(f"a record of page {number} refers to pages that do not exist")
        own, _, flags, low, high = HEADER.unpack(os.pread(self._descriptor, PAGE_HEADER, there * PAGE_BYTES))
        if (own, flags, low | high << 16) != (there, LONG, pages):
            raise Unsound(f"a record of page {number} is not as long as its pages")

    def page(self, number: int, last_page: int, size: int = PAGE_BYTES) -> bytes:
        """The first `size` bytes of a tree page, if its header can be right."""
        page = os.pread(self._descriptor, size, number * PAGE_BYTES) if number <= last_page else b""
        if len(page) < size:
            raise Unsound(f"page {number} does not exist")
        free_bytes(page, number)
        return page


def _tree_at(page: bytes, at: int) -> Tree:
    """A sub-database, as the main page has it."""
    _, _, depth, branches, leaves, long_pages, records, root = _TREE.unpack_from(page, at)
    return Tree(root, depth, leaves, long_pages, records, branches + leaves + long_pages)


def _pages_of(size: int) -> int:
    """How many pages a long value takes."""
    return (size + PAGE_HEADER + PAGE_BYTES - 1) // PAGE_BYTES


def _blocks_read() -> int:
    """Blocks that the disk has read so far because this thread wanted them, or asked for them."""
    return resource.getrusage(_WHOSE).ru_inblock


def _covers(bounds: Range, first: bytes, last: bytes) -> bool:
    return bounds[0] <= first and (bounds[1] is None or last < bounds[1])


def _between(keys: list[bytes], i: int, bounds: Range) -> Range:
    """The bounds of the i-th child of a branch whose own are `bounds`."""
    return keys[i] if i else bounds[0], keys[i + 1] if i + 1 < len(keys) else bounds[1]


def _refuse_outside(first: bytes, last: bytes, bounds: Range, number: int) -> None:
    low, high = bounds
    if first < low or (high is not None and last >= high):
        raise Unsound(f"page {number} is not where its keys belong")
