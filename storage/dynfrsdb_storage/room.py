"""Room to write in one piece.

A commit of LMDB's writes every page that it changes to a new place: to free pages, lowest first, out of the oldest
records of its list. What a small change leaves free lies here and there, and so does what a later one writes on it. A
disk minds: 90 pages take it 1.0 ms one by one, and 0.3 ms in a row.

    in use     ####.##.#.####..##.#
    with room  ####.##.#.####..##.#......................      written from left to right

So a store keeps more pages free than it needs, and uses them up from the lowest to the highest before it comes back to
what was left free meanwhile. By then most of what it wrote on the way was replaced, and free pages lie in rows again.

LMDB has no such wish to ask for, but two habits. Asked for a value of many pages, it searches its list for that many in
a row. While it does, it takes record after record into one sorted list, and that is what it keeps when the transaction
ends: free pages in order. And if it finds no such row anywhere, it takes new pages at the end of the file. So a value
that is put and deleted again in the same transaction, and never written, makes room or puts it in order:

    much longer than the longest row    the list is put in order, and the file grows
    a little longer                     the same, and the file grows by that much only
    a little shorter                    the list is put in order up to where that row is whole; the file stays as it is

How much room: three pages for each in use, 32 MB at most, 4 MB of it at a time; and half as much again, little by
little, until the file stays as it is. To ask takes LMDB some milliseconds, so only a process that commits again and
again does it.

Nothing depends on any of this but time.
"""

from collections.abc import Callable
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

from dynfrsdb_storage.freelist import Free, FreeList
from dynfrsdb_storage.layout import PAGE_BYTES, PAGE_HEADER

if TYPE_CHECKING:
    import lmdb
    import numpy as np
    import numpy.typing as npt
else:
    from dynfrsdb_storage import lazynumpy as np

PER_PAGE = 3
"""Free pages for each page in use."""
MOST = (32 << 20) // PAGE_BYTES
"""Free pages that are made at most."""
STEP = (4 << 20) // PAGE_BYTES
"""Pages of room that are made at once: LMDB takes memory for them, and for a moment."""
PATIENCE = 16
"""Commits of a process before it asks for anything: a single one would not get back what that costs."""
_ENOUGH, _PLENTY = 3 / 4, 3 / 2
"""How much of the room must be there, or more is made; and how much there may be, and still be a little more."""
_IN_ORDER = 4
"""Pages in a row, on average, with which a commit is content."""
_TOO_LONG = 8 * MOST
"""Free pages from which on the list is left as it is: it would take too long to write."""
_TAKEN_BEFORE = 4
"""Single pages that LMDB takes, maybe out of the longest row, before it searches for a row."""
_KEY = b"room"
"""Of the value that is put and deleted; no record has it."""

Numbers: TypeAlias = "npt.NDArray[np.uint64]"


class Room:
    """What one process knows of the room in one file."""

    def __init__(self) -> None:
        self._commits = 0
        self._ordered_to = -1
        """The last transaction whose free pages were in the list when it was put in order."""

    def wanted(self, free: FreeList, used: int, writes: int, oldest: Callable[[], int]) -> int:
        """How many pages in a row LMDB should be asked for before a commit that writes up to `writes` pages; 0: none.

        `used` is the number of pages in use; `oldest` says which transaction the oldest reader looks at.
        """
        self._commits += 1
        writes = min(writes, used)
        if self._commits < PATIENCE or self._left(free) >= writes:
            return 0
        reader = oldest()
        usable = list(takewhile(lambda record: record.transaction < reader, free.records))
        next_ones = _first(usable, writes)
        in_order = _are_in_order(next_ones, writes)
        taken = next_ones if in_order else usable
        self._ordered_to = taken[-1].transaction if taken else -1
        if in_order or free.pages > _TOO_LONG:
            return 0
        goal = min(PER_PAGE * used, MOST)
        if free.pages < _ENOUGH * goal:
            return min(goal - free.pages, STEP)
        longest = _longest_row(_numbers(usable))
        if free.pages + longest < _PLENTY * goal:
            return longest + _TAKEN_BEFORE
        return max(longest - _TAKEN_BEFORE, 0)

    def _left(self, free: FreeList) -> int:
        """Pages that are still free of those that were put in order."""
        return sum(record.pages for record in takewhile(lambda it: it.transaction <= self._ordered_to, free.records))


def ask_for(txn: "lmdb.Transaction", database: Any, pages: int) -> None:
    """Have LMDB search for so many free pages in a row; for the beginning of a write transaction."""
    txn.put(_KEY, bytes(pages * PAGE_BYTES - PAGE_HEADER), db=database)
    txn.delete(_KEY, db=database)


def _first(records: list[Free], pages: int) -> list[Free]:
    """The first records, as many as have so many pages."""
    before = accumulate((record.pages for record in records), initial=0)
    return [record for record, count in zip(records, before, strict=False) if count < pages]


def _are_in_order(records: list[Free], writes: int) -> bool:
    """Whether these have enough pages for a commit, most of them in rows."""
    pages = _numbers(records)
    rows = 1 + int(np.count_nonzero(np.diff(pages) != 1))
    return pages.size >= max(writes, _IN_ORDER * rows)


def _longest_row(pages: Numbers) -> int:
    """How many pages the longest row has."""
    ends = np.flatnonzero(np.diff(pages) != 1)
    return int(np.diff(ends, prepend=-1, append=pages.size - 1).max())


def _numbers(records: list[Free]) -> Numbers:
    """The pages of some records, ascending."""
    return np.sort(np.frombuffer(b"".join(record.numbers for record in records), "<u8"))
