"""The engine: kernels that grow, change and query a forest held in plain arrays.

Bottom up:

    kernel      the one decorator
    hashing     everything random, as a stateless hash
    score       counts of two sides -> which split is best
    spec        the settings of F, as numbers
    rows        reading samples out of the rows file, checked
    search      the best split of a node, from its samples
    records     tree records as bytes
    grow        samples -> records of a subtree
    working     the part of a forest that is in memory
    install     records -> working set
    collect     the samples below a node, gathered; tags
    change      what adding and removing does at a node
    store       working set -> records, for a commit
    predict     rows of features -> answers, or what is missing to give one
    digest      a tree as the bytes that are hashed

The engine knows nothing of files, LMDB or transactions.
"""
