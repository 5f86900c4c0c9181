"""Erased rows on their way to the disk.

A removed row is overwritten right after the commit that removed it. That the disk has it is waited for by nobody but
who wants to say so: the sync runs in a thread, while the writer goes on, and the next commit, which may note that the
rows are erased, asks for the outcome first. A process that dies in between has said nothing, and the next one
overwrites the rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


class Erasing:
    """What one process has overwritten in one generation, by the keys of `pending`. For who holds the writer lock."""

    def __init__(self) -> None:
        self._synced: set[bytes] = set()
        self._on_the_way: set[bytes] = set()
        self._thread: ThreadPoolExecutor | None = None
        """One that stays: starting a thread takes longer than waking it."""
        self._syncing: Future[None] | None = None
        self._sync: Callable[[], None] = lambda: None

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
        if self._thread is None:
            from concurrent.futures import ThreadPoolExecutor  # not needed by who only looks, and slow to import

            self._thread = ThreadPoolExecutor(1, "dynfrsdb-erase")
        self._on_the_way.update(keys)
        self._sync = sync
        try:
            self._syncing = self._thread.submit(sync)
        except RuntimeError:  # there are too many threads, or the interpreter is about to end
            self._note(_error_of(sync))

    def wait(self) -> None:
        """Wait for the disk; what the thread has not come to is done here."""
        if self._syncing is not None:
            error = _error_of(self._sync) if self._syncing.cancel() else self._syncing.exception()
            self._syncing = None
            self._note(error)

    def close(self) -> None:
        """Wait for the disk, and end the thread."""
        self.wait()
        if self._thread is not None:
            self._thread.shutdown()

    def forget(self, keys: Iterable[bytes]) -> None:
        """These are no longer on `pending`."""
        self._synced.difference_update(keys)

    def _note(self, error: BaseException | None) -> None:
        if error is None:
            self._synced |= self._on_the_way
        self._on_the_way.clear()
        if error is not None and not isinstance(error, OSError):
            raise error


def _error_of(sync: Callable[[], None]) -> OSError | None:
    try:
        sync()
    except OSError as error:
        return error
    return None
