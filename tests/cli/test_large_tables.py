"""A table that would not fit into memory is read in parts.

Cells are padded with spaces to a kilobyte, so that a table of 160 MB has few rows, and gzip makes a small file of it.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dynfrsdb
from tests.cli.command import environment

ROWS, COLUMNS, PADDING = 20_000, 8, 1_000
ALLOWED = 70 << 20
"""Bytes that a command may use for the large table beyond what it needs for a small one."""


_RUN_AND_TELL = """
import sys
from dynfrsdb.cli.app import run
code = run(sys.argv[1:])
print(*(line for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.csv.gz"
    rng = np.random.default_rng(5)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(",".join([*(f"x{i}" for i in range(COLUMNS)), "y"]).encode() + b"\n")
        for _ in range(ROWS // 1000):
            cells = rng.integers(0, 100, size=(1000, COLUMNS)).tolist()
            file.write(b"".join(_line(row) for row in cells))
    return path


def _line(row: list[int]) -> bytes:
    return b",".join(f"{value}".encode().ljust(PADDING) for value in row) + f",{row[0] % 2}\n".encode()


def peak(*arguments: object) -> int:
    """The most memory that a command had in use, in bytes, as the kernel counted it."""
    command = [sys.executable, "-c", _RUN_AND_TELL, *map(str, arguments)]
    done = subprocess.run(command, env=environment(DYNFRSDB_THREADS="1"), capture_output=True, text=True, check=True)
    return int(done.stderr.split()[-2]) * 1024


def test_creating_and_predicting_use_memory_for_a_part_of_the_table(tmp_path: Path, large: Path) -> None:
    """Next to a table of 30 rows, one of 160 MB costs a few megabytes for rows and batches."""
    small = tmp_path / "small.csv"
    with gzip.open(large) as file:
        small.write_bytes(b"".join(file.readline() for _ in range(31)))
        assert file.seek(0, os.SEEK_END) > 2 * ALLOWED
    settings = ("--target", "y", "--n-estimators", 2)

    little = peak("create", tmp_path / "small.forest", small, *settings)
    much = peak("create", tmp_path / "large.forest", large, *settings)
    answering = peak("predict", tmp_path / "large.forest", large)

    assert much - little < ALLOWED
    assert answering - little < ALLOWED
    with dynfrsdb.open(tmp_path / "large.forest") as db:
        assert len(db) == ROWS
