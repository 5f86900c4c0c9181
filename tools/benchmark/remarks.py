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
    "in a removal. The slower the processor is beside the disk, the larger is this ratio: lazy it was 1.34x to 2.03x "
    "(purchase) and 1.37x to 1.68x (heart) on machines of this kind. Their Python was built without profile-guided "
    "optimisation; Debian's, side by side with it, takes 0.91 to 0.97 of the time (lazy), 0.97 to 0.99 (auto). To show "
    "LMDB values where they are, instead of copying them, mostly takes time from one function and gives it to the "
    "next: 0.96 to 1.01 (twelve pairs), and batches of 100 1.03 and 1.06; large pages for the interpreter's heap: 1.00"
)
_SETTLING = (
    "Settling at once (auto) is in addition what no bare transaction does: for each removal on purchase it grows 15 "
    "buckets with 1,200 samples and two or three larger tags with some 600, most of what kernels take. Growing less "
    "before the commit does not help: with only tags of up to 128, 256, 512 or 1,024 samples, two queries after each "
    "removal and nothing in the background, a removal takes 0.99 to 1.11 times as long, and a query five to six times "
    "at the median (purchase with 1,024: as long). It was 1.57x to 2.3x on machines of this kind. The disk is waited "
    "for twice in each commit, 0.5 ms together, as the partner does; its other time is what scattered pages cost"
)
_SHARE = (
    "A share of the retrain is another number on every machine. Where the retrain of purchase took 620 ms and that of "
    "heart 750 to 800 (2026-11-18), 100 removals were 0.038x to 0.056x of it, 1% 0.038x / 0.082x, and 1% with settling "
    "0.10x / 0.28x. On processors where scikit-learn is 2.7 times as fast and everything else 1.7 times, the C++ alone "
    "takes as much as the target, or more (*Beside the C++*)"
)
_BATCH = (
    "Against bare LMDB and the C++ it is 0.84x to 1.28x between runs and machines. On heart, of 21 ms for the first "
    "100 removals of a handle 8.5 are LMDB's transaction (the partner's takes 8.0), 3.8 the kernel that changes trees, "
    "2.6 making records and their checksums and handing them on, 2.1 looking at all pages before they are written on, "
    "which is done once a minute, and the rest many small things"
)
_COUNTING = (
    "Half of it is growing what was void, at the speed of a build; half of all samples lie under tags on purchase "
    "then. The rest is the removal itself, and writing"
)

_PAGES = (
    "A split of letter keeps counts of 26 classes, up to 5.5 kB on disk, and one of covertype of 7, 2.4 kB: each has "
    "pages of its own, where several of purchase share one"
)

_LARGE = (
    "LMDB's transaction and the kernels are in the table. The former writes some 230 pages that lie all over the file,"
    " which is too large for commits to write in rows for long (decisions/commits-write-in-rows.md); pages grow with "
    "the depth: a removal comes by 230 nodes, which with buckets and LMDB's branches lie on 187 pages. Of the rest, "
    "looking at pages before they are written on takes 1.2 to 1.6 ms (150 branches are read and searched, each at "
    "another place), bringing the records of paths and of subtrees that become void 2, and many small functions of "
    "Python what is left. What was tried: decisions/mapped-pages-are-the-systems.md"
)

REMARKS: dict[str, str] = {
    "build": "Growing trees takes a third of it, writing rows, index and tree records the rest.",
    "build-2": (
        "How much faster growing the same trees in memory is, with nothing to write, stands under *Building*: *growing "
        "alone*. On purchase, of 39 ms (two threads, by itself) 7 pass before the first tree grows, with files, rows "
        "and the question which sample lives in which tree, and 4.5 after the last, with its records, syncs and "
        "opening the store. In the 27 between, both processors are busy, but also with the index of samples (7 ms) and "
        "the hashes of rows (2). Tried without gain: smaller groups of trees, or smaller ones towards the end, and "
        "hashes in a thread of their own before there are trees to grow (0.99 to 1.02). Between runs it is 1.35x to "
        "1.75x, on heart 1.57x to 1.86x, and of adult and letter, seven builds each by themselves, 1.76x and 1.81x."
    ),
    "removal-open": (
        "This is harder than how the C++ was measured, and what the target is made from: that is *in a row*, above. "
        "These removals come ten at a time, after 20,000 predictions. The first takes twice the median; and every "
        "third brings lists of samples, which no query needs, out of LMDB, on purchase a fifth of the mean. The kernels"
        " wait for the statistics of some 140 splits all over memory "
        "(decisions/every-count-is-read-at-every-visit.md); the rest is Python, once per removal: 110 calls to look the"
        " sample up, check its row and keep the digest, which "
        "removals that walk together share."
    ),
    "removal-row": _SHARE + ".",
    "removal-cpp": (
        "On one-hot data, as adult is, the C++ keeps one threshold for a feature of two values, and not 30. Its "
        "forests find other splits: it stores the best score a split ever had, and so changes less than is right."
    ),
    "removal-auto": f"{_PYTHON}. {_SETTLING}.",
    "removal-lazy": _PYTHON + ".",
    "batch-100-floor": _BATCH + ".",
    "batch-100": _SHARE + ".",
    "batch-1%-floor": _BATCH + ".",
    "batch-1%": _SHARE + ".",
    "settled-lazy": f"{_SHARE}. {_COUNTING}.",
    "settled-auto": f"{_SHARE}. {_COUNTING}.",
    "pages-auto": _PAGES + ".",
    "pages-lazy": _PAGES + ".",
    "predict": (
        "On adult it is 1.98x to 2.1x between runs. The trees of covertype are the largest here: 80 kB each, in the "
        "form that is walked. Its rows end after 16 of 20 steps on average, but of eight that walk side by side the "
        "last one ends after 19.6; asking now and then whether all have ended makes every set slower, by up to a fifth."
    ),
    "reader": (
        "It is 1.02x to 1.56x between runs: what a query takes without a writer wanders between 18 and 25 us on one "
        "machine, and between 85 and 150 on another, and beside a writer between 19 and 40, and 121 and 154."
    ),
    "memory": (
        "The limit is meant for purchase and heart. In memory a split of purchase takes 2.3 kB, one of adult 5, "
        "covertype 6, letter 11: a count for every class, interval and candidate; a removal from letter touches 50 "
        "trees; and of what covertype takes, almost half are mapped files."
    ),
    "scale-removal": f"{_LARGE}.",
    "scale-mixed": (
        f"{_LARGE}. With 8.8 million rows it also writes what the query before it grew of large tags: LMDB's part is "
        "3.4 to 4.1 ms without queries in between. It was 8.9 to 10.9 ms in one afternoon, and 13 to 16 on slower "
        "machines."
    ),
    "scale-memory": (
        "All but 0.5 to 0.7 GB of it are pages of mapped files, which the system takes back when somebody needs the "
        "memory. Giving them back ourselves makes a removal take two to three times as long, and still leaves a peak of"
        " 2.1 to 2.7 GB; reading rows without a map would cost a query after a removal, which looks at 50,000 rows, 25 "
        "ms more (decisions/mapped-pages-are-the-systems.md). This target and the one for a removal are not to be had "
        "together."
    ),
    "start": "Importing numpy and numba takes 0.4 s, what numba prepares for its first kernel 0.3 s.",
}
