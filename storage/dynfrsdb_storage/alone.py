"""Being alone with a generation: nobody else has it open, in this process or in another.

Readers never wait and are never waited for, with one exception. A step to another format that changes records where
they are would do so under the eyes of processes that know only the old format, and that look at CURRENT and not at the
format before each call. So it holds the lease exclusively: whoever has the generation open must leave first, and
whoever opens it waits a moment.

A step into a new generation needs none of this: everybody moves when CURRENT changes, and looks at the format then.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from dynfrsdb_storage.errors import Locked
from dynfrsdb_storage.generation import Generation
from dynfrsdb_storage.retire import holders
from dynfrsdb_storage.write import WriteSession

_PAUSE = 0.02
_OURS = 2
"""Users of a generation in this process while one session is all there is: its store, and its snapshot."""


@contextmanager
def alone(session: WriteSession, deadline: float) -> Iterator[None]:
    """Keep everybody but this session out of its generation; waits for others to leave until `deadline`."""
    generation = session.snapshot.generation
    while generation.users > _OURS or not generation.lease.make_exclusive():
        if time.monotonic() >= deadline:
            raise _refusal(generation)
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        generation.lease.make_shared()


def _refusal(generation: Generation) -> Locked:
    others = [pid for pid in holders(generation.directory) if pid != generation.pid]
    who = f"process {', '.join(map(str, others))}" if others else "another handle of this process"
    return Locked(
        f"'{generation.store}' is open in {who}, and its format can be changed only while nobody else has it open; "
        "nothing was changed. Close it and try again, or pass timeout="
    )
