"""A gate: many may look at a working set at once, one may change it.

Queries that find everything in memory pass together. Whoever has to load, grow or follow a commit waits until they are
out, and goes through alone. Those who wait to change go before those who come to look, so that a busy reader cannot
starve a commit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """A readers-writer lock; who holds it alone may enter again."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._looking = 0
        self._waiting = 0
        self._alone: int | None = None
        self._depth = 0

    @property
    def occupied(self) -> bool:
        """Whether somebody is changing the working set now."""
        return self._alone is not None

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Look, together with others."""
        if self._alone == threading.get_ident():
            yield
            return
        with self._condition:
            while self._alone is not None or self._waiting:
                self._condition.wait()
            self._looking += 1
        try:
            yield
        finally:
            with self._condition:
                self._looking -= 1
                if not self._looking:
                    self._condition.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Change, with nobody else inside."""
        mine = threading.get_ident()
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
