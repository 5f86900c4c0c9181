"""Format 2: a store says which version of dynfrsdb it needs, and means all that it holds.

Format 1 grew while it was being made: holds, waiting requests, the suppression list, the mark of a backup that is being
restored, the encoding of tables. A version from before one of these reads and writes such a store all the same, and
ignores a hold. No record changes; the number does, and with it everything that format 1 came to hold is part of the
treaty, and a version that knows less refuses the store.
"""

from dynfrsdb_migrations.store.step import InPlace

TO_2 = InPlace(to=2, needs="0.1.0", about="the store says which version of dynfrsdb it needs", is_read=True)
