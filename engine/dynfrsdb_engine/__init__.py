"""The engine: kernels that grow, change and query a forest held in plain arrays.

Bottom up:

    kernel      the one decorator
    hashing     everything random, as a stateless hash
    score       counts of two sides -> which split is best
    spec        the settings of F, as numbers
    rows        reading samples out of the rows file, checked
    slots       lists of slots, copied and sorted
    unaligned   numbers at any byte of a buffer
    search      the best split of a node, from its samples
    records     tree records as bytes
    grow        samples -> records of a subtree
    working     the part of a forest that is in memory
    install     records -> working set
    collect     the samples below a node, gathered; tags
    recount     what a change does to the statistics of one split
    lists       ... and to buckets and long lists
    change      the walk that brings changes to every node they touch
    checksum    CRC-32, as zlib has it
    sealing     records -> keys and values as a store keeps them
    commit      working set -> records, for a commit
    chunks      ... and long lists that stay on disk, changed there
    keyed       the sum of a keyed hash over rows
    predict     rows of features -> answers, or what is missing to give one
    batch       ... many rows at once, if nothing is missing
    scan        find tags, and what is not in memory
    follow      move on to a newer commit; stay within a budget of memory
    digest      a tree as the bytes that are hashed
    inspect     one record at a time, for audits and people
    source      whoever keeps the records
    forest      drives all of these: the rounds between kernels and the keeper of the records

The engine knows nothing of files, LMDB or transactions.
"""
