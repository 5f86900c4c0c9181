"""What is known about targets that are missed: a sentence or two for the document, by the key of the row.

A remark names the measurement that shows the limit, or what has not been tried yet. Take it out when the target is met.
"""

from __future__ import annotations

_PYTHON = (
    "What LMDB and the kernels take of it, and what is left, is measured under *One removal*: without the rest it "
    "would be met on purchase and heart. That is some 1,500 calls of Python for 150 records, none of which takes more "
    "than a twentieth. Compiling them is no way out: with 20 modules of the storage layer in C (mypyc), a removal took "
    "1.00 to 1.04 times as long. They wait for memory. A removal moves more than a megabyte of statistics and pages "
    "through the processor's caches, so that what comes next is not in them, and neighbours share the largest: to look"
    " a sample up and check it takes 20 us in a loop, 27 behind 2 MB of other memory, 53 behind 16 MB, and 60 to 110 "
    "here. The wait for the disk does little to it: without syncs, what is not LMDB's takes 0.83 ms instead of 0.95. "
    "The slower the processor is beside the disk, the larger is this ratio: lazy it was 1.46x to 2.03x (purchase) and "
    "1.38x to 1.68x (heart) in three afternoons on such machines. Their Python was built without profile-guided "
    "optimisation; Debian's, side by side with it, gave 1.42x and 1.48x where this gave 1.46x and 1.63x (purchase), "
    "1.37x and 1.35x where this gave 1.49x and 1.44x (heart)"
)
_SETTLING = (
    "Settling at once (auto) grows, for each removal on purchase, 15 buckets with 1,200 samples and two or three "
    "larger tags with some 600: most of what kernels take"
)
_BATCH = (
    "Between runs it is 0.038x to 0.056x of the retrain, and 0.84x to 1.28x of the partner. On heart, of 28 ms for the"
    " first 100 removals of a handle 10.5 are LMDB's transaction (the partner's takes 10.8), 5.5 the kernel that "
    "changes trees, 4 making records and their checksums, 2.7 looking at all pages before they are written on, which "
    "is done once a minute, and the rest many small things"
)
_COUNTING = (
    "Half of it is growing what was void, at the speed of a build; half of all samples lie under tags on purchase "
    "then. The rest is the removal itself, and writing"
)

_PAGES = (
    "A split of letter keeps counts of 26 classes, up to 5.5 kB on disk, and one of covertype of 7, 2.4 kB: each has "
    "pages of its own, where several of purchase share one"
)

REMARKS: dict[str, str] = {
    "build": "Growing trees takes a third of it, writing rows, index and tree records the rest.",
    "build-2": (
        "How much faster growing the same trees in memory is, with nothing to write, stands under *Building*: *growing "
        "alone*. Besides, of 53 ms on purchase (two threads, by itself) 8 are in one thread, making the files and "
        "opening the store, 4 are rows, and in the 41 of growing a third thread hands records to LMDB for 11; of 148 "
        "on heart it does for 40. Between runs it is 1.35x to 1.75x, on heart 1.57x to 1.86x."
    ),
    "removal-open": (
        "The kernels alone, which is what can be compared with the C++, are within the target: see the last table "
        "under *One removal*. They wait for the statistics of some 140 splits all over memory (decisions/every-count-"
        "is-read-at-every-visit.md). On purchase a fifth is bringing long lists that no query needs, and the rest "
        "Python, once per removal: 110 calls to look the sample up, check its row and keep the digest take 25 us in a "
        "loop and 65 here. The first removal of each transaction, after 20,000 predictions, takes twice the median. "
        "Removals that walk together share the Python."
    ),
    "removal-auto": f"{_PYTHON}. {_SETTLING}.",
    "removal-lazy": _PYTHON + ".",
    "batch-100-floor": _BATCH + ".",
    "batch-100": _BATCH + ".",
    "batch-1%-floor": _BATCH + ".",
    "batch-1%": _BATCH + ".",
    "settled-lazy": _COUNTING + ".",
    "settled-auto": _COUNTING + ".",
    "pages-auto": _PAGES + ".",
    "pages-lazy": _PAGES + ".",
    "predict": (
        "On adult it is 1.98x to 2.1x between runs. The trees of covertype are the largest here; what bounds the walk "
        "through them has not been looked into."
    ),
    "reader": (
        "On heart it is 1.02x to 1.54x between runs: what a query takes without a writer wanders between 85 and 150 us,"
        " and beside one between 121 and 154."
    ),
    "memory": (
        "The limit is meant for purchase and heart. In memory a split of purchase takes 2.3 kB, one of adult 5, "
        "covertype 6, letter 11: a count for every class, interval and candidate; a removal from letter touches 50 "
        "trees; and of what covertype takes, almost half are mapped files."
    ),
    "scale-removal": (
        "LMDB's transaction and the kernels are in the table. The former writes some 230 pages that lie all over the "
        "file, which is too large for commits to write in rows for long (decisions/commits-write-in-rows.md); pages "
        "grow with the depth: a removal comes by 230 nodes, which with buckets and LMDB's branches lie on 187 pages. "
        "With 8.8 million rows it also writes what the query before it grew of large tags: LMDB's part is 3.4 to 4.1 ms"
        " without queries in between. Of the rest, looking at pages before they are written on takes "
        "1.6 ms (150 branches are read and searched, each at another place), bringing the records of paths and of "
        "subtrees that become void 2, and many small functions of Python what is left. What was tried: decisions/"
        "mapped-pages-are-the-systems.md."
    ),
    "scale-memory": (
        "All but 0.7 GB of it are pages of mapped files, which the system takes back when somebody needs the memory. "
        "Giving them back ourselves makes a removal take two to three times as long, and still leaves a peak of 2.1 GB"
        " (decisions/mapped-pages-are-the-systems.md)."
    ),
    "start": "Importing numpy and numba takes 0.4 s, what numba prepares for its first kernel 0.3 s.",
}
