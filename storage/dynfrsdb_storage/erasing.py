"""Erased rows on their way to the disk.

A removed row is overwritten right after the commit that removed it. That the disk has it is waited for by nobody but
who wants to say so: the sync runs in a thread, while the writer goes on, and the next commit, which may note that the
rows are erased, asks for the outcome first. A process that dies in between has said nothing, and the next one
overwrites the rows again.

The thread shares the interpreter with the writer, who waits whenever the thread runs Python. So it runs hardly any: a
queue, one call, an event. Ctrl-C may end the writer's part anywhere: then rows count as not overwritten, and are
overwritten again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue

Sync = Callable[[], None]


class _Order:
    """One sync, and what came of it."""

    def __init__(self, sync: Sync) -> None:
        self._sync = sync
        self.over = threading.Event()
        self.error: BaseException | None = None

    def carry_out(self) -> None:
        try:
            self._sync()
        except BaseException as error:
            self.error = error
        self.over.set()


class Erasing:
    """What one process has overwritten in one generation, by the keys of `pending`. For who holds the writer lock."""

    def __init__(self) -> None:
        self._synced: set[bytes] = set()
        self._on_the_way: set[bytes] = set()
        self._thread: threading.Thread | None = None
        """One that stays: starting a thread takes longer than waking it."""
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()
        self._last: _Order | None = None

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
        order = _Order(sync)
        if self._has_thread():
            self._orders.put(order)
        else:
            order.carry_out()
        self._last = order
        self._on_the_way.update(keys)

    def wait(self) -> None:
        """Wait for the disk."""
        order = self._last
        if order is None:
            return
        order.over.wait()
        if order.error is None:
            self._synced |= self._on_the_way
        self._on_the_way.clear()
        self._last = None
        if order.error is not None and not isinstance(order.error, OSError):
            raise order.error

    def close(self) -> None:
        """Wait for the disk, and end the thread."""
        self.wait()
        if self._thread is not None:
            self._orders.put(None)
            self._thread.join()
            self._thread = None

    def forget(self, keys: Iterable[bytes]) -> None:
        """These are no longer on `pending`."""
        self._synced.difference_update(keys)

    def _has_thread(self) -> bool:
        """Whether there is a thread to give orders to; starts it if it can be."""
        if self._thread is None:
            thread = threading.Thread(target=_serve, args=(self._orders,), name="dynfrsdb-erase", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # there are too many threads, or the interpreter is about to end
                return False
            self._thread = thread
        return True


def _serve(orders: SimpleQueue[_Order | None]) -> None:
    """The thread: carries out one order after the other, until it is told to end."""
    while (order := orders.get()) is not None:
        order.carry_out()
