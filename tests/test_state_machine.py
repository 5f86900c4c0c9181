"""The state machine of tests/state_machine.py, a fixed number of steps for each task.

The examples follow from `--machine-seed`, so a run can be repeated; `tools/soak` takes new seeds for as long as one
likes.
"""

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from dynfrsdb_storage import room
from tests.state_machine import MACHINES, ForestMachine

EXAMPLES = 60
STEPS = 30


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("machine", MACHINES)
def test_a_store_is_always_the_forest_of_its_survivors(
    machine: type[ForestMachine], part: int, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two parts for each task, so that two processes share the work; in one, every commit may make room."""
    monkeypatch.setattr(room, "PATIENCE", 1 if part else room.PATIENCE)
    effort = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    first = pytestconfig.getoption("--machine-seed")
    number = first + 2 * MACHINES.index(machine) + part  # two tests with one seed would take the same steps
    before = machine.steps

    run_state_machine_as_test(seed(number)(machine), settings=effort)

    steps = machine.steps - before
    print(f"{machine.__name__} with seed {number}: {steps} steps")
    assert steps >= 10 * EXAMPLES, "hypothesis gave up early"
