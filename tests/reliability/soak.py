"""The random tests of this folder for as long as one likes: what `tools/soak reliability` runs.

Each round takes a new seed and runs every test that draws at random, in a process of its own. The first failure is
printed with its seed and ends the run with status 1. The last line says how much was tried.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.reliability import (
    test_backup,
    test_bad_input,
    test_bit_flips,
    test_damaged_writers,
    test_kill,
    test_linearisable,
    test_long_values,
    test_power_loss,
    test_sync,
    test_vacuum,
)

HERE = Path(__file__).parent
EFFORT = {
    "test_kill.py": (test_kill.RANDOM_KILLS, "kills"),
    "test_power_loss.py": (test_power_loss.STATES, "states after a power loss"),
    "test_bit_flips.py": (test_bit_flips.FLIPS, "flipped bits"),
    "test_long_values.py": (test_long_values.FLIPS, "flipped lengths"),
    "test_damaged_writers.py": (test_damaged_writers.WRITES, "damaged writers"),
    "test_linearisable.py": (int(test_linearisable.SECONDS), "seconds of linearisability"),
    "test_bad_input.py": (test_bad_input.ROUNDS, "transactions with bad calls"),
    "test_backup.py": (test_backup.COPIES, "backups while others write"),
    "test_two_writers.py": (1, "rounds of two writers"),
    "test_vacuum.py": (test_vacuum.RANDOM_KILLS, "kills in vacuums"),
    "test_threads.py": (1, "rounds of threads"),
    "test_sync.py": (test_sync.KILLS, "kills in syncs"),
}
"""What each file tries in a round, besides its directed tests."""


def one_round(seed: int, tried: Counter[str]) -> bool:
    """Run everything with one seed; returns whether all went well."""
    for name, (count, what) in EFFORT.items():
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-rs", "-p", "no:cacheprovider", str(HERE / name)]
        environment = {**os.environ, "DYNFRSDB_SEED": str(seed)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
            print(f"FAILED: repeat it with DYNFRSDB_SEED={seed} pytest tests/reliability/{name}", file=sys.stderr)
            return False
        tried[what] += 0 if "SKIPPED" in done.stdout else count
    return True


def summary(tried: Counter[str], rounds: int, begin: float) -> str:
    """What was tried so far."""
    figures = ", ".join(f"{count:,} {what}" for what, count in tried.items())
    return f"{rounds} rounds in {(time.monotonic() - begin) / 60:.0f} minutes: {figures}; 0 violations"


def main() -> int:
    """Parse, then run round after round."""
    parser = argparse.ArgumentParser(prog="tools/soak reliability", description="Run the random tests with new seeds.")
    parser.add_argument("--minutes", type=float, help="begin no round after this long (default: until interrupted)")
    parser.add_argument("--seed", type=int, help="one round with this seed")
    chosen = parser.parse_args()
    begin, rounds, tried = time.monotonic(), 0, Counter[str]()
    try:
        while True:
            seed = secrets.randbits(32) if chosen.seed is None else chosen.seed
            if not one_round(seed, tried):
                return 1
            rounds += 1
            print(f"seed {seed:<12} {summary(tried, rounds, begin)}", flush=True)
            over = chosen.minutes is not None and time.monotonic() > begin + 60 * chosen.minutes
            if over or chosen.seed is not None:
                return 0
    except KeyboardInterrupt:
        print(f"stopped after {summary(tried, rounds, begin)}")
        return 130


if __name__ == "__main__":
    sys.exit(main())
