"""Which steps there are.

To add one: raise FORMAT in storage's layout.py (and OLDEST_READ, if stores before the step cannot be read any more),
write the step in a module of its own, add it to STEPS, and make the golden stores of the new format (tools/golden.py).
"""

from __future__ import annotations

from dynfrsdb_migrations.store.step import Step
from dynfrsdb_migrations.store.to_2 import TO_2

STEPS: tuple[Step, ...] = (TO_2,)
"""All steps, in order."""


def steps_from(number: int) -> list[Step]:
    """The steps that a store of format `number` has yet to take."""
    return [step for step in STEPS if step.to > number]
