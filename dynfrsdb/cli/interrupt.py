"""Ctrl-C: the store stays whole, and the person learns what was committed.

A commit takes milliseconds and cannot be half done. What could be half known is whether it happened: a
KeyboardInterrupt raised between the commit and its receipt would leave nobody able to say. So Ctrl-C is postponed from
just before a commit until the receipt has been printed, and then answered truthfully.

    parsing, waiting for the lock, looking up      Ctrl-C: "nothing was committed"
    changing the forest, committing, printing      Ctrl-C waits; then: "... it is committed as change 7"
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

from dynfrsdb.cli import opening


class Interrupted(Exception):
    """Ctrl-C; the message says what was and what was not committed."""


class Postponed:
    """Ctrl-C, kept waiting once `begin` was called: for the rest of the command, or until `end`."""

    def __init__(self) -> None:
        self._before: Any = None
        self.came = False
        """Whether somebody pressed Ctrl-C meanwhile."""

    def begin(self) -> None:
        """From here on Ctrl-C is only noted; not in a transaction of the shell, where no verb commits but `commit`."""
        if opening.joined is None:
            self._before = signal.signal(signal.SIGINT, self._note)

    def end(self) -> None:
        """Ctrl-C is what it was before; one that came meanwhile comes now."""
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None
            if self.came:
                raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self.came:
            os.write(sys.stderr.fileno(), b"dynfrsdb: finishing the commit, one moment\n")
        self.came = True
