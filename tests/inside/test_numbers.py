"""Numbers that `dynfrsdb.inside` computes in Python are those of numpy and of the definition."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynfrsdb.inside import scores
from dynfrsdb.inside.floats import below, rounded, shortest
from dynfrsdb.inside.nodes import parse_path, path_text
from dynfrsdb.settings import Settings

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
GINI = Settings.make(n_features=1, classes=["a", "b", "c"], seed=1)


@given(st.floats(-1e38, 1e38))
def test_rounding_is_that_of_float32(value: float) -> None:
    assert rounded(value) == float(np.float32(value))


@given(FLOATS.filter(lambda value: value > -3.4e38))
def test_the_next_float_below_is_that_of_float32(value: float) -> None:
    assert below(value) == float(np.nextafter(np.float32(value), np.float32(-np.inf)))


@given(FLOATS)
def test_a_short_number_reads_back_as_the_same_float32(value: float) -> None:
    short = shortest(value)

    assert np.float32(short) == np.float32(value)
    assert len(repr(short)) <= max(len(repr(value)), len("-1.23456789e-38"))


@pytest.mark.parametrize(("path", "text"), [(1, "."), (2, "L"), (3, "R"), (0b1001, "LLR")])
def test_a_path_is_written_in_letters(path: int, text: str) -> None:
    assert (path_text(path), parse_path(text), parse_path(text.lower()), parse_path(f"{path:#b}")) == (
        text,
        *[path] * 3,
    )


@pytest.mark.parametrize("text", ["", "LX", "0", "10", "0b", "0b0", "0b12", "..", "L.", "LLR ", "0x3", "1"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no path"):
        parse_path(text)


def test_one_removal_moves_a_gini_score_by_less_than_is_claimed() -> None:
    """The difference of any two cuts moves by less than 2, so a margin m lasts for at least m / 2 removals."""
    sides = [side for side in product(range(7), repeat=3) if sum(side) > 1]

    moves = [
        scores.impurity(GINI, sum(side), side) - scores.impurity(GINI, sum(less), less)
        for side in sides
        for i in range(3)
        if side[i] and sum(less := tuple(count - (j == i) for j, count in enumerate(side)))
    ]

    assert min(moves) >= -1e-9
    assert max(moves) < scores.GINI_PER_REMOVAL
