"""LMDB's list of free pages, read beside LMDB.

Every commit adds a record to it: the pages that it no longer needs, under its own number. A commit takes its pages out
of the oldest records, and puts back what is left of them.

    transaction 17    3 pages: 90 41 40
    transaction 18    2 pages: 88 12

LMDB overwrites what is listed here, so a writer does not believe the list blindly. After each commit the checksums of
all its pages are added up, and LOCK keeps the sum; the next writer adds them up again before it lets LMDB write.

A process that commits again and again need not read all of it each time. LMDB never writes on a page that the commit
before has in use. So a page that belonged to the list in that commit, and still does, is what it was: only the pages
that are new in the list are read.
"""

import zlib
from typing import NamedTuple

from dynfrsdb_storage.guard import NO_PAGE, Guard, Known
from dynfrsdb_storage.layout import PAGE_HEADER
from dynfrsdb_storage.treepages import BRANCH, LONG_VALUE, Unsound, children_of, number_at, records_of

_NUMBER = 8
_CHECKSUM = 0xFFFFFFFF


class Free(NamedTuple):
    """A record of the list."""

    transaction: int
    """Readers that are older may still look at these pages."""
    pages: int
    """How many they are."""
    numbers: bytes
    """u64 each, descending."""


class FreeList(NamedTuple):
    """The list in one transaction."""

    check: int
    """The sum of the checksums of all its pages."""
    records: list[Free]

    @property
    def pages(self) -> int:
        """How many pages are free."""
        return sum(record.pages for record in self.records)


class _Page(NamedTuple):
    """A page of the list, with the long values of its records if it is a leaf."""

    check: int
    children: list[int]
    records: list[Free]


class FreeListReader:
    """Reads the list of one file from commit to commit."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._transaction = -1
        self._found = FreeList(0, [])
        self._pages: dict[int, _Page] = {}
        self._long: dict[int, tuple[int, bytes]] = {}

    def read(self, known: Known, trusting: bool) -> FreeList:
        """The list in a transaction; raises Unsound if one of its pages is bad. All of it is read, and its pages are
        counted against those of the file, unless we are `trusting` and have read it in the transaction before."""
        if trusting and known.transaction == self._transaction:
            return self._found
        goes_on = trusting and known.transaction == self._transaction + 1
        before, long_before = (self._pages, self._long) if goes_on else ({}, {})
        self._transaction, self._pages, self._long = -1, {}, {}
        records: list[Free] = []
        waiting = [known.free_root] if known.free_root != NO_PAGE else []
        while waiting:
            number = waiting.pop()
            if number in self._pages:  # or a branch that leads back to itself would never come to an end
                raise Unsound(f"page {number} has two places")
            page = self._pages[number] = before.get(number) or self._read(known, number, long_before)
            waiting += reversed(page.children)
            records += page.records
        self._found = FreeList(sum(page.check for page in self._pages.values()) & _CHECKSUM, records)
        if not goes_on:
            self._guard.look_at_number_of_pages(known, self._found.pages)
        self._transaction = known.transaction
        return self._found

    def _read(self, known: Known, number: int, long_before: dict[int, tuple[int, bytes]]) -> _Page:
        page = self._guard.page(number, known.last_page)
        check = zlib.crc32(page)
        if page[10] & BRANCH:
            return _Page(check, children_of(page, number)[1], [])
        records = []
        for at, key, size, flags in records_of(page, number):
            value = page[at : at + size]
            if flags & LONG_VALUE:
                there = number_at(page, at)
                found = self._long[there] = long_before.get(there) or self._read_long(known, number, there, size)
                check, value = check + found[0], found[1]
            count = number_at(value, 0)
            if _NUMBER * (count + 1) > size:
                raise Unsound(f"page {number} has lost free pages")
            records.append(Free(int.from_bytes(key, "little"), count, value[_NUMBER : _NUMBER * (count + 1)]))
        return _Page(check, [], records)

    def _read_long(self, known: Known, number: int, there: int, size: int) -> tuple[int, bytes]:
        """The checksum of a long value, and the value."""
        found = self._guard.long_value(known, number, there, size)
        return zlib.crc32(found), found[PAGE_HEADER:]
