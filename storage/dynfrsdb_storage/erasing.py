"""Erased rows on their way to the disk.

A removed row is overwritten right after the commit that removed it. That the disk has it is waited for by nobody but
who wants to say so: the sync runs in a thread, while the writer goes on, and the next commit, which may note that the
rows are erased, asks for the outcome first. A process that dies in between has said nothing, and the next one
overwrites the rows again.
"""

import threading
from collections.abc import Callable, Iterable


class Erasing:
    """What one process has overwritten in one generation, by the keys of `pending`. For who holds the writer lock."""

    def __init__(self) -> None:
        self._synced: set[bytes] = set()
        self._on_the_way: set[bytes] = set()
        self._thread: threading.Thread | None = None
        self._failed = False

    def begun(self, key: bytes) -> bool:
        """Whether the rows of a key are overwritten, whether or not the disk has it."""
        return key in self._synced or key in self._on_the_way

    def done(self, key: bytes) -> bool:
        """Whether the rows of a key are overwritten, on the disk; waits for those that are on the way."""
        self.wait()
        return key in self._synced

    def sync(self, keys: Iterable[bytes], sync: Callable[[], None]) -> None:
        """Have the disk take what was overwritten; a disk error leaves it for later."""
        self.wait()
        self._on_the_way.update(keys)
        thread = threading.Thread(target=self._run, args=(sync,), name="dynfrsdb-erase", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # there are too many threads, or the interpreter is about to end
            self._run(sync)
        self._thread = thread

    def wait(self) -> None:
        """Wait for the disk."""
        if self._thread is None:
            return
        if self._thread.ident is not None:
            self._thread.join()
        if not self._failed:
            self._synced |= self._on_the_way
        self._on_the_way.clear()
        self._thread, self._failed = None, False

    def forget(self, keys: Iterable[bytes]) -> None:
        """These are no longer on `pending`."""
        self._synced.difference_update(keys)

    def _run(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except OSError:
            self._failed = True
