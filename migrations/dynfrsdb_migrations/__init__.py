"""Migrations: how what an older dynfrsdb wrote becomes what this version reads.

    store      steps from each format of a store to the next: 'dynfrsdb migrate STORE'
    catalog    Alembic revisions of the catalog that knows about several stores: 'dynfrsdb migrate --catalog'

Both are shipped in the wheel, so that they need nothing else.

Not done here: nothing is grown. A step moves records; it may import dynfrsdb_storage, never the engine, because a
forest is a function of its samples and can always be grown again afterwards.
"""
