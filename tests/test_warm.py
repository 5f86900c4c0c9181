"""Compiling ahead of time reaches every kernel that Python calls, so that nobody waits for one later."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.storage.people import python_path

PROGRAM = """
import pkgutil
from importlib import import_module

import dynfrsdb_engine
from dynfrsdb.warm import warm

warm()
for module in pkgutil.iter_modules(dynfrsdb_engine.__path__):
    for name, value in vars(import_module(f"dynfrsdb_engine.{module.name}")).items():
        options = getattr(value, "targetoptions", {})
        if options and "inline" not in options and "no_cpython_wrapper" not in options and not value.signatures:
            print(name)
"""


def test_warming_calls_every_kernel_that_python_calls() -> None:
    assert run(PROGRAM) == ""


def run(program: str, **environment: str) -> str:
    """What a program prints, in an interpreter of its own; it must say nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**python_path(), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


DROPS_ITS_RIGHTS = """
import os
import numpy as np
from dynfrsdb_engine.hashing import spread
from dynfrsdb_engine.score import entropy_table

entropy_table()  # loads all of the compiler, which another user may not find
os.setgid(54321)
os.setuid(54321)
starts, members = np.empty(4, np.int64), np.empty(4, np.int32)
spread(np.uint64(1), np.arange(2, dtype=np.uint64), 2, starts, members)
print(starts.tolist())
"""


MULTIPLIES = """
import sys
import numba
import numpy as np
from dynfrsdb_engine.score import entropy_table

entropy_table()
print("scipy.linalg" in sys.modules)
print(numba.njit(lambda a: np.dot(a, a))(np.ones(2)), "scipy.linalg" in sys.modules)
"""


def test_scipy_is_loaded_for_code_that_multiplies_matrices_and_not_for_ours() -> None:
    pytest.importorskip("scipy")
    assert run(MULTIPLIES) == "False\n2.0 True\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_process_that_gave_up_its_rights_compiles_in_memory(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert run(DROPS_ITS_RIGHTS, DYNFRSDB_KERNEL_CACHE=str(tmp_path)) == "[0, 1, 3, 4]\n"
