"""Ctrl-C around a commit is answered truthfully."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dynfrsdb
from tests.cli.command import environment
from tests.cli.conftest import make_store

_INTERRUPTED_IN_THE_COMMIT = """
import os, signal, sys
from dynfrsdb.cli.app import run
from dynfrsdb_storage import WriteSession
commit = WriteSession.commit
def interrupted(self):
    os.kill(os.getpid(), signal.SIGINT)
    return commit(self)
WriteSession.commit = interrupted
sys.exit(run(["remove", sys.argv[1], "--id", "3"]))
"""


def test_ctrl_c_during_the_commit_says_that_it_is_committed(tmp_path: Path) -> None:
    store = make_store(tmp_path / "own.forest")

    command = [sys.executable, "-c", _INTERRUPTED_IN_THE_COMMIT, str(store)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=400)

    assert (done.returncode, '"removed": 1' in done.stdout) == (130, True)
    assert done.stderr.splitlines() == [
        "dynfrsdb: finishing the commit, one moment",
        "dynfrsdb: interrupted too late to stop it: this is committed as change 2",
    ]
    with dynfrsdb.open(store) as db:
        assert 3 not in db
