"""Migrations: how a store written by an older dynfrsdb becomes one this version reads.

A store says in its `meta` record which format it is written in. When the bytes on disk change, the format number goes
up by one, and a step from the old number to the new one is added here:

    format 1  --step_1_to_2-->  format 2  --step_2_to_3-->  format 3

Two kinds of steps will live here, both shipped in the wheel, so that `dynfrsdb migrate STORE` needs nothing else:

    store format steps   rewrite a store into a new generation, under the writer lock; the old one stays until the new
                         one is in place
    catalog revisions    Alembic revisions of the catalog that knows about several stores

Format 1 is the first and only format so far, so there is no step yet.

Not done here: nothing is grown. A step moves records; it may import dynfrsdb_storage, never the engine, because a
forest is a function of its samples and can always be grown again afterwards.
"""
