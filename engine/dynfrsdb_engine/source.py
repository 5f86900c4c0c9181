"""Whoever keeps the records of a forest, as the engine sees it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt


class Source(Protocol):
    """Whoever keeps the records of a forest."""

    def records(self, places: Sequence[tuple[int, int, bool]]) -> Sequence[bytes]:
        """The payloads at (tree, path, whether it is a bucket)."""

    def below(self, tree: int, path: int) -> Iterable[tuple[int, bool, bytes]]:
        """All records at and below a node as (path, whether it is a bucket, payload), parents before children."""

    def long_lists(self, places: Sequence[tuple[int, int]]) -> Sequence[npt.NDArray[np.uint32]]:
        """The slots of the long lists at (tree, path), ascending."""


class Damaged(Exception):
    """A record is not what the rest of the forest says it is."""

    def __init__(self, tree: int, path: int, what: str) -> None:
        super().__init__(f"tree {tree}, node {path:#b}: {what}")
        self.tree, self.path, self.what = tree, path, what
