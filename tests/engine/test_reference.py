"""What Python lays down at an address is what a kernel reads there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import pytest

from dynfrsdb_engine.reference import Layout

LINE = np.dtype([("id", "u8"), ("mark", "i1")], align=True)


class Inside(NamedTuple):
    """A tuple in a tuple."""

    lines: npt.NDArray[np.void]
    big: np.uint64


class Outside(NamedTuple):
    """Every kind of field there is."""

    number: int
    grid: npt.NDArray[np.float32]
    inside: Inside
    ratio: float
    last: npt.NDArray[np.int64]


def outside(rows: int) -> Outside:
    lines = np.zeros(rows, LINE)
    lines["id"], lines["mark"] = 7, -3
    grid = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
    return Outside(-5, grid, Inside(lines, np.uint64(2**64 - 9)), 0.1, np.arange(rows) + 2**40)


LAYOUT = Layout(outside(1))
outside_at = LAYOUT.reader()


@numba.njit  # type: ignore[untyped-decorator]
def read(address: Any) -> Any:
    there = outside_at(address)
    there.inside.lines[1].mark += 1
    line = there.inside.lines[1]
    return (
        there.number,
        there.grid.shape,
        there.grid[1, 2],
        line.id,
        line.mark,
        there.inside.big,
        there.ratio,
        there.last,
    )


def test_a_kernel_reads_every_field_and_writes_into_arrays() -> None:
    value = outside(4)
    held = LAYOUT.hold(value)

    *found, last = read(held.address)

    assert found == [-5, (4, 3), 5.0, 7, -2, 2**64 - 9, 0.1]
    assert value.inside.lines["mark"].tolist() == [-3, -2, -3, -3]
    assert last.tolist() == value.last.tolist()


@pytest.mark.parametrize(
    "grid", [np.zeros((2, 3)), np.zeros(3, np.float32), np.zeros((3, 2), np.float32).T], ids=["type", "shape", "order"]
)
def test_an_array_that_kernels_do_not_expect_is_refused(grid: npt.NDArray[Any]) -> None:
    with pytest.raises(TypeError, match="kernels expect float32"):
        LAYOUT.hold(outside(2)._replace(grid=grid))
