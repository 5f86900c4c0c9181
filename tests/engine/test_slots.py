"""Lists are sorted, short or long, whatever is in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dynfrsdb_engine.slots import SHORT, sort
from tests.engine.doors import door

in_place = door(sort)


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize("n", [0, 1, 2, SHORT, SHORT + 1, 3000])
@pytest.mark.parametrize("most", [3, 1000, 1 << 20, None])
def test_values_are_sorted_and_those_behind_stay(n: int, most: int | None, dtype: Any) -> None:
    top = np.iinfo(dtype).max if most is None else most
    values = np.random.default_rng(n).integers(0, top, n + 3, dtype=dtype, endpoint=True)
    behind, wanted = values[n:].copy(), np.sort(values[:n])

    in_place(values, n)

    assert values[:n].tolist() == wanted.tolist()
    assert values[n:].tolist() == behind.tolist()
