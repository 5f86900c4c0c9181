"""Whoever keeps the records of a forest, as the engine sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt


class Records(NamedTuple):
    """Records with their places: one line for each, with the tree, the path and whether it is a bucket."""

    trees: npt.ArrayLike
    paths: npt.ArrayLike
    buckets: npt.ArrayLike
    payloads: Sequence[bytes]


class Source(Protocol):
    """Whoever keeps the records of a forest."""

    def records(self, places: Sequence[tuple[int, int, bool]]) -> Sequence[bytes]:
        """The payloads at (tree, path, whether it is a bucket)."""

    def below(self, tops: Sequence[tuple[int, int]]) -> Records:
        """All records at and below nodes (tree, path), parents before children."""

    def long_lists(self, places: Sequence[tuple[int, int]]) -> Sequence[npt.NDArray[np.uint32]]:
        """The slots of the long lists at (tree, path), ascending."""


class Damaged(Exception):
    """A record is not what the rest of the forest says it is."""

    def __init__(self, tree: int, path: int, what: str) -> None:
        super().__init__(f"tree {tree}, node {path:#b}: {what}")
        self.tree, self.path, self.what = tree, path, what
