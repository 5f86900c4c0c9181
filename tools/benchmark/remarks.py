"""What is known about targets that are missed: a sentence or two for the document, by the key of the row.

A remark names the measurement that shows the limit, or what has not been tried yet. Take it out when the target is met.
"""

from __future__ import annotations

_PYTHON = (
    "By `perf record` on purchase, 43% of the processor time is the interpreter and 7% numpy; 30% is the system, which "
    "writes and syncs as it does for the partner, 7% the kernels and 3% LMDB. The interpreter makes some 3,400 calls "
    "for 150 records, none of which takes more than a twentieth: without it, this would be 1.5 times the partner"
)
_BATCH = (
    "A process that has just opened the store looks at every page before it writes on it. On heart, of 164 ms for 1%: "
    "45 the kernel, 24 looking at pages, 37 making records and their checksums, 24 LMDB, the rest many small things"
)
_COUNTING = (
    "Half of it is growing what was void, at the speed of a build; half of all samples lie under tags on purchase "
    "then. The rest is the removal itself, and writing"
)

REMARKS: dict[str, str] = {
    "build": "Growing trees takes a third of it, writing rows, index and tree records the rest.",
    "build-2": "Trees grow on two cores; making their records and writing them to LMDB is one thread's.",
    "removal-open": (
        "About half is the kernel, which touches the statistics of some 200 nodes all over memory; the other half is "
        "Python, once per removal, and bringing long lists that no query needs. Removals that walk together share both."
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
