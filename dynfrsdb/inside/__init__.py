"""Looking inside a store without its engine.

What people ask at a terminal (what is in tree 3, why does this node split there, where does sample 17 live) is a matter
of a few records. The engine would answer, but importing numba takes longer than the whole rest. So this package reads
the records of `storage/FORMAT.md` and computes `algorithm 1` in Python's own numbers; nothing in it is fast, and
nothing imports numba, or numpy unless rows have to be counted again.

    floats        32-bit floats in Python's 64-bit ones
    chance        everything random: occupancy, feature order, thresholds
    scores        how good a cut is, as F compares them; impurity
    records       tree records: bytes -> plain values
    nodes         a node with its children, read as far as somebody looks
    candidates    what a node considered, and how close the choice was
    store         a store opened for looking; info
    people        samples and subjects
    importance    mean decrease in impurity
    size          how large each tree is, and how much of it is tagged

Because all of this is a second reading of the same treaty, tests hold it against the engine on whole stores: every
split record's best candidate, every sample's place, every number of `info`.
"""
