"""Erased rows on their way to the disk.

A removed row is overwritten right after the commit that removed it. That the disk has it is waited for by nobody but
who wants to say so: the sync runs in a thread, while the writer goes on, and a commit after that notes that the rows
are erased. A process that dies in between has said nothing, and the next one overwrites the rows again.

    commit 7     commit 8     commit 9        ...        commit 31
    row a over-  row b        row c                      notes that the rows up to 30 are erased
    written      |            |
    `------------`------------`--> one sync, DELAY after the first of them

A sync takes the disk's time, and the thread the interpreter's. So rows that are removed one soon after the other share
one. Whoever has to know at once (close, vacuum, `erasure_status`) has it begin at once and waits.

Ctrl-C may end the writer's part anywhere: then rows count as not overwritten, and are overwritten again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue

Sync = Callable[[], None]
DELAY = 0.05
"""Seconds for which a sync waits for more rows."""


class _Order:
    """One sync, for the rows of some keys, and what came of it."""

    def __init__(self, keys: Iterable[bytes], sync: Sync) -> None:
        self.keys = set(keys)
        self._sync = sync
        self._joining = threading.Lock()
        self._begun = False
        self.hurry, self.over = threading.Event(), threading.Event()
        self.error: BaseException | None = None

    def join(self, keys: Iterable[bytes]) -> bool:
        """Take more keys along, if it is not too late: their rows are overwritten."""
        with self._joining:
            if not self._begun:
                self.keys.update(keys)
            return not self._begun

    def carry_out(self) -> None:
        try:
            with self._joining:
                self._begun = True
            self._sync()
        except BaseException as error:
            self.error = error
        self.over.set()


class Erasing:
    """What one process has overwritten in one generation, by the keys of `pending`. For who holds the writer lock."""

    def __init__(self) -> None:
        self._synced: set[bytes] = set()
        self._on_the_way: deque[_Order] = deque()
        self._thread: threading.Thread | None = None
        """One that stays: starting a thread takes longer than waking it."""
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()

    def begun(self) -> set[bytes]:
        """The keys whose rows are overwritten, whether or not the disk has it."""
        return self.done().union(*(order.keys for order in self._on_the_way))

    def done(self) -> set[bytes]:
        """The keys whose rows are overwritten, on the disk, as far as is known; not to be changed."""
        self._collect()
        return self._synced

    def sync(self, keys: Iterable[bytes], sync: Sync) -> None:
        """Have the disk take what was overwritten, soon; a disk error leaves it for later."""
        keys = list(keys)
        if self._on_the_way and self._on_the_way[-1].join(keys):
            return
        order = _Order(keys, sync)
        if self._has_thread():
            self._orders.put(order)
        else:
            order.carry_out()
        self._on_the_way.append(order)  # last: nobody may wait for an order that was not given

    def wait(self) -> None:
        """Wait for the disk."""
        for order in tuple(self._on_the_way):
            order.hurry.set()
            order.over.wait()
        self._collect()

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

    def _collect(self) -> None:
        """See what has come of orders that are over."""
        while self._on_the_way and self._on_the_way[0].over.is_set():
            order = self._on_the_way[0]
            if order.error is None:
                self._synced |= order.keys
            self._on_the_way.popleft()
            if order.error is not None and not isinstance(order.error, OSError):
                raise order.error

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
    """The thread: carries out one order after the other, each a while after it came, until it is told to end."""
    while (order := orders.get()) is not None:
        order.hurry.wait(DELAY)
        order.carry_out()
