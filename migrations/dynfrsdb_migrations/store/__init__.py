"""Store formats: numbered steps from each format to the next, and who carries them out.

    format 1  --to_2-->  format 2  --to_3-->  format 3

There are two kinds of steps.

    in place    one LMDB transaction that changes records and the number of the format. Takes milliseconds and no
                room, but nobody else may have the store open: a process of an older version would not notice.
    rewrite     every record and row is copied into a new generation, changed on the way, by a process of its own; it
                is looked at, and then CURRENT is replaced. Takes time and room for a second copy; readers go on, and
                move at their next call.

Either way the moment of truth is one: a transaction, or a rename. Whoever dies before it leaves a store of the old
format, after it one of the new, and what is lying about is removed by whoever comes next. Every step of several is a
migration of its own.

Invariants
    The forest, the ledger, the uuid and the numbers of commits are the same before and after, and so is every answer.
    Nothing is written in an older format: not by a step, not by who opens the store for one.

step.py says what a step is, steps.py which there are; run.py carries them out.
"""
