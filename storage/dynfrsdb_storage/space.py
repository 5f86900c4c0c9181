"""What data.mdb has beyond its records: its length, the blocks behind its end, and room.

    | records and free pages | room | last page | zeros that take no room | blocks that are kept for a full disk |
                                    end         end + 256 KB              end + 64 MB

Asks the disk only when something may not be as it should any more; a full one again with the next commit, because it
may have room then.
"""

from collections.abc import Callable
from pathlib import Path

from dynfrsdb_storage import layout
from dynfrsdb_storage.disk import keep_allocated, lengthen
from dynfrsdb_storage.freelist import FreeList
from dynfrsdb_storage.guard import Known
from dynfrsdb_storage.room import Room


class Space:
    """What one process knows of the space in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._length = self._allocated_to = 0
        """How long the file was when we last looked; it never becomes shorter. And where its blocks end."""
        self._room = Room()

    def keep(self, end: int, more: int = 0) -> None:
        """See to it that `more` and some 64 MB behind `end`, where the last page ends, belong to the file, and that it
        reaches some way behind `more`."""
        if end + more + layout.TAIL_BYTES // 2 > self._length:
            self._length = lengthen(self._path, end + more)
        if end + more + layout.KEEP_ALLOCATED // 2 > self._allocated_to and keep_allocated(
            self._path, end, more + layout.KEEP_ALLOCATED
        ):
            self._allocated_to = end + more + layout.KEEP_ALLOCATED

    def room_for(self, known: Known, free: FreeList, writes: int, oldest: Callable[[], int]) -> int:
        """How many free pages in a row LMDB should be asked for, before a commit that writes up to `writes` pages on
        top of a transaction; 0: none. If it has to take them behind the last page, they have their blocks."""
        asked = self._room.wanted(free, known.last_page + 1 - free.pages, writes, oldest)
        if asked:
            self.keep(known.end, asked * layout.PAGE_BYTES)
        return asked if known.end + asked * layout.PAGE_BYTES <= self._allocated_to else 0
