"""A gate: many may look at a working set at once, one may change it.

Queries that find everything in memory pass together. Whoever has to load, grow or follow a commit waits until they are
out, and goes through alone. Those who wait to change go before those who come to look, so that a busy reader cannot
starve a commit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from types import TracebackType


class Gate:
    """A readers-writer lock; who holds it alone may enter again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._shared = _Shared(self)
        self._looking = 0
        self._waiting = 0
        self._alone: int | None = None
        self._depth = 0

    @property
    def occupied(self) -> bool:
        """Whether somebody is changing the working set now."""
        return self._alone is not None

    def shared(self) -> _Shared:
        """Look, together with others."""
        return self._shared

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Change, with nobody else inside."""
        mine = get_ident()
        with self._condition:
            if self._alone != mine:
                self._waiting += 1
                try:
                    while self._alone is not None or self._looking:
                        self._condition.wait()
                finally:
                    self._waiting -= 1
                    self._condition.notify_all()  # if we were interrupted, those who made way for us may go on
                self._alone = mine
            self._depth += 1
        try:
            yield
        finally:
            with self._condition:
                self._depth -= 1
                if not self._depth:
                    self._alone = None
                    self._condition.notify_all()


class _Shared:
    """A block in which a gate's working set does not change. Every query begins here, so it is no generator."""

    __slots__ = ("_gate",)

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        gate = self._gate
        if gate._alone != get_ident():
            with gate._lock:
                while gate._alone is not None or gate._waiting:
                    gate._condition.wait()
                gate._looking += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gate = self._gate
        if gate._alone != get_ident():
            with gate._lock:
                gate._looking -= 1
                if gate._waiting and not gate._looking:
                    gate._condition.notify_all()
