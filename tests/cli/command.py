"""The real command, run in a process of its own."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
SOURCES = [str(ROOT), *(str(ROOT / each) for each in ("storage", "engine", "migrations"))]
COMMAND = [sys.executable, "-m", "dynfrsdb.cli"]
PATIENCE = 400
"""Seconds: generous, because a test may be the first to compile kernels on a slow machine."""


class Ran(NamedTuple):
    """What came of a command."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line on stderr."""
        (line,) = self.err.splitlines()
        return line


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(SOURCES), "COLUMNS": "100", "DYNFRSDB_CATALOG": "", **more}


def start(*arguments: object, **more: Any) -> subprocess.Popen[str]:
    command = [*COMMAND, *map(str, arguments)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment(), **more}
    return subprocess.Popen(command, text=True, **options)


def dynfrsdb(*arguments: object, **more: str) -> Ran:
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, env=environment(**more), timeout=PATIENCE
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def on_a_terminal(*arguments: object, stream: str = "stdout", **more: str) -> str:
    """What a command that succeeds shows on a terminal."""
    ours, theirs = pty.openpty()
    command = [*COMMAND, *map(str, arguments)]
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": None, stream: theirs}
    with subprocess.Popen(command, **streams, env=environment(TERM="xterm", **more)) as process:
        os.close(theirs)
        shown = b""
        while chunk := read_terminal(ours):
            shown += chunk
    os.close(ours)
    assert process.returncode == 0
    return shown.decode()


def read_terminal(terminal: int) -> bytes:
    """What has come; empty at the end."""
    try:
        return os.read(terminal, 4096)
    except OSError:  # how Linux says that the other side has closed
        return b""
