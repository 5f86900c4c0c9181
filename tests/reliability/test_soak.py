"""The soak leaves nothing out."""

from __future__ import annotations

from tests.reliability.soak import EFFORT, HERE

DRAWS = "chance" + "("
"""How a test gets its dice (see workload.py)."""


def test_every_file_that_draws_at_random_is_part_of_the_soak() -> None:
    drawing = {file.name for file in HERE.glob("test_*.py") if DRAWS in file.read_text()}

    assert set(EFFORT) == drawing
