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
_NOWHERE: tuple[list[bytes], list[Range]] = [], []
TRUSTED = 60.0
"""Seconds after which everything is looked at again."""


class Looked:
    """What one process has looked at in one generation."""

    def __init__(self) -> None:
        self._transaction = -1
        self._since = 0.0
        self._ranges: dict[tuple[str, bool], tuple[list[bytes], list[Range]]] = {}

    def is_at(self, transaction: int) -> bool:
        """Whether what was looked at still holds in a transaction of LMDB's."""
        return transaction == self._transaction and time.monotonic() < self._since + TRUSTED

    def begin(self, transaction: int) -> None:
        """Go on, or start over if somebody else has committed or too much time has passed."""
        if not self.is_at(transaction):
            self._transaction, self._since = transaction, time.monotonic()
            self._ranges.clear()

    def committed(self, transaction: int) -> None:
        """This process has made this transaction, on top of the one before."""
        if self._transaction == transaction - 1:
            self._transaction = transaction

    def covers(self, database: str, first: bytes, last: bytes) -> bool:
        """Whether a range of keys was looked at for writes that may join pages."""
        begins, ranges = self._ranges.get((database, True), _NOWHERE)
        i = bisect_right(begins, first) - 1
        return i >= 0 and _ends_behind(ranges[i], last)

    def unseen(self, database: str, keys: Sequence[bytes]) -> Sequence[bytes]:
        """Those of sorted keys that were not looked at, neither for writes that may join pages nor for others."""
        for joining in (False, True):
            begins, ranges = self._ranges.get((database, joining), _NOWHERE)
            if begins and keys:
                keys = _outside(begins, ranges, keys)
        return keys

    def add(self, database: str, joining: bool, found: Range) -> None:
        """Note a range, for writes that may join pages with their neighbours or for others."""
        begins, ranges = self._ranges.setdefault((database, joining), ([], []))
        first = bisect_left(ranges, True, key=lambda there: there[1] is None or there[1] >= found[0])
        last = len(begins) if found[1] is None else bisect_right(begins, found[1])
        touched = [found, *ranges[first:last]]
        begin = min(begin for begin, _ in touched)
        end = None if any(end is None for _, end in touched) else max(end for _, end in touched if end is not None)
        begins[first:last], ranges[first:last] = [begin], [(begin, end)]


def _outside(begins: list[bytes], ranges: list[Range], keys: Sequence[bytes]) -> list[bytes]:
    """Those of sorted keys that lie in none of the ranges."""
    left: list[bytes] = []
    at = 0
    while at < len(keys):
        i = bisect_right(begins, keys[at]) - 1
        if i >= 0 and _ends_behind(ranges[i], keys[at]):
            end = ranges[i][1]
            at = len(keys) if end is None else bisect_left(keys, end, at + 1)
        else:
            beyond = len(keys) if i + 1 == len(begins) else bisect_left(keys, begins[i + 1], at + 1)
            left += keys[at:beyond]
            at = beyond
    return left


def _ends_behind(there: Range, key: bytes) -> bool:
    return there[1] is None or key < there[1]
