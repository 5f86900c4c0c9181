"""Doors for Python into parts of the engine that only kernels call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.intervals import tally
from dynfrsdb_engine.kernel import kernel
from dynfrsdb_engine.records import unpack_split
from dynfrsdb_engine.reference import refer
from dynfrsdb_engine.search import Stats, count_candidate, make_stats
from dynfrsdb_engine.spec import Spec


def door(part: Callable[..., Any]) -> Callable[..., Any]:
    """A part of the engine that takes numbers and arrays, for Python."""

    def call(*args: Any) -> Any:
        return part(*args)

    made: Callable[..., Any] = numba.njit(call)
    return made


@kernel
def weigh_up(
    cuts: npt.NDArray[np.float32],
    size: int,
    values: npt.NDArray[np.float32],
    weights: npt.NDArray[np.int32],
    sums: npt.NDArray[np.int32],
) -> None:
    """`tally`, which is compiled only as part of a kernel that names what it hands over."""
    tally(cuts, size, values, weights, sums)


@kernel
def _unpack_split(spec: Spec, tree: int, path: np.uint64, data: npt.NDArray[np.uint8], stats: Stats) -> None:
    unpack_split(refer(spec), tree, path, data, 0, refer(stats), 0)


def split_stats(spec: Spec, tree: int, path: int, data: bytes) -> Stats:
    """The statistics of a split record, in line 0."""
    stats = make_stats(spec, 1)
    _unpack_split(spec, tree, np.uint64(path), np.frombuffer(bytearray(data), np.uint8), stats)
    return stats


@kernel
def _count_candidate(
    columns: int,
    values: npt.NDArray[np.float32],
    targets: npt.NDArray[np.int64],
    places: npt.NDArray[np.int32],
    stats: Stats,
) -> None:
    count_candidate(columns, np.uint64(1), values, targets, places, refer(stats), 0, 0)


def candidate_stats(spec: Spec, values: npt.NDArray[np.float32], targets: npt.NDArray[np.int64]) -> Stats:
    """The statistics of one candidate with these values, in line 0."""
    stats = make_stats(spec, 1)
    stats.cand[0, 0] = (3, values.min(), values.max(), -1, -1)
    stats.counts[:] = 77
    _count_candidate(spec.columns, values, targets, np.zeros(values.size, np.int32), stats)
    return stats
