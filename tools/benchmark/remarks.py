"""What is known about targets that are missed: a sentence or two for the document, by the key of the row.

A remark names the measurement that shows the limit, or what has not been tried yet. Take it out when the target is met.
"""

from __future__ import annotations

_PYTHON = (
    "Timed function by function on purchase, lazy, in a quiet hour: of 1.6 ms LMDB's transaction takes 0.66 (1.2 "
    "before commits wrote in rows: decisions/commits-write-in-rows.md) and the kernels 0.2. The rest is the "
    "interpreter, in some 1,500 calls for 150 records, none of which takes more than a twentieth. Sampled, of the "
    "processor's time 45% is the interpreter itself, 26% the system, which writes pages, 8% the C library, 7% kernels, "
    "6% LMDB, 4% numpy and 2% checksums. After each sync the processor's caches are cold: the longest of these "
    "functions with a third fewer calls took just as long. The slower the processor is beside the disk, the larger is "
    "this ratio: in one afternoon it was 1.46x to 2.03x (purchase) and 1.41x to 1.66x (heart), lazy, on this machine, "
    "whose neighbours come and go. Its Python was built without profile-guided optimisation; Debian's, side by side "
    "with it, gave 1.42x and 1.48x where this gave 1.46x and 1.63x (purchase), 1.37x and 1.35x where this gave 1.49x "
    "and 1.44x (heart). Settling at once (auto) adds 0.8 ms, half of it the kernel that grows"
)
_BATCH = (
    "Between runs it is 0.038x to 0.042x of the retrain, and 0.90x to 1.03x of the partner. On heart, of 26 ms for 100 "
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
        "opening them. 1.7x would take the rest to halve exactly, and two processors of this machine are not always "
        "two: sorting short arrays in two threads is 1.3 to 1.9 times as fast as in one. Between runs it is 1.4x to "
        "1.75x."
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
    "scale-removal": (
        "Timed function by function with 8.8 million rows, of 12.7 ms at the median LMDB's transaction takes 4.4, for "
        "some 230 pages that lie all over the file: it is too large for commits to write in rows for long "
        "(decisions/commits-write-in-rows.md). Bringing records takes 1.7, looking at pages before they are written on "
        "1.7, growing small tags 1.5; the rest is many small functions of Python. Pages grow with the depth: a removal "
        "comes by 230 nodes, which with buckets and LMDB's branches lie on 187 pages. What was tried: "
        "decisions/mapped-pages-are-the-systems.md."
    ),
    "scale-memory": (
        "All but 0.7 GB of it are pages of mapped files, which the system takes back when somebody needs the memory. "
        "Giving them back ourselves makes a removal take two to three times as long, and still leaves a peak of 2.1 GB "
        "(decisions/mapped-pages-are-the-systems.md)."
    ),
    "start": "Importing numpy and numba takes 0.4 s, what numba prepares for its first kernel 0.3 s.",
}
