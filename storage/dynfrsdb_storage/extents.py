"""What each byte of data.mdb is: part of a live record, or nothing.

LMDB's file is pages. A page of a tree holds a header, a list of places, and records that fill it from its end; a large
value has pages of its own:

    | header | places ->  ........ gap ........  <- record | record . | record |      a page of a tree
    | header | value ......................................................... |      a large value

The dots are free: the gap, the byte behind a record of odd length, the rest of a large value's last page, and whole
pages that no tree refers to any more. To LMDB free bytes mean nothing, and it leaves in them whatever lay there: the
records of people who were removed, or copies of others from when a page was split.

So there are two things to do with free bytes. `scrub` overwrites them, in a file that nobody has open. `leftovers`
says which are not zero: that is vacuum's proof of absence, and it needs to know nothing of who was removed.

A branch page repeats keys of the records below it. As long as nothing was deleted, each is the first key of the page
it leads to; a key that is not would be that of a record which is gone (`strays`).
"""

import os
from bisect import bisect_right
from collections.abc import Generator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from dynfrsdb_storage.disk import sync_data, write_at
from dynfrsdb_storage.errors import CorruptStore
from dynfrsdb_storage.layout import PAGE_BYTES, PAGE_HEADER
from dynfrsdb_storage.pages import BIG, BRANCH, HEADER, META, NO_PAGE, NODE, SUBTREE, TREE, newest

_READ_AT_ONCE = 1 << 20


class Extent(NamedTuple):
    """Bytes `start` to `end` of the file belong to the record `key` of `database`; to LMDB itself if that is ""."""

    start: int
    end: int
    database: str
    key: bytes


class Extents:
    """All bytes of a data.mdb that mean something, as its newest commit has them."""

    def __init__(self, path: Path) -> None:
        self.strays: set[Extent] = set()
        """Keys in branch pages that are not the first of the page they lead to."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.size = os.fstat(descriptor).st_size
            self._all = sorted(_Walk(descriptor, path, self.strays).run())
        finally:
            os.close(descriptor)
        self._starts = [extent.start for extent in self._all]

    def at(self, offset: int) -> Extent | None:
        """What a byte belongs to; None if it is free."""
        place = bisect_right(self._starts, offset) - 1
        extent = self._all[place] if place >= 0 else None
        return extent if extent is not None and offset < extent.end else None

    def gaps(self) -> Iterator[tuple[int, int]]:
        """The (start, end) of all free bytes."""
        edges = (Extent(0, 0, "", b""), *self._all, Extent(self.size, self.size, "", b""))
        for before, behind in pairwise(edges):
            if before.end < behind.start:
                yield before.end, behind.start


def leftovers(path: Path) -> list[tuple[int, int]]:
    """The (start, end) of free bytes of a data.mdb among which one is not zero."""
    extents = Extents(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return [gap for gap in extents.gaps() if any(_dirty_parts(descriptor, *gap))]
    finally:
        os.close(descriptor)


def scrub(path: Path) -> int:
    """Overwrite all free bytes of a data.mdb that nobody has open, durably; returns how many gaps were not zero."""
    extents = Extents(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    dirty = 0
    try:
        for gap in extents.gaps():
            parts = list(_dirty_parts(descriptor, *gap))
            dirty += bool(parts)
            for start, end in parts:
                write_at(descriptor, bytes(end - start), start)
        sync_data(descriptor)
    finally:
        os.close(descriptor)
    return dirty


def _dirty_parts(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Pieces of a gap that hold anything but zeros."""
    for at in range(start, end, _READ_AT_ONCE):
        piece = os.pread(descriptor, min(_READ_AT_ONCE, end - at), at)
        if piece.strip(b"\0"):
            yield at, at + len(piece)


class _Walk:
    """Goes through all trees of a file."""

    def __init__(self, descriptor: int, path: Path, strays: set[Extent]) -> None:
        self._descriptor, self._path, self._strays = descriptor, path, strays

    def run(self) -> Iterator[Extent]:
        meta = newest(self._descriptor, str(self._path.parent.parent))
        if meta.page_size != PAGE_BYTES:
            raise CorruptStore(f"'{self._path}' has pages of {meta.page_size} bytes; ours have {PAGE_BYTES}")
        for number in (0, 1):
            yield Extent(number * PAGE_BYTES, number * PAGE_BYTES + PAGE_HEADER + META.size, "", b"")
        for root in meta.roots:
            if root != NO_PAGE:
                yield from self._tree("", root)

    def _tree(self, database: str, number: int) -> Generator[Extent, None, bytes]:
        """All extents of the page `number` and below; returns the first key."""
        base = number * PAGE_BYTES
        page = os.pread(self._descriptor, PAGE_BYTES, base)
        if len(page) < PAGE_BYTES:
            raise CorruptStore(f"page {number} of '{self._path}' does not exist; run 'dynfrsdb check'")
        _, _, flags, lower, _ = HEADER.unpack_from(page)
        yield Extent(base, base + lower, "", b"")
        first, children = None, []
        for i in range(PAGE_HEADER, lower, 2):
            at = int.from_bytes(page[i : i + 2], "little")
            low, high, node_flags, key_size = NODE.unpack_from(page, at)
            data = at + NODE.size + key_size
            key = page[at + NODE.size : data]
            first = key if first is None else first
            if flags & BRANCH:
                children.append((Extent(base + at, base + data, database, key), low | high << 16 | node_flags << 32))
                continue
            size = low | high << 16
            yield Extent(base + at, base + data + (8 if node_flags & BIG else size), database, key)
            if node_flags & BIG:
                there = int.from_bytes(page[data : data + 8], "little") * PAGE_BYTES
                yield Extent(there, there + PAGE_HEADER + size, database, key)
            elif node_flags & SUBTREE:
                root = TREE.unpack_from(page, data)[7]
                if root != NO_PAGE:
                    yield from self._tree(key.decode(), root)
        for place, (extent, child) in enumerate(children):
            yield extent
            found = yield from self._tree(database, child)
            if place == 0:
                first = found
            elif found != extent.key:
                self._strays.add(extent)
        return first or b""
