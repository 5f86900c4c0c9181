"""What of a change is LMDB's, and what the kernels'; the rest is the interpreter.

    with Parts() as parts:
        db.remove([17])
        parts.take()            {"LMDB's transaction": 0.0008, "kernels": 0.0002}

For as long as this lasts, the functions that Python calls for these are timed, with a call around each that takes a
third of a microsecond.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from dynfrsdb import view
from dynfrsdb_engine import change, chunks, commit, forest, jobs, resident
from dynfrsdb_storage.generation import Generation

PARTS = LMDB, KERNELS = "LMDB's transaction", "kernels"
_TIMED: dict[str, Sequence[tuple[Any, Sequence[str]]]] = {
    LMDB: [(Generation, ["_transact_once"])],
    KERNELS: [
        (change, ["start_items", "change"]),
        (chunks, ["pick_edits", "edit_chunks"]),
        (commit, ["measure_dirty", "seal_dirty"]),
        (forest, ["mark_clean", "scan_dirty_tags", "tag_sizes", "lay_out"]),
        (jobs, ["gather", "grow"]),
        (resident, ["install", "take_lists", "scan_below"]),
        (view, ["gather_rows"]),
    ],
}
"""Where Python finds each of them."""


class Parts:
    """Seconds by part, since they were last taken; a context manager."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(_TIMED, 0.0)
        self._kept: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Parts:
        for part, places in _TIMED.items():
            for owner, names in places:
                for name in names:
                    found = getattr(owner, name)
                    self._kept.append((owner, name, found))
                    setattr(owner, name, self._timing(part, found))
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, found in self._kept:
            setattr(owner, name, found)

    def _timing(self, part: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            started = time.perf_counter()
            try:
                return act(*arguments)
            finally:
                self._seconds[part] += time.perf_counter() - started

        return timed

    def take(self) -> dict[str, float]:
        """What was spent in each part, from the last time on."""
        found, self._seconds = self._seconds, dict.fromkeys(_TIMED, 0.0)
        return found
