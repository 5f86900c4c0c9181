"""The demo holds what it claims, and would notice if it did not."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from dynfrsdb.demo import Look, wrong_looks
from tests.cli.command import PATIENCE, environment, start
from tests.cli.command import dynfrsdb as command

FINE = [Look(1, "old", 5), Look(2, "new", 5)]


def test_the_demo_holds_every_claim_and_cleans_up(tmp_path: Path) -> None:
    store = tmp_path / "patients.forest"

    ran = command("demo", "--path", store, TMPDIR=str(tmp_path))

    assert (ran.code, ran.err) == (0, "")
    assert "every claim held" in ran.out
    assert "NO" not in ran.out
    assert list(tmp_path.iterdir()) == []


def test_the_demo_does_not_touch_what_is_already_there(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")

    ran = command("demo", "--path", tmp_path)

    assert ran.code == 3
    assert str(tmp_path) in ran.error
    assert (tmp_path / "diary.txt").read_text() == "dear diary"


def test_ctrl_c_in_the_demo_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    """The signal goes to the whole process group, as from a terminal."""
    process = start("demo", env=environment(TMPDIR=str(tmp_path)), start_new_session=True)
    children = _wait_for_readers(process.pid)

    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (
        130,
        "dynfrsdb: interrupted; the readers were stopped and the demo's store was removed\n",
    )
    assert list(tmp_path.iterdir()) == []
    assert _outlived(children) == []


def _outlived(children: list[str]) -> list[str]:
    """Those that still run, after a moment for the one that tracks semaphores; a zombie has ended."""
    deadline = time.monotonic() + 10
    while (left := [pid for pid in children if _runs(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait_for_readers(pid: int) -> list[str]:
    """Wait until the demo has started its readers; multiprocessing has one more child, which tracks semaphores."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if len(children) >= 3:
            return children
        time.sleep(0.05)
    raise AssertionError("the demo started no readers")


@pytest.mark.parametrize(
    ("looks", "problem"),
    [
        ([Look(1, "old", 5), Look(2, "mixed", 1), Look(2, "new", 5)], "saw a state that never was"),
        ([Look(1, "old", 1), Look(2, "new", 1), Look(2, "old", 1), Look(2, "new", 1)], "went back to the old state"),
        ([Look(1, "old", 1), Look(1, "new", 1)], "gave an answer that is not its commit's"),
        ([Look(1, "old", 9)], "did not see both states"),
    ],
)
def test_a_reader_that_sees_anything_else_is_noticed(looks: list[Look], problem: str) -> None:
    assert wrong_looks([FINE, FINE], 1, "old", 2, "new") == []

    problems = wrong_looks([FINE, looks], 1, "old", 2, "new")

    assert f"reader 2 {problem}" in problems
