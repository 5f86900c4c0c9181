"""A gate: many may look at a working set at once, one may change it.

Queries that find everything in memory pass together. Whoever has to load, grow or follow a commit waits until they are
out, and goes through alone. Those who wait to change go before those who come to look, so that a busy reader cannot
starve a commit.
"""

from __future__ import annotations

import threading
from threading import get_ident
from types import TracebackType


class Gate:
    """A readers-writer lock; who holds it alone may enter again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._shared, self._lone = _Shared(self), _Lone(self)
        self._asleep = 0
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

    def alone(self) -> _Lone:
        """Change, with nobody else inside."""
        return self._lone

    def _sleep(self) -> None:
        """Wait until somebody has left; for who holds the lock."""
        self._asleep += 1
        try:
            self._condition.wait()
        finally:
            self._asleep -= 1

    def _wake(self) -> None:
        """Let all who wait look again; for who holds the lock."""
        if self._asleep:
            self._condition.notify_all()


class _Lone:
    """A block in which nobody else is inside. Every change goes through it, so it is no generator."""

    __slots__ = ("_gate",)

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        gate, mine = self._gate, get_ident()
        with gate._lock:
            if gate._alone != mine:
                gate._waiting += 1
                try:
                    while gate._alone is not None or gate._looking:
                        gate._sleep()
                finally:
                    gate._waiting -= 1
                    gate._wake()  # if we were interrupted, those who made way for us may go on
                gate._alone = mine
            gate._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gate = self._gate
        with gate._lock:
            gate._depth -= 1
            if not gate._depth:
                gate._alone = None
                gate._wake()


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
                    gate._sleep()
                gate._looking += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gate = self._gate
        if gate._alone != get_ident():
            with gate._lock:
                gate._looking -= 1
                if not gate._looking:
                    gate._wake()
