"""The state machine for as long as one likes: what `tools/soak` runs.

Each round takes one task and one seed. A failure is shrunk, printed with its seed, and ends the run with status 1.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from itertools import count

from hypothesis import HealthCheck, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.state_machine import MACHINES, ForestMachine

EXAMPLES, STEPS = 50, 40
EFFORT = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    verbosity=Verbosity.normal,
)


def one_round(machine: type[ForestMachine], number: int) -> bool:
    """Run the examples of one seed; returns whether all went well."""
    before, begin = machine.steps, time.monotonic()
    try:
        run_state_machine_as_test(seed(number)(machine), settings=EFFORT)
    except BaseException as failure:
        if not isinstance(failure, KeyboardInterrupt):
            print(
                f"FAILED: repeat it with tools/soak --task {machine.__name__} --seed {number}",
                file=sys.stderr,
                flush=True,
            )
        raise
    print(
        f"{machine.__name__:<12} seed {number:<12} {machine.steps - before} steps in {time.monotonic() - begin:.0f} s",
        flush=True,
    )
    return True


def main() -> None:
    """Parse, then run round after round."""
    parser = argparse.ArgumentParser(prog="tools/soak", description="Run the state machine with new seeds.")
    parser.add_argument("--minutes", type=float, help="stop after this long (default: go on until interrupted)")
    parser.add_argument("--seed", type=int, help="one round with this seed")
    parser.add_argument("--task", choices=[machine.__name__ for machine in MACHINES], help="this task only")
    chosen = parser.parse_args()
    machines = [machine for machine in MACHINES if chosen.task in (None, machine.__name__)]
    end = None if chosen.minutes is None else time.monotonic() + 60 * chosen.minutes
    for turn in count():
        one_round(machines[turn % len(machines)], secrets.randbits(32) if chosen.seed is None else chosen.seed)
        finished = turn + 1 >= len(machines) if chosen.seed is not None else end is not None and time.monotonic() > end
        if finished:
            break
    print(f"{sum(machine.steps for machine in machines)} steps, nothing wrong")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print(f"stopped after {sum(machine.steps for machine in MACHINES)} steps, nothing wrong")
