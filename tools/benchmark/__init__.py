"""The benchmark: what dynfrsdb costs, beside what else one could do.

A number of milliseconds says little about a machine one does not have. So every figure has a partner that is measured
in the same run, in turns with ours:

    retrain        scikit-learn's ExtraTreesClassifier on q of the rows per tree, same trees, depth and min split
    random forest  scikit-learn's RandomForestClassifier
    bare           a plain py-lmdb transaction that writes the same records: the floor of what durability costs
    the C++        the paper's own program, if whoever measures has compiled it and names it

and the targets are ratios. `tools/bench.py` is the command.

    data.py        the sets, real where their files are there, generated in the same shape where not
    figures.py     samples of a measurement, summed up; the process's I/O and memory counters
    trial.py       one set on its way through the measures: its stores, its scikit-learn forests, its figures
    bare.py        what a commit wrote, record by record and page by page; the same written by plain LMDB
    measure_*.py   the measures
    child.py       what has to happen in a process of its own
    targets.py     what was wanted, against what came out
    report.py, pictures.py, document.py    on the terminal, as SVG, as docs/performance.md
"""
