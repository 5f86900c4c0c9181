"""Doors for Python into parts of the engine that only kernels call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.kernel import kernel
from dynfrsdb_engine.records import unpack_split
from dynfrsdb_engine.reference import refer
from dynfrsdb_engine.search import Stats, make_stats
from dynfrsdb_engine.spec import Spec


def door(part: Callable[..., Any]) -> Callable[..., Any]:
    """A part of the engine that takes numbers and arrays, for Python."""

    def call(*args: Any) -> Any:
        return part(*args)

    made: Callable[..., Any] = numba.njit(call)
    return made


@kernel
def _unpack_split(spec: Spec, tree: int, path: np.uint64, data: npt.NDArray[np.uint8], stats: Stats) -> None:
    unpack_split(refer(spec), tree, path, data, 0, refer(stats), 0)


def split_stats(spec: Spec, tree: int, path: int, data: bytes) -> Stats:
    """The statistics of a split record, in line 0."""
    stats = make_stats(spec, 1)
    _unpack_split(spec, tree, np.uint64(path), np.frombuffer(bytearray(data), np.uint8), stats)
    return stats
