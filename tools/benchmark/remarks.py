"""What is known about targets that are missed: a sentence or two for the document, by the key of the row.

A remark names the measurement that shows the limit, or what has not been tried yet. Take it out when the target is met.
"""

from __future__ import annotations

_PYTHON = (
    "Timed function by function on purchase, of 2.9 ms LMDB's transaction takes 1.25 and the kernels 0.25. The rest is "
    "the interpreter, in some 4,000 calls for 150 records, none of which takes more than a twentieth: without it, this "
    "would be 1.1 times the partner. Settling at once (auto) adds 0.9 ms of growing"
)
_BATCH = (
    "On heart, of 38 ms of processor time for 100 removals 10 are kernels, 8 making records and their checksums, 8 "
    "looking at pages before they are written on, 8 LMDB, 3 loading lists, and the rest many small things"
)
_COUNTING = (
    "Half of it is growing what was void, at the speed of a build; half of all samples lie under tags on purchase "
    "then. The rest is the removal itself, and writing"
)

REMARKS: dict[str, str] = {
    "build": "Growing trees takes two thirds of it, writing rows, index and tree records the rest.",
    "build-2": (
        "Trees grow, records are sealed and samples are hashed on both cores. What one does alone is to begin and to "
        "end: checking rows and writing them, syncing, opening the store. On purchase that is 12 of 80 ms."
    ),
    "removal-open": (
        "On purchase, of 400 us about 160 are the kernel, which touches the statistics of some 200 nodes all over "
        "memory, 40 bringing long lists that no query needs, and 200 Python on single values, once per removal. "
        "Removals that walk together share it: 280 us each on purchase, 190 on heart."
    ),
    "removal-auto": _PYTHON + ".",
    "removal-lazy": _PYTHON + ".",
    "batch-100-floor": _BATCH + ".",
    "batch-100": _BATCH + ".",
    "batch-1%-floor": _BATCH + ".",
    "batch-1%": _BATCH + ".",
    "query": "At the limit: two runs, an hour apart, gave 0.0048x and 0.0051x on heart.",
    "settled-lazy": _COUNTING + ".",
    "settled-auto": _COUNTING + ".",
    "start": "Importing numpy and numba takes 0.4 s, what numba prepares for its first kernel 0.3 s.",
}
