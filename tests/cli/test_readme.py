"""The README does what it says."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from tests.cli.command import COMMAND, PATIENCE, ROOT, environment


def test_the_example_runs_as_it_is_printed(tmp_path: Path) -> None:
    """First the Python, then the commands, in one directory."""
    python, commands = _blocks()
    lines = [shlex.split(line) for line in commands.splitlines()]

    done = _run([sys.executable, "-c", python], tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert "Receipt(sequence=2" in done.stdout
    assert "differing=()" in done.stdout
    assert len(lines) == 4
    for name, *arguments in lines:
        assert name == "dynfrsdb"
        assert _run([*COMMAND, *arguments], tmp_path).returncode == 0


def test_every_link_into_the_project_leads_somewhere() -> None:
    text = (ROOT / "README.md").read_text()
    links = {part.partition(")")[0] for part in text.split("](")[1:]}

    missing = [link for link in links if not link.startswith("http") and not (ROOT / link).exists()]

    assert missing == []


def _blocks() -> tuple[str, str]:
    """The Python example and the commands below it."""
    parts = (ROOT / "README.md").read_text().split("```")
    return parts[1].removeprefix("python\n"), parts[3].removeprefix("\n")


def _run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=directory, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
