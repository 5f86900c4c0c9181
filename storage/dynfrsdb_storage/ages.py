"""Ages: for how long has a reader been behind?

LMDB's table of readers says who looks at which commit, not since when. So the counters of every commit carry the times
of some commits before it, and from those follows since when a reader has been looking at something old: since the
commit after the one it sees.

The newest commits are all there. Further back ever fewer are, as with the marks on a slide rule:

    behind the newest by    0 1 2 3 4 5 6 7    8 .. 15       16 .. 31      32 .. 63     ...    up to 65,536
    times are kept of       all                every 2nd     every 4th     every 8th    ...

so that at most 68 entries tell the age of a reader that is a day behind about as well, in proportion, as that of one
that is a second behind. Where the commit in question is not there, the next one is taken: an age is never more than
the truth.

    an entry:  commit u64 | seconds since 1970, rounded up, u32

A clock that is set back makes an age 0, never negative.
"""

import math
import struct
from collections.abc import Iterator

_ENTRY = struct.Struct("<QI")
_ALL = 3
"""Times of the newest 2 ** 3 commits are all kept."""
_FURTHEST = 1 << 16
_ROOM = 68 * _ENTRY.size
"""Entries are thinned out to 60 or so when they reach this; not with every commit, which would cost each some time."""


def noted(times: bytes, commit: int, now: float) -> bytes:
    """The times to be kept with `commit`, which is being made now, given those that the commit before it had."""
    if len(times) >= _ROOM:
        times = b"".join(_ENTRY.pack(*entry) for entry in _entries(times) if _is_kept(commit - entry[0], entry[0]))
    return times + _ENTRY.pack(commit, max(0, min(math.ceil(now), 2**32 - 1)))


def age(times: bytes, commit: int, now: float) -> float:
    """For how many seconds, at least, what `commit` shows has been old; 0 if nothing newer is known."""
    return max(0.0, next((now - since for number, since in _entries(times) if number > commit), 0.0))


def _is_kept(behind: int, commit: int) -> bool:
    """Whether the time of `commit` is kept when it is that far behind; once it is not, it never is again."""
    step = 1 << max(0, behind.bit_length() - _ALL)
    return 0 < behind <= _FURTHEST and commit % step == 0


def _entries(times: bytes) -> Iterator[tuple[int, int]]:
    """The (commit, seconds) that are there, oldest first; whatever cannot be an entry is left out."""
    whole = len(times) - len(times) % _ENTRY.size
    return _ENTRY.iter_unpack(times[:whole])
