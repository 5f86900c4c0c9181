"""What is known about targets that are missed: a sentence or two for the document, by the key of the row.

A remark names the measurement that shows the limit, or what has not been tried yet. Take it out when the target is met.
"""

from __future__ import annotations

_PYTHON = (
    "Timed function by function on purchase, of 2.4 ms LMDB's transaction takes 1.25 and the kernels 0.25. The rest is "
    "the interpreter, in some 1,600 calls for 150 records, none of which takes more than a twentieth: without it, this "
    "would be 1.2 times the partner. Between two commits the caches are cold: the same calls take a third of that in "
    "a loop. Settling at once (auto) adds 1 ms, half of it growing"
)
_BATCH = (
    "Between runs it is 0.039x to 0.042x of the retrain, and 0.92x to 1.03x of the partner. On heart, of 26 ms for 100 "
    "removals 9 are LMDB's transaction, as the partner's, 5 the kernel that changes trees, 4 making records and their "
    "checksums, 2.5 looking at pages before they are written on, and the rest many small things"
)
_COUNTING = (
    "Half of it is growing what was void, at the speed of a build; half of all samples lie under tags on purchase "
    "then. The rest is the removal itself, and writing"
)

REMARKS: dict[str, str] = {
    "build": "Growing trees takes a third of it, writing rows, index and tree records the rest.",
    "build-2": (
        "Of 80 ms on purchase some 12 are in one thread: checking and writing rows, making the files, syncing and "
        "opening them. 1.7x would take the rest to halve exactly. Between runs it is 1.4x to 1.6x."
    ),
    "removal-open": (
        "On purchase half of it is the kernel, which waits for the statistics of some 140 splits all over memory "
        "(decisions/every-count-is-read-at-every-visit.md), a seventh bringing long lists that no query needs, and the "
        "rest Python on single values, once per removal. The first removal of each transaction, with cold caches, "
        "takes 460 to 600 us, the median 220 (heart: 400 and 145). Removals that walk together share the Python."
    ),
    "removal-auto": _PYTHON + ".",
    "removal-lazy": _PYTHON + ".",
    "batch-100-floor": _BATCH + ".",
    "batch-100": _BATCH + ".",
    "batch-1%-floor": _BATCH + ".",
    "batch-1%": _BATCH + ".",
    "settled-lazy": _COUNTING + ".",
    "settled-auto": _COUNTING + ".",
    "start": "Importing numpy and numba takes 0.4 s, what numba prepares for its first kernel 0.3 s.",
}
