"""Where a writer has looked: ranges of keys whose pages were sound, remembered from commit to commit.

A process that commits again and again would look at the same pages again and again. What LMDB makes of sound pages is
sound, so a range of keys stays so while nobody else commits. Nothing is believed for long, though: bits flip while a
process lives, too.

    nodes     [  leaf 7    leaf 9  )       [ leaf 12 )
    a commit that splits leaf 9 in two changes nothing here: the keys are the same. Ranges that touch become one.
"""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

Range = tuple[bytes, bytes | None]
Bounds = tuple[list[bytes], list[bytes]]
"""Ranges that do not touch, ascending: where each begins, and where it ends."""
_NOWHERE: Bounds = [], []
_BEHIND_ALL = b"\xff" * 64
"""Behind every key of ours: the end of a range that has none."""
_EVERYWHERE: Bounds = [b""], [_BEHIND_ALL]
TRUSTED = 60.0
"""Seconds after which everything is looked at again."""


class Looked:
    """What one process has looked at in one generation."""

    def __init__(self) -> None:
        self._transaction = -1
        self._since = 0.0
        self._ranges: dict[tuple[str, bool], Bounds] = {}
        self._spent: dict[str, int] = {}

    def is_at(self, transaction: int) -> bool:
        """Whether what was looked at still holds in a transaction of LMDB's."""
        return transaction == self._transaction and time.monotonic() < self._since + TRUSTED

    def begin(self, transaction: int) -> None:
        """Go on, or start over if somebody else has committed or too much time has passed."""
        if not self.is_at(transaction):
            self._transaction, self._since = transaction, time.monotonic()
            self._ranges.clear()
            self._spent.clear()

    def spent(self, database: str) -> int:
        """How many leaves of a database were looked at, one here and one there."""
        return self._spent.get(database, 0)

    def spend(self, database: str, leaves: int) -> None:
        """Note that so many more were looked at."""
        self._spent[database] = self.spent(database) + leaves

    def committed(self, transaction: int) -> None:
        """This process has made this transaction, on top of the one before."""
        if self._transaction == transaction - 1:
            self._transaction = transaction

    def is_whole(self, database: str) -> bool:
        """Whether all of a database was looked at, for any write."""
        return self._ranges.get((database, True)) == _EVERYWHERE

    def covers(self, database: str, first: bytes, last: bytes) -> bool:
        """Whether a range of keys was looked at for writes that may join pages."""
        begins, ends = self._ranges.get((database, True), _NOWHERE)
        i = bisect_right(begins, first) - 1
        return i >= 0 and last < ends[i]

    def unseen(self, database: str, keys: Sequence[bytes]) -> Sequence[bytes]:
        """Those of sorted keys that were not looked at, neither for writes that may join pages nor for others."""
        for joining in (True, False):
            begins, ends = self._ranges.get((database, joining), _NOWHERE)
            if begins and keys:
                keys = _outside(begins, ends, keys)
        return keys

    def add(self, database: str, joining: bool, found: Range) -> None:
        """Note a range, for writes that may join pages with their neighbours or for others."""
        begins, ends = self._ranges.setdefault((database, joining), ([], []))
        begin, end = found[0], _BEHIND_ALL if found[1] is None else found[1]
        first, last = bisect_left(ends, begin), bisect_right(begins, end)
        if first < last:  # these are touched, and become one with it
            begin, end = min(begin, begins[first]), max(end, ends[last - 1])
        begins[first:last], ends[first:last] = [begin], [end]


def _outside(begins: list[bytes], ends: list[bytes], keys: Sequence[bytes]) -> list[bytes]:
    """Those of sorted keys that lie in none of the ranges."""
    left: list[bytes] = []
    at = 0
    while at < len(keys):
        i = bisect_right(begins, keys[at]) - 1
        if i >= 0 and keys[at] < ends[i]:
            at = bisect_left(keys, ends[i], at + 1)
        else:
            beyond = len(keys) if i + 1 == len(begins) else bisect_left(keys, begins[i + 1], at + 1)
            left += keys[at:beyond]
            at = beyond
    return left
