"""Erased rows on their way to the disk.

A removed row is overwritten right after the commit that removed it. That the disk has it is waited for by nobody but
who wants to say so: the sync runs in a thread, while the writer goes on, and the next commit, which may note that the
rows are erased, asks for the outcome first. A process that dies in between has said nothing, and the next one
overwrites the rows again.

The thread shares the interpreter with the writer, who waits whenever the thread runs Python. So it runs hardly any: two
queues, and between them one call. (With an executor and its futures a removal took a tenth of a millisecond longer.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue

Sync = Callable[[], None]


class Erasing:
    """What one process has overwritten in one generation, by the keys of `pending`. For who holds the writer lock."""

    def __init__(self) -> None:
        self._synced: set[bytes] = set()
        self._on_the_way: set[bytes] = set()
        self._thread: threading.Thread | None = None
        """One that stays: starting a thread takes longer than waking it."""
        self._asked: SimpleQueue[Sync | None] = SimpleQueue()
        self._outcomes: SimpleQueue[BaseException | None] = SimpleQueue()

    def begun(self, key: bytes) -> bool:
        """Whether the rows of a key are overwritten, whether or not the disk has it."""
        return key in self._synced or key in self._on_the_way

    def done(self, key: bytes) -> bool:
        """Whether the rows of a key are overwritten, on the disk; waits for those that are on the way."""
        self.wait()
        return key in self._synced

    def sync(self, keys: Iterable[bytes], sync: Sync) -> None:
        """Have the disk take what was overwritten; a disk error leaves it for later."""
        self.wait()
        self._on_the_way.update(keys)
        self._asked.put(sync)
        if self._thread is None:
            thread = threading.Thread(
                target=_serve, args=(self._asked, self._outcomes), name="dynfrsdb-erase", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # there are too many threads, or the interpreter is about to end
                self.wait()
            else:
                self._thread = thread

    def wait(self) -> None:
        """Wait for the disk; what the thread has not come to is done here."""
        if not self._on_the_way:
            return
        try:
            sync = self._asked.get_nowait()
        except Empty:
            error = self._outcomes.get()
        else:
            error = _error_of(sync)
        if error is None:
            self._synced |= self._on_the_way
        self._on_the_way.clear()
        if error is not None and not isinstance(error, OSError):
            raise error

    def close(self) -> None:
        """Wait for the disk, and end the thread."""
        self.wait()
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join()
            self._thread = None

    def forget(self, keys: Iterable[bytes]) -> None:
        """These are no longer on `pending`."""
        self._synced.difference_update(keys)


def _serve(asked: SimpleQueue[Sync | None], outcomes: SimpleQueue[BaseException | None]) -> None:
    """The thread: does what is asked for, one after the other, until it is told to end."""
    while (sync := asked.get()) is not None:
        outcomes.put(_error_of(sync))


def _error_of(sync: Sync | None) -> BaseException | None:
    if sync is not None:
        try:
            sync()
        except BaseException as error:
            return error
    return None
