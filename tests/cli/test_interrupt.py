"""Ctrl-C around a commit is answered truthfully."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dynfrsdb
from tests.cli.command import environment
from tests.cli.conftest import make_store

COMMITTED = [
    "dynfrsdb: finishing the commit, one moment",
    "dynfrsdb: interrupted too late to stop it: this is committed as change 2",
]
_INTERRUPTED_IN_THE_COMMIT = """
import os, signal, sys
from dynfrsdb.cli.app import run
from dynfrsdb_storage import WriteSession
commit = WriteSession.commit
def interrupted(self):
    os.kill(os.getpid(), signal.SIGINT)
    return commit(self)
WriteSession.commit = interrupted
sys.exit(run(sys.argv[1:]))
"""


def test_ctrl_c_during_the_commit_says_that_it_is_committed(tmp_path: Path) -> None:
    store = make_store(tmp_path / "own.forest")

    done = _interrupted(["remove", str(store), "--id", "3"])

    assert (done.returncode, '"removed": 1' in done.stdout) == (130, True)
    assert done.stderr.splitlines() == COMMITTED
    with dynfrsdb.open(store) as db:
        assert 3 not in db


def test_ctrl_c_during_the_commit_of_a_shell_says_that_it_is_committed(tmp_path: Path) -> None:
    """And no line after it is carried out."""
    store = make_store(tmp_path / "own.forest")

    done = _interrupted(["shell", str(store)], "begin\nremove --id 3\ncommit\nremove --id 4\n")

    assert (done.returncode, done.stderr.splitlines()) == (130, COMMITTED)
    with dynfrsdb.open(store) as db:
        assert (3 in db, 4 in db) == (False, True)


def _interrupted(arguments: list[str], lines: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _INTERRUPTED_IN_THE_COMMIT, *arguments]
    return subprocess.run(command, env=environment(), input=lines, capture_output=True, text=True, timeout=400)
