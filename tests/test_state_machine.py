"""The state machine of tests/state_machine.py, a fixed number of steps for each task.

The examples follow from `--machine-seed`, so a run can be repeated; `tools/soak` takes new seeds for as long as one
likes.
"""

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.state_machine import MACHINES, ForestMachine

EXAMPLES = 60
STEPS = 30


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("machine", MACHINES)
def test_a_store_is_always_the_forest_of_its_survivors(
    machine: type[ForestMachine], part: int, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two parts for each task, so that two processes share the work."""
    effort = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    number = pytestconfig.getoption("--machine-seed") + part

    run_state_machine_as_test(seed(number)(machine), settings=effort)

    print(f"{machine.__name__}: {machine.steps} steps")
    assert machine.steps >= EXAMPLES, "hypothesis gave up early"
