"""What is known about targets that are missed: a sentence or two for the document, by the key of the row.

A remark names the measurement that shows the limit, or what has not been tried yet. Take it out when the target is met.
"""

from __future__ import annotations

_PYTHON = (
    "Some two fifths are LMDB's transaction, with the pages of bare LMDB, and an eighth is the kernels. The rest is "
    "Python around them, in some 2,500 calls for 150 records, of which no single one stands out in a profile: it has "
    "left the processor's caches by the next commit, and takes twice the time that it takes in a loop. Not tried: "
    "making keys, checksums and values of a commit in one kernel, which would spare about a tenth"
)
_BATCH = (
    "The kernel takes a fifth of it; packing, checksums, looking at pages before they are written on, and LMDB's own "
    "work share the rest"
)
_COUNTING = (
    "The time is in counting candidates of fresh nodes, as in a build, where most of it is memory that is read sample "
    "by sample"
)

REMARKS: dict[str, str] = {
    "build": "Three quarters are growing trees, the rest writing them. " + _COUNTING + ".",
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
    "settled-lazy": _COUNTING + ". Settling a hundred removals grows a good part of the forest anew.",
    "settled-auto": _COUNTING + ". Settling a hundred removals grows a good part of the forest anew.",
    "query": "The walk through the trees takes about 13 us; the rest is checking the input and asking what is newest.",
    "predict": (
        "Eight rows walk side by side through a copy of each tree that fits the cache; every row takes as many steps "
        "as the tree is deep."
    ),
    "mixed-query": "A query after a change finds the tags grown, but not the caches of the processor filled.",
    "reader": "The first query after a commit reads again the records that the commit has written.",
    "start": "Importing numpy and numba takes 0.4 s, what numba prepares for its first kernel 0.3 s.",
}
