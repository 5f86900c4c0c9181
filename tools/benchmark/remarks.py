"""What is known about targets that are missed: a sentence or two for the document, by the key of the row.

A remark names the measurement that shows the limit, or what has not been tried yet. Take it out when the target is met.
"""

from __future__ import annotations

_PYTHON = (
    "Of 5 ms, 1.6 are LMDB's transaction, 0.5 the kernels, and some 2 are Python around them: about 2,500 calls for "
    "150 records, of which none takes more than a twentieth. Not tried: making keys, checksums and values of a commit "
    "in one kernel"
)
_BATCH = (
    "The kernel takes a fifth of it; packing, checksums, looking at pages before they are written on, and LMDB's own "
    "work share the rest"
)
_COUNTING = (
    "Most of the time is growing what was void, at the speed of a build; half of all samples lie under tags on "
    "purchase then. The rest is the removal itself, and writing"
)

REMARKS: dict[str, str] = {
    "build": "Growing trees takes a third of it, writing rows, index and tree records the rest.",
    "build-2": "Trees grow on two cores, their records are written to LMDB by one.",
    "removal-open": (
        "About half is the kernel, which touches the statistics of some 200 nodes all over memory; the other half is "
        "Python, once per removal."
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
